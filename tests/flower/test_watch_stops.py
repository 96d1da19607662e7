"""How often a watch stops falsely, and how soon it stops a leak, on scores that are drawn."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest

MEASUREMENTS = Path(__file__).parents[2] / "research" / "measurements"
COMMITTED = json.loads((MEASUREMENTS.parent / "results" / "watch.json").read_text())
stops = runpy.run_path(str(MEASUREMENTS / "_simulated_watch.py"))["stops"]
SETTING, BOUND = ("shifted", 100, 0.5), 0.6  # shape, images a side, correlation of looks


@pytest.mark.slow(seconds=2)
def test_stops__falsely_in_at_most_one_run_of_twenty() -> None:
    """The leak is the bound itself at each of twenty looks at the same images."""
    false = sum(look is not None for look in stops([BOUND] * 20, BOUND, *SETTING, 500))
    assert 0 < false <= 25
    (row,) = [
        row for row in COMMITTED["null"]["rows"]
        if (row["shape"], row["images"], row["kept"], row["bound"]) == (*SETTING, BOUND)
    ]  # fmt: skip
    assert false == row["false"]


def test_stops__at_the_first_look_at_a_large_leak_and_never_at_none() -> None:
    at = stops([0.5] * 4 + [0.85] * 6, BOUND, *SETTING, 100)
    assert sum(look == 5 for look in at) >= 95 and min(look or 99 for look in at) >= 5
    assert stops([0.5] * 10, BOUND, *SETTING, 100) == [None] * 100


def test_committed__no_setting_stops_more_than_one_null_run_of_twenty() -> None:
    null = COMMITTED["null"]
    assert null["runs"] == 500 and null["without_leak"]["false"] == 0
    for row in null["by_kept"]:
        assert row["runs"] == 5000 and row["high"] < 0.05 and row["most"] <= 25
