"""Was this client's data set trained on? The question to attacks on whole sets, and its control."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from fedmia.attacks.base import DatasetAttack, Known
from fedmia.data.images import IntArray, digests, rank_digests
from fedmia.records import DatasetInferenceResults
from fedmia.records.client_rows import CLIENT, ClientInferenceRow
from fedmia.records.fields import row_of
from fedmia.seeding import rng
from fedmia.settings.errors import InputError
from fedmia.statistics.subjects import Subjects
from fedmia.threat import BlackBox, require

POSERS = 100  # about so many sets of non-members pose as clients' sets
LEAST = 4  # images of a posing set, where non-members are too few for as many as clients hold

Partition = Callable[[IntArray, int, np.random.Generator], list[IntArray]]


class CandidateSets:
    """The sets in question: the members of each client, and about POSERS sets of posers.

    A poser is a set of non-members that is offered as if it were a client's. Posers are dealt by
    the clients' own partition: as many non-members at a time as there are members, at most half of
    all. Where half of all are fewer, each set has about LEAST images. Where images belong to
    subjects nobody poses: of non-member subjects, each tested among all, one in twenty has a
    p-value of 0.05 whatever the encoder does.

    Args:
        members: scored members; uint8 (N, C, H, W).
        nonmembers: scored non-members; uint8 (M, C, H, W).
        classes: of members (n,) and non-members (m,).
        owner: (n,) client of each member.
        partition: deals the posers as it dealt the members.
        seed: root of all random streams of the run.
        subjects: of members and of non-members, None: they belong to none.

    Attributes:
        images: uint8 (N, C, H, W), the scored members and then the scored non-members.
        classes: (N,) of them.
        first: place of the first non-member.
        positions: client -> places of its members.
        posing: places of each poser's non-members.
        subjects: (N,) of them, where they belong to any.
    """

    def __init__(
        self, members: Tensor, nonmembers: Tensor, classes: tuple[IntArray, IntArray],
        owner: IntArray, partition: Partition, seed: int, subjects: Subjects | None = None,
    ) -> None:  # fmt: skip
        self.first = first = len(members)
        self.images = torch.cat([members, nonmembers])
        self.classes = np.concatenate(classes)
        self.positions = {int(k): np.flatnonzero(owner == k) for k in np.unique(owner)}
        self.posing = list[IntArray]()
        self.subjects = None if subjects is None else np.concatenate(subjects)
        if subjects is not None:
            return
        draw, clients = rng(seed, "posing-sets"), len(self.positions)
        count = min(first, len(nonmembers) // 2)
        takers = max(clients if count == first else min(clients, count // LEAST), 1)
        for _ in range(-(-POSERS // takers)):
            chosen = draw.permutation(len(nonmembers))[:count]
            try:
                parts = partition(classes[1][chosen], takers, draw)
            except InputError:  # too few to deal so: nobody poses
                break
            self.posing += [first + chosen[part] for part in parts]

    def questions(self, beside: Sequence[IntArray]) -> list[tuple[IntArray, IntArray]]:
        """Each client's set and each of those `beside` them, with all non-members outside it."""
        every = np.arange(self.first, len(self.images))
        sets = [*self.positions.values(), *beside]
        return [(one, np.setdiff1d(every, one)) for one in sets]


def infer_sets(
    attack: DatasetAttack, view: BlackBox, known: Known, of: CandidateSets, seed: int,
    beside: Sequence[IntArray],
) -> tuple[list[ClientInferenceRow], list[float | None]]:  # fmt: skip
    """Ask the attack about each client's set, and about others, in an order of their content.

    Args:
        attack: the attack on data sets.
        view: what the attacker holds of the model.
        known: known members and known non-members.
        of: the candidate sets.
        seed: root of all random streams of the run.
        beside: places of the images of each other set, such as posers'.

    Returns:
        The rows of clients' sets, and the p-values of the others.

    Raises:
        InputError: the view does not grant what the attack needs.
    """
    require(view.threat, attack.needs)
    attack.fit(view, known, rng(seed, "fit", attack.name))
    questions, names = of.questions(beside), digests(of.images.numpy())
    rank = np.array(rank_digests(names))
    place = np.argsort(rank)  # of each image among all, where members no longer come first
    joined = [b"".join(sorted(names[i] for i in one)) for one, _ in questions]
    order = rank_digests([hashlib.sha256(one).digest() for one in joined])
    suspects = [(place[questions[i][0]], place[questions[i][1]]) for i in order]
    subjects = () if of.subjects is None else (number_anew(of.subjects[rank]),)
    draw = rng(seed, "infer", attack.name)
    answers = attack.infer(view, of.images[rank], of.classes[rank], suspects, draw, *subjects)
    back = [answers[i] for i in np.argsort(order)]
    rows = [
        row_of(ClientInferenceRow, one, whose=CLIENT, client=k, n_nonmembers=one.others)
        for k, one in zip(of.positions, back, strict=False)
    ]
    return rows, [one.p_value for one in back[len(rows) :]]


def number_anew(subjects: IntArray) -> IntArray:
    """Subjects (N,) numbered as they come: numbers by names may tell the side."""
    _, first, of = np.unique(subjects, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[of]


def inference(
    attack: DatasetAttack, known: Known, of: CandidateSets, seed: int, view: BlackBox,
    untrained: BlackBox | None = None,
) -> DatasetInferenceResults:  # fmt: skip
    """Ask the attack on the encoder with posers, and on the untrained model, if any, about all
    clients' images as one set: their own p-values rest on the same non-members, so that no count
    of small ones is binomial. One set that changes sides whole, image by image or subject by
    subject, keeps its level.

    Args:
        attack: on whole data sets.
        known: images that it learns from.
        of: the scored images, by client.
        seed: of the draws of posers.
        view: of the encoder.
        untrained: of the untrained model; None: there is none.

    Returns:
        Its answers, and what it needs.
    """
    clients, posers = infer_sets(attack, view, known, of, seed, of.posing)
    together = list[float | None]()
    if untrained is not None:
        union = [np.arange(of.first)] * (len(of.positions) > 1)
        null, together = infer_sets(attack, untrained, known, of, seed, union)
        clients = [
            replace(one, p_value_untrained=other.p_value)
            for one, other in zip(clients, null, strict=True)
        ]
    return DatasetInferenceResults(
        attack.name, attack.paper, clients, [p for p in posers if p is not None],
        attack.needs.access, attack.needs.vantage, together[0] if together else None,
    )  # fmt: skip
