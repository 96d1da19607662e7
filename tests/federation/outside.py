"""A role and an active attack from outside the package: nothing of the product knows them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from torch import Tensor
from torch.nn import functional as F

from clients.base import Role
from clients.client_round import ClientRound
from fedmia.attacks.base import ActiveAttack, AttackTurn, Scores
from fedmia.settings import option
from fedmia.ssl.base import State
from fedmia.threat import Threat, Trajectory, WhiteBox


class Loud(Role):
    """Trains as told and uploads what its attack makes of it, saying so."""

    sees: ClassVar[Threat | None] = Threat("white_box", "client")
    crafts: ClassVar[bool] = True

    def work(self, client_round: ClientRound) -> tuple[State, dict[str, float]]:
        trained, metrics, method = client_round.train()
        return client_round.craft(method, trained) if client_round.crafts else trained, metrics | {
            "loud": 1.0
        }


class Idler(Role):
    """Sends back what it received; attacks nothing."""

    def work(self, client_round: ClientRound) -> tuple[State, dict[str, float]]:
        return client_round.received, {}


@dataclass
class SignFlip(ActiveAttack):
    """Uploads its own step turned round, and reads how much closer an image's views came."""

    paper: ClassVar[str] = "none"
    needs: ClassVar[Threat] = Threat("white_box", "client")
    looks_at: ClassVar[tuple[str, ...]] = ("similarity", "trajectory")
    uploads: ClassVar[str] = "its own step with the sign turned"
    control: ClassVar[str] = "sign-kept"
    over: ClassVar[str] = "the same rounds with honest steps"
    act: ClassVar[str] = "sign-flip"

    boost: float = option(2.0, "factor on the step; -1 is the honest one", ge=-1)

    def craft(self, turn: AttackTurn) -> State:
        if self.boost == -1:
            return turn.trained
        return {n: turn.received[n] - self.boost * (t - turn.received[n])
                for n, t in turn.trained.items()}  # fmt: skip

    def disarmed(self) -> SignFlip:
        return replace(self, boost=-1.0)

    def read(self, view: WhiteBox, images: Tensor) -> Scores:
        """Mean cosine of two views with two others, (N,)."""
        z = view.embed_views(images, 4)
        similarities: Scores = (
            F.cosine_similarity(z[:, :2], z[:, 2:], dim=2).mean(dim=1).double().numpy()
        )
        return similarities

    def judge(self, seen: Trajectory) -> Scores:
        return np.asarray(seen.after[-1] - seen.before[0])
