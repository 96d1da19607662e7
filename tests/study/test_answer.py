"""The benchmark that answers what was planned to be asked of the ascent: numbers, refusals."""

from __future__ import annotations

import json
import runpy
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from scipy.stats import t as student
from scipy.stats import ttest_1samp

from fedmia.attacks.ascent_climb import AscentClimb
from fedmia.cli.command import parse
from fedmia.cli.commands import STUDY
from fedmia.settings.commands.study import Study
from fedmia.storage.runfolder import RunFolder
from tests.made_up_runs import write_run

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
with pytest.MonkeyPatch.context() as patch:
    patch.syspath_prepend(str(BENCHMARKS))
    SCRIPT = runpy.run_path(str(BENCHMARKS / "ascent.py"))
    PLANNING = runpy.run_path(str(BENCHMARKS / "_ascent_plan.py"))
gain, measure_row, primary, exploratory, together, setting, main = (
    SCRIPT[name]
    for name in (
        "gain", "measure_row", "primary", "exploratory", "together", "setting", "main",
    )
)  # fmt: skip
read = PLANNING["read"]
AUCS: Mapping[tuple[str, str], tuple[float, float]] = {
    ("ascent", "ascent-zero"): (0.60, 0.45),
    ("ascent", "loss-before"): (0.60, 0.58),
    ("ascent-level", "ascent-level-zero"): (0.70, 0.71),
    ("ascent-static", "loss-before"): (0.62, 0.55),
}
SEEDS = (10, 11, 12)
BASE = "data: digits\nattacks: [similarity]\n"


def results(shift: float, code: str = "leaks", aucs: Any = AUCS) -> dict[str, Any]:
    """What a run found: `shift` is added to the AUC of each attack, and to that of no control."""
    pairs: list[Any] = [
        {"attack": attack, "control": control, "auc": mine + shift, "auc_control": other,
         "difference": mine + shift - other, "ci": None}
        for (attack, control), (mine, other) in aucs.items()
    ]  # fmt: skip
    attacks: Any = [
        {"name": name, "auc": 0.9, "choices": choices}
        for name, choices in (
            ("similarity", {}), ("ascent", {"steps": 3}), ("ascent-static", {"steps": 1, "lr": 0.1})
        )
    ]  # fmt: skip
    sets: Any = [
        {"attack": attack, "judged": judged, "size": 8, "auc": 0.9 + shift,
         "controls": [{"name": f"{attack}-zero", "auc": 0.4}]}
        for attack, judged in (("ascent", "alone"), ("ascent", "mean"), ("similarity", "mean"))
    ]  # fmt: skip
    return {
        "verdict_code": code, "attacks": attacks, "paired": pairs, "sets": sets,
        "utility": {"knn": 0.8}, "versions": {"commit": "abc"},
    }  # fmt: skip


Write = Callable[..., str]


@pytest.fixture
def plan(tmp_path: Path) -> dict[str, Any]:
    """Three federations of each data set in the overfit regime, and a weak sweep of two points."""
    rows = []
    for name, data, regime, more in (
        ("digits", "digits", "overfit", "federation: {clients: 4}\n"),
        ("cifar", "CIFAR-10", "overfit", "federation: {clients: 5}\n"),
        ("weak", "digits", "weak", "seeds: 2\nover: {partition.alpha: [0.1, 1]}\n"),
    ):
        (tmp_path / f"{name}.yaml").write_text(BASE + more)
        primary = {"primary": True} if regime == "overfit" else {}
        config = str(tmp_path / f"{name}.yaml")
        rows.append({"config": config, "data": data, "regime": regime, **primary})
    ask = [
        {"question": question, "data": data, "attack": attack, "control": control}
        for question, attack, control in (
            ("static", "ascent-static", "loss-before"), ("federated", "ascent", "ascent-zero")
        )
        for data in ("digits", "CIFAR-10")
    ]  # fmt: skip
    second = {"question": "federated", "attack": "ascent", "control": "loss-before"}
    return {
        "questions": ask, "regime": "overfit", "secondary": second, "federations": 3,
        "seeds": {"primary": 10, "exploratory": 20}, "used_up": [[0, 7], [51, 52]], "sweeps": rows,
    }  # fmt: skip


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """`write(NAME, REGIME, CONFIG)`: the argument of a study of its runs, written to disk."""

    def make(
        name: str, regime: str, config: str, flags: Sequence[str] = (),
        seeds: Sequence[int] = SEEDS, shifts: Sequence[float] = (0.0, 0.01, 0.05),
        folder: str = "", **more: Any,
    ) -> str:  # fmt: skip
        line = ["--config", str(tmp_path / f"{config}.yaml"), *flags]
        study: Study = parse(STUDY, line).settings
        out, cells = tmp_path / (folder or f"OUT-{config}"), list[Any]()
        for nth, point in enumerate(study.points):
            for seed, shift in zip(seeds, shifts, strict=False):
                run = out / f"cells/{nth}-{seed}"
                write_run(run, results(shift, **more))
                cells.append({"name": f"run{seed}", "grid": dict(point.grid), "seed": seed,
                              "state": "finished", "path": f"cells/{nth}-{seed}"})  # fmt: skip
        fields = {"settings": study.tree(), "seeds": list(seeds), "cells": cells}
        (out / "study.json").write_text(json.dumps(fields))
        return f"{name}={regime}={out}"

    return make


@pytest.fixture
def asked(write: Write) -> list[str]:
    """All planned sweeps: the gains of CIFAR-10 are .1 lower."""
    lower = {k: (mine - 0.1, other) for k, (mine, other) in AUCS.items()}
    return [
        write("digits", "overfit", "digits"),
        write("CIFAR-10", "overfit", "cifar", aucs=lower),
        write("digits", "weak", "weak", seeds=(20, 21)),
    ]


def test_gain__is_over_the_control_or_over_guessing() -> None:
    assert gain(0.62, 0.55) == pytest.approx(0.07)
    assert gain(0.62, 0.44) == pytest.approx(0.12)
    assert gain(0.45, 0.30) == pytest.approx(-0.05)


def test_primary__gains_p_and_holm_over_the_four(plan: Any, asked: list[str]) -> None:
    rows = primary(plan, read(plan, asked))
    told = [(r["kind"], r["data"], r["attack"], r["control"]) for r in rows]
    assert told == [
        ("primary", "digits", "ascent-static", "loss-before"),
        ("primary", "CIFAR-10", "ascent-static", "loss-before"),
        ("primary", "digits", "ascent", "ascent-zero"),
        ("secondary", "digits", "ascent", "loss-before"),
        ("primary", "CIFAR-10", "ascent", "ascent-zero"),
        ("secondary", "CIFAR-10", "ascent", "loss-before"),
    ]
    gains = [0.07, -0.03, 0.10, 0.02, 0.00, -0.08]  # the zero twin is under .5
    for row, first in zip(rows, gains, strict=True):
        own = [first, first + 0.01, first + 0.05]
        assert list(row["by_seed"].values()) == pytest.approx(own)
        assert list(row["by_seed"]) == ["10", "11", "12"]
        assert row["gain"]["mean"] == pytest.approx(sum(own) / 3)
        assert row["p"] == pytest.approx(ttest_1samp(own, 0.0).pvalue)
        half = student.ppf(0.975, 2) * np.std(own, ddof=1) / np.sqrt(3)
        assert row["gain"]["ci"] == pytest.approx(
            (np.mean(own) - half, np.mean(own) + half), abs=1e-6
        )
    first, last = rows[2], rows[0]  # the two least p
    assert first["p"] < last["p"] < min(rows[1]["p"], rows[4]["p"])
    assert first["p_holm"] == pytest.approx(4 * first["p"])
    assert last["p_holm"] == pytest.approx(3 * last["p"])
    assert rows[3]["p_holm"] is None and rows[5]["p_holm"] is None


@pytest.mark.parametrize(
    ("mean", "verdict"),
    [(0.1, "held"), (0.025, "undecided"), (0.0, "not held"), (-0.1, "not held")],
)
def test_judge__by_the_interval_of_all_questions_together(mean: float, verdict: str) -> None:
    """.0293 wide a side: Student's 4.31 with four degrees of freedom."""
    gains = [mean + 0.0125 * z for z in (-1.4, -1, 0, 1, 1.4)]
    row = SCRIPT["judge"](gains, 0.05, 4)
    half = student.isf(0.05 / 8, 4) * np.std(gains, ddof=1) / 5**0.5
    assert row["ci_together"] == pytest.approx((mean - half, mean + half), abs=1e-6)
    assert row["verdict"] == verdict
    assert SCRIPT["judge"](gains[:1], 0.05, 4) == {"ci_together": None, "verdict": "undecided"}


def test_primary__has_verdicts_where_the_plan_has_a_smallest_effect(
    plan: Any, asked: list[str]
) -> None:
    """And no secondary row where it asks for none."""
    swept = read(plan, asked)
    assert not any("verdict" in row for row in primary(plan, swept))
    del plan["secondary"]
    rows = primary({**plan, "effect": 0.05}, swept)
    assert [row["kind"] for row in rows] == ["primary"] * 4
    for row in rows:
        own = SCRIPT["judge"]([*row["by_seed"].values()], 0.05, 4)
        assert (row["verdict"], row["ci_together"]) == (own["verdict"], own["ci_together"])
    assert rows[0]["aucs_by_seed"]["10"] == [0.62, 0.55]
    assert len(exploratory(plan, swept)) > len(
        exploratory(
            {
                **plan,
                "secondary": {
                    "question": "federated",
                    "attack": "ascent",
                    "control": "loss-before",
                },
            },
            swept,
        )
    )


def test_primary__says_choices_regime_and_failed_controls(plan: Any, write: Write) -> None:
    asked = [write("digits", "overfit", "digits", code="control-failed"),
             write("CIFAR-10", "overfit", "cifar")]  # fmt: skip
    swept = read(plan, asked)
    rows = primary(plan, swept)
    assert rows[0]["chosen"] == {"steps=1, lr=0.1": 3} and rows[2]["chosen"] == {"steps=3": 3}
    assert (rows[0]["similarity"]["mean"], rows[0]["knn"]["mean"]) == (0.9, 0.8)
    assert rows[0]["unsound"] == {str(seed): "control-failed" for seed in SEEDS}
    assert rows[0]["n"] == 3 and rows[1]["unsound"] == {}  # counted all the same
    assert rows[1]["seeds"] == list(SEEDS) and SCRIPT["missing"](swept) == 0
    assert [r["kind"] for r in rows] == ["primary"] * 3 + ["secondary", "primary", "secondary"]


def test_exploratory__all_else_once(plan: Any, asked: list[str]) -> None:
    rows = exploratory(plan, read(plan, asked))
    own = [
        (r["attack"], r["of"]) for r in rows if (r["regime"], r["data"]) == ("overfit", "digits")
    ]
    assert own == [
        ("ascent-level", "image"), ("ascent", "set of 8, alone"), ("ascent", "set of 8, mean"),
    ]  # fmt: skip
    weak = [(r["attack"], r["control"], r["setting"]) for r in rows if r["regime"] == "weak"]
    # Both points of the grid have the same numbers here, so each is one row.
    assert ("ascent", "ascent-zero", "partition.alpha=0.1") in weak and len(weak) == 6


def test_setting__names_what_concerns_the_attack() -> None:
    grid = {"attacks": ["ascent"], "federation.attacked_rate": "constant", "attack.ascent.lr": 0.1}
    assert setting(grid, "ascent-level") == "federation.attacked_rate=constant, lr=0.1"
    assert setting(grid, "ascent-static-level") == "default"


def test_together__finds_what_neither_reading_tells(tmp_path: Path) -> None:
    """Members lie over others in the difference of two readings that share a large part."""
    draw = np.random.default_rng(0)
    part, truth = draw.normal(0, 5, 400), np.repeat([1, 0], 200)
    lines = [f"0,{m},0,0,{p},{p + 2 * m + e}" for p, m, e in
             zip(part, truth, draw.normal(0, 0.5, 400), strict=True)]  # fmt: skip
    (tmp_path / "scores.csv").write_text(
        "image,truth,client,label,ascent,ascent-level\n" + "\n".join(lines)
    )
    assert together(RunFolder(tmp_path), "ascent", "ascent-level") > 0.95
    assert together(RunFolder(tmp_path), "ascent", "other") is None
    assert together(RunFolder(tmp_path / "none"), "ascent", "ascent-level") is None


@pytest.mark.slow
def test_main__writes_the_answer(plan: Any, asked: list[str], tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text(yaml.safe_dump(plan))
    out = tmp_path / "answer"
    main([*asked, "--plan", str(tmp_path / "plan.yaml"), "--out", str(out)])
    answer = json.loads((out / "answer.json").read_text())
    assert answer["short"] == 0 and answer["plan"]["federations"] == 3
    assert [s["runs"] for s in answer["sweeps"]] == [3, 3, 4]
    assert answer["sweeps"][0]["commits"] == ["abc"]
    assert (out / "answer.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert [r["kind"] for r in answer["primary"]].count("primary") == 4 and answer["exploratory"]


# -- refusals --------------------------------------------------------------------------------


def refused(plan: Any, asked: Sequence[str], short: bool = False) -> str:
    with pytest.raises(SystemExit) as caught:
        read(plan, asked, short)
    text = str(caught.value)
    assert "\n" not in text
    return text


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"seeds": (7, 8, 51)}, "used up: 7, 51"),
        ({"seeds": (12, 13)}, "seed 13 is not planned"),
        ({"flags": ["--train.lr", "0.07"]}, "train.lr is 0.07"),
        ({"flags": ["--clients", "6"]}, "federation.clients is 6, but 4"),
        ({"flags": ["--over", "partition.alpha=0.1,1"]}, "2 points, but 1"),
        ({"flags": ["--dataset", "synthetic"]}, "data.name is synthetic"),
    ],
)
def test_read__refuses_other_seeds_and_settings(
    plan: Any, write: Write, more: Any, why: str
) -> None:
    assert why in refused(plan, [write("digits", "overfit", "digits", **more)])


def test_read__takes_another_place_and_files_of_one_sweep_as_one(plan: Any, write: Write) -> None:
    place = ["--threads-per-client", "2", "--device", "cpu", "--jobs", "2", "--seed", "99"]
    one = write("digits", "overfit", "digits", place, seeds=(10,), folder="A")
    rest = write("digits", "overfit", "digits", seeds=(11, 12), folder="B")
    (first, *others) = read(plan, [rest, one], short=True)
    assert [cell["seed"] for cell in first.cells] == [10, 11, 12] and first.short == 0
    assert [len(one.cells) for one in others] == [0, 0]
    assert "run10 is given twice" in refused(plan, [one, one])


def test_read__too_few_runs_are_an_answer_that_calls_itself_short(plan: Any, write: Write) -> None:
    some = [write("digits", "overfit", "digits", seeds=SEEDS[:2])]
    assert "2 of 3 planned runs" in refused(plan, some)
    swept = read(plan, some, short=True)
    rows = primary(plan, swept)
    assert [r["n"] for r in rows if r["kind"] == "primary"] == [2, 0, 2, 0]
    # Holm's correction is over four questions, whether they have an answer or not.
    low, high = sorted((rows[0], rows[2]), key=lambda row: row["p"])
    assert low["p_holm"] == pytest.approx(4 * low["p"])
    assert high["p_holm"] == pytest.approx(max(4 * low["p"], 3 * high["p"]))
    assert rows[1]["p_holm"] is None and SCRIPT["missing"](swept) == 1 + 3


def test_read__refuses_what_is_no_sweep(plan: Any, write: Write, tmp_path: Path) -> None:
    (tmp_path / "study.json").write_text("[]")
    unplanned = write("svhn", "overfit", "digits")
    for argument, why in (
        ("digits=overfit", "NAME=REGIME=FOLDER"),
        (f"digits=overfit={tmp_path}", "no study.json"),
        (f"digits=overfit={tmp_path}/none", "no study.json"),
        (unplanned, "svhn=overfit is not planned"),
    ):
        assert why in refused(plan, [argument])


def test_primary__a_run_without_its_pair_is_named_and_a_failed_one_is_none(
    plan: Any, write: Write, asked: list[str]
) -> None:
    lost = {k: v for k, v in AUCS.items() if k[0] != "ascent-static"}
    first = write("digits", "overfit", "digits", aucs=lost, folder="C")
    with pytest.raises(SystemExit, match="run10 has no ascent-static"):
        primary(plan, read(plan, [first, asked[1]]))
    path = Path(asked[0].split("=")[2]) / "study.json"
    report = json.loads(path.read_text())
    report["cells"][0] |= {"state": "failed"}
    path.write_text(json.dumps(report))
    assert "2 of 3 planned runs" in refused(plan, asked)


# -- the plan itself -------------------------------------------------------------------------


def test_plan__asks_both_questions_of_federations_that_nobody_has_looked_at() -> None:
    plan = PLANNING["load_plan"]()
    assert plan["federations"] == 29
    ask = [(q["question"], q["data"]) for q in plan["questions"]]
    both = ("digits", "CIFAR-10")
    assert ask == [(q, data) for q in ("static", "federated") for data in both]
    primaries = range(plan["seeds"]["primary"], plan["seeds"]["primary"] + 29)
    assert not any(low <= seed <= high for low, high in plan["used_up"] for seed in primaries)


STATIC = BENCHMARKS / "plans" / "static_ascent.yaml"


def test_plan__of_the_static_ascent_asks_for_both_controls_of_fresh_federations() -> None:
    plan = PLANNING["load_plan"](STATIC)
    asked = {(q["data"], q["attack"], q["control"]) for q in plan["questions"]}
    assert len(plan["questions"]) == 4 and asked == {
        (data, "ascent-climb", control)
        for data in ("digits", "CIFAR-10") for control in AscentClimb.without
    }  # fmt: skip
    first = plan["seeds"]["primary"]
    primaries = range(first, first + plan["federations"])
    assert not any(low <= seed <= high for low, high in plan["used_up"] for seed in primaries)
    for one in PLANNING["sweeps"](plan):
        (cell, *_) = parse(STUDY, ["--config", one.config]).settings.cells
        assert cell.seed == first and "ascent-climb" in cell.first.attacks
        assert cell.first.attacker == "passive"


def test_plan__its_sweeps_have_its_seeds() -> None:
    plan = PLANNING["load_plan"]()
    for one in PLANNING["sweeps"](plan):
        sweep = parse(STUDY, ["--config", one.config]).settings
        assert [cell.seed for cell in sweep.cells[:: len(one.points)]] == list(one.seeds)
        if one.primary:
            assert len(one.points) == 1 and {"ascent", "ascent-static"} <= {
                *sweep.cells[0].first.attacks
            }
