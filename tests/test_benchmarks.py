"""The benchmarks run, and write what they say."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import yaml

from fedmia.data.base import Request
from fedmia.data.synthetic import Synthetic
from fedmia.statistics.intervals import clopper_pearson

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


def test_memory__a_measured_peak_is_under_what_the_plan_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    row = runpy.run_path(str(BENCHMARKS / "memory.py"))["measure"]("weights")
    assert row["plan"]["phases_mb"]["training"] > 2000  # of which the program is 600
    assert 1 <= row["ratio"] < 1.5


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
    assert sum(c.seeds for c in every if c.violation == "none" and c.canaries == 1000) == 4200
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


def test_suspects__answers_what_is_planned_and_says_what_is_short(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    script = runpy.run_path(str(BENCHMARKS / "suspects.py"))
    whole = script["load_plan"]()
    planned = [*script["cells"](whole)]
    assert len({cell.file for cell in planned}) == len(planned) == 261
    assert not {c.seed for c in planned} & set(range(*whole["used_up"][0]))
    plan = whole | {"seeds": {"first": 5, "number": 3}, "splits": {"IID": "iid"}}
    plan["second"] = {"first": 9, "number": 2, "attackers": 1}
    plan["third"] = {"first": 20, "number": 3, "attackers": 1}
    draw, stands_out = np.random.default_rng(0), {9: 99, 10: 99, 21: 9e9}
    for cell in script["cells"](plan):
        bad = list(range(10 - cell.attackers, 10)) if cell.kind != "honest" else []
        measured = np.exp(0.1 * draw.normal(size=(3, 4, 10)))
        if cell.kind == "climb":
            measured[0, :, bad] *= 9
        measured[0, :, 4] *= stands_out.get(cell.seed, 1)  # an honest client
        values = {
            "attackers": bad, "images": [3] * 10, "measured": measured.tolist(),
            "targets_loss": 2.0 if cell.kind == "climb" else 1.0, "seconds": 1.0,
        }  # fmt: skip
        (tmp_path / cell.file).write_text(json.dumps(values))
    result = script["answer"](plan, tmp_path, False)
    rows = {(row["kind"], row["attackers"]): row for row in result["cells"]}
    row = rows["climb", 3]  # three federations bound their mean at .025 ** (1 / 3)
    assert (row["auc"], row["low"], row["high"]) == (1, 0.2924, 1) and row["verdict"] == "undecided"
    assert set(row["alone"]) == {"norm", "cosine", "loss"}
    again = script["conclude"](plan, json.loads(json.dumps(result["by_federation"])))
    assert again["alarm"] == result["alarm"]
    assert again["cells"][0].items() <= result["cells"][0].items()
    assert rows["climb", 1]["push"] == 1 and rows["hidden", 1]["push"] == 0
    assert rows["hidden", 3]["auc"] < 0.9 and not result["short"]
    first, second = result["alarm"]["steps"]  # the first threshold names two: estimated again
    check = first["check"][-1]
    assert (first["federations"], check["federations"], check["with_alarm"]) == (6, 2, 2)
    assert first["threshold"] < second["threshold"] == result["alarm"]["threshold"]
    check = second["check"][-1]
    assert (second["federations"], check["federations"], check["clients"]) == (8, 3, 30)
    assert check["with_alarm"] == check["accused"] == 1
    (tmp_path / "6-IID-1-climb.json").unlink()
    with pytest.raises(SystemExit, match="28 of 29"):
        script["answer"](plan, tmp_path, False)
    assert script["answer"](plan, tmp_path, True)["short"]


def test_suspects__are_answered_from_what_is_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    """No interval is a point, and those of one attacker's alarms are exact."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    script = runpy.run_path(str(BENCHMARKS / "suspects.py"))
    result = json.loads((BENCHMARKS / "results" / "suspects.json").read_text())
    again = script["conclude"](script["load_plan"](), result["by_federation"])
    again = json.loads(json.dumps(again))
    assert again["alarm"] == result["alarm"]
    for new, row in zip(again["cells"], result["cells"], strict=True):
        assert new.items() <= row.items()
        assert row["high"] - row["low"] > 0.3 and row["low"] <= row["auc"] <= row["high"]
        if row["attackers"] == 1:
            exact = clopper_pearson(round(row["named"] * row["n"]), row["n"])
            assert (row["named_low"], row["named_high"]) == pytest.approx(exact, abs=1e-4)


def test_later__judges_differences_and_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    script = runpy.run_path(str(BENCHMARKS / "later.py"))
    plan, draw = script["load_plan"](), np.random.default_rng(0)
    assert len({*script["cells"](plan)}) == 4 * plan["seeds"]["number"]

    def scores(early: float, held: float, late: float) -> dict[str, np.ndarray]:
        moved = zip(script["GROUPS"], (early, held, late), strict=True)
        return {name: draw.normal(size=160) + by for name, by in moved}

    seen, none = {"early": False, "early_held": False}, scores(0, 0, 0)
    leak = script["judge"](none, scores(1, 0, 0), scores(1, 0, 1), seen)
    assert [*leak["leaks"].values()] == [True] * 3 and not any(leak["false"].values())
    shift = script["judge"](none, scores(1, 1, 0), scores(1, 1, 0), seen)
    assert [*shift["leaks"].values()] == [*shift["false"].values()] == [True, False, False]
    often = script["judge"](none, scores(1, 0, 0), scores(1.5, 0, 1), seen)
    assert [*often["leaks"].values()] == [True, True, False]  # more rounds of training, no shift
    rows = [{**leak, "true": 0.6, "later": 0.6 + by, "kind": kind, "seed": 0, "seconds": 1.0}
            for kind, shift in (("joined", 0.0), ("stream", 0.05)) for by in (shift, shift + 0.01)
            for _ in range(4)]  # fmt: skip
    kinds = script["answer"](plan, rows, True)["kinds"]
    assert {kind: row["verdict"] for kind, row in kinds.items()} == {
        "joined": "alike", "stream": "differ",
    }  # fmt: skip
    with pytest.raises(SystemExit, match="16 of 88 federations"):
        script["answer"](plan, rows, False)


def test_later__is_answered_from_what_is_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    script = runpy.run_path(str(BENCHMARKS / "later.py"))
    result = json.loads((BENCHMARKS / "results" / "later.json").read_text())
    again = script["answer"](script["load_plan"](), result["rows"], result["short"])
    assert json.loads(json.dumps(again["kinds"])) == result["kinds"]


def test_suspects_few__gives_an_alarm_where_it_holds_and_finds(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Of four clients, of whom a climber stands out; of five, where it does not, and where honest
    federations of the check stand out further than those of calibration. Seven lack a file."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    script = runpy.run_path(str(BENCHMARKS / "suspects_few.py"))
    whole = script["suspects"].load_plan(script["PLAN"])
    planned = [*script["cells"](whole)]
    assert len({cell.file for cell in planned}) == len(planned)
    looks = [{*script["seeds"](whole, look)} for look in script["LOOKS"]]
    assert not set.intersection(*looks) and len(set.union(*looks)) == sum(map(len, looks))
    assert not set.union(*looks) & set(range(*whole["used_up"][0]))
    assert 1 / (len(looks[0]) + 1) <= whole["level"]
    plan = whole | {"splits": {"IID": "iid", "Dirichlet 1": 1.0}, "clients": [4, 5, 7]}
    draw, made = np.random.default_rng(0), script["cells"](plan)
    for cell in made:
        measured = np.exp(0.1 * draw.normal(size=(3, cell.rounds, cell.clients)))
        if cell.kind == "climb" and cell.clients == 4:
            measured[0, :, -1] *= 1e30
        if cell.clients == 5 and cell.seed in looks[1]:
            measured[0, :, 2] *= 1e30
        bad = [cell.clients - 1] if cell.kind == "climb" else []
        values = {
            "attackers": bad, "rounds": [*range(cell.rounds)], "measured": measured.tolist(),
            "seconds": 1.0,
        }  # fmt: skip
        (tmp_path / cell.file).write_text(json.dumps(values))
    (tmp_path / cell.file.replace(str(cell.seed), "4000")).unlink()
    result = script["answer"](plan, tmp_path)
    rows = {(row["clients"], row["rounds"]): row for row in result["cells"]}
    assert rows.keys() == {(c, r) for c in (4, 5) for r in plan["rounds"]}
    assert result["uncalibrated"] == [7] and rows[4, 6]["expected"] == 0.05
    four, five = rows[4, 6], rows[5, 6]
    assert (four["power"]["count"], four["power"]["n"], four["worth"]) == (6, 6, True)
    assert (five["worth"], five["holds"], five["given"]) == (False, False, False)
    assert five["false"]["count"] == five["last"]["count"] == five["false"]["n"] == 12
    largest = [
        max(one["suspicion"]["6"]) for name, one in result["by_federation"].items()
        if name.endswith("-4-8-honest") and name.startswith("40")
    ]  # fmt: skip
    assert len(largest) == 38 and 0 <= four["threshold"] - max(largest) < 0.01
    assert not any(row["holds"] for row in result["by_rounds"])  # five clients spoil it for all
    assert not four["given"]
    alone = script["answer"](plan | {"clients": [4]}, tmp_path)
    assert all(row["holds"] == row["given"] for row in alone["cells"]) and alone["given"] > 0
    text = json.loads(script["as_text"](result))
    assert text == json.loads(json.dumps(result))
    again = script["conclude"](plan, text["by_federation"])
    assert json.loads(json.dumps(again)).items() <= text.items()


def test_suspects_few__are_answered_from_what_is_committed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each threshold is over all of its honest federations, and what it is worth is exact."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    script = runpy.run_path(str(BENCHMARKS / "suspects_few.py"))
    text = (BENCHMARKS / "results" / "suspects_few.json").read_text()
    result = json.loads(text)
    plan = script["suspects"].load_plan(script["PLAN"])
    again = json.loads(json.dumps(script["conclude"](plan, result["by_federation"])))
    assert again.items() <= result.items() and script["as_text"](result) == text
    for row in result["cells"]:
        assert row["threshold"] >= max(largest for _, largest in row["largest"].values())
        exact = clopper_pearson(row["power"]["count"], row["power"]["n"])
        assert (row["power"]["low"], row["power"]["high"]) == pytest.approx(exact, abs=1e-4)
        assert row["given"] == (exact[0] > 0.05 and row["false"]["low"] <= 0.05)


def test_foreign_ascent__compares_two_federations_of_the_same_images(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Of few images and hardly trained; the answer is of numbers that are made up."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    script = runpy.run_path(str(BENCHMARKS / "foreign_ascent.py"))
    plan = yaml.safe_load(script["PLAN"].read_text())
    seeds = [*script["files_of"](plan, tmp_path)]
    assert not {*range(plan["used_up"][0][0], plan["used_up"][0][1] + 1)} & {*seeds}
    small = plan["settings"] | {
        "data": {"name": "synthetic", "images": 200, "mean": [0], "std": [1]},
        "split": {"members": 24, "nonmembers": 28, "known": 4, "test": 2},
        "pretrain": {"mode": "pooled", "epochs": 40},
    }
    small["train"] = small["train"] | {"local_epochs": 2}
    one = script["pair"]({"settings": small}, 5)
    for side in script["SIDES"]:
        values = one[side]
        assert values["effect"] == pytest.approx(values["rise"] - values["twin"])
        assert all(0 < values[n] < 1 for n in ("rise", "twin", "level", "before"))
        assert values["rise"] != values["twin"]  # somebody climbed
    assert one["own"]["before"] == pytest.approx(one["foreign"]["before"], abs=0.15)
    draw = np.random.default_rng(0)
    for gap, verdict in ((0.0, True), (0.04, False)):
        for seed in seeds:
            both = draw.normal(0.1, 0.05)
            sides = {"own": both, "foreign": both + gap + draw.normal(0, 0.02)}
            values = {side: dict.fromkeys(one[side], effect) for side, effect in sides.items()}
            (tmp_path / f"{seed}.json").write_text(json.dumps({**values, "seconds": 1.0}))
        result = script["answer"](plan, tmp_path, False)
        assert result["equivalent"] is verdict and result["difference"]["mean"] == pytest.approx(
            gap, abs=0.01
        )
        low, high = result["difference"]["low"], result["difference"]["high"]
        assert low < result["difference"]["mean"] < high and result["correlation"] > 0.8
    (tmp_path / f"{seeds[0]}.json").unlink()
    with pytest.raises(SystemExit, match=f"{len(seeds) - 1} of {len(seeds)}"):
        script["answer"](plan, tmp_path, False)
    assert script["answer"](plan, tmp_path, True)["short"]


def test_watch__counts_stops_and_what_a_look_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    script = runpy.run_path(str(BENCHMARKS / "watch.py"))
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
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    script = runpy.run_path(str(BENCHMARKS / "where.py"))
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
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    main = runpy.run_path(str(BENCHMARKS / "gpu.py"))["main"]
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
