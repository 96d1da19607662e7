"""What a newcomer meets: the import, the README's promises, the packages that are built."""

from __future__ import annotations

import itertools
import re
import runpy
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import Tensor

import fedmia
from fedmia.attacks import Known
from fedmia.seeding import rng
from fedmia.settings import registry
from tests.pages.installed import TEMPLATE, copy_source

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
ATTACKS = (ROOT / "docs" / "attacks.md").read_text(encoding="utf-8")
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
PACKAGES = ("fedmia", "strategies", "clients")


def python(code: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """`code` in a new interpreter that finds this clone, but looks into `cwd` first."""
    path = f"import sys; sys.path.append({str(ROOT)!r})\n"
    command = [sys.executable, "-c", path + code]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=60)


def block(language: str, containing: str) -> str:
    """The README's one code block in `language` that contains a text."""
    matches = re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)
    (one,) = [text for text in matches if containing in text]
    return str(one)


# -- the import ------------------------------------------------------------------------------


def test_import__is_cheap(tmp_path: Path) -> None:
    done = python("import fedmia; print(*sorted(sys.modules))", tmp_path)
    assert done.returncode == 0, done.stderr
    loaded = set(done.stdout.split())
    assert "fedmia" in loaded
    assert not loaded & {"torch", "numpy", "flwr", "ray", "strategies", "clients"}


@pytest.mark.parametrize("name", ["clients", "strategies"])
@pytest.mark.parametrize("form", ["{}/__init__.py", "{}.py"])
def test_import__refuses_a_foreign_package(tmp_path: Path, name: str, form: str) -> None:
    foreign = tmp_path / form.format(name)
    foreign.parent.mkdir(exist_ok=True)
    foreign.write_text("")
    done = python("import fedmia", tmp_path)
    assert done.returncode == 1
    message = done.stderr.strip().splitlines()[-1]
    assert message.startswith(f"ImportError: fedmia needs its own package '{name}' in {ROOT}")
    assert str(tmp_path / name) in message


def test_import__does_not_mind_a_plain_folder(tmp_path: Path) -> None:
    (tmp_path / "clients").mkdir()
    assert python("import fedmia", tmp_path).returncode == 0


def test_import__says_when_the_neighbours_are_missing(tmp_path: Path) -> None:
    (tmp_path / "fedmia").mkdir()
    (tmp_path / "fedmia" / "__init__.py").write_text(Path(fedmia.__file__).read_text())
    # -S: no site-packages, where this clone may be installed.
    alone = [sys.executable, "-I", "-S", "-c", "import sys; sys.path.append('.'); import fedmia"]
    done = subprocess.run(alone, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert "'strategies'" in done.stderr and "finds none" in done.stderr


# -- the README ------------------------------------------------------------------------------


def test_pages__link_to_what_is_there() -> None:
    """But to the reference, which is generated: tests/docs/test_site.py builds the site."""
    for page in (ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")):
        targets = re.findall(r"\]\(([^)#]+)", page.read_text(encoding="utf-8"))
        places = [page.parent.joinpath(t).resolve() for t in targets if "://" not in t]
        written = [p for p in places if ROOT / "docs" / "reference" not in p.parents]
        assert not [p for p in written if not p.exists()], page


def test_readme__is_one_page_of_scripts_and_an_example_of_each() -> None:
    assert len(README.splitlines()) <= 100
    (block_of_three,) = re.findall(r"```bash\n(.*?)```", README, flags=re.DOTALL)
    commands = [line.split()[1] for line in block_of_three.splitlines()]
    assert commands == [f"tools/{n}.sh" for n in ("run", "audit", "test")]
    assert "fedmia.audit_encoder(" in block("python", "fedmia.run_simulation(")
    names = ("run", "audit", "test", "env")
    for script in (*(f"tools/{name}.sh" for name in names), ".ci/run"):
        done = subprocess.run(["bash", "-n", ROOT / script], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


def attacks_page() -> dict[str, Any]:
    """What tools/attacks.py defines."""
    return runpy.run_path(str(ROOT / "tools" / "attacks.py"))


def test_attacks_table__is_what_the_script_writes_but_for_queries() -> None:
    """Every attack; queries are counted below, one attack a test."""
    made = attacks_page()
    names = sorted(registry.names("attack"), key=lambda n: not registry.load("attack", n).main)
    count = dict(re.findall(r"^\| `([a-z0-9-]+)`.*? \| \w+ \| \w+ \| ([^|]+) \|", ATTACKS, re.M))
    assert list(count) == names
    rows = [made["row"](name, count[name]) for name in names]
    assert made["write_table"](ATTACKS, rows) == ATTACKS and rows[-1] in ATTACKS


@pytest.mark.slow
@pytest.mark.parametrize("name", registry.names("attack"))
def test_attacks_page__tells_the_queries_of_an_image(name: str) -> None:
    made = attacks_page()
    assert made["row"](name, made["queries"](name)) in ATTACKS.splitlines()


def test_readme__example_of_an_attack_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_moco: Any, make_view: Any, images: Tensor
) -> None:
    (tmp_path / "norm_attack.py").write_text(block("python", "class Norm"))
    monkeypatch.syspath_prepend(tmp_path)
    attack = registry.load("attack", "norm_attack:Norm")(views=3)
    method = make_moco()
    view = make_view(attack, method, images)
    attack.fit(view, Known(images[:0], images[:0]), rng(0))
    got = attack.score(view, images)
    pixels = view.view_pixels(images, 3)
    naive = [float(np.mean([view.embed(p[i : i + 1]).norm() for p in pixels])) for i in range(20)]
    assert got == pytest.approx(naive, rel=1e-4)


# -- longer: a built package, a real run -----------------------------------------------------


@pytest.mark.slow
def test_packages__hold_every_module_template_and_preset(tmp_path: Path) -> None:
    source = copy_source(tmp_path / "source")
    build = "from setuptools.build_meta import *; build_wheel('..'); build_sdist('..')"
    done = subprocess.run([sys.executable, "-c", build], cwd=source, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name.startswith(f"fedmia-{fedmia.__version__}-py3")
    held = set(zipfile.ZipFile(wheel).namelist())
    data = f"fedmia-{fedmia.__version__}.data/data/share/fedmia/"
    modules = {p.relative_to(ROOT).as_posix() for n in PACKAGES for p in (ROOT / n).rglob("*.py")}
    assert modules == {n for n in held if n.endswith(".py") and not n.startswith(data)}
    templates = {p.relative_to(ROOT).as_posix() for p in ROOT.glob("fedmia/**/*.j2")}
    assert templates == {n for n in held if n.endswith(".j2")} and templates
    (sdist,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        sources = {n.partition("/")[2] for n in archive.getnames()}
    declared = {"fedmia/cli/commands.yaml", "fedmia/settings/index.json"}
    assert declared <= held & sources
    clone = {
        p.relative_to(ROOT).as_posix()
        for folder in ("research/papers", "examples")
        for p in (ROOT / folder).rglob("*.*")
    }
    clone = {name for name in clone if "__pycache__" not in name}
    assert templates | modules | clone <= sources and len(clone) > 30
    assert not [name for name in held if "papers/" in name and not name.endswith(".yaml")]
    assert not [name for name in held if name.startswith(("research", "papers", "tools"))]
    presets = {f"{data}{p.relative_to(ROOT).as_posix()}" for p in ROOT.glob("configs/**/*.yaml")}
    howtos = (ROOT / TEMPLATE).parent
    files = [p for p in (ROOT / TEMPLATE).rglob("*") if p.is_file() and p.suffix != ".pyc"]
    template = {f"{data}{p.relative_to(howtos).as_posix()}" for p in files}
    assert presets | template == {n for n in held if n.startswith(data)} and len(files) == 8


# A notebook's claim is that it runs: as much training as that takes.
SMALLER = {
    r'"local_epochs": \d+': '"local_epochs": 1',
    r'seeds=3(?=, out="defences")': "seeds=1",
    r"\bseeds=3\b": "seeds=2",
    r'(?<="overfit",)': " pretrain_epochs=9,",
}


@pytest.mark.slow(seconds=60)
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks__run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import nbformat
    from nbclient import NotebookClient

    assert len(NOTEBOOKS) >= 3
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    notebook, place = nbformat.read(path, as_version=4), {"metadata": {"path": str(tmp_path)}}
    for cell, (long, short) in itertools.product(notebook.cells, SMALLER.items()):
        cell.source = re.sub(long, short, cell.source)
    NotebookClient(notebook, timeout=1800, resources=place).execute()
    shown = [o for c in notebook.cells for o in c.get("outputs", []) if "data" in o]
    assert any("image/png" in o["data"] for o in shown), path.name


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks__store_no_path_of_the_machine_that_ran_them(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert not re.findall(r"/(?:home|root|Users|tmp|var|private)/[\w./-]+", text)
