"""The bugs of tests/planted.yaml can still be planted: each line stands once where it is named."""

from __future__ import annotations

import runpy
import sys
from collections import Counter
from pathlib import Path

import pytest
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


def test_mutants__meet_the_quickest_tests_that_execute_their_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As many as have time; of a line that runs on import those that execute most of its file."""
    monkeypatch.setattr(sys, "path", [str(ROOT / "tools"), *sys.path])
    tool = runpy.run_path(str(ROOT / "tools" / "mutants.py"))
    executed = {
        "lines": {"fedmia/a.py": {"3": ["tests/b.py", "tests/a.py", "tests/c.py"],
                                  "5": ["tests/c.py"]}},
        "seconds": {"tests/a.py": 30.0, "tests/b.py": 1.0, "tests/c.py": 40.0},
    }  # fmt: skip
    find = tool["find_tests"]
    assert find(executed, "fedmia/a.py", 3, 50.0) == "tests/b.py tests/a.py"
    assert find(executed, "fedmia/a.py", 5, 1.0) == "tests/c.py"  # one in any case
    assert find(executed, "fedmia/a.py", 1, 90.0) == "tests/c.py tests/b.py tests/a.py"
    assert find(executed, "fedmia/b.py", 3, 90.0) == ""
