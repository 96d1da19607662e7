"""Leakage and utility by defended and undefended clients."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedmia.records import ClientInfo, Evaluation, Probe
from fedmia.records.defence_rows import DefenceRow
from fedmia.report.clients import client_rows, declared_attack, leak_of
from fedmia.report.defended import defended, knn_of
from fedmia.report.words.bounds import defended_sentence
from fedmia.statistics.auc import auc_interval
from fedmia.statistics.intervals import wilson
from tests.report.conftest import make_run


def with_defended(run: Evaluation, *ids: int) -> Evaluation:
    clients = [
        replace(c, defence=DefenceRow(name="d") if c.id in ids else None) for c in run.clients
    ]
    return replace(run, clients=clients)


def test_defended__a_group_of_one_client_is_that_client(run: Evaluation) -> None:
    one = with_defended(run, 0)
    group = defended(one)[0]
    attack = declared_attack(run)
    assert attack is not None
    alone = client_rows(run)[0][0]
    leak = next(row for row in group.leakage if row.attack == attack.name)
    assert group.clients == [0] and leak.n_members == alone.n_members
    assert leak.auc == alone.auc and leak.auc_ci == alone.auc_ci


def test_defended__groups_cover_the_honest(run: Evaluation) -> None:
    run = with_defended(run, 1, 2)
    groups = defended(run)
    assert [g.group for g in groups] == ["defended", "undefended"]
    honest = [c.id for c in run.clients if c.role == "honest"]
    assert sorted(groups[0].clients + groups[1].clients) == honest
    assert [len(g.leakage) for g in groups] == [len(run.attacks)] * 2


@pytest.mark.parametrize(("ids", "groups"), [((1, 2), 2), (tuple(range(9)), 1)])
def test_defended__intervals_hold_for_all_attacks_of_both_groups(
    run: Evaluation, ids: tuple[int, ...], groups: int
) -> None:
    run = with_defended(run, *ids)
    like = np.isin(*run.alike())
    for group in defended(run):
        mine = like & np.isin(run.member_client, group.clients)
        for attack, row in zip(run.attacks, group.leakage, strict=True):
            auc, *_ = leak_of(run, attack, mine, "group-null", group.group)
            want = auc_interval(auc, 0.95, 4 * groups)
            assert (row.low, row.high) == pytest.approx(want, abs=1e-12)


def test_defended__who_leaks_is_told_apart() -> None:
    """Scores in which only the undefended stand out."""
    run = with_defended(make_run(auc=0.9, n=600, m=600), 1, 2, 3, 4)
    mine = np.isin(run.member_client, [1, 2, 3, 4])
    noise = np.random.default_rng(5).normal(0, 1, 600)
    attacks = [replace(a, scores_members=np.where(mine, noise, a.scores_members))
               for a in run.attacks]  # fmt: skip
    for one, start in ((replace(run, attacks=attacks), "No leak"), (run, "Images of defended")):
        assert (defended_sentence(defended(one)) or "").startswith(start)


def test_defended__none_without_a_defence(run: Evaluation) -> None:
    assert defended(with_defended(run)) == []
    everyone = with_defended(run, *range(10))
    assert [g.group for g in defended(everyone)] == ["defended"]


def test_knn_of__weighs_classes_as_the_clients_hold_them() -> None:
    probe = Probe(0.5, 30, ((9, 10), (1, 10), (5, 10)))
    clients = [ClientInfo(i, 4, "honest", None, (3, 1, 0)) for i in (0, 1)]
    value, ci = knn_of(clients, probe)
    assert value == pytest.approx(0.75 * 0.9 + 0.25 * 0.1)
    n = 1 / (0.75**2 / 10 + 0.25**2 / 10)
    assert ci == wilson(value * n, n)
    assert knn_of([replace(clients[0], classes=())], probe) == (None, None)
    assert knn_of(clients, Probe(0.5, 30)) == (None, None)
    # A class that only the clients hold, or only the test images, counts for nothing.
    for classes in ((3, 1, 0, 5), (3, 1)):
        assert knn_of([replace(clients[0], classes=classes)], probe)[0] == value


def test_defended__what_cannot_be_compared_is_left_out(run: Evaluation) -> None:
    """An attack without a side, and a group none of whose members is of a class under test."""
    run = with_defended(run, 0)
    empty = np.zeros(0)
    sides = [replace(run.attacks[0], name="m", scores_members=empty),
             replace(run.attacks[0], name="o", scores_nonmembers=empty)]  # fmt: skip
    found = defended(replace(run, attacks=[run.attacks[0], *sides]))
    assert [[r.attack for r in g.leakage] for g in found] == [["similarity"]] * 2
    odd = np.where(run.member_client == 0, 77, run.member_labels)
    first, second = defended(replace(run, member_labels=odd))
    assert first.leakage == [] and second.leakage
    assert first.images == 16 and second.images == 8 * 16
