"""A server that watches its clients, and an attacker who knows what it looks at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedmia.defenses.sensitivity import protected
from fedmia.settings import option
from fedmia.ssl.base import State
from fedmia.storage.snapshot import ExpectedRound
from strategies.fedavg import FedAvg


@dataclass
class Watched(FedAvg):
    """FedAvg. An attacker who knows that it is watched sends an update of the norm that an honest
    training of its own has, at a cosine with it from which no others' cosine falls much."""

    compares: ClassVar[bool] = True

    cosine: float = option(
        0.95, "least cosine of the crafted update with an honest one", gt=0, lt=1
    )

    def passing(self, crafted: State, expected: ExpectedRound) -> State:
        """The update nearest to the crafted one, by its angle, that has the norm of an honest one,
        and a cosine with it of at least `cosine`.

        Args:
            crafted: weights that the attack would upload.
            expected: the round; its last guess is a training on all of the attacker's images.

        Returns:
            Weights to upload.
        """
        if not expected.guesses:
            return crafted
        received, names = expected.received, protected(crafted)
        honest = _flat(expected.guesses[-1], received, names)
        update, norm = _flat(crafted, received, names), honest.norm()
        middle = honest / norm
        if not update.norm():
            return crafted
        direction = update / update.norm()
        if float(direction @ middle) < self.cosine:
            across = direction - (direction @ middle) * middle
            sine = (1 - self.cosine**2) ** 0.5
            direction = self.cosine * middle + sine * across / across.norm()
        parts = (norm * direction).split([received[n].numel() for n in names])
        return crafted | {
            n: (received[n].double() + part.view_as(received[n])).to(received[n].dtype)
            for n, part in zip(names, parts, strict=True)
        }


def _flat(sent: State, received: State, names: list[str]) -> Tensor:
    """(P,) an update as one vector, float64."""
    return torch.cat([(sent[n].double() - received[n].double()).flatten() for n in names])
