"""Was this client's data set trained on? The question to attacks on whole sets, and its control."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedmia.attacks.base import DatasetAttack, Known
from fedmia.data.images import IntArray
from fedmia.options.errors import InputError
from fedmia.options.seeding import rng
from fedmia.records import ClientInference, DatasetInference
from fedmia.threat import BlackBox, require

POSERS = 100  # about so many sets of non-members pose as clients' sets
LEAST = 4  # images of a posing set, where non-members are too few for as many as clients hold

Partition = Callable[[IntArray, int, np.random.Generator], list[IntArray]]


@dataclass(frozen=True, eq=False)
class CandidateSets:
    """The sets that are asked about: scored members by client, and non-members who pose as such.

    Attributes:
        images: uint8 (N, C, H, W), the scored members and then the scored non-members.
        classes: (N,) of them. first: place of the first non-member.
        held: client -> places of its members. posing: places of each poser's non-members.
    """

    images: Tensor
    classes: IntArray
    first: int
    held: Mapping[int, IntArray]
    posing: Sequence[IntArray]

    def questions(self, posers: bool) -> list[tuple[IntArray, IntArray]]:
        """Each set with all non-members that are not in it; clients first."""
        every = np.arange(self.first, len(self.images))
        sets = [*self.held.values(), *(self.posing if posers else ())]
        return [(one, np.setdiff1d(every, one)) for one in sets]


def suspects(
    members: Tensor,
    nonmembers: Tensor,
    classes: tuple[IntArray, IntArray],
    owner: IntArray,
    partition: Partition,
    seed: int,
) -> CandidateSets:
    """The members that each client holds; and as many non-members at a time, at most half of all,
    dealt by the clients' own partition, until about POSERS sets pose. Where half of all are fewer
    than the members, so few sets are dealt that each has about LEAST images.

    Args:
        classes: of members (n,) and non-members (m,). owner: (n,) client of each member.
    """
    first, clients = len(members), np.unique(owner)
    held = {int(k): np.flatnonzero(owner == k) for k in clients}
    draw, posing = rng(seed, "posing-sets"), list[IntArray]()
    count = min(first, len(nonmembers) // 2)
    takers = max(len(clients) if count == first else min(len(clients), count // LEAST), 1)
    for _ in range(-(-POSERS // takers)):
        chosen = draw.permutation(len(nonmembers))[:count]
        try:
            parts = partition(classes[1][chosen], takers, draw)
        except InputError:  # too few to deal so: nobody poses
            break
        posing += [first + chosen[part] for part in parts]
    both = torch.cat([members, nonmembers]), np.concatenate(classes)
    return CandidateSets(*both, first, held, posing)


def infer_sets(
    attack: DatasetAttack, view: BlackBox, known: Known, of: CandidateSets, seed: int, posers: bool
) -> tuple[list[ClientInference], list[ClientInference]]:
    """What the attack says of each client's set, and of each poser's where asked for. It hears of
    them in one random order.

    Raises:
        InputError: the view does not grant what the attack needs.
    """
    require(view.threat, attack.needs, attack.name)
    attack.fit(view, known, rng(seed, "fit", attack.name))
    asked = of.questions(posers)
    order = rng(seed, "infer", attack.name, "order").permutation(len(asked))
    draw = rng(seed, "infer", attack.name)
    told = attack.infer(view, of.images, of.classes, [asked[i] for i in order], draw)
    back = [told[i] for i in np.argsort(order)]
    ids = [*of.held, *[None] * (len(asked) - len(of.held))]
    rows = [
        ClientInference(k, t.p_value, t.difference, t.n, t.others)
        for k, t in zip(ids, back, strict=True)
    ]
    return rows[: len(of.held)], rows[len(of.held) :]


def inference(
    attack: DatasetAttack, known: Known, of: CandidateSets, seed: int, view: BlackBox,
    untrained: BlackBox | None,
) -> DatasetInference:  # fmt: skip
    """The attack on the encoder, with posers, and on the untrained one without."""
    clients, posers = infer_sets(attack, view, known, of, seed, posers=True)
    null = [] if untrained is None else infer_sets(attack, untrained, known, of, seed, False)[0]
    return DatasetInference(attack.name, attack.paper, clients, posers, null)
