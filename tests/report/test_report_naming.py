"""Clients that an attack names: counts, and the null by class alone, by loops and by coverage."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedmia.records import Evaluation, ScoredAttack
from fedmia.records.rows import Report
from fedmia.report.build import build_report
from fedmia.seeding import rng
from fedmia.statistics.intervals import score_limits, wilson
from tests.report.conftest import alone, said

CLIENTS = 6


def namer(members: np.ndarray, others: np.ndarray) -> ScoredAttack:
    """An attack that names these clients of members and of non-members."""
    ids = np.array([CLIENTS, *range(CLIENTS)])  # in no order, one of them without members
    return ScoredAttack(
        "all-for-one", "a paper", "white_box", "server", np.zeros(len(members)),
        np.zeros(len(others)), named_members=members, client_ids=ids,
        by_client_members=1.0 * (members[:, None] == ids),
        by_client_nonmembers=1.0 * (others[:, None] == ids),
    )  # fmt: skip


def planted(n: int, m: int, leak: float, seed: int, noise: float = 0.2) -> tuple[Evaluation, float]:
    """A run whose attack names by class, a share `noise` of images at random, and names right a
    share `leak` of members by themselves; and how much more of them that is than of others alike.

    Four classes: client k holds 3/4 of class k, and clients 4 and 5 the rest."""
    draw = rng(seed, "namer")
    labels, theirs = draw.integers(0, 4, n), draw.integers(0, 4, m)
    owner = np.where(draw.random(n) < 0.75, labels, draw.integers(4, 6, n))

    def by_class(classes: np.ndarray) -> np.ndarray:
        some = draw.random(len(classes)) < noise
        return np.where(some, draw.integers(0, CLIENTS, len(classes)), classes)

    told = np.where(draw.random(n) < leak, owner, by_class(labels))
    run = Evaluation(
        0, np.arange(n), np.arange(n, n + m), owner, labels, theirs,
        attacks=[namer(told, by_class(theirs))],
    )  # fmt: skip
    return run, leak * (1 - 0.75 * (1 - noise) - noise / CLIENTS)


def named_rows(run: Evaluation) -> Any:
    """The report's rows, of the run without all else."""
    bare: dict[str, Any] = {"rounds": (), "curves": None, "leakage": {}, "layers": {}}
    return build_report(replace(run, clients=(), pairs=(), pixels=None, **bare)).named_clients


def null_of(run: Evaluation) -> Any:
    return named_rows(run)[0].null


def test_null__is_the_mean_over_pairs_of_one_class() -> None:
    # Class 0: clients 1, 1, 2 hold it, its non-members are named 1, 1, 1, 2; of class 1 the one
    # non-member is named 2; the member of class 7 has no like.
    run = Evaluation(
        0, np.arange(6), np.arange(5), np.array([1, 1, 2, 2, 3, 1]), np.array([0, 0, 0, 1, 1, 7]),
        np.array([0, 0, 0, 0, 1]),
        attacks=[namer(np.array([1, 2, 2, 2, 2, 1]), np.array([1, 1, 1, 2, 2]))],
    )  # fmt: skip
    null_rate = null_of(run)
    null = (0.75 + 0.75 + 0.25 + 1 + 0) / 5
    assert null_rate.accuracy == pytest.approx(null, abs=1e-6)
    assert null_rate.difference == pytest.approx(3 / 5 - null, abs=1e-6)
    assert (null_rate.n_members, null_rate.alike) == (5, "class")
    assert null_rate.ci[0] < null < null_rate.ci[1]


def test_null__against_the_loop_over_pairs() -> None:
    """Its mean, and its variance over members and, within their class, over non-members."""
    run, _ = planted(60, 40, 0.3, 1)
    theirs = run.nonmember_labels
    theirs[:1], theirs[1:][theirs[1:] == 0] = 0, 1  # one alone of its class
    named, ids = run.attacks[0].by_client_nonmembers, run.attacks[0].client_ids
    assert named is not None and ids is not None
    told = [ids[row.argmax()] for row in named]
    members = [*zip(run.member_labels, run.member_client, strict=True)]
    shares = [np.mean([told[j] == k for j in np.flatnonzero(theirs == c)]) for c, k in members]
    counts = np.bincount(theirs)
    parts = np.zeros(40)
    for j, (c, k) in enumerate(zip(theirs, told, strict=True)):
        parts[j] = members.count((c, k)) / counts[c] / 60
    variance = np.var(shares, ddof=1) / 60
    for c, count in enumerate(counts):
        most = np.mean(run.member_labels == c)
        variance += count * np.var(parts[theirs == c], ddof=1) if count > 1 else most**2 / 4
    null, value = null_of(run), np.mean(shares)
    assert null.accuracy == pytest.approx(value, abs=1e-6)
    expected = score_limits(float(value), float(value * (1 - value) / variance), 1.959964)
    assert null.ci == pytest.approx(expected, abs=1e-6)


def test_null__of_the_same_client_where_images_belong_to_clients() -> None:
    run, _ = planted(60, 90, 0.0, 2)
    attack = run.attacks[0]
    assert attack.client_ids is not None and attack.by_client_nonmembers is not None
    theirs = rng(0, "theirs").integers(0, CLIENTS, 90)
    null = null_of(replace(run, whose=(run.member_client, theirs)))
    named = attack.client_ids[attack.by_client_nonmembers.argmax(axis=1)]
    each = [np.mean(named[theirs == k] == k) for k in run.member_client]
    assert null.accuracy == pytest.approx(np.mean(each), abs=1e-6) and null.alike == "client"


@pytest.mark.parametrize("client", [0, 5])
def test_ends__are_no_points(client: int) -> None:
    """All named alike: the null is 1 or 0, and its interval is as wide as few images make it."""
    same = np.zeros(40, np.int64)
    run = Evaluation(
        0, np.arange(40), np.arange(40), same, same, same, attacks=[namer(same, same + client)]
    )
    null = null_of(run)
    assert null.accuracy == (client == 0)
    assert null.ci == pytest.approx(wilson(40 * (client == 0), 40), abs=1e-6)
    assert null.difference == (client != 0) and np.ptp(null.difference_ci) > 0.05


def test_null__is_none_without_scores_by_client_or_anything_alike(report: Report) -> None:
    assert report.named_clients == []
    run, _ = planted(60, 90, 0.0, 0)
    attack = replace(run.attacks[0], client_ids=None, by_client_members=None,
                     by_client_nonmembers=None)  # fmt: skip
    assert null_of(replace(run, attacks=[attack])) is None
    assert null_of(replace(run, member_labels=run.member_labels + 77)) is None


def test_rows__counts_interval_chance_and_placebo(run: Evaluation) -> None:
    n, first = len(run.member_client), replace(run.attacks[0], client_ids=None)

    def named(right: int) -> ScoredAttack:
        own = np.where(np.arange(n) < right, run.member_client, -1)
        return replace(first, named_members=own)

    one = alone(run, named(40), controls={"placebo": [named(9)]})
    (row,), (bare,) = named_rows(one), named_rows(replace(one, controls={}))
    assert (row.attack, row.n, row.correct, row.placebo.correct) == (first.name, n, 40, 9)
    for told, right in ((row, 40), (row.placebo, 9)):
        assert told.accuracy == pytest.approx(right / n, abs=1e-6)
        assert told.ci == pytest.approx(wilson(right, n), abs=1e-6)
        assert told.null is None is told.per_client
    largest = np.bincount(run.member_client).max() / n
    assert row.chance == pytest.approx(largest, abs=1e-6) and row.placebo.chance is None
    assert bare.placebo is None


def test_rows__of_the_placebo_are_its_own(everything: Evaluation, whole: Report) -> None:
    row: Any
    (row,) = whole.named_clients
    (placebo,) = (a for a in everything.controls["placebo"] if a.name == row.attack)
    for one, attack in ((row, everything.attacks[0]), (row.placebo, placebo)):
        (alike,) = named_rows(alone(everything, attack, sets=(), sweep=(), inferences=()))
        assert one.null == alike.null and one.per_client is not None
        assert one.accuracy == np.mean(attack.named_members == everything.member_client).round(6)
    assert row.per_client != row.placebo.per_client
    text = said(whole)
    assert "For the question whether one given client trained on an image, similarity" in text
    without = build_report(replace(everything, attacks=everything.attacks[1:], sweep=()))
    assert without.named_clients == [] and "one given client" not in said(without)
    assert without.family.intervals == whole.family.intervals - 1
