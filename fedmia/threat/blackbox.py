"""Queries to an encoder, released or a shadow: outputs for images, their views and their parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedmia.data.classes import ClassNames, Labels
from fedmia.data.images import digests
from fedmia.seeding import rng
from fedmia.settings.errors import unknown_name
from fedmia.ssl.augment import Augment
from fedmia.ssl.base import SSLMethod
from fedmia.threat._rows import CHUNK, OUTPUTS, PRECISIONS, VIEWS, Augmentation, Rows
from fedmia.threat.needs import Meter, Threat, require_shadows
from fedmia.threat.signals import PixelCache, Signals


class BlackBox(Rows):
    """Queries to an encoder, and the augmentation that the attacker assumes.

    Args:
        method: the released model; its bank of negatives is the holder's own.
        augment: augmentation of the attacker's views.
        seed: of the views, which depend on (seed, image content) only.
        device: where the encoder runs.
        budget: most images that may be embedded, or None.
        held: uint8 (H, C, H, W) images that the attacker holds: its own and the known ones.
        signals: rows shared with other views of the same model.
        pixels: augmented views shared with all other views.
        shadows: encoders that the attacker trained itself.
        labels: true classes of images, where the attacker is granted them.
        meter: counts the queries, in place of an own one with `budget`.
        precision: of the forward passes; `bfloat16` runs them under autocast, about twice as fast
            for a ResNet on a CPU that has it. Outputs are float32 either way.

    Raises:
        InputError: another precision.
    """

    threat = Threat("black_box", "outsider")

    def __init__(
        self,
        method: SSLMethod,
        augment: Augment,
        *,
        seed: int,
        device: torch.device,
        budget: int | None = None,
        held: Tensor | None = None,
        signals: Signals | None = None,
        pixels: PixelCache | None = None,
        shadows: Sequence[Shadow] = (),
        labels: Labels | None = None,
        meter: Meter | None = None,
        precision: str = "float32",
    ) -> None:
        if precision not in PRECISIONS:
            raise unknown_name("precision", precision, PRECISIONS)
        self._method = method.to(device).eval()
        self._signals = Signals() if signals is None else signals
        self._pixels = PixelCache(limit=0) if pixels is None else pixels
        self.augment = augment
        self._seed = seed  # the root of splits and training, too: no attack's affair
        self.device = device
        self.precision = precision
        self._held = held
        self._shadows = tuple(shadows)
        self._labels = Labels() if labels is None else labels
        self._meter = Meter(budget) if meter is None else meter

    # -- the budget ----------------------------------------------------------------------------

    @property
    def queries(self) -> int:
        """Images embedded so far, counted as if nothing had been shared with other attacks."""
        return self._meter.queries

    @queries.setter
    def queries(self, count: int) -> None:
        self._meter.queries = count

    @property
    def seed(self) -> int:
        """For what an attack draws by itself; nothing else is drawn by it."""
        return int(rng(self._seed, "attack's own").integers(1 << 62))

    @property
    def remaining(self) -> int | None:
        """Queries left, None without a budget."""
        budget = self._meter.budget
        return None if budget is None else budget - self.queries

    def charge(self, queries: int) -> None:
        """Count `queries` images.

        Raises:
            BudgetError: more than remain; raised before anything is computed.
        """
        self._meter.charge(queries)

    def unmetered(self) -> AbstractContextManager[None]:
        """A context in which nothing is counted: rows that an attack has paid for are read again,
        to set a threshold or to draw a picture."""
        return self._meter.pause()

    @property
    def patch(self) -> int:
        """Sides of the images that the encoder takes are multiples of so many pixels."""
        return self._method.encoder.backbone.patch

    # -- outputs -------------------------------------------------------------------------------

    @torch.no_grad()
    def embed(self, pixels: Tensor, layer: str = "encoder") -> Tensor:
        """Output (B, P) of pixels (B, C, H, W) in [0, 1], at `layer` of OUTPUTS; B queries, of
        which nothing is remembered."""
        _known(layer)
        self.charge(len(pixels))
        return self._embed(pixels)[:, self._columns(layer)]

    @torch.no_grad()
    def embed_plain(self, images: Tensor, layer: str = "encoder") -> Tensor:
        """Output of the plain images; N queries.

        Args:
            images: uint8 `(N, C, H, W)`.
            layer: one of OUTPUTS.

        Returns:
            float32 `(N, P)`, on the CPU.
        """
        _known(layer)
        self.charge(len(images))

        def compute(x: Tensor) -> Tensor:
            parts = x.split(self._batch_size(CHUNK, x))
            return torch.cat([self._embed(part.float() / 255) for part in parts])

        return self._signals.get(("plain",), images, compute)[:, self._columns(layer)]

    @torch.no_grad()
    def embed_views(
        self,
        images: Tensor,
        views: int,
        layer: str = "encoder",
        augmentation: Augmentation | None = None,
    ) -> Tensor:
        """Output of each image's own fixed views; N x views queries.

        Args:
            images: uint8 `(N, C, H, W)`.
            views: an image; fewer are the first of more.
            layer: one of OUTPUTS.
            augmentation: of the views, in place of `augment`.

        Returns:
            float32 `(N, views, P)`, on the CPU.
        """
        _known(layer)
        self.charge(len(images) * views)
        return self._rows(images, views, augmentation)[:, :, self._columns(layer)]

    @torch.no_grad()
    def responses(
        self, images: Tensor, crops: Augmentation, count: int, draw: int = 0
    ) -> tuple[Tensor, Tensor]:
        """How each of `count` crops of an image responds to its parts, and to it as a whole.

        Dot products of the crop's pooled vector with the L vectors of the image's last map
        (PartCrop, Eq. 1-3), and its cosine with the image's pooled vector; 1 + count queries an
        image.

        Args:
            images: uint8 (N, C, H, W).
            crops: augmentation by a crop, which may be smaller than the image.
            count: crops an image.
            draw: 0, or the number of a draw of other crops, which nothing remembers.

        Returns:
            dot products, `(N, count, L)`, and cosines, `(N, count)`.

        Raises:
            InputError: the encoder answers with no map, or one of a single part.
        """
        self.charge(len(images) * (1 + count))
        if draw:
            rows = self._respond(images, crops, 0, count, f"{VIEWS} {draw}")
        else:
            rows = self._signals.grow(
                ("responses", self._seed, crops),
                images,
                count,
                lambda x, first, last: self._respond(x, crops, first, last),
            )
        return rows[..., :-1], rows[..., -1]

    def shared(
        self, key: tuple[object, ...], images: Tensor, compute: Callable[[Tensor], Tensor]
    ) -> Tensor:
        """(N, ...) rows of uint8 `images`, computed of those alone that no view of this model has
        under the key. What `compute` queries is counted only where it runs."""
        return self._signals.get(key, images, compute)

    # -- what the attacker holds ---------------------------------------------------------------

    @property
    def shadows(self) -> tuple[Shadow, ...]:
        """The attacker's own encoders.

        Raises:
            InputError: it has none.
        """
        require_shadows(bool(self._shadows))
        return self._shadows

    def labels(self, images: Tensor) -> ClassNames:
        """Names (N,) of the true classes of uint8 (N, C, H, W); no query.

        Raises:
            InputError: an image has none.
        """
        return self._labels.of(images)


@dataclass(frozen=True)
class Shadow:
    """An encoder that the attacker trained itself, and what it knows of its training.

    Attributes:
        view: queries to it, which cost the attacker nothing that a budget counts.
        members: uint8 (M, C, H, W) images that it was trained on.
        nonmembers: uint8 (K, C, H, W) images of the same source that it was not trained on.
    """

    view: BlackBox
    members: Tensor
    nonmembers: Tensor

    @cached_property
    def _names(self) -> set[bytes]:
        return set(digests(self.members.numpy()))

    def trained_on(self, images: Tensor) -> NDArray[np.bool_]:
        """(N,) which of uint8 `images` it was trained on, by their bytes."""
        return np.array([name in self._names for name in digests(images.numpy())], dtype=bool)


def _known(layer: str) -> None:
    if layer not in OUTPUTS:
        raise unknown_name("output", layer, OUTPUTS)
