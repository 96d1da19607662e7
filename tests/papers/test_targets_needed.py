"""How many targets an undecided claim would take, against a simulation of the deciding rule."""

from __future__ import annotations

import statistics
from typing import Any

import numpy as np
import pytest

from fedmia.statistics.spread import t_interval
from papers.cells import Reading
from papers.claims import (
    FAILS,
    HOLDS,
    UNDECIDED,
    chance_to_decide,
    deviation_limits,
    targets_needed,
)
from papers.claims.over_targets import judge_claims
from papers.entries import Entry, TableCell, read_entries
from papers.jobs import TableJob


@pytest.mark.parametrize(("effect", "sd", "family"), [(0.02, 0.032, 5), (0.1, 0.06, 1)])
def test_needed__decides_nine_times_of_ten_between_the_effect_and_nothing(
    effect: float, sd: float, family: int
) -> None:
    n, draw, rounds = targets_needed(effect, sd, family), np.random.default_rng(1), 1000
    assert n is not None
    held = not_held = 0
    for _ in range(rounds):
        noise = draw.normal(0, sd, n)
        low, _ = t_interval([*(effect + noise)], family) or (0, 0)
        _, high = t_interval([*noise], family) or (0, 0)
        held, not_held = held + (low > 0), not_held + (high < effect)
    for share in (held / rounds, not_held / rounds):
        assert share == pytest.approx(chance_to_decide(effect, sd, n, family), abs=0.03)
    assert chance_to_decide(effect, sd, n, family) >= 0.9
    assert n == 2 or chance_to_decide(effect, sd, n - 1, family) < 0.9


def test_needed__is_what_the_primary_questions_planned_with() -> None:
    plans = [
        claim["primary"]
        for entry in read_entries().values()
        for claim in entry.claims
        if "margin" not in claim.get("primary", {"margin": 0})
    ]
    assert len(plans) == 8  # four of the regime where PartCrop can work
    for plan in plans:
        assert targets_needed(plan["effect"], plan["sd"], plan["family"]) == plan["targets"]


def test_needed__at_the_ends() -> None:
    assert targets_needed(1, 0) == targets_needed(1, 1e-6, 40) == 2
    assert targets_needed(1e-6, 1) is None
    with pytest.raises(ValueError, match="over 0, got 0"):
        targets_needed(0, 1)


def test_deviation_limits__of_five_values() -> None:
    """Chi-squared with four degrees of freedom has .484 and 11.143 at the ends of 95 %."""
    low, high = deviation_limits([1.0, 2.0, 3.0, 4.0, 5.0])
    assert (low, high) == pytest.approx(
        ((4 * 2.5 / 11.143) ** 0.5, (4 * 2.5 / 0.4844) ** 0.5), rel=1e-3
    )


def judged(claim: dict[str, Any], by_column: dict[str, list[float]]) -> dict[str, Any]:
    entry = Entry("t", "p", "", "t", claims=[{"says": "", "over": 0, "effect": 0.05, **claim}])
    cells = [
        TableCell("r", name, "", "", (TableJob("audit", {}),), None, None) for name in by_column
    ]
    numbers = {
        ("", "r", name): Reading(0, by_seed=dict(enumerate(values)))
        for name, values in by_column.items()
    }
    (result,) = judge_claims([(entry, cells, numbers)])
    return result


NOISE = [-0.03, -0.01, 0.0, 0.01, 0.03]


def test_claims__say_what_an_undecided_one_would_take() -> None:
    open_claim = judged({"better": "A"}, {"A": [0.025 + z for z in NOISE]})
    assert open_claim["verdict"] == UNDECIDED
    limits = deviation_limits(NOISE)
    want = [targets_needed(0.05, sd) for sd in (statistics.stdev(NOISE), *limits)]
    names = ("would_take", "would_take_low", "would_take_high")
    assert [open_claim[name] for name in names] == want
    assert want[1] < want[0] < want[2]
    for mean, verdict in ((0.2, HOLDS), (-0.2, FAILS)):
        done = judged({"better": "A"}, {"A": [mean + z for z in NOISE]})
        assert done["verdict"] == verdict and [done[name] for name in names] == [None] * 3


def test_claims__over_each_of_several_take_what_the_most_varied_one_takes() -> None:
    both = {"better": ["A", "B", "C"], "each": True}
    columns = {
        "A": [0.025 + z for z in NOISE],
        "B": [0.025 + 2 * z for z in NOISE],
        "C": [0.5 + z for z in NOISE],
    }
    result = judged(both, columns)
    assert result["verdict"] == UNDECIDED
    a, b, c = result["parts"]
    assert (a["would_take"], c["would_take"], c["would_take_ci"]) == (
        targets_needed(0.05, statistics.stdev(NOISE)), None, None,
    )  # fmt: skip
    assert result["would_take"] == b["would_take"] > a["would_take"]
    assert b["would_take_ci"] == [result["would_take_low"], result["would_take_high"]]
    decided = judged(both, {**columns, "C": [z - 0.5 for z in NOISE]})  # not held over one
    assert decided["verdict"] == FAILS and decided["would_take"] is None
