"""What an attacker has beside a model: images, rounds that it received, a budget; and its views."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from fedmia.attacks.base import Known
from fedmia.ssl.augment import Augment
from fedmia.ssl.base import SSLMethod, State
from fedmia.threat import VIEWS, BlackBox, Labels, Meter, StoredVectors, Threat
from fedmia.threat.signals import PixelCache, Signals
from fedmia.threat.stored import Stored


@dataclass(frozen=True, eq=False, kw_only=True)
class Attacker:
    """Who attacks, whichever attack it runs. All its views draw the same pixels.

    Attributes:
        threat: the most that it has: access to models, and vantage.
        known: images whose membership it knows.
        seed: of its views and of its attacks.
        augment: augmentation of its views.
        device: where tensors are computed.
        precision: of the forward passes.
        own: uint8 (N, C, H, W), images of its client; None: it is no client.
        labels: true classes of images, where it is granted them.
        received: rounds whose models it had; None: all.
        budget: most images that one attack may embed; None: no limit.
        stored: vectors in place of a model.
        pixels: views that were drawn before.
    """

    threat: Threat
    known: Known
    seed: int
    augment: Augment
    device: torch.device
    precision: str = "float32"
    own: Tensor | None = None
    labels: Labels | None = None
    received: frozenset[int] | None = None
    budget: int | None = None
    stored: Stored | None = None
    pixels: PixelCache = field(default_factory=PixelCache)

    def holds(self, known: Known | None = None) -> Tensor:
        """The images that it holds, its own and the known ones; of `known` where it knows fewer."""
        images = (self.known if known is None else known).both()[0]
        return images if self.own is None else torch.cat([self.own, images])

    def view(
        self, method: SSLMethod, vantage: str = "outsider", *, signals: Signals | None = None,
        known: Known | None = None, budget: int | None = None, **beside: Any,
    ) -> BlackBox:  # fmt: skip
        """A view of a model, as an attack of a vantage needs; it counts its queries.

        Args:
            method: the network with its weights.
            vantage: one of VANTAGE.
            signals: rows of the model that are known; None: none.
            known: images of known membership, where the attacker knows fewer.
            budget: most images that may be embedded; None: no limit.
            beside: further arguments of the view: `shadows`, and what its vantage has.

        Returns:
            The view.
        """
        make: Callable[..., BlackBox] = BlackBox
        images = self.holds(known)
        if self.stored is not None:
            make = partial(StoredVectors, stored=self.stored)
        elif self.threat.access == "white_box":
            make = VIEWS[vantage]
        return make(
            method, self.augment, seed=self.seed, device=self.device,
            held=images if len(images) else None,
            signals=Signals() if signals is None else signals, pixels=self.pixels,
            labels=self.labels, meter=Meter(budget), precision=self.precision, **beside,
        )  # fmt: skip

    def fill_bank(self, method: SSLMethod, bank: State | None = None) -> None:
        """Give a method negatives: its owner's, where they are known, else keys of the attacker's
        images.

        Args:
            method: gets them.
            bank: its owner's, by name; None or empty: not known.
        """
        if bank:
            method.load_local(bank)
        else:
            method.fill_bank(self.holds() if self.own is None else self.own)
