"""Rows, means, differences: known answers and naive twins."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import numpy as np
import pytest

from fedmia.bench.board import (
    BoardRow,
    Estimate,
    TargetRow,
    correlate,
    difference,
    influence,
    mean_of,
    would_show,
)
from fedmia.bench.scoring import TargetScores
from fedmia.bench.targets import Target
from fedmia.statistics.auc import auc

BOARD = runpy.run_path(str(Path(__file__).parents[2] / "tools" / "board.py"))
BenchEntry = BOARD["BenchEntry"]


def test_results__are_those_of_the_entries() -> None:
    """research/results/encoders-v1.json: `python tools/board.py` writes it."""
    content = BOARD["by_target"](*BOARD["read_bench"]())
    results = BOARD["PLACES"]["encoders-v1"].results
    assert json.loads(results.read_text(encoding="utf-8")) == content


def scores(shift: float, seed: int = 0, n: int = 200, m: int = 400) -> TargetScores:
    rng = np.random.default_rng(seed)
    members, others = rng.normal(shift, 1, n), rng.normal(0, 1, m)
    return TargetScores(members, others, "black_box", "outsider", 10, 1.0)


def targets(n: int = 200, m: int = 400, **traps: str) -> dict[str, Target]:
    """Targets that share no image."""
    by_name = {}
    for at, (name, trap) in enumerate(traps.items()):
        names = [f"{at * 10_000 + image:064x}"[::-1] for image in range(n + m)]
        roles = {"members": names[:n], "nonmembers": names[n:]}
        by_name[name] = Target(Path(name), {"trap": trap}, unwritten=roles)
    return by_name


@pytest.mark.parametrize(("correlation", "half"), [(0.0, 0.05), (1.0, 0.1), (0.5, 0.0790569)])
def test_mean_of__its_interval_shrinks_by_the_root_of_n_where_the_numbers_are_independent(
    correlation: float, half: float
) -> None:
    one = Estimate(0.7, 0.6, 0.8)
    matrix = np.full((4, 4), correlation) + (1 - correlation) * np.eye(4)
    mean = mean_of([one] * 4, matrix)
    assert mean.value == pytest.approx(0.7) and mean.low == pytest.approx(0.7 - half)
    assert mean.high == pytest.approx(0.7 + half)


def test_correlate__is_that_of_aucs_whose_targets_share_non_members() -> None:
    """The non-members are drawn anew for both at once; a target without a common image has 0."""
    rng, draws = np.random.default_rng(3), 400
    names = [f"{image:064x}"[::-1] for image in range(230)]
    sides = (
        (names[:40], names[80:180]),
        (names[40:80], names[80:180]),
        (names[180:190], names[190:]),
    )
    of = [
        Target(Path("any"), {"trap": ""}, unwritten={"members": one, "nonmembers": other})
        for one, other in sides
    ]
    aucs, said = np.zeros((draws, 2)), list[float]()
    for row in aucs:
        hard = rng.normal(0, 1, 100)
        every = [
            TargetScores(rng.normal(0.5, 1, 40), hard + rng.normal(0, 0.3, 100), "", "", 0, 0)
            for _ in range(2)
        ]
        every.append(TargetScores(rng.normal(0, 1, 10), rng.normal(0, 1, 40), "", "", 0, 0))
        row[:] = [auc(one.members, one.nonmembers) for one in every[:2]]
        matrix = correlate([influence(one) for one in every], of)
        said.append(float(matrix[0, 1]))
        assert matrix[0, 2] == 0.0 and matrix[2, 2] == 1.0
    true = np.corrcoef(aucs.T)[0, 1]
    assert 0.1 < true < 0.5 and np.mean(said) == pytest.approx(true, abs=0.1)


def test_mean_of__covers_the_mean_of_unequal_targets() -> None:
    shifts, hits = (0.0, 0.3, 0.8, 1.5), 0
    from scipy.stats import norm

    true = np.mean([norm.cdf(shift / np.sqrt(2)) for shift in shifts])
    for seed in range(200):
        parts = [TargetRow(scores(s, 10 * seed + i), 1).auc for i, s in enumerate(shifts)]
        hits += not mean_of(parts, np.eye(4)).excludes(float(true))
    assert 180 <= hits <= 199


def test_target_row__intervals_widen_with_their_family_and_tpr_is_the_naive_one() -> None:
    one = scores(1.0, n=300, m=1000)
    alone, many = TargetRow(one, 1), TargetRow(one, 30)
    assert many.auc.low < alone.auc.low < alone.auc.value < alone.auc.high < many.auc.high
    assert many.tpr[0.01].low < alone.tpr[0.01].low < alone.tpr[0.01].high < many.tpr[0.01].high
    over = np.sort(one.nonmembers[::2])[-5]  # one more lies over it in 5 of 501 draws
    assert alone.tpr[0.01].value == np.mean(one.members > over)
    assert alone.fpr[0.01].value == np.mean(one.nonmembers[1::2] > over)
    assert alone.fpr[0.01].low < 0.01 < alone.fpr[0.01].high
    assert list(alone.tpr) == [0.01]
    assert list(TargetRow(scores(1.0, m=5000), 1).tpr) == [0.01, 0.001]
    assert not TargetRow(scores(1.0, m=190), 1).tpr  # one of 95 is over 1 %


def test_target_row__the_measured_rate_is_that_of_its_threshold() -> None:
    """Over draws its mean is k / (m + 1): 25 / 2,501 and 2 / 2,501."""
    rows = [TargetRow(scores(0.0, seed, n=500, m=5000), 1) for seed in range(120)]
    for rate, k in ((0.01, 25), (0.001, 2)):
        measured = [row.fpr[rate].value for row in rows]
        assert np.mean(measured) == pytest.approx(k / 2501, rel=0.25)
        assert np.mean([row.tpr[rate].value for row in rows]) == pytest.approx(k / 2501, rel=0.4)
        assert sum(row.fpr[rate].excludes(rate) for row in rows) <= 24


def test_target_row__equal_scores_lie_over_no_threshold() -> None:
    row = TargetRow(TargetScores(np.ones(200), np.ones(400), "", "", 0, 0), 1)
    assert row.tpr[0.01].value == row.fpr[0.01].value == 0.0


def test_make_row__traps_are_no_part_of_the_mean_and_are_marked_where_something_is_found() -> None:
    own = {"a": scores(0.5, 1), "b": scores(1.0, 2), "t": scores(1.0, 3), "u": scores(0.0, 4),
           "x": scores(1.0, 5)}  # fmt: skip
    row = BoardRow(own, targets(a="", b="", t="placebo", u="untrained", x="mismatch"))
    want = np.mean([auc(own[n].members, own[n].nonmembers) for n in "ab"])
    assert row.auc is not None and row.auc.value == pytest.approx(want)
    assert row.trapped == ("t",) and row.queries == 10 and row.seconds == 1.0


def test_difference__is_over_common_targets_without_traps() -> None:
    a = {"a": scores(1.0, 1), "b": scores(1.0, 2), "t": scores(3.0, 3)}
    b = {"a": scores(0.2, 11), "t": scores(0.0, 4), "c": scores(0.0, 5)}
    found = difference(a, b, targets(a="", b="", c="", t="placebo"), 3)
    assert found is not None
    gap, n = found
    aucs = [auc(one["a"].members, one["a"].nonmembers) for one in (a, b)]
    assert n == 1 and gap.value == pytest.approx(aucs[0] - aucs[1]) and gap.low > 0
    same = difference(a, a, targets(a="", b="", t="placebo"), 1)
    assert same is not None and not same[0].excludes(0.0) and same[1] == 2
    assert difference(a, {"c": b["c"]}, targets(a="", b="", c="", t="placebo"), 1) is None


def test_would_show__is_the_difference_that_four_of_five_draws_show() -> None:
    """Of two attacks on the same images, whose means differ by as much."""
    of, shown, draws = targets(n=60, m=120, a="", b=""), 0, 300
    rng = np.random.default_rng(5)

    def draw(shift: float, own: np.ndarray) -> TargetScores:
        members, others = own[:60] + shift, own[60:]
        return TargetScores(members, others, "black_box", "outsider", 1, 1)

    least = list[float]()
    for _ in range(draws):
        noise = {name: rng.normal(0, 1, 180) for name in of}
        a = {n: draw(0.8, one + rng.normal(0, 0.5, 180)) for n, one in noise.items()}
        b = {n: draw(0.8, one + rng.normal(0, 0.5, 180)) for n, one in noise.items()}
        gap, _ = difference(a, b, of, 3) or (None, 0)
        assert gap is not None
        least.append(would_show(gap, 3))
        half = (gap.high - gap.low) / 2
        shown += gap.value + np.mean(least) > half
    assert 0.7 < shown / draws < 0.9 and np.std(least) < 0.3 * np.mean(least)


def test_differences__a_pair_that_shares_one_plain_target_is_left_out() -> None:
    own = targets(a="", b="", t="placebo")
    every = {name: scores(0.5, seed) for seed, name in enumerate(own)}

    def rows(*names: str) -> int:
        entries = [
            BenchEntry("similarity", {}, "", True, {"nothing": every}),
            BenchEntry("lira", {}, "", True, {"nothing": {name: every[name] for name in names}}),
        ]
        table, _, family = BOARD["differences"](own, entries).rpartition("\n\n")
        count = len(table.splitlines()) - 2
        assert f" {count} intervals" in family
        return count

    assert (rows("a", "b"), rows("a", "b", "t"), rows("a", "t"), rows("t")) == (1, 1, 0, 0)


def test_write_row__says_whether_a_trap_was_run() -> None:
    entry, own = BenchEntry("lira", {}, "", True, {}), targets(a="", t="placebo")

    def cell(**shifts: float) -> str:
        row = BoardRow({name: scores(shift) for name, shift in shifts.items()}, own)
        return str(BOARD["write_row"](entry, row, 1)).split("|")[-2].strip()

    assert (cell(a=1), cell(a=1, t=0), cell(a=1, t=1)) == ("none run", "-", "t")


@pytest.mark.slow
def test_page__has_the_tables_that_the_stored_scores_give() -> None:
    """Or the board speaks of entries that have changed since."""
    page, bench = BOARD["PLACES"]["encoders-v1"].page, BOARD["read_bench"]()
    text = page.read_text(encoding="utf-8")
    assert all(BOARD[name](*bench) in text for name in ("board", "methods", "differences"))
