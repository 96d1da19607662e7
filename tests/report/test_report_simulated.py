"""The simulation of the verdict: its naive twin of the rule before, and what the result says."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

from fedmia.report.build import build_report
from fedmia.seeding import rng

MEASUREMENTS = Path(__file__).parents[2] / "research" / "measurements"
SCRIPT = runpy.run_path(str(MEASUREMENTS / "verdict.py"))
RESULT = json.loads((MEASUREMENTS.parent / "results" / "verdict.json").read_text(encoding="utf-8"))
CELLS: list[dict[str, Any]] = RESULT["cells"]


@pytest.mark.parametrize(
    ("kind", "sizes"),
    [("active", (8, 28)), ("run", (8, 17)), ("audit", (8, 17)), ("whole", (8, 24))],
)
def test_simulate__has_the_families_of_such_a_report(kind: str, sizes: tuple[int, int]) -> None:
    run = SCRIPT["simulate"](rng(0, "test"), kind, 0.5, leak=0.9)
    family = build_report(run).family
    assert (family.intervals, family.intervals_controls) == sizes
    assert SCRIPT["code_before"](run) == "leaks"
    assert SCRIPT["code_before"](SCRIPT["simulate"](rng(0, "t"), kind, 0.5, pixels=0.9)) == "shift"


@pytest.mark.slow(seconds=1)
@pytest.mark.parametrize("auc", [0.5, 0.57, 0.65])
def test_code__is_that_of_the_report(auc: float) -> None:
    for i, kind in enumerate(SCRIPT["KINDS"]):
        run = SCRIPT["simulate"](rng(i, "test"), kind, 0.5, leak=auc)
        assert SCRIPT["code_after"](run) == build_report(run).verdict_code


def test_result__errs_seldom_and_shows_what_was_shown_before() -> None:
    """Of a run with a placebo: 0.6 is shown as often as before, within two of its errors."""
    assert {c["reports"] for c in CELLS if c["scenario"] == "nothing"} == {900}
    for c in CELLS:
        if c["scenario"] == "nothing":
            assert c["after"]["leaks"] <= 0.05
            assert c["after"]["control-failed"] <= 0.05 + 0.015
        if c["kind"] in ("active", "whole") and c["scenario"].startswith("shift"):
            assert c["after"]["leaks"] <= 0.05 + 0.022
        if c["kind"] == "active" and c["scenario"].startswith("leak 0.6"):
            assert c["after"]["leaks"] >= c["before"]["leaks"] - 0.022
