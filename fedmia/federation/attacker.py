"""What the attacker holds of a model: the view that its attacks work through."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from clients.client_context import ClientContext
from fedmia.attacks.base import Known
from fedmia.ssl.base import State
from fedmia.storage.snapshot import Snapshot
from fedmia.threat import ClientView, ServerView, Trajectory, WhiteBox
from fedmia.threat.signals import PixelCache, Signals

Noted = Callable[[ClientView, Tensor], Trajectory]


class Attacker:
    """The attacker of a run: what it holds of each model. All its views draw the same pixels.

    Args:
        client_context: what all clients of the run share.
    """

    def __init__(self, client_context: ClientContext) -> None:
        self.client_context, self.experiment = client_context, client_context.experiment
        self.holder = self.experiment.holder
        self._pixels = PixelCache()

    def view(
        self,
        snapshot: Snapshot,
        signals: Signals,
        received: Mapping[int, State] | None = None,
        uploads: Mapping[str, Any] | None = None,
        noted: Noted | None = None,
        known: Known | None = None,
        budget: int | None = None,
    ) -> WhiteBox:
        """What the attacker holds of a snapshot: the weights, and negatives of its own.

        A client's negatives are its queue in that round. Without one (round 0, or a client that
        does not train) they are keys of its own images. An outsider has only the known images: its
        negatives are their keys.

        Args:
            snapshot: weights of a model, with the bank of the attacker's client.
            signals: rows known of the snapshot.
            received: round -> weights, of earlier models that the attacker holds.
            uploads: `before` and `updates` of a server's view.
            noted: of an active client.
            known: images of known membership, where the attacker knows fewer than the run's.
            budget: most images that may be embedded.

        Returns:
            A view that counts its queries.
        """
        context, augment = self.client_context, self.client_context.augment
        mine = None if self.holder is None else context.parts["members"][self.holder]
        method = context.method(-1, None if mine is None else len(mine))
        method.load_shared(snapshot.state)
        method.eval()
        if snapshot.holder:
            method.load_local(snapshot.holder)
        else:
            method.fill_bank(context.pixels(context.held if mine is None else mine))
        shared: dict[str, Any] = {
            "seed": self.experiment.seed,
            "device": torch.device(context.device),
            "held": self._attacker_images(known),
            "budget": budget,
            "signals": signals,
            "pixels": self._pixels,
        }
        vantage = self.experiment.threat.vantage
        if vantage == "outsider":
            return WhiteBox(method, augment, **shared)
        shared["received"] = received
        if vantage == "client":
            return ClientView(method, augment, noted=noted, **shared)
        return ServerView(method, augment, **shared, **(uploads or {}))

    def _attacker_images(self, known: Known | None) -> Tensor:
        """The images that the attacker holds: its own and the known ones."""
        images = self.client_context.take(self.client_context.held)
        if known is None:
            return images
        own = len(images) - sum(map(len, self.client_context.known))
        return torch.cat([images[:own], known.both()[0]])
