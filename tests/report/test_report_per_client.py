"""One client asked about: the AUC and its bootstrap against loops, planted and null pairs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedmia.records import Evaluation, ScoredAttack
from fedmia.report.build import build_report
from fedmia.seeding import rng
from fedmia.statistics.auc import auc, auc_estimate, auc_interval
from fedmia.statistics.by_client import interval_over_images
from fedmia.statistics.intervals import clopper_pearson
from fedmia.statistics.thresholds import tpr_at_fpr
from tests.report.conftest import alone, make_run

SIX = {"abs": 1e-6}  # decimals of a report
CLIENTS = 9  # that hold the members of `make_run`; a tenth holds none


def asking(
    run: Evaluation, shift: float, seed: int = 0, client_offset: float = 0, class_offset: float = 0
) -> ScoredAttack:
    """Scores of pairs that are noise, but `shift` higher where the client holds the member."""
    draw = rng(seed, "pairs")
    ids = np.array([9, *range(CLIENTS)])  # in no order
    members = draw.normal(0, 1, (len(run.member_ids), 10))
    nonmembers = draw.normal(0, 1, (len(run.nonmember_ids), 10))
    for scores, labels in ((members, run.member_labels), (nonmembers, run.nonmember_labels)):
        scores += client_offset * ids
        scores += class_offset * (labels[:, None] == ids)
    members += shift * (run.member_client[:, None] == ids)
    return replace(
        run.attacks[0],
        scores_members=members.max(axis=1),
        scores_nonmembers=nonmembers.max(axis=1),
        named_members=ids[members.argmax(axis=1)],
        client_ids=ids,
        by_client_members=members,
        by_client_nonmembers=nonmembers,
    )


def per_client(run: Evaluation, attack: ScoredAttack, placebo: bool = False) -> Any:
    """The report's row of the attack, or of its placebo; None where there is none."""
    more: dict[str, Any] = {"rounds": (), "curves": None, "leakage": {}, "layers": {}}
    controls = {"placebo": [attack]} if placebo else {}
    bare = alone(run, attack, controls=controls, clients=(), pixels=None, **more)
    (row,) = build_report(bare).named_clients or [None]
    return row and (row.placebo if placebo else row).per_client


def naive(run: Evaluation, attack: ScoredAttack) -> tuple[float, np.ndarray, np.ndarray]:
    """AUC, and the won and the whole weight of each (member, non-member), by loops."""
    assert attack.client_ids is not None
    assert attack.by_client_members is not None and attack.by_client_nonmembers is not None
    rows = [
        i
        for i in range(len(run.member_ids))
        if run.member_client[i] in attack.client_ids
        and run.member_labels[i] in run.nonmember_labels
    ]
    wins, weights = [], []
    for i in rows:
        client = run.member_client[i]
        column = attack.client_ids.tolist().index(client)
        mix = [run.member_labels[j] for j in rows if run.member_client[j] == client]
        row, won = [], []
        for x, label in enumerate(run.nonmember_labels):
            weight = mix.count(label) / len(mix) / np.sum(run.nonmember_labels == label)
            a, b = attack.by_client_members[i, column], attack.by_client_nonmembers[x, column]
            row.append(weight)
            won.append(weight * (1.0 if a > b else 0.5 if a == b else 0.0))
        wins.append(won)
        weights.append(row)
    return float(np.mean(np.sum(wins, axis=1))), np.array(wins), np.array(weights)


@pytest.mark.parametrize("digits", [1, 8])
def test_per_client__is_the_loop(digits: int) -> None:
    """With ties, clients that sent nothing, and a class that no non-member has."""
    run = make_run(n=40, m=50)
    labels = np.where(run.nonmember_labels == 3, 4, run.nonmember_labels)
    run = replace(run, nonmember_labels=labels)
    whole = asking(run, 0.7)
    assert whole.by_client_members is not None and whole.by_client_nonmembers is not None
    assert whole.client_ids is not None
    rows = np.flatnonzero(whole.client_ids != 5)
    attack = replace(
        whole,
        client_ids=whole.client_ids[rows],
        by_client_members=whole.by_client_members[:, rows].round(digits),
        by_client_nonmembers=whole.by_client_nonmembers[:, rows].round(digits),
    )
    result = per_client(run, attack)
    assert result is not None
    value, wins, weights = naive(run, attack)
    assert result.auc == pytest.approx(value, **SIX)
    n = int(np.sum((run.member_client != 5) & (run.member_labels != 3)))
    assert result.n_members == result.positive_pairs == n == len(wins)
    assert result.n_nonmembers == 50
    assert result.negative_pairs == 50 * result.clients == 50 * 8
    np.testing.assert_allclose(weights.sum(axis=1), 1)


def test_per_client__of_one_client_and_one_class_is_the_plain_auc(run: Evaluation) -> None:
    same = {"member_labels": np.zeros(112, int), "nonmember_labels": np.zeros(500, int)}
    run = replace(run, member_client=np.full(112, 4), **same)
    attack = asking(run, 1.0)
    result = per_client(run, attack)
    assert result is not None and attack.by_client_members is not None
    assert attack.by_client_nonmembers is not None
    pairs = attack.by_client_members[:, 5], attack.by_client_nonmembers[:, 5]
    assert result.auc == pytest.approx(auc(*pairs), **SIX)
    rate = tpr_at_fpr(*pairs, 0.01)
    assert rate is not None and rate[0] > 0
    assert result.tpr_at_fpr["0.01"] == pytest.approx(rate[0], **SIX)
    # At the thresholds that were drawn; their own error is not in it.
    ends = clopper_pearson(round(rate[0] * 112), 112)
    assert result.tpr_at_fpr_ci["0.01"] == pytest.approx(ends, **SIX)
    # Independent pairs, one an image: the bootstrap is close to the interval by formula.
    np.testing.assert_allclose(result.auc_ci, auc_interval(auc_estimate(*pairs)), atol=0.015)


def test_interval__where_every_draw_is_the_same_keeps_a_width(run: Evaluation) -> None:
    result = per_client(run, asking(run, 100.0))
    assert result is not None and result.auc == pytest.approx(1)
    assert 0.85 < result.auc_ci[0] < 0.99 and result.auc_ci[1] == pytest.approx(1)
    assert interval_over_images(np.ones((1, 9)), np.ones((1, 9)), rng(0)) is None


def test_none__without_scores_by_client_or_anything_to_compare(run: Evaluation) -> None:
    assert per_client(run, run.attacks[0]) is None
    attack = asking(run, 1.0)
    assert per_client(replace(run, member_client=np.full(112, 77)), attack) is None
    assert per_client(replace(run, member_labels=np.full(112, 77)), attack) is None
    few = make_run(m=60)
    result = per_client(few, asking(few, 1.0))
    assert result is not None
    assert result.tpr_at_fpr["0.01"] is None is result.tpr_at_fpr_ci["0.01"]


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ({"client_ids": np.arange(10) // 2}, "distinct"),
        ({"client_ids": None}, r"expected \(112, 0\)"),
        ({"by_client_members": np.zeros((112, 9))}, r"expected \(112, 10\)"),
        ({"by_client_nonmembers": np.full((500, 10), np.nan)}, "5000 of 5000"),
        ({"named_members": np.zeros(3, dtype=np.int64)}, r"clients named: shape \(3,\)"),
    ],
)
def test_check__scores_by_client_align(run: Evaluation, bad: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        build_report(alone(run, replace(asking(run, 1.0), **bad)))
