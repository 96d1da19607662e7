"""The list of exposed members: conformal p-values, and a bound on its false discoveries."""

from __future__ import annotations

import itertools
import json
import runpy
from pathlib import Path

import numpy as np
import pytest
import scipy

from fedmia.statistics.exposed import conformal_p, envelope, exceeds_rate, most_false
from fedmia.statistics.thresholds import tpr_at_fpr

MEASUREMENTS = Path(__file__).parents[2] / "research" / "measurements"
COMMITTED = MEASUREMENTS.parent / "results" / "exposed.json"
WHERE = ("members", "nonmembers", "shape", "told", "shift")


def orders(count: int, m: int) -> list[list[int]]:
    """Members before each non-member, in every order of so many members and non-members."""
    listed = []
    for places in itertools.combinations(range(count + m), m):
        listed.append([place - at for at, place in enumerate(places)])
    return listed


def share_within(limit: list[int], count: int, m: int) -> float:
    every = orders(count, m)
    held = [all(k <= most for k, most in zip(order, limit, strict=True)) for order in every]
    return sum(held) / len(every)


def test_p_values__count_ties_against_the_member() -> None:
    members, others = np.array([3.0, 1.0, 0.5, 9.0]), np.array([1.0, 3.0, 1.0, 0.0])
    want = [(1 + sum(o >= s for o in others)) / 5 for s in members]
    assert conformal_p(members, others).tolist() == want == [0.4, 0.8, 0.8, 0.2]


@pytest.mark.parametrize(("count", "m"), [(1, 4), (3, 5), (6, 6), (8, 3)])
@pytest.mark.parametrize("level", [0.5, 0.8, 0.95])
def test_envelope__has_its_level_over_all_orders(count: int, m: int, level: float) -> None:
    limit = envelope(count, m, level)
    assert limit[-1] == count and len(limit) == m + 1 and (np.diff(limit) >= 0).all()
    assert share_within(limit[:-1].tolist(), count, m) >= level - 1e-12


def test_envelope__is_of_quantiles_of_one_level_and_no_wider_than_it_must_be() -> None:
    count, m, level = 4, 7, 0.8
    limit = envelope(count, m, level)[:-1].tolist()
    table = [scipy.stats.betabinom(count, j + 1, m - j) for j in range(m)]
    ends = np.geomspace(0.2, 0.2 / m, 60)
    curves = {tuple(int(law.isf(end)) for law in table) for end in ends}
    wide = [curve for curve in curves if share_within(list(curve), count, m) >= level]
    assert tuple(limit) == min(wide, key=sum) and len(wide) < len(curves)


def test_envelope__of_many_is_what_walks_do() -> None:
    limit, stream = envelope(150, 400)[:-1], np.random.default_rng(0)
    walks = stream.permuted(np.tile(np.arange(550) < 150, (3000, 1)), axis=1)
    before = np.cumsum(walks, axis=1)[~walks].reshape(3000, 400)
    assert 0.935 <= (before <= limit).all(axis=1).mean() <= 0.975


def test_most_false__of_no_leak_says_nothing_and_of_a_whole_one_nearly_all() -> None:
    scores = np.arange(120.0)
    assert most_false(scores[1::2], scores[::2])[[0, 9, 59]].tolist() == [1, 10, 60]
    assert most_false(scores[60:], scores[:60]).tolist() == [0] * 60
    assert most_false(scores[:60], scores[60:]).tolist() == [*range(1, 61)]


def test_most_false__rises_by_one_at_most_and_ignores_the_scale() -> None:
    stream = np.random.default_rng(3)
    members, others = stream.normal(1.5, 1, 200), stream.normal(size=300)
    bound = most_false(members, others)
    assert set(np.diff(bound, prepend=0)) <= {0, 1} and 0 < bound[-1] < 200
    assert (bound == most_false(np.exp(members), np.exp(others))).all()
    # Fewer false ones are left where the scores contradict so many: it is under the first envelope.
    first = envelope(200, 300)[np.sort([(others >= s).sum() for s in members])]
    assert (bound <= first).all() and (bound < first).any()


def test_most_false__ties_count_against_the_members() -> None:
    others = np.repeat([0.0, 1.0], 30)
    tied = most_false(np.ones(40), others)
    assert (tied == most_false(np.full(40, 0.5), others)).all() and tied[-1] > 10
    assert most_false(np.full(40, 2.0), others)[-1] == 0
    assert most_false(np.ones(40), np.ones(60)).tolist() == [*range(1, 41)]


def test_found__are_as_many_as_the_tpr_says() -> None:
    stream = np.random.default_rng(1)
    members, others = np.rint(stream.normal(1, 2, 90)), np.rint(stream.normal(0, 2, 61))
    rate = tpr_at_fpr(members, others, 0.05)
    assert rate is not None and exceeds_rate(members, others, 0.05).mean() == rate[0] > 0


def test_simulation__holds_and_has_the_cells_of_the_committed_one() -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(str(MEASUREMENTS))
        script = runpy.run_path(str(MEASUREMENTS / "exposed.py"))
    committed = json.loads(COMMITTED.read_text(encoding="utf-8"))
    script["simulate"].__globals__.update(SIZES=((30, 20),), SUBJECTS=((20, 20),))
    parts = script["simulate"](60, 0)
    for part, rows in parts.items():
        cells = [{k: row.get(k) for k in WHERE} for row in committed[part]]
        assert all({k: row.get(k) for k in WHERE} in cells for row in rows)
        assert all(row["low"] <= 0.05 for row in rows)
    for row in committed["images"] + committed["subjects"]:
        # Of 72 rows of true 5 % one is over so high a share in a hundred such results.
        assert row["errs"] <= 0.05 + 3.7 * (0.05 * 0.95 / committed["draws"]) ** 0.5, row


def naive_most_false(members: list[float], others: list[float]) -> list[int]:
    """By its definition: the numbers of false members that the scores do not contradict, and the
    least that follows of the first k from any list."""
    n, m = len(members), len(others)
    count = n
    while True:
        limit = envelope(count, m).tolist()
        falling = sorted(others, reverse=True)
        # At most so many are false: those before a place, and all that stand behind it.
        most = min(limit[j] + sum(s <= cut for s in members) for j, cut in enumerate(falling))
        if int(0.8 * count) + 1 <= most:
            break
        count = int(0.8 * count)
        if not count:
            return [0] * n
    places = [sum(o >= s for o in others) for s in sorted(members, reverse=True)]
    own = [min(k, limit[place]) for k, place in enumerate(places, 1)]
    return [
        min(own[i] + max(k - i, 0) for i in range(n)) if k else own[0] for k in range(n)
    ]  # fmt: skip


@pytest.mark.parametrize("shift", [0.0, 0.7, 1.5, 3.0, 6.0])
def test_most_false__is_that_of_plain_loops(shift: float) -> None:
    stream = np.random.default_rng(int(10 * shift))
    members = np.rint(4 * stream.normal(shift, 1, 60)) / 4
    others = np.rint(4 * stream.normal(size=45)) / 4
    bound = most_false(members, others).tolist()
    assert bound == naive_most_false(members.tolist(), others.tolist())
