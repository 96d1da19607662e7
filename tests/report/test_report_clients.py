"""By-client leakage: classes held equal, the null, and no ranking without separation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedmia.records import ClientInfo, Evaluation, FloatArray
from fedmia.report.clients import client_rows
from fedmia.report.words.clients import ranking
from fedmia.statistics.auc import auc, auc_estimate
from tests.report.conftest import alone, scored


def weighted_loop(members: FloatArray, others: FloatArray, weights: FloatArray) -> float:
    """The weighted AUC, pair by pair."""
    total = 0.0
    for a in members:
        for b, w in zip(others, weights, strict=True):
            total += w * ((a > b) + 0.5 * (a == b)) / len(members)
    return total


def test_auc_estimate__of_weighted_non_members_matches_the_double_loop_and_the_plain_auc() -> None:
    generator = np.random.default_rng(0)
    members, others = generator.integers(0, 6, 11) * 1.0, generator.integers(0, 6, 17) * 1.0
    weights = generator.dirichlet(np.ones(17))
    loop = weighted_loop(members, others, weights)
    assert auc_estimate(members, others, weights).value == pytest.approx(loop)
    even = auc_estimate(members, others, np.full(17, 1 / 17)).value
    assert even == pytest.approx(auc(members, others))


def class_run(run: Evaluation, leak: float = 0.0) -> Evaluation:
    """Scores that tell class and, by `leak`, membership; client i holds class i alone."""
    generator = np.random.default_rng(5)
    owner = np.arange(len(run.member_ids)) % 9
    others = np.arange(len(run.nonmember_ids)) % 10
    attack = replace(
        scored("similarity", 0.5, len(owner), len(others), 0),
        scores_members=owner + leak * (owner == 3) + generator.normal(0, 1, len(owner)),
        scores_nonmembers=others + generator.normal(0, 1, len(others)),
    )
    clients = [ClientInfo(i, 16, "honest") for i in range(9)]
    return alone(
        run, attack, member_client=owner, member_labels=owner, nonmember_labels=others,
        clients=clients,
    )  # fmt: skip


def test_client_rows__a_score_of_class_does_not_look_like_leakage(run: Evaluation) -> None:
    by_class = class_run(run)
    attack = by_class.attacks[0]
    naive = auc(attack.scores_members[by_class.member_client == 0], attack.scores_nonmembers)
    assert naive < 0.15
    rows, _ = client_rows(by_class)
    assert ranking(rows) is None
    for row in rows:
        low, high = row.low, row.high
        assert low < 0.5 < high
        assert row.null_auc == pytest.approx(0.5, abs=0.05)
        assert row.null_ci[0] < 0.5 < row.null_ci[1]
        assert row.null_n == row.n_members and row.attack == "similarity"


def test_client_rows__a_score_of_hospital_does_not_look_like_leakage(run: Evaluation) -> None:
    """Each client's images score alike whether members or not; classes do not tell of it."""
    told = class_run(run)
    others = np.arange(len(told.nonmember_ids)) % 10
    blind = replace(
        told,
        member_labels=np.zeros(len(told.member_ids), int),
        nonmember_labels=np.zeros(len(others), int),
    )
    assert min(row.auc for row in client_rows(blind)[0]) < 0.15
    for row in client_rows(replace(blind, whose=(told.member_client, others)))[0]:
        low, high = row.low, row.high
        assert low < 0.5 < high
        assert row.n_nonmembers_effective == pytest.approx(np.sum(others == row.id))


def test_client_rows__are_null_without_scored_members_or_attacks(run: Evaluation) -> None:
    row = client_rows(run)[0][9]
    assert row.role == "active" and row.n_members == 0
    assert row.auc is None and row.null_auc is None and row.low is None
    rows, _ = client_rows(replace(run, attacks=[]))
    assert len(rows) == 10 and all(r.auc is None and r.attack is None for r in rows)
