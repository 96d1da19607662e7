"""The benchmarks run, and write what they say."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

pytestmark = pytest.mark.slow
SCRIPT = Path(__file__).parents[1] / "benchmarks" / "signals.py"
CROPS, VIEWS = 128, 24


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the script writes of the smallest case."""
    out = tmp_path_factory.mktemp("signals") / "signals.json"
    flags = ["--net", "smallnet", "--size", "8", "--images", "4", "--repeats", "1", "--out"]
    with pytest.MonkeyPatch.context() as patch, torch.random.fork_rng():
        patch.syspath_prepend(str(SCRIPT.parent))
        patch.setattr(sys, "argv", [str(SCRIPT), *flags, str(out)])
        runpy.run_path(str(SCRIPT), run_name="__main__")
    content: dict[str, Any] = json.loads(out.read_text())
    return content


def test_signals__says_where_it_ran(results: dict[str, Any]) -> None:
    assert results["versions"]["torch"] and results["hardware"]["cores"] >= 1
    assert results["device"] == "cpu" and results["threads"] == 1
    assert list(results["cases"]) == ["smallnet-8"]


def test_signals__every_ratio_is_there(results: dict[str, Any]) -> None:
    case = results["cases"]["smallnet-8"]
    assert case["images"] == 4 and case["repeats"] == 1
    for row in case["attacks"].values():
        assert row["ratio"] == pytest.approx(row["extraction_s"] / row["bare_s"])
        assert min(row["alone_s"], row["shared_s"]) > 0
    for which in ("without_shadows", "all"):
        row = case["sharing"][which]
        assert 0 < row["ratio"] < 1 and row["alone_s"] > row["shared_s"]
    for kind in ("views", "crops"):
        row = case["loop"][kind]
        assert row["faster"] == pytest.approx(row["loop_us"] / row["us"])
        assert row["pixels_faster"] == pytest.approx(row["loop_pixels_us"] / row["pixels_us"])


def test_signals__counts_what_each_attack_asks_for(results: dict[str, Any]) -> None:
    """Four images are scored and six known; sharing changes no count."""
    case = results["cases"]["smallnet-8"]
    rows = case["attacks"]
    assert case["sharing"]["same_queries"]
    assert {n: r["queries"] for n, r in rows.items()} == {
        n: r["queries_sharing"] for n, r in rows.items()
    }
    assert rows["similarity"]["queries"] == 4 * VIEWS
    assert rows["partcrop"]["queries"] == (4 + 6) * (1 + CROPS)
    passed = [{"images": 4 * CROPS, "side": 4}, {"images": 4, "side": 8}]
    assert rows["partcrop"]["passes"] == passed
    assert rows["encodermi-v"]["queries"] == 4 * 10  # its shadow's passes cost nothing
    assert "ascent-static" not in rows and "all-for-one" not in rows


def test_growth__the_exponent_is_that_of_what_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    script = runpy.run_path(str(SCRIPT.with_name("growth.py")))
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
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    script = runpy.run_path(str(SCRIPT.with_name("lower_bounds.py")))
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
    monkeypatch.syspath_prepend(str(SCRIPT.parent))  # where faulty.py lies
    monkeypatch.setattr("fedmia.report.figures.draw.draw_all", lambda scores, report: {})
    faults = runpy.run_path(str(SCRIPT.with_name("endurance.py")))["client_faults"]
    faults.__globals__.update(OUTRIGHT=("raise",), SENT=("nan",))
    rows = faults("inline", tmp_path)
    assert len(rows) == 4 * 3 and {row["when"] for row in rows} == {"before", "during", "after"}
    assert [row for row in rows if row["wrong"]] == []
