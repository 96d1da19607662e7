"""Leakage and utility of the clients that defend themselves, beside those that do not.

Both groups share one global model, so a defended client's images may leak through what its
neighbours send. A group's members are compared as one client's are: with non-members weighted to
their class mix, beside a null of non-members that pose as them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from fedmia.records import ClientInfo, Evaluation, Probe
from fedmia.records.attack_rows import Interval
from fedmia.records.client_rows import GROUP
from fedmia.records.fields import row_of
from fedmia.records.group_rows import GroupLeakRow, GroupRow
from fedmia.report.clients import declared_attack, leak_numbers, leak_of
from fedmia.statistics.intervals import wilson

DEFENDED, UNDEFENDED = "defended", "undefended"


def common_defences(clients: Iterable[ClientInfo]) -> set[str]:
    """Names of the defences that every honest client uses; what only some use may have worked."""
    defences = [client.defence for client in clients if client.role == "honest"]
    used = [{part.name for part in one.parts} if one else set[str]() for one in defences]
    return set.intersection(*used) if used else set()


def defended(run: Evaluation) -> list[GroupRow]:
    """The report's `defended`; empty where no client defends itself."""
    honest = [client for client in run.clients if client.role == "honest"]
    groups_of_clients = {
        DEFENDED: [c for c in honest if c.defence is not None],
        UNDEFENDED: [c for c in honest if c.defence is None],
    }
    if not groups_of_clients[DEFENDED]:
        return []
    like = np.isin(*run.alike())
    attacks = [a for a in run.attacks if len(a.scores_members) and len(a.scores_nonmembers)]
    mine = {
        n: like & np.isin(run.member_client, [c.id for c in groups_of_clients[n]])
        for n in groups_of_clients
    }
    family = len(attacks) * sum(bool(some.any()) for some in mine.values())
    groups: list[GroupRow] = []
    by = declared_attack(run)
    for name, clients in ((n, c) for n, c in groups_of_clients.items() if c):
        knn, knn_ci = knn_of(clients, run.utility.get("knn"))
        scored = attacks if mine[name].any() else []
        groups.append(
            GroupRow(
                group=name,
                clients=[c.id for c in clients],
                n_clients=len(clients),
                images=sum(c.size for c in clients),
                attack=None if by is None else by.name,
                leakage=[
                    row_of(
                        GroupLeakRow,
                        a,
                        whose=GROUP,
                        attack=a.name,
                        n_members=int(mine[name].sum()),
                        **leak_numbers(leak_of(run, a, mine[name], "group-null", name), family),
                    )
                    for a in scored
                ],
                knn=knn,
                knn_ci=knn_ci,
            )
        )
    return groups


def knn_of(
    clients: Sequence[ClientInfo], probe: Probe | None
) -> tuple[float | None, Interval | None]:
    """kNN accuracy where classes weigh as the clients' images have them, and Wilson's interval at
    Kish's number of test images; None where classes are not known or none is tested.

    Args:
        clients: of one group.
        probe: the kNN probe with its accuracy by class.

    Returns:
        Accuracy in [0, 1] and its 95 % interval.
    """
    if probe is None or not probe.by_class or not all(c.classes for c in clients):
        return None, None
    right, of = np.array(probe.by_class, dtype=float).T
    class_counts = np.sum([c.classes for c in clients], axis=0, dtype=float)
    class_counts = np.pad(class_counts, (0, max(0, len(of) - len(class_counts))))[: len(of)]
    share = np.where(of > 0, class_counts, 0.0)
    if not share.sum():
        return None, None
    share, has_images = share / share.sum(), of > 0
    value = float((share[has_images] * right[has_images] / of[has_images]).sum())
    n = float(1 / (share[has_images] ** 2 / of[has_images]).sum())
    return value, wilson(value * n, n)
