"""The bugs of tests/planted.yaml can still be planted: each line stands once where it is named."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]


def test_planted__every_line_stands_once_in_its_file() -> None:
    bugs = yaml.safe_load((ROOT / "tests" / "planted.yaml").read_text(encoding="utf-8"))
    assert len(bugs) >= 73
    assert not [name for name, n in Counter(bug["name"] for bug in bugs).items() if n > 1]
    assert not [
        bug["name"]
        for bug in bugs
        if (ROOT / bug["file"]).read_text(encoding="utf-8").count(bug["line"]) != 1
        or bug["line"] == bug["planted"]
    ]


def test_planted__names_tests_that_exist() -> None:
    bugs = yaml.safe_load((ROOT / "tests" / "planted.yaml").read_text(encoding="utf-8"))
    paths = {
        path.split("::")[0]
        for bug in bugs
        for stage in (*bug.get("tests", ()), *bug.get("slow", ()))
        for path in stage.split()
        if path.startswith("tests/")
    }
    assert paths and not [path for path in sorted(paths) if not (ROOT / path).exists()]
