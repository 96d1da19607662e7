"""What every test keeps, so that a new clone passes on a machine that is bare and busy."""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.extras import NotOfTheTests

TESTS = Path(__file__).parent
CLOCKS = {"sleep", "monotonic", "perf_counter", "time", "process_time"}
# Default tests that read a clock or sleep, and why no load of the machine makes them fail.
CLOCKED = {
    "door/test_jupyter.py::answers": "slow tests alone call it",
    "federation/test_resume.py::killed": "slow tests alone call it",
    "flower/test_deployment.py::wait": "slow tests alone call it",
    "flower/test_watch.py::SlowThreeRounds": "the longer a look takes, the later all else comes",
    "public/test_public_reports.py::started": "slow tests alone call it",
    "strategies/test_exchange.py::Away": "time passes as its test says",
    "strategies/test_exchange.py::Leaving": "a node is back by its clock, however late",
    "strategies/test_rounds.py::Shuffled": "it waits for what comes, however late",
}


def test_site_and_linters__are_not_there_for_tests() -> None:
    (finder,) = [one for one in sys.meta_path if isinstance(one, NotOfTheTests)]
    assert {"sphinx", "myst_nb", "mypy", "ruff"} <= finder.names
    assert not {"pytest", "hypothesis", "onnx", "numpy"} & finder.names
    for name in ("sphinx.cmd.build", "mypy"):
        with pytest.raises(ModuleNotFoundError, match="extra `test`"):
            importlib.import_module(name)


def is_slow(node: ast.AST) -> bool:
    """Whether a mark of a function, or of its module, makes it slow whatever its parameters."""
    marks = node.decorator_list if isinstance(node, ast.FunctionDef | ast.ClassDef) else []
    own = [m for m in marks if not ast.unparse(m).startswith("pytest.mark.parametrize")]
    return any("mark.slow" in ast.unparse(mark) for mark in own)


def clocked(source: str) -> Iterator[str]:
    """Names of functions and classes at the top of a module that read a clock, but for those that
    are slow; a `Stopwatch` needs one to begin with."""
    tree = ast.parse(source)
    if any(ast.unparse(n).startswith("pytestmark") and "mark.slow" in ast.unparse(n)
           for n in tree.body):  # fmt: skip
        return
    called = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    watches = [node for node in called if ast.unparse(node.func).endswith("Stopwatch")]
    begins = {id(node) for watch in watches for node in ast.walk(watch)}
    for top in tree.body:
        if is_slow(top):
            continue
        calls = [n for n in ast.walk(top) if isinstance(n, ast.Call) and id(n) not in begins]
        read = [n for n in calls if isinstance(n.func, ast.Attribute) and n.func.attr in CLOCKS
                and ast.unparse(n.func.value) == "time"]  # fmt: skip
        if read:
            yield getattr(top, "name", "module")


def test_clocks__are_read_by_slow_tests_alone() -> None:
    files = sorted(TESTS.rglob("test_*.py"))
    names = {
        f"{file.relative_to(TESTS).as_posix()}::{name}"
        for file in files
        for name in clocked(file.read_text(encoding="utf-8"))
    }
    assert len(files) > 100 and names == set(CLOCKED)


def test_clocked__finds_them() -> None:
    source = (
        "def test_a():\n    assert time.monotonic() < 5\n"
        "@pytest.mark.slow\ndef test_b():\n    time.sleep(1)\n"
        "def test_c():\n    score(Stopwatch(time.perf_counter()))\n"
        "class D:\n    def e(self):\n        time.sleep(1)\n"
    )
    assert [*clocked(source)] == ["test_a", "D"]
    assert not [*clocked(f"pytestmark = pytest.mark.slow\n{source}")]
