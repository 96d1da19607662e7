"""What tables claim, judged by their JSON files alone: every verdict, by other hands."""

from __future__ import annotations

import itertools
import json
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy

from fedmia.statistics.spread import t_interval
from research.papers.tables import claims_of, markdown
from tests.papers.plans import ENTRIES, QUESTIONS, of_paper, plan

RESULTS = Path(__file__).resolve().parents[2] / "research" / "results"
COMMITTED = sorted({path.parent for path in RESULTS.glob("papers-*/*-*.json")})
HOLDS, FAILS, UNDECIDED, EQUIVALENT = "held", "not held", "undecided", "equivalent"
PLANNED = {e.name: c for e in of_paper("primaries") for c in e.claims if "primary" in c}
REGIME = {c["says"]: c for e in of_paper("regime") for c in e.claims if "primary" in c}
POWER, LEVEL, DRAWS = 0.9, 0.05, 100_000
A_OVER_B = {"says": "A over B", "better": "A", "over": "B"}
A_OVER_HALF = {"says": "A over .5", "better": "A", "over": 0.5}
A, B = (0.7, 0.72, 0.69), (0.6, 0.61, 0.6)
NOISE = (-0.03, -0.01, 0.0, 0.01, 0.03)
Values = Sequence[float] | Mapping[int, float]  # of targets with the seeds 0, 1, ..; by seed


def table(
    claims: Sequence[Any], numbers: Mapping[Any, Values], *, name: str = "t", run: bool = True,
    silent: Mapping[str, Any] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """A table as its JSON file holds it, of numbers by column, or by level, row and column."""
    places = {key if isinstance(key, tuple) else ("", "r", key): v for key, v in numbers.items()}
    cells = [
        {"level": level, "row": row, "column": column, "read": "", "theirs": None,
         "theirs_sd": None, "ours": None, "jobs": ["audit"] * run,
         "by_seed": {str(seed): value for seed, value in by_seed(values).items()},
         **({"no_answer": silent[column]} if silent and column in silent else {})}
        for (level, row, column), values in places.items()
    ]  # fmt: skip
    head = {"name": name, "paper": "p", "place": "", "title": "", "open": {}}
    return json.loads(json.dumps(head | {"claims": claims, "cells": cells}))  # type: ignore[no-any-return]


def by_seed(values: Values) -> Mapping[int, float]:
    return values if isinstance(values, Mapping) else dict(enumerate(values))


def judged(claim: Mapping[str, Any], numbers: Mapping[Any, Values]) -> dict[str, Any]:
    """One claim of one table."""
    (result,) = claims_of([table([{"says": "", **claim}], numbers)])
    return result


def ends(claim: Mapping[str, Any]) -> tuple[float, float]:
    return claim["low"], claim["high"]


@pytest.mark.parametrize(
    ("mean", "plan", "verdict"),
    [
        (0.10, {"effect": 0.05}, HOLDS),
        (0.04, {"effect": 0.08}, FAILS),  # over 0, but an effect of interest would have shown
        (0.03, {"effect": 0.05}, UNDECIDED),  # neither over 0 nor under the effect
        (0.00, {"effect": 0.05}, FAILS),  # an effect of interest would have shown
        (-0.10, {"effect": 0.05}, FAILS),
        (0.10, {"effect": 0.05, "targets": 6}, UNDECIDED),  # fewer than were planned
        (0.00, {"effect": 0.05, "margin": 0.05}, EQUIVALENT),
        (0.10, {"effect": 0.05, "margin": 0.05}, HOLDS),
        (0.03, {"effect": 0.05, "margin": 0.05}, UNDECIDED),
    ],
)
def test_primary__by_the_rule(mean: float, plan: Any, verdict: str) -> None:
    """The interval is .0313 wide a side: Student's 4.604 at .99, sd .0152, over root 5."""
    values = [round(mean + 0.0125 * z, 6) for z in (-1.4, -1, 0, 1, 1.4)]
    plan = {"family": 5, "targets": 5, **plan}
    found = judged({"better": "A", "over": 0, "primary": plan}, {"A": values})
    assert (found["verdict"], found["primary"], found["effect"]) == (verdict, True, plan["effect"])
    assert (found["planned"], found["targets"]) == (plan["targets"], 5)
    half = scipy.stats.t.isf(0.005, 4) * np.std(values, ddof=1) / 5**0.5
    assert ends(found) == pytest.approx((mean - half, mean + half))
    assert found["p"] == pytest.approx(min(1, 5 * scipy.stats.ttest_1samp(values, 0).pvalue))
    if (margin := plan.get("margin")) is None:
        assert found["p_equivalent"] is None
    else:
        t = (margin - abs(mean)) / (half / scipy.stats.t.isf(0.005, 4))
        assert found["p_equivalent"] == pytest.approx(min(1, 5 * scipy.stats.t.sf(t, 4)), rel=1e-3)


@pytest.mark.parametrize(
    ("worse", "verdict"),
    [((0.5, 0.51, 0.49), HOLDS), ((0.9, 0.91, 0.89), FAILS), ((0.6, 0.8, 0.7), UNDECIDED)],
)
def test_claim__by_the_interval_over_targets(worse: Values, verdict: str) -> None:
    found = judged(A_OVER_B, {"A": A, "B": worse})
    assert (found["verdict"], found["targets"], found["primary"]) == (verdict, 3, False)


@pytest.mark.parametrize(
    ("claim", "numbers", "want"),
    [
        # Paired by seed, never by place; the mean over rows.
        (A_OVER_B, {("", "1", "A"): (0.9, 0.6), ("", "1", "B"): {1: 0.1, 0: 0.5}}, [0.4, 0.5]),
        (A_OVER_B, {("", "1", "A"): (0.9, 0.6), ("", "1", "B"): (0.5, 0.1),
                    ("", "2", "A"): (0.7, 0.8), ("", "2", "B"): (0.5, 0.7)}, [0.3, 0.3]),
        # A row whose two sides are of other targets is left out; of others, nothing is compared.
        (A_OVER_B, {("", "1", "A"): (0.7, 0.8), ("", "1", "B"): {1: 0.5, 2: 0.8},
                    ("", "2", "A"): {0: 0.9, 2: 0.6}, ("", "2", "B"): {2: 0.1, 0: 0.5}},
         [0.4, 0.5]),
        (A_OVER_B, {"A": (0.7, 0.8), "B": {1: 0.5, 2: 0.8}}, []),
        (A_OVER_HALF, {("", "1", "A"): (0.7, 0.8), ("", "2", "A"): {0: 0.9, 2: 0.6}}, []),
        ({"better": "A", "over": "C"}, {"A": A}, []),
        # One row over another; some rows alone; the mean of several columns.
        ({"better": "A", "over": "A", "rows": ["2"], "over_rows": ["1"]},
         {("", "1", "A"): (0.5, 0.6), ("", "2", "A"): {1: 0.9, 0: 0.7}}, [0.2, 0.3]),
        ({**A_OVER_HALF, "rows": ["2"]}, {("", "1", "A"): (0, 0), ("", "2", "A"): (0.7, 0.8)},
         [0.2, 0.3]),
        ({"better": ["A", "B"], "over": 0}, {"A": (0.5, 0.6), "B": (0.3, 0.2)}, [0.4, 0.4]),
    ],
)  # fmt: skip
def test_difference__of_each_target(claim: Any, numbers: Any, want: list[float]) -> None:
    found = judged({"effect": 0.1, **claim}, numbers)
    assert found["targets"] == len(want)
    assert found["mean"] == (pytest.approx(statistics.fmean(want)) if want else None)
    if len({*want}) > 1:
        assert ends(found) == pytest.approx(t_interval(want))


def test_slope__of_the_mean_of_columns_by_doubling() -> None:
    """A loses .03 with each halving, B .01, C nothing: the mean of A and B .02 more than C."""
    rows, fall = {"4": 2, "8": 3, "32": 5}, {"A": 0.03, "B": 0.01, "C": 0.0}
    numbers: dict[Any, Values] = {
        ("", row, name): {7: 0.6 + k * x, 9: 0.5 + 2 * k * x}
        for row, x in rows.items() for name, k in fall.items()
    }  # fmt: skip
    claim = {"better": ["A", "B"], "over": "C", "slope": True, "effect": 0.1}
    assert ends(judged(claim, numbers)) == pytest.approx(t_interval([0.02, 0.04]))
    level = judged({**claim, "slope": False}, numbers)
    assert level["mean"] == pytest.approx(0.03 * 10 / 3)
    numbers["", "8", "B"] = {}
    assert judged(claim, numbers)["targets"] == 0


def test_intervals__hold_together_over_what_is_run() -> None:
    """Over claims and levels; what is not run adds nothing, and says so."""
    numbers = {(level, "r", c): v for level in "xyz" for c, v in (("A", A), ("B", B))}
    cut = table([A_OVER_HALF], dict.fromkeys(numbers, ()), name="cut", run=False)
    results = claims_of([table([A_OVER_B, A_OVER_HALF], numbers), cut])
    apart = {"A over B": np.subtract(A, B), "A over .5": np.subtract(A, 0.5)}
    assert [r["level"] for r in results] == list("xyzxyzxyz")
    for result in results[:6]:
        assert ends(result) == pytest.approx(t_interval(apart[result["says"]].tolist(), 6)), result
    assert {(r["verdict"], r["low"], r["targets"]) for r in results[6:]} == {("not run", None, 0)}
    assert {r["entry"] for r in results[6:]} == {"cut"}
    # '' is the level of a scale that has none; the other claim has no place in the family.
    levels = [{**A_OVER_B, "levels": ["x"]}, {**A_OVER_B, "levels": [""]}]
    (one,) = claims_of([table(levels, {k: v for k, v in numbers.items() if k[0] in "xy"})])
    assert one["level"] == "x"
    assert ends(one) == pytest.approx(t_interval(apart["A over B"].tolist(), 1))


@pytest.mark.parametrize(
    ("better", "other", "verdict"),
    [
        (0.50, 0.50, "no test"),  # both guess
        (0.40, 0.50, "no test"),
        (0.50, 0.70, FAILS),  # the other one finds members, so there were some to find
        (0.70, 0.50, HOLDS),
    ],
)
def test_no_test__where_no_reference_lies_over_chance(
    better: float, other: float, verdict: str
) -> None:
    """A reference may be a column of another table of the same targets."""
    claim = {**A_OVER_B, "effect": 0.05, "reference": ["A", "B"]}
    numbers = {"A": [better + z / 3 for z in NOISE], "B": [other - z / 3 for z in NOISE]}
    assert judged(claim, numbers)["verdict"] == verdict
    beside = table([], numbers, name="beside")
    (result,) = claims_of([table([{**claim, "reference": ["beside/A"]}], numbers), beside])
    assert result["verdict"] == (HOLDS if better > 0.6 else "no test")


@pytest.mark.parametrize(
    ("falls", "at_largest", "verdict"),
    [
        ({"A": 0.05, "B": 0.06, "C": 0.0}, 0.8, HOLDS),
        ({"A": 0.05, "B": 0.0, "C": 0.0}, 0.8, FAILS),  # less than A, in the mean, but not than B
        ({"A": 0.05, "B": 0.015, "C": 0.0}, 0.8, UNDECIDED),
        ({"A": 0.05, "B": 0.06, "C": 0.0}, 0.5, "no test"),  # C guesses, so loses nothing
    ],
)
def test_each_of_several__is_an_intersection(
    falls: dict[str, float], at_largest: float, verdict: str
) -> None:
    claim = {"better": ["A", "B"], "over": "C", "slope": True, "each": True,
             "reference": ["A", "B", "C"], "effect": 0.02}  # fmt: skip
    signs = {"A": (-1, 0, 1), "B": (1, -1, 0), "C": (0, 1, -1)}
    numbers = {
        ("", row, name): [
            (at_largest if name == "C" else 0.8) - (2 - i) * fall + 0.004 * (i - 1.5) * sign
            for sign in signs[name]
        ]
        for i, row in enumerate(("4", "8", "16"))
        for name, fall in falls.items()
    }
    result = judged(claim, numbers)
    assert result["verdict"] == verdict
    assert [part["column"] for part in result["parts"]] == ["A", "B"]
    least = min(result["parts"], key=lambda part: part["mean"])
    assert (result["mean"], [*ends(result)]) == (least["mean"], least["ci"])


def test_no_answer__is_told_of_each_side_of_a_claim() -> None:
    claims = [A_OVER_B, {**A_OVER_HALF, "better": "C"}]
    told = claims_of([table(claims, {"A": A, "B": B, "C": A}, silent={"B": [1, 2]})])
    assert [claim.get("no_answer") for claim in told] == [[1, 2], None]


# -- how many targets it takes ---------------------------------------------------------------------


def power(n: int, effect: float, sd: float, family: int) -> float:
    """Chance that the interval of n targets lies over 0 where the mean is the effect."""
    t = scipy.stats.t.isf(LEVEL / family / 2, n - 1)
    return float(scipy.stats.nct.sf(t, n - 1, effect * math.sqrt(n) / sd))


def fewest(effect: float, sd: float, family: int = 1) -> int:
    return next(n for n in itertools.count(2) if power(n, effect, sd, family) >= POWER)


def simulated(n: int, plan: Mapping[str, Any]) -> float:
    """Chance that n targets decide: an interval over 0, or of a margin equivalence."""
    draw, sd = np.random.default_rng(0), plan["sd"]
    truth = 0 if "margin" in plan else plan["effect"]
    means = draw.normal(truth, sd / math.sqrt(n), DRAWS)
    errors = sd * np.sqrt(draw.chisquare(n - 1, DRAWS) / (n - 1) / n)
    level = LEVEL / plan["family"]
    if "margin" in plan:
        decided = np.abs(means) + scipy.stats.t.isf(level, n - 1) * errors < plan["margin"]
    else:
        decided = means > scipy.stats.t.isf(level / 2, n - 1) * errors
    return float(np.mean(decided))


def test_primaries__are_one_a_paper_in_one_family() -> None:
    names = {name.removeprefix("primary-") for name in PLANNED}
    assert names == {"encodermi", "federated", "logistic", "lpla", "partcrop"}
    assert all(c["primary"]["family"] == len(PLANNED) for c in PLANNED.values())
    assert len(REGIME) == 4 and all(c["primary"]["family"] == 4 for c in REGIME.values())
    elsewhere = [c for e in ENTRIES.values() for c in e.claims if e.paper not in QUESTIONS]
    assert not any("primary" in claim for claim in elsewhere)


@pytest.mark.parametrize("name", sorted(PLANNED | REGIME))
def test_primaries__have_the_fewest_targets_of_the_power(name: str) -> None:
    plan = (PLANNED | REGIME)[name]["primary"]
    if "margin" in plan:
        assert simulated(plan["targets"], plan) >= POWER > simulated(plan["targets"] - 1, plan)
    else:
        assert fewest(plan["effect"], plan["sd"], plan["family"]) == plan["targets"]
        own = power(plan["targets"], plan["effect"], plan["sd"], plan["family"])
        assert simulated(plan["targets"], plan) == pytest.approx(own, abs=0.005)


def test_undecided__says_what_it_would_take() -> None:
    """At the deviation seen, and at its limits: chi-squared with four degrees of freedom has .484
    and 11.143 at the ends of 95 %. Of several claims together it takes more."""
    claim = {"better": "A", "over": 0, "effect": 0.05}
    values = {"A": [0.025 + z for z in NOISE]}
    sd = statistics.stdev(NOISE)
    names = ("would_take", "would_take_low", "would_take_high")
    for family in (1, 3):
        found = claims_of([table([{"says": "", **claim}] * family, values)])[0]
        assert found["verdict"] == UNDECIDED
        deviations = sd, sd * (4 / 11.1433) ** 0.5, sd * (4 / 0.484419) ** 0.5
        want = [fewest(0.05, one, family) for one in deviations]
        assert [found[name] for name in names] == want and want[1] < want[0] < want[2]
    for mean, verdict in ((0.2, HOLDS), (-0.2, FAILS)):
        done = judged(claim, {"A": [mean + z for z in NOISE]})
        assert done["verdict"] == verdict and [done[name] for name in names] == [None] * 3


def test_undecided__over_each_of_several_takes_what_the_most_varied_one_takes() -> None:
    both = {"better": ["A", "B", "C"], "over": 0, "effect": 0.05, "each": True}
    columns = {"A": [0.025 + z for z in NOISE], "B": [0.025 + 2 * z for z in NOISE],
               "C": [0.5 + z for z in NOISE]}  # fmt: skip
    result = judged(both, columns)
    assert result["verdict"] == UNDECIDED
    a, b, c = result["parts"]
    assert (a["would_take"], b["would_take"]) == tuple(
        fewest(0.05, k * statistics.stdev(NOISE)) for k in (1, 2)
    )
    assert (c["would_take"], c["would_take_ci"]) == (None, None)
    assert result["would_take"] == b["would_take"]
    assert b["would_take_ci"] == [result["would_take_low"], result["would_take_high"]]
    decided = judged(both, {**columns, "C": [z - 0.5 for z in NOISE]})  # not held over one
    assert decided["verdict"] == FAILS and decided["would_take"] is None


# -- claims of the papers --------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name, entry in ENTRIES.items() if entry.claims])
def test_claims__have_a_smallest_effect_and_a_reference_where_attacks_are_compared(
    name: str,
) -> None:
    for scale in ("small", "paper"):
        entry, cells = ENTRIES[name], plan(name, scale)
        head = {name: getattr(entry, name) for name in ("name", "paper", "place", "title", "open")}
        rows = [{**vars(c), "ours": None, "by_seed": {}, "jobs": [*c.jobs]} for c in cells]
        found = claims_of([{**head, "claims": entry.claims, "cells": rows}])
        assert all(claim["effect"] > 0 for claim in found)
        for own in entry.claims:
            among = own.get("rows", [cell.row for cell in cells])
            reads = {c.read.rpartition("/")[2].partition("@")[0] for c in cells if c.row in among}
            compares = reads & {"accuracy", "auc", "tpr"}
            assert not compares or own.get("reference"), own["says"]


def test_effect__is_a_quarter_of_the_papers_difference_over_the_rows_that_are_run() -> None:
    numbers = {("A", "1"): 0.5, ("B", "1"): 0.3, ("A", "2"): 0.9, ("B", "2"): 0.5, ("A", "3"): 1.0}
    claimed = table([A_OVER_B], {("", row, column): () for column, row in numbers})
    for cell in claimed["cells"]:
        cell["theirs"] = numbers[cell["column"], cell["row"]]
    assert claims_of([claimed])[0]["effect"] == pytest.approx((0.2 + 0.4) / 2 / 4)
    for cell in claimed["cells"]:
        cell["jobs"] = ["audit"] * (cell["row"] == "1")
    assert claims_of([claimed])[0]["effect"] == pytest.approx(0.2 / 4)
    (partcrop,) = ENTRIES["primary-partcrop"].claims
    assert partcrop["primary"]["effect"] == pytest.approx((0.772 - 0.5729) / 4, abs=0.001)


@pytest.mark.parametrize("folder", COMMITTED, ids=lambda folder: folder.name)
def test_committed__tables_and_claims_follow_from_their_json(folder: Path) -> None:
    tables = [json.loads(path.read_text("utf-8")) for path in sorted(folder.glob("*-*.json"))]
    for one in tables:
        page = folder / f"{one['name']}.md"
        assert markdown(one) == page.read_text(encoding="utf-8"), page.name
        for cell in one["cells"]:
            values = list(cell["by_seed"].values())
            if len(values) > 1:
                assert cell["ours"] == pytest.approx(statistics.fmean(values)), (page.name, cell)
                own = zip(
                    t_interval(values) or (None, None), (cell["low"], cell["high"]), strict=True
                )
                # Limits of shares are written with six digits.
                near = [got in (pytest.approx(end, abs=1e-6), 0.0, 1.0) for end, got in own]
                assert all(near), cell
    claims = json.loads((folder / "claims.json").read_text("utf-8"))["claims"]
    assert in_order(claims_of(tables)) == in_order(claims)


def in_order(claims: Any) -> list[str]:
    return sorted(json.dumps(claim, sort_keys=True) for claim in claims)
