"""The site: what it must not load or lack. tools/docs.sh builds it, a step of .ci/run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

import fedmia
from tests.pages.reading import ROOT, script

build = script("build", "docs")


@pytest.mark.parametrize(
    "text, remote",
    [
        ('<a href="https://x.org">x</a>', 0),
        ('<img alt="a" src="../_images/a.png">', 0),
        ('<link rel="canonical" href="https://x.org">', 0),
        ("b {background: url(data:image/png;base64,AA)}", 0),
        ('<script src="https://x.org/a.js"></script>', 1),
        ('<link rel="stylesheet" href="//x.org/a.css">', 1),
        ("<img src='http://x.org/a.png'>", 1),
        ('<object data="https://x.org/a.svg"></object>', 1),
        ("@import 'https://x.org/a.css'; b {src: url(//x.org/f.woff)}", 2),
    ],
)
def test_remote__is_what_a_browser_would_fetch(tmp_path: Path, text: str, remote: int) -> None:
    (tmp_path / ("a.html" if text.startswith("<") else "a.css")).write_text(text)
    assert len(list(build.find_remote(tmp_path))) == remote


def test_unreachable__is_a_page_without_a_link(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    (docs / "a").mkdir(parents=True)
    (docs / "index.html").write_text('<a class="x" href="a/b.html#c">b</a>')
    (docs / "a" / "b.html").write_text('<a href="../index.html">home</a>')
    (docs / "a" / "lost.html").write_text('<a href="b.html">b</a>')
    assert build.find_unreachable(tmp_path) == ["docs/a/lost.html"]


def test_nameless__has_no_place_in_the_reference(tmp_path: Path) -> None:
    assert {"partcrop", "open_run"} <= set(build.find_nameless(tmp_path))
    page = tmp_path / "docs" / "reference" / "a.html"
    page.parent.mkdir(parents=True)
    page.write_text('<h2 id="partcrop"></h2><dt id="fedmia.api.open_run"></dt>')
    assert not {"partcrop", "open_run"} & set(build.find_nameless(tmp_path))


def test_out__that_is_no_site_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    assert build.build(tmp_path, 1) == 2
    assert (tmp_path / "thesis.txt").exists()


def test_citation__names_this_version() -> None:
    cff = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    required = {"cff-version", "message", "authors", "title"}
    assert required <= set(cff) and cff["cff-version"] == "1.2.0"
    assert cff["version"] == fedmia.__version__ and cff["license"] == "Apache-2.0"


def test_hooks__are_steps_of_the_checks() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    entries = " ".join(hook["entry"] for repo in hooks["repos"] for hook in repo["hooks"])
    ci, flow = ((ROOT / ".ci/run"), ROOT / ".github/workflows/ci.yml")
    scripts = re.findall(r"\S+\.py", entries)
    assert scripts and all(s in ci.read_text() and (ROOT / s).is_file() for s in scripts)
    assert "tools/docs.sh" in ci.read_text() and "run: .ci/run" in flow.read_text()
