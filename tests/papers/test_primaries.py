"""The primary questions: what was written down of each, and every verdict of the rule."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy

from papers.cells import Reading, read_path
from papers.claims import EQUIVALENT, FAILS, HOLDS, NOT_RUN, UNDECIDED
from papers.claims.over_targets import differences, judge_claims
from papers.entries import Entry, TableCell, read_entries, select
from papers.jobs import TableJob
from papers.listing import read_sources

PLANNED = {e.name: c for e in select(["primaries"]) for c in e.claims if "primary" in c}
POWER, LEVEL, DRAWS = 0.9, 0.05, 100_000


def power(n: int, plan: Any) -> float:
    """Chance that n targets decide: an interval over 0 where the effect is that of interest, or
    equivalence where nothing differs."""
    level, sd = LEVEL / plan["family"], plan["sd"]
    if "margin" not in plan:
        t = scipy.stats.t.isf(level / 2, n - 1)
        return float(scipy.stats.nct.sf(t, n - 1, plan["effect"] * math.sqrt(n) / sd))
    draw = np.random.default_rng(0)
    means = draw.normal(0, sd / math.sqrt(n), DRAWS)
    errors = sd * np.sqrt(draw.chisquare(n - 1, DRAWS) / (n - 1) / n)
    half = scipy.stats.t.isf(level, n - 1) * errors
    return float(np.mean(np.abs(means) + half < plan["margin"]))


def test_primaries__one_a_paper_in_one_family() -> None:
    names = {name.removeprefix("primary-") for name in PLANNED}
    assert names == {"encodermi", "federated", "logistic", "lpla", "partcrop"}
    assert all(c["primary"]["family"] == len(PLANNED) for c in PLANNED.values())
    elsewhere = [c for e in read_entries().values() for c in e.claims if e.paper != "primaries"]
    assert not any("primary" in claim for claim in elsewhere)


@pytest.mark.parametrize("name", sorted(PLANNED))
def test_primaries__the_fewest_targets_of_the_power(name: str) -> None:
    plan = PLANNED[name]["primary"]
    assert power(plan["targets"], plan) >= POWER > power(plan["targets"] - 1, plan)


@pytest.mark.parametrize("name", sorted(PLANNED))
def test_primaries__as_many_targets_as_written_down_on_fresh_seeds(
    name: str, tmp_path: Path
) -> None:
    """Seeds under 3,000 were used before, or chose the targets."""
    for source in read_sources().values():
        (tmp_path / source["file"]).touch()
    (entry,) = select([name])
    for cell in entry.cells("small", tmp_path):
        seeds = [next(job.chain()).tree["seed"] for job in cell.jobs]
        assert seeds == list(range(3000, 3000 + PLANNED[name]["primary"]["targets"]))


def test_heads__of_two_targets_share_no_seed(tmp_path: Path) -> None:
    """They would share the noise, and their differences would not be independent."""
    (tmp_path / "cifar10-train.parquet").touch()
    for name in ("logistic-table-1", "primary-logistic"):
        cell = select([name])[0].cells("small", tmp_path)[0]
        heads = [job.tree["seed"] + i for job in cell.jobs for i in range(job.tree["seeds"])]
        assert len(set(heads)) == len(heads) > len(cell.jobs) > 1


def test_path__of_an_attack_at_a_value_of_a_sweep(tmp_path: Path) -> None:
    """None where it could not run there."""
    sweep = [
        {"name": name, "value": value, "not_run": None, "accuracy": accuracy, "accuracy_ci": None}
        for name, value, accuracy in (("lpla", 4, 0.6), ("lpla", 40, 0.7), ("sd-mi", 40, 0.8))
    ]
    sweep.append({"attack": "sd-mi", "value": 4, "not_run": "too few"})
    (tmp_path / "report.json").write_text(json.dumps({"attacks": [], "sweep": sweep}))
    numbers = [
        read_path("audit", tmp_path, f"sweep/{at}/accuracy").value
        for at in ("lpla@4", "lpla@40", "sd-mi@40", "sd-mi@4")
    ]
    assert numbers == [0.6, 0.7, 0.8, None]


def judged(claim: Any, *values: float) -> dict[str, Any]:
    entry = Entry("t", "primaries", "Table 1", "t", claims=[{"says": "", **claim}])
    cells = [TableCell("r", name, "", "", (TableJob("audit", {}),), None, None) for name in "AB"]
    numbers = {("", "r", "A"): Reading(0, by_seed=dict(enumerate(values)))}
    (result,) = judge_claims([(entry, cells, numbers)])
    return result


@pytest.mark.parametrize(
    ("mean", "plan", "verdict"),
    [
        (0.10, {"effect": 0.05}, HOLDS),
        (0.03, {"effect": 0.05}, UNDECIDED),  # neither over 0 nor under the effect
        (0.00, {"effect": 0.05}, FAILS),  # an effect of interest would have shown
        (-0.10, {"effect": 0.05}, FAILS),
        (0.10, {"effect": 0.05, "targets": 6}, UNDECIDED),  # fewer than were planned
        (0.00, {"effect": 0.05, "margin": 0.05}, EQUIVALENT),
        (0.10, {"effect": 0.05, "margin": 0.05}, HOLDS),
        (0.03, {"effect": 0.05, "margin": 0.05}, UNDECIDED),
    ],
)
def test_verdict__by_the_rule(mean: float, plan: Any, verdict: str) -> None:
    """The interval is .0313 wide a side: Student's 4.604 at .99, sd .0152, over root 5."""
    values = [round(mean + 0.0125 * z, 6) for z in (-1.4, -1, 0, 1, 1.4)]
    plan = {"family": 5, "targets": 5, **plan}
    result = judged({"better": "A", "over": 0, "primary": plan}, *values)
    assert result["verdict"] == verdict
    half = scipy.stats.t.isf(0.005, 4) * np.std(values, ddof=1) / 5**0.5
    assert (result["low"], result["high"]) == pytest.approx((mean - half, mean + half))
    own = scipy.stats.ttest_1samp(values, 0).pvalue
    assert result["p"] == pytest.approx(min(1, 5 * own))
    inside = (
        "margin" in plan
        and abs(mean) + scipy.stats.t.isf(0.01, 4) * half / (scipy.stats.t.isf(0.005, 4))
        < plan["margin"]
    )
    assert (result["p_equivalent"] is not None) == ("margin" in plan)
    assert inside == ((result["p_equivalent"] or 1) < LEVEL)


def test_verdict__not_run_where_the_scale_has_no_cell() -> None:
    plan = {"family": 5, "targets": 2, "effect": 0.1}
    entry = Entry("t", "primaries", "", "t", claims=[
        {"says": "", "better": "A", "over": 0, "primary": plan}])  # fmt: skip
    cells = [TableCell("r", "A", "", "", (), None, None)]
    (result,) = judge_claims([(entry, cells, {})])
    assert (result["verdict"], result["low"], result["planned"]) == (NOT_RUN, None, 2)


def test_slope__of_the_mean_of_columns_by_doubling() -> None:
    """A loses .03 with each halving, B .01, C nothing: the mean of A and B .02 more than C."""
    rows = {"4": 2, "8": 3, "32": 5}
    fall = {"A": 0.03, "B": 0.01, "C": 0.0}
    numbers = {
        ("", row, name): Reading(0, by_seed={7: 0.6 + k * x, 9: 0.5 + 2 * k * x})
        for row, x in rows.items() for name, k in fall.items()
    }  # fmt: skip
    cells = [TableCell(row, name, "", "", (), None, None) for row in rows for name in fall]
    claim = {"better": ["A", "B"], "over": "C", "slope": True}
    assert differences(claim, "", cells, numbers) == pytest.approx([0.02, 0.04])
    assert differences({**claim, "slope": False}, "", cells, numbers) == pytest.approx(
        [0.02 * 10 / 3, 0.04 * 10 / 3], abs=1e-6
    )
    del numbers["", "8", "B"]
    assert differences(claim, "", cells, numbers) == []
