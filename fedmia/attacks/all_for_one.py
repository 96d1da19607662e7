"""All for one: each client's update, measured against those of all the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedmia.attacks._cosine import pairwise_cosines
from fedmia.attacks.base import Attack, Scores, negatives_option
from fedmia.settings import option
from fedmia.settings.errors import InputError
from fedmia.threat import ServerView, Threat, WhiteBox

FEWEST = 3  # clients: with two, each has one other to compare with, which has no deviation


@dataclass
class AllForOne(Attack):
    """An image stands out on the update of the client that trained on it: names that client."""

    paper: ClassVar[str] = "Zhu et al., FedMIA, CVPR 2025, arXiv 2402.06289"
    needs: ClassVar[Threat] = Threat("white_box", "server")
    main: ClassVar[bool] = True
    looks_at: ClassVar[tuple[str, ...]] = ("update",)
    by_round: ClassVar[bool] = False  # it reads several rounds at once
    least_clients: ClassVar[int] = FEWEST

    measure: str = option(
        "loss",
        "what is measured of an image on each client's model: minus its loss, the mean cosine of "
        "its views, or how far the client's update descends the image's own loss",
        choices=("loss", "similarity", "gradient"),
    )
    rounds: int | None = option(
        None, "how many of the last rounds whose updates are kept (none: all of them)", ge=1
    )
    pairs: int = option(
        2, "pairs of views an image for loss and gradient", ge=1,
        needs=("measure", "loss", "gradient"),
    )  # fmt: skip
    views: int = option(8, "views an image for similarity", ge=2, needs=("measure", "similarity"))
    negatives: str = negatives_option()

    def score(self, view: ServerView, images: Tensor) -> Scores:
        """How far the image stands out on the client where it does most: the greatest deviate."""
        return np.asarray(self.by_client(view, images)[1].max(axis=0))

    def by_client(self, view: ServerView, images: Tensor) -> tuple[NDArray[np.int64], Scores]:
        """Ids of the clients (K,) and how far each image stands out on each, (K, N).

        Deviates of the rounds that a client took part in are summed and divided by the root of
        their number, so that clients drawn more often have no wider spread. The paper averages
        probabilities, which ends in ties at 1; no tie is left here, and the order is the same
        wherever one client's deviates lie over another's in each round.

        Raises:
            InputError: no round whose updates of at least 3 clients were kept.
        """
        rounds = sorted(r for r in view.updates if len(view.updates[r]) >= FEWEST)
        if not rounds:
            raise InputError(
                f"all-for-one needs a round with the updates of at least {FEWEST} clients, got "
                f"{ {r: len(view.updates[r]) for r in sorted(view.updates)} or 'no updates' }"
            )
        chosen = rounds if self.rounds is None else rounds[-self.rounds :]
        clients = sorted({c for r in chosen for c in view.clients(r)})
        total, count = np.zeros((len(clients), len(images))), np.zeros((len(clients), 1))
        for round in chosen:
            here = [clients.index(c) for c in view.clients(round)]
            total[here] += outlier_deviates(self._measured(view, images, round))
            count[here] += 1
        return np.array(clients, dtype=np.int64), total / np.sqrt(count)

    def _measured(self, view: ServerView, images: Tensor, round: int) -> Scores:
        """(clients, N), higher where the client is likelier to have trained on the image."""
        if self.measure == "gradient":
            return view.gradient_cosines(images, round, self.pairs, self.negatives)[0].numpy()
        n = len(images)
        if self.measure == "loss":
            queries = 2 * self.pairs * n + view.bank_queries(self.negatives)
            name: tuple[object, ...] = ("loss", self.pairs, self.negatives)
            return -view.on_updates(images, round, name, self._loss, queries).numpy()
        name = ("similarity", self.views)
        return view.on_updates(images, round, name, self._similarity, self.views * n).numpy()

    def _loss(self, model: WhiteBox, images: Tensor) -> Tensor:
        return model.losses(images, self.pairs, self.negatives)

    def _similarity(self, model: WhiteBox, images: Tensor) -> Tensor:
        cosines = pairwise_cosines(model.embed_views(images, self.views))
        return torch.from_numpy(cosines.mean(axis=1))


def outlier_deviates(measured: Scores) -> Scores:
    """Normal deviate of each client's value among those of all the others, (K, N) of (K, N).

    (m_k - mean) / deviation of the K - 1 others, FedMIA's statistic, has Student's distribution
    with K - 2 degrees of freedom where no client trained on the image, once divided by
    sqrt(1 + 1 / (K - 1)). It is returned as the normal deviate of the same probability: for many
    clients that changes nothing, and of few it keeps a chance agreement of the others from
    outweighing all other rounds.
    """
    K = len(measured)
    centred = measured - measured.mean(axis=0)
    mean = -centred / (K - 1)  # of the others: the centred values sum to 0
    squares = (centred**2).sum(axis=0) - centred**2
    spread = np.sqrt(np.maximum(squares - (K - 1) * mean**2, 0) / (K - 2))
    least = K * np.finfo(np.float64).eps * np.abs(measured).max(axis=0) + np.finfo(np.float64).tiny
    t = (centred - mean) / np.maximum(spread, least) / np.sqrt(1 + 1 / (K - 1))
    tail = np.maximum(scipy.stats.t.sf(np.abs(t), K - 2), np.finfo(np.float64).tiny)
    return np.asarray(np.sign(t) * scipy.stats.norm.isf(tail))
