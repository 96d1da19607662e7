"""The measurements run, and write what they say."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

from fedmia.data.base import Request
from fedmia.data.synthetic import Synthetic
from tests.pictures import unpainted

pytestmark = pytest.mark.slow
MEASUREMENTS = Path(__file__).parents[1] / "research" / "measurements"


def test_growth__the_exponent_is_that_of_what_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(MEASUREMENTS))
    script = runpy.run_path(str(MEASUREMENTS / "growth.py"))
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


def test_memory__a_measured_peak_is_under_what_the_plan_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(MEASUREMENTS))
    row = runpy.run_path(str(MEASUREMENTS / "memory.py"))["measure"]("weights")
    assert row["plan"]["phases_mb"]["training"] > 2000  # of which the program is 600
    assert 1 <= row["ratio"] < 1.5


def test_lower_bounds__a_row_says_what_was_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(MEASUREMENTS))
    script = runpy.run_path(str(MEASUREMENTS / "lower_bounds.py"))
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
    assert sum(c.seeds for c in every if c.violation == "none" and c.canaries == 1000) == 4200
    assert sum(c.seeds for c in every if c.violation == "none" and c.canaries == 10000) == 75


def test_endurance__faults_happen_and_runs_end_as_they_should(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(MEASUREMENTS))  # where faulty.py lies
    faults = runpy.run_path(str(MEASUREMENTS / "endurance.py"))["client_faults"]
    faults.__globals__.update(OUTRIGHT=("raise",), SENT=("nan",))
    with unpainted():
        rows = faults("inline", tmp_path)
    assert len(rows) == 4 * 3 and {row["when"] for row in rows} == {"before", "during", "after"}
    assert [row for row in rows if row["wrong"]] == []


def test_watch__counts_stops_and_what_a_look_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(MEASUREMENTS))
    script = runpy.run_path(str(MEASUREMENTS / "watch.py"))
    null, leaks = script["null"](2), script["leaks"](2)
    assert [row["runs"] for row in null["by_kept"]] == [20] * 3 and null["settings"] == 30
    sure = [row["within_1"] for row in leaks["rows"] if row["auc"] == 0.8]
    assert len(leaks["rows"]) == 24 and sure == [1] * 6
    script["cost"].__globals__.update(SIZES=(8, 16), EPOCH=32)
    for look in (cost := script["cost"]("smallnet"))["looks"]:
        assert look["share"] == pytest.approx(look["seconds"] / cost["client_seconds"] / 50)


def test_where__parts_hold_every_second_and_every_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(MEASUREMENTS))
    script = runpy.run_path(str(MEASUREMENTS / "where.py"))
    flags = (
        "fedmia.simulate --clients 2 --rounds 2 --train.local_epochs 3 --model.width 4 "
        "--split.members 24 --split.nonmembers 60 --split.known 8 --split.test 20 "
        "--attacks ascent-static --attack.ascent-static.steps 1 --attack.ascent-static.lr 0.01 "
        f"--federation.snapshots 1 --device cpu --quiet --out {tmp_path / 'RUN'}"
    )
    script["measure"].__globals__["command"] = lambda *case: flags
    result = script["measure"]("default", 0, 0, {})
    rows = {(row["part"], row["work"]): row for row in result["rows"]}
    assert rows["training, main", "steps"]["images"] == 24 * 3 * 2 * 2  # two networks
    climbs = rows["ascent-static, main", "climbs"]
    assert climbs["images"] % (2 * 8 * 8) == 0 and climbs["gflop"] > 0  # before and after a step
    assert result["cpu_s"] == pytest.approx(sum(r["cpu_s"] for r in result["rows"]))
    assert result["isa"] and 0 < result["least_s"] < result["cpu_s"]


def test_gpu__goes_on_where_it_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(MEASUREMENTS))
    main = runpy.run_path(str(MEASUREMENTS / "gpu.py"))["main"]
    images = Synthetic(images=1000, pixels=8).load(Request(None, None, None, 0))
    main.__globals__.update(
        MEMBERS=64, ROUNDS=3, A_ROUND=2, CASES={"few": ("smallnet", 4)}, CLOSELY="few",
        Parquet=lambda: SimpleNamespace(load=lambda request: images),
    )  # fmt: skip
    out = tmp_path / "gpu.json"
    flags = ["-", "--device", "cpu", "--repeats", "1", "--only", "bare,inline,parts"]
    flags += ["--out", str(out)]
    assert main([*flags, "--minutes", "0"]) == 1 and not out.exists()
    assert main(flags) == 0
    written = out.read_text()
    case = json.loads(written)["cases"]["few"]
    least = max(case["bare"][0]["float32"].values())
    assert case["of_bare"] == pytest.approx(case["rates"]["inline"] / least)
    rows = case["parts"][0]["rows"]
    assert sum(row["share"] for row in rows) == pytest.approx(1)
    assert rows[0]["part"] == "steps of the clients" and rows[0]["seconds"] > 0
    assert main(flags) == 0 and out.read_text() == written
    outcome = {"code": 0, "outcome": "3 passed"}
    main.__globals__["run_tests"] = lambda: outcome
    assert main([*flags, "--all"]) == 0
    assert json.loads(out.read_text()) == {**json.loads(written), "tests": outcome}
