"""Loss slope: how fast an image's loss has fallen over the rounds that a client saw."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from fedmia.attacks.base import Attack, Scores, negatives_option
from fedmia.settings import option
from fedmia.settings.errors import InputError
from fedmia.threat import ClientView, Threat


@dataclass
class LossSlope(Attack):
    """Least-squares slope of the image's loss over the received models: steeper for members.

    The paper's trend signal with the loss; its rounds are all those of the training, here they are
    the ones whose models the client received and kept, and the slope is over their numbers.
    """

    paper: ClassVar[str] = (
        "Chang et al., Efficient Privacy Auditing in Federated Learning, USENIX Security 2024"
    )
    needs: ClassVar[Threat] = Threat("white_box", "client")
    looks_at: ClassVar[tuple[str, ...]] = ("trajectory", "loss")
    by_round: ClassVar[bool] = False  # it reads several rounds at once

    pairs: int = option(4, "pairs of fixed views over which a loss is read", ge=1)
    negatives: str = negatives_option()

    def score(self, view: ClientView, images: Tensor) -> Scores:
        """Minus the slope, of the loss by round; 0 for all where one model alone was received.

        Raises:
            InputError: no model was received.
        """
        rounds = sorted(view.received)
        if not rounds:
            raise InputError(f"{self.name} needs the models of a federation's rounds, got none")
        losses = [view.at(r).losses(images, self.pairs, self.negatives) for r in rounds]
        return -slope(np.array(rounds, dtype=np.float64), torch.stack(losses).double().numpy())


def slope(at: Scores, values: Scores) -> Scores:
    """(N,) least-squares slope of values (R, N) over `at` (R,), such as rounds; 0 where R is 1."""
    centred = at - at.mean()
    spread = (centred**2).sum()
    return np.asarray(centred @ values / spread if spread else np.zeros(values.shape[1]))
