"""By-client leakage: classes held equal, the null, and no ranking without separation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedmia.records import ClientInfo, Evaluation, Probe
from fedmia.records.rows import Report
from fedmia.report.build import build_report
from fedmia.statistics.auc import auc, auc_estimate, auc_interval
from fedmia.statistics.intervals import wilson
from tests.made_up_runs import made_up
from tests.report.conftest import alone, claim, defence, make_run, said, scored, server
from tests.snapshots import Snapshot


def test_auc_estimate__of_weighted_non_members_is_the_mean_over_pairs() -> None:
    generator = np.random.default_rng(0)
    members, others = generator.integers(0, 6, 11) * 1.0, generator.integers(0, 6, 17) * 1.0
    wins = (members[:, None] > others) + 0.5 * (members[:, None] == others)
    for weights in (generator.dirichlet(np.ones(17)), np.full(17, 1 / 17)):
        value = auc_estimate(members, others, weights).value
        assert value == pytest.approx((wins @ weights).mean())


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
        clients=clients, pixels=None, curves=None, rounds=(), leakage={}, layers={},
    )  # fmt: skip


def client_rows(run: Evaluation) -> list[Any]:
    return build_report(run).clients


def test_client_rows__a_score_of_class_does_not_look_like_leakage(run: Evaluation) -> None:
    by_class = class_run(run)
    attack = by_class.attacks[0]
    naive = auc(attack.scores_members[by_class.member_client == 0], attack.scores_nonmembers)
    assert naive < 0.15
    report = build_report(by_class)
    assert report.client_ranking is None
    for row in report.clients:
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
    assert min(row.auc for row in client_rows(blind)) < 0.15
    for row in client_rows(replace(blind, whose=(told.member_client, others))):
        low, high = row.low, row.high
        assert low < 0.5 < high
        assert row.n_nonmembers_effective == pytest.approx(np.sum(others == row.id))


def test_client_rows__are_null_without_scored_members_or_attacks(
    run: Evaluation, report: Report
) -> None:
    row = report.clients[9]
    assert row.role == "active" and row.n_members == 0
    assert row.auc is None and row.null_auc is None and row.low is None
    rows = client_rows(replace(run, attacks=[], controls={}, pairs=[]))
    assert len(rows) == 10 and all(r.auc is None and r.attack is None for r in rows)
    assert rows[3].n_members == np.sum(run.member_client == 3)


def test_client_rows__count_the_members_that_can_be_compared(run: Evaluation) -> None:
    odd, mine = np.arange(len(run.member_client)) % 2 == 1, run.member_client == 3
    foreign = int(run.nonmember_labels.max()) + 1
    for without, count in ((odd, np.sum(mine & ~odd)), (mine, 0)):
        labels = np.where(without, foreign, run.member_labels)
        row = client_rows(replace(run, member_labels=labels))[3]
        assert row.n_members == count and (row.auc is None) == (count == 0)


def test_ranking__names_whom_an_interval_lies_over(run: Evaluation) -> None:
    """By simultaneous intervals, of four clients that leak to degrees."""
    draw, owner = np.random.default_rng(7), np.arange(112) % 4
    shifts = np.array([-0.3, 1.0, 1.8, -1.2])[owner]
    attack = replace(run.attacks[0], scores_members=draw.normal(size=112) + shifts)
    clients = [ClientInfo(i, 28, "honest") for i in range(4)]
    few = alone(run, attack, clients=clients, member_client=owner, pixels=None)
    report = build_report(few)
    rows: list[Any] = sorted(report.clients, key=lambda row: -(row.auc or 0))
    parts = []
    for row in rows:
        under = [f"{one.id} ({one.auc:.2f})" for one in rows if one.high < row.low]
        if under:
            parts.append(f"client {row.id} ({row.auc:.2f}) more than {', '.join(under)}")
    assert len(parts) > 1
    want = f"By similarity AUC, these clients leak measurably more: {'; '.join(parts)}."
    assert report.client_ranking == want and want in said(report)
    calm = replace(few, attacks=[replace(attack, scores_members=draw.normal(size=112))])
    assert build_report(calm).client_ranking is None


def test_declared__on_a_model_not_under_attack_before_one_that_is(run: Evaluation) -> None:
    first, other = (replace(run.attacks[i], name=n, under_attack=u)
                    for i, n, u in ((0, "x", True), (1, "y", False)))  # fmt: skip
    similar = replace(run.attacks[2], name="similarity", under_attack=True)
    combined = replace(run.attacks[3], name="combined")
    for attacks, name in (
        ((first, other), "y"), ((first,), "x"), ((other, similar), "similarity"),
        ((similar, combined), "combined"),
    ):  # fmt: skip
        bare = alone(run, *attacks, pixels=None, rounds=(), curves=None, leakage={}, layers={})
        assert client_rows(bare)[0].attack == name


# -- defended and undefended ----------------------------------------------------------------------


def with_defended(run: Evaluation, *ids: int) -> Evaluation:
    """The run whose clients `ids` defend themselves, and less of what no group shows."""
    clients = [replace(c, defence=defence("d") if c.id in ids else None) for c in run.clients]
    less: dict[str, Any] = {"rounds": (), "curves": None, "leakage": {}, "layers": {}}
    return replace(run, clients=clients, pairs=[], controls={}, pixels=None, **less)


def groups_of(run: Evaluation) -> list[Any]:
    return build_report(run).defended


def test_defended__a_group_of_one_client_is_that_client(run: Evaluation) -> None:
    report = build_report(with_defended(run, 0))
    group: Any = report.defended[0]
    alone: Any = report.clients[0]
    leak = next(row for row in group.leakage if row.attack == "combined")
    assert group.clients == [0] and leak.n_members == alone.n_members and group.attack == "combined"
    assert leak.auc == alone.auc and leak.auc_ci == alone.auc_ci


@pytest.mark.parametrize(("ids", "groups"), [((1, 2), 2), (tuple(range(9)), 1)])
def test_defended__intervals_hold_for_all_attacks_of_both_groups(
    run: Evaluation, ids: tuple[int, ...], groups: int
) -> None:
    """Of one class, so that all non-members stand beside each group."""
    same = {"member_labels": np.zeros(112, int), "nonmember_labels": np.zeros(500, int)}
    run = replace(with_defended(run, *ids), **same)
    found = groups_of(run)
    assert [g.group for g in found] == ["defended", "undefended"][:groups]
    assert sorted(sum((g.clients for g in found), [])) == [*range(9)]  # the honest ones
    for group in found:
        mine = np.isin(run.member_client, group.clients)
        for attack, row in zip(run.attacks, group.leakage, strict=True):
            estimate = auc_estimate(
                attack.scores_members[mine], attack.scores_nonmembers, np.full(500, 1 / 500)
            )
            want = auc_interval(estimate, 0.95, 4 * groups)
            assert row.attack == attack.name and row.n_members == mine.sum()
            assert (row.low, row.high) == pytest.approx(want, abs=1e-6)


def test_defended__who_leaks_is_told_apart() -> None:
    """Scores in which only the undefended stand out."""
    run = with_defended(make_run(auc=0.9, n=600, m=600), 1, 2, 3, 4)
    mine = np.isin(run.member_client, [1, 2, 3, 4])
    noise = np.random.default_rng(5).normal(0, 1, 600)
    attacks = [replace(a, scores_members=np.where(mine, noise, a.scores_members))
               for a in run.attacks]  # fmt: skip
    for one, start in ((replace(run, attacks=attacks), "\nNo leak"), (run, "\nImages of defended")):
        assert f"{start} " in said(build_report(one))


def test_defended__none_without_a_defence(run: Evaluation) -> None:
    assert groups_of(with_defended(run)) == []
    assert [g.group for g in groups_of(with_defended(run, *range(10)))] == ["defended"]


def test_defended__what_is_said_of_them(snapshot: Snapshot) -> None:
    def sentence(*groups: Any) -> str:
        report = made_up(Report, subject="a run", verdict_code="leaks", defended=[*groups])
        return next(line for line in said(report).splitlines() if "defended client" in line)

    for low, auc_of, null in ((0.51, 0.7, [0.4, 0.6]), (0.51, 0.6, [0.4, 0.6]),
                              (0.5, 0.7, [0.4, 0.6]), (0.51, 0.6, None)):  # fmt: skip

        def group(name: str, value: float, low: float = low, null: Any = null) -> Any:
            own = {"attack": "a", "auc": value, "low": low, "high": 0.9, "null_ci": null}
            rows = [own | {"attack": "b", "auc": 0.99}, own]
            return {"group": name, "attack": "a", "leakage": rows}

        both = [group("defended", auc_of), group("undefended", 0.8)]
        snapshot(sentence(*both))
        assert sentence(both[0]) == sentence(*both).partition(", of undefended")[0] + "."
    none, other = ([one | {"attack": by} for one in both] for by in (None, "z"))
    snapshot(sentence(*none))
    assert sentence(*other) == sentence(*none)  # none of their images has scores


def test_defended__knn_weighs_classes_as_the_clients_hold_them(run: Evaluation) -> None:
    bare = with_defended(run, 0)

    def knn(probe: Probe, *classes: int) -> Any:
        clients = [replace(c, classes=classes) for c in bare.clients]
        group = groups_of(replace(bare, clients=clients, utility={"knn": probe}))[0]
        return group.knn, group.knn_ci

    probe = Probe(0.5, 30, ((9, 10), (1, 10), (5, 10)))
    value, ci = knn(probe, 3, 1, 0)
    assert value == pytest.approx(0.75 * 0.9 + 0.25 * 0.1)
    n = 1 / (0.75**2 / 10 + 0.25**2 / 10)
    assert ci == pytest.approx(wilson(value * n, n), abs=1e-6)
    assert knn(probe) == knn(Probe(0.5, 30), 3, 1, 0) == (None, None)
    # A class that only the clients hold, or only the test images, counts for nothing.
    assert knn(probe, 3, 1, 0, 5)[0] == knn(probe, 3, 1)[0] == value


def test_defended__a_group_of_no_class_under_test_leaks_nothing_that_is_known(
    run: Evaluation,
) -> None:
    odd = np.where(run.member_client == 0, 77, run.member_labels)
    first, second = groups_of(replace(with_defended(run, 0), member_labels=odd))
    assert first.leakage == [] and second.leakage
    assert first.images == 16 and second.images == 8 * 16


# -- what is promised -----------------------------------------------------------------------------


def test_epsilon__over_20_is_no_meaningful_guarantee(run: Evaluation, snapshot: Snapshot) -> None:
    """And each is printed with its unit, where that is known."""
    bare = with_defended(run)
    stated = ((8.0, ""), (20.0, "image"), (21.0, "client"), (2440.0, ""), (None, ""))
    more = {"standing": "guaranteed", "noise_source": "entropy"}
    own = [defence(epsilon=claim(value, unit=unit, **more)) for value, unit in stated]
    clients = [replace(c, defence=one) for c, one in zip(bare.clients, own, strict=False)]
    lines = said(build_report(replace(bare, clients=clients))).splitlines()
    snapshot("\n".join(line for line in lines if line.startswith("Defended, client")))


def test_aggregation__is_told_where_it_sees_or_promises_less(run: Evaluation) -> None:
    bare = with_defended(run)
    rules = server("fedavg"), server("fedavg", "sums"), server("fedavg", metrics={"clip": 0.5})
    reports = [build_report(replace(bare, aggregation=rule)) for rule in rules]
    assert ["\nServer: fedavg" in said(one) for one in reports] == [False, True, True]
    assert reports[0].aggregation and reports[0].aggregation.epsilon is None
