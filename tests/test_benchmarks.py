"""The benchmarks run, and write what they say."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


def test_growth__the_exponent_is_that_of_what_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    script = runpy.run_path(str(BENCHMARKS / "growth.py"))
    sizes = [100.0, 400.0, 1600.0]
    fit = script["fit"](sizes, [500 + 0.02 * s**1.5 for s in sizes], 10_000)
    assert fit["exponent"] == pytest.approx(1.5)
    last = 500 + 0.02 * 1600**1.5
    assert fit["a_unit"] == pytest.approx(0.02 * (1600**1.5 - 400**1.5) / 1200)
    assert fit["room"] == pytest.approx(1 + (10_000 - last) / (fit["a_unit"] * 1600))
    flat = script["fit"](sizes, [500.0, 501.0, 499.0], 10_000)
    assert flat["exponent"] is None and flat["room"] is None
    assert script["fit"](sizes, [500.0, 505.0, 510.0], 10_000)["exponent"] is None  # 2 % in all
    for axis, points in script["AXES"].items():
        first, second, third = script["sizes_of"](axis, points)
        assert second / first == pytest.approx(third / second, rel=0.1), axis


def test_lower_bounds__a_row_says_what_was_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    script = runpy.run_path(str(BENCHMARKS / "lower_bounds.py"))
    case, row = script["Case"], script["row"]
    honest, planted, forgetful = (
        row(case(mechanism, 1.0, violation, 1000, 2))
        for mechanism, violation in (
            ("full", "none"), ("laplace", "noise 1/4"), ("full", "one round's epsilon"),
        )
    )  # fmt: skip
    assert honest["alarms"] == 0 and 0.9 < honest["true"] <= 1 and honest["most"] > 4
    assert planted["alarms"] == 2 and 1 < planted["bound"] < planted["true"] == 4
    assert forgetful["true"] > 3
    every = list(script["cases"](20, 100))
    assert sum(c.seeds for c in every if c.violation == "none" and c.canaries == 1000) == 1500
    assert sum(c.seeds for c in every if c.violation == "none" and c.canaries == 10000) == 75


def test_endurance__faults_happen_and_runs_end_as_they_should(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))  # where faulty.py lies
    monkeypatch.setattr("fedmia.report.figures.draw.draw_all", lambda scores, report: {})
    faults = runpy.run_path(str(BENCHMARKS / "endurance.py"))["client_faults"]
    faults.__globals__.update(OUTRIGHT=("raise",), SENT=("nan",))
    rows = faults("inline", tmp_path)
    assert len(rows) == 4 * 3 and {row["when"] for row in rows} == {"before", "during", "after"}
    assert [row for row in rows if row["wrong"]] == []
