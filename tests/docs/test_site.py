"""The site: what it must not load, and that it builds without a warning."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def build() -> Any:
    """docs/build.py as a module."""
    spec = importlib.util.spec_from_file_location("site_build", ROOT / "docs" / "build.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "text, remote",
    [
        ('<a href="https://x.org">x</a>', False),
        ('<img alt="a" src="../_images/a.png">', False),
        ('<link rel="canonical" href="https://x.org">', False),
        ('<script src="https://x.org/a.js"></script>', True),
        ('<link rel="stylesheet" href="//x.org/a.css">', True),
        ("<img src='http://x.org/a.png'>", True),
        ('<object data="https://x.org/a.svg"></object>', True),
    ],
)
def test_remote__is_what_a_browser_would_fetch(
    build: Any, tmp_path: Path, text: str, remote: bool
) -> None:
    (tmp_path / "a.html").write_text(text)
    assert bool(list(build.find_remote(tmp_path))) == remote


def test_remote__fonts_of_a_style_sheet_count(build: Any, tmp_path: Path) -> None:
    (tmp_path / "a.css").write_text("@import 'https://x.org/a.css'; b {src: url(//x.org/f.woff)}")
    (tmp_path / "b.css").write_text("b {background: url(data:image/png;base64,AA)}")
    assert len(list(build.find_remote(tmp_path))) == 2


def test_unreachable__is_a_page_without_a_link(build: Any, tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    (docs / "a").mkdir(parents=True)
    (docs / "index.html").write_text('<a class="x" href="a/b.html#c">b</a>')
    (docs / "a" / "b.html").write_text('<a href="../index.html">home</a>')
    (docs / "a" / "lost.html").write_text('<a href="b.html">b</a>')
    assert build.find_unreachable(tmp_path) == ["docs/a/lost.html"]


def test_out__that_is_no_site_is_left_alone(build: Any, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    assert build.build(tmp_path, 1) == 2
    assert (tmp_path / "thesis.txt").exists()


def test_generated_pages__are_not_in_the_repository() -> None:
    assert [p.name for p in (ROOT / "docs" / "reference").rglob("*.md")] == ["index.md"]
    assert "/site/" in (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()


def test_citation__names_this_version() -> None:
    import yaml

    import fedmia

    cff = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    required = {"cff-version", "message", "authors", "title"}
    assert required <= set(cff) and cff["cff-version"] == "1.2.0"
    assert cff["version"] == fedmia.__version__ and cff["license"] == "Apache-2.0"


def test_hooks__and_workflow_run_what_is_there() -> None:
    import yaml

    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    entries = [hook["entry"] for repo in hooks["repos"] for hook in repo["hooks"]]
    scripts = [word for entry in entries for word in entry.split() if word.endswith(".py")]
    assert scripts and all((ROOT / script).is_file() for script in scripts)
    ci = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert all(script in ci for script in scripts) and "scripts/docs.sh" in ci
    flow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))
    assert ".ci/run" in [step.get("run") for step in flow["jobs"]["checks"]["steps"]]


@pytest.mark.slow(seconds=30)
def test_site__builds_without_a_warning(build: Any, tmp_path: Path) -> None:
    pytest.importorskip("myst_nb")
    out = tmp_path / "site"
    done = subprocess.run(
        [sys.executable, ROOT / "docs" / "build.py", out],
        cwd=tmp_path, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    assert not list(build.find_remote(out)) and not build.find_unreachable(out)
    attacks = (out / "docs" / "reference" / "plugins" / "attack.html").read_text(encoding="utf-8")
    assert 'id="partcrop"' in attacks
    python = "".join(
        p.read_text(encoding="utf-8") for p in (out / "docs/reference/python").glob("*.html")
    )
    assert all(re.search(rf'id="fedmia[\w.]*\.{n}"', python) for n in ("Run", "Known", "BlackBox"))
    assert (out / "index.html").is_file()
