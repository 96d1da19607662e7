"""What tools/structure.py counts, each measure on a package made up for it."""

from __future__ import annotations

import ast
import runpy
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).resolve().parents[1] / "tools" / "structure.py"
STRUCTURE = runpy.run_path(str(SCRIPT))
OURS = {
    "fedmia/__init__.py": "",
    "fedmia/ssl/__init__.py": "",
    "fedmia/ssl/_views.py": "",
    "fedmia/ssl/moco.py": "from fedmia.ssl._views import View",  # of its own package
    "fedmia/ssl/deep/own.py": "from fedmia.ssl import _views",  # a subpackage is outside
    "fedmia/report/__init__.py": "def f():\n    import fedmia.ssl._views",
    "fedmia/report/page.py": "from fedmia.ssl._views import A, B\nfrom os import _exit",
    "fedmia/report/_far/__init__.py": "",
    "fedmia/report/_far/a.py": "from fedmia.report._far import b",  # within the private package
    "fedmia/report/_far/b.py": "",
    "research/papers/one.py": "from fedmia.report import _far",
}


def trees(sources: dict[str, str]) -> dict[Path, ast.Module]:
    return {Path(path): ast.parse(source) for path, source in sources.items()}


def measured(ours: dict[str, str], tests: str = "") -> dict[str, int]:
    return STRUCTURE["measure"](trees(ours), trees({"tests/test_it.py": tests}))


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("@dataclass\nclass A:\n    x: int", 1),
        ("@dataclasses.dataclass(frozen=True)\nclass A:\n    x: int = field(default=1)", 1),
        ("class A(typing.TypedDict, total=False):\n    x: int", 1),
        ("def f():\n    class A(NamedTuple):\n        x: int", 1),
        ("@dataclass\nclass A:\n    x: int\n    y: int = option(1, 'help')", 0),
        ("@dataclass\nclass A(B):\n    y: int = options.option(1, 'help')", 0),
        ("class A:\n    x: int = 1", 0),
    ],
)
def test_structure__carriers(source: str, count: int) -> None:
    assert measured({"strategies/a.py": source})["carriers"] == count
    assert measured({"research/papers/a.py": source})["carriers"] == 0, "no product"


def test_structure__private_imports_from_outside_of_their_package() -> None:
    assert measured(OURS)["private imports"] == 4


@pytest.mark.parametrize(
    ("statement", "count"),
    [
        ("from fedmia.report import page", 1),
        ("from fedmia.report import Page", 1),
        ("from fedmia.report import Page, page", 2),
        ("from fedmia.report.page import A\nimport fedmia.report.page", 1),
        ("def test():\n    import research.papers.one, os", 1),
        ("from fedmia.ssl import moco\nfrom fedmia.ssl.moco import MoCo", 0),
        ("import fedmia", 1),
    ],
)
def test_structure__modules_that_tests_import(statement: str, count: int) -> None:
    assert measured(OURS, statement)["modules under test"] == count


def test_structure__lines_of_code() -> None:
    value = "# Why.\nx = (\n    1,\n)\n"
    function = 'def f():\n    """Text."""\n    return x\n'
    assert STRUCTURE["code_lines"](f'"""Text\nof it."""\n\n{value}\n\n{function}') == 5


def test_structure__commits_that_add_something() -> None:
    commits = [
        "9\t0\tfedmia/a.py\n",  # too little
        "30\t25\tfedmia/a.py\n5\t0\tfedmia/b.py\n-\t-\tfedmia/c.png\n",
        "10\t0\tfedmia/{a => b}/c.py\n",
        "100\t99\tfedmia/a.py\n",
    ]
    log = "".join(f"@\n\n{commit}" for commit in commits)
    assert STRUCTURE["touched"](log) == [3, 1]
    assert len(STRUCTURE["touched"](log * 60)) == STRUCTURE["WINDOW"]


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_structure__a_shallow_clone_has_no_log(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        who = ("-c", "user.name=A", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false")
        subprocess.run(["git", *who, *words], check=True, capture_output=True)

    whole, shallow = tmp_path / "whole", tmp_path / "shallow"
    assert STRUCTURE["read_log"](tmp_path) == ""
    git("init", str(whole))
    (whole / "fedmia").mkdir()
    for lines in (10, 20):
        (whole / "fedmia/a.py").write_text("x = 1\n" * lines)
        git("-C", str(whole), "add", ".")
        git("-C", str(whole), "commit", "-m", "It grows")
    git("clone", "--depth", "1", whole.as_uri(), str(shallow))
    assert STRUCTURE["touched"](STRUCTURE["read_log"](whole)) == [1, 1]
    assert STRUCTURE["read_log"](shallow) == ""


def test_structure__fails_over_the_greatest_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    for path, source in OURS.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(source)
    most = tmp_path / "most.yaml"
    monkeypatch.setattr("sys.argv", ["structure.py", str(tmp_path), "--most", str(most)])
    for limit in (4, 3):
        most.write_text(f"carriers: 0\nprivate imports: {limit}\nmodules under test: 0\n")
        assert STRUCTURE["main"]() == (limit == 3)
        assert ("private imports: 4, at most 3" in capsys.readouterr().out) == (limit == 3)


@pytest.mark.parametrize(("name", "code"), [("A", 0), ("B", 1), ("own", 1)])
def test_structure__fails_where_a_listed_type_is_no_class(
    name: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    (tmp_path / "fedmia").mkdir()
    (tmp_path / "fedmia/own.py").write_text("class A:\n    class B: ...\n")
    most = tmp_path / "most.yaml"
    limits = "carriers: 0\nprivate imports: 0\nmodules under test: 0\n"
    most.write_text(f"{limits}types:\n  one AUC: [fedmia.own.A, fedmia.own.{name}]\n")
    monkeypatch.setattr("sys.argv", ["structure.py", str(tmp_path), "--most", str(most)])
    assert STRUCTURE["main"]() == code
    printed = capsys.readouterr().out
    assert "types that hold one AUC: 2" in printed
    assert (f"one AUC: no class fedmia.own.{name}" in printed) == bool(code)
