"""Queries to a released encoder: its outputs for images, for their views, and for their parts."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedmia.data.images import IntArray, digests
from fedmia.errors import InputError, unknown
from fedmia.signals import PixelCache, Signals
from fedmia.ssl.augment import Augment, content_uniforms
from fedmia.ssl.base import SSLMethod
from fedmia.threat.labels import Labels
from fedmia.threat.needs import Meter, Threat

CHUNK = 1024  # images a forward pass
# Pixels of a forward pass on a CPU. More of them leave its caches: at 16 times as many a SmallNet
# takes twice as long for each, at 4 times a ResNet-18 1.3 times.
PIXELS = 1 << 15
LEAST = 8  # images of a pass, however large
# What a released encoder answers with: the projection that it was trained on where it has one,
# and the pooled feature vector that users take (the same where there is no projection).
OUTPUTS = ("encoder", "avgpool")


class Views(Protocol):
    """A recipe of random views, hashable: `Augment`, or another of the same call."""

    @property
    def draws(self) -> int:
        """Uniforms that one view of one image consumes."""

    def __call__(self, images: Tensor, uniforms: Tensor) -> Tensor:
        """(B, C, h, w) from (B, C, H, W) in [0, 1] and (B, draws); rows are independent."""

    def __hash__(self) -> int: ...


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
    _names: set[bytes] = field(default_factory=set, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._names.update(digests(self.members.numpy()))

    def trained_on(self, images: Tensor) -> NDArray[np.bool_]:
        """(N,) which of uint8 `images` it was trained on, by their bytes."""
        return np.array([name in self._names for name in digests(images.numpy())], dtype=bool)


class BlackBox:
    """Queries to an encoder, and the augmentation that the attacker assumes.

    Args:
        method: the released model; its bank of negatives is the holder's own.
        augment: recipe of the attacker's views.
        seed: of the views, which depend on (seed, image content) only.
        budget: most images that may be embedded, or None.
        held: uint8 (H, C, H, W) images that the attacker holds: its own and the known ones.
        signals: rows shared with other views of the same model.
        pixels: augmented views shared with all other views.
        shadows: encoders that the attacker trained itself.
        labels: true classes of images, where the attacker is granted them.
        meter: counts the queries, in place of an own one with `budget`.
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
    ) -> None:
        self._method = method.to(device).eval()
        self._held = held
        self._signals = Signals() if signals is None else signals
        self._pixels = PixelCache(limit=0) if pixels is None else pixels
        self._shadows = tuple(shadows)
        self._labels = Labels() if labels is None else labels
        self._meter = Meter(budget) if meter is None else meter
        self.augment = augment
        self.seed = seed
        self.device = device

    # -- the budget ----------------------------------------------------------------------------

    @property
    def budget(self) -> int | None:
        """Most images that may be embedded, None without a limit."""
        return self._meter.budget

    @property
    def queries(self) -> int:
        """Images embedded so far, counted as if nothing had been shared with other attacks."""
        return self._meter.queries

    @queries.setter
    def queries(self, count: int) -> None:
        self._meter.queries = count

    @property
    def remaining(self) -> int | None:
        """Queries left, None without a budget."""
        return None if self.budget is None else self.budget - self.queries

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

    # -- outputs -------------------------------------------------------------------------------

    @torch.no_grad()
    def embed(self, pixels: Tensor, layer: str = "encoder") -> Tensor:
        """Output (B, P) of pixels (B, C, H, W) in [0, 1]; B queries.

        Args:
            layer: one of OUTPUTS.

        Raises:
            InputError: another layer.
        """
        _known(layer)
        self.charge(len(pixels))
        return self._embed(pixels)[:, self._columns(layer)]

    @torch.no_grad()
    def embed_plain(self, images: Tensor, layer: str = "encoder") -> Tensor:
        """Output (N, P) of the plain images uint8 (N, C, H, W); N queries."""
        _known(layer)
        self.charge(len(images))

        def compute(x: Tensor) -> Tensor:
            return torch.cat([self._embed(part.float() / 255) for part in x.split(CHUNK)])

        return self._signals.get(("plain",), images, compute)[:, self._columns(layer)]

    @torch.no_grad()
    def embed_views(
        self, images: Tensor, views: int, layer: str = "encoder", recipe: Views | None = None
    ) -> Tensor:
        """(N, views, P) for uint8 (N, C, H, W): each image's own fixed views; N x views queries.

        Args:
            layer: one of OUTPUTS.
            recipe: of the views, in place of `augment`.
        """
        _known(layer)
        self.charge(len(images) * views)
        return self._rows(images, views, recipe)[:, :, self._columns(layer)]

    @property
    def has_parts(self) -> bool:
        """Whether the encoder answers with a map of the image's parts."""
        return self._method.encoder.map_layer is not None

    @torch.no_grad()
    def responses(self, images: Tensor, crops: Views, count: int) -> Tensor:
        """How each of `count` crops of an image responds to each part of it, (N, count, L).

        Dot products of the crop's pooled vector with the L vectors of the image's last map
        (PartCrop, Eq. 1-3); 1 + count queries an image.

        Args:
            images: uint8 (N, C, H, W).
            crops: recipe of a crop, which may be smaller than the image.

        Raises:
            InputError: the encoder answers with no map, or one of a single part.
        """
        self.charge(len(images) * (1 + count))
        return self._signals.grow(
            ("responses", self.seed, crops),
            images,
            count,
            lambda x, first, last: self._respond(x, crops, first, last),
        )

    # -- views ---------------------------------------------------------------------------------

    def view_pixels(self, images: Tensor, views: int, recipe: Views | None = None) -> Tensor:
        """Augmented pixels (views, N, C, H, W) in [0, 1] on the view's device; no query."""
        augment = self.augment if recipe is None else recipe
        key = (self.seed, augment, self.device)
        return self._pixels.get(
            key, images, views, lambda x: self._draw(x, augment, 0, views).transpose(0, 1)
        )

    def _draw(self, images: Tensor, recipe: Views, first: int, last: int) -> Tensor:
        """(N, last - first, C, h, w): views `first` to `last` of each image."""
        uniforms = content_uniforms(images, self.seed, last, recipe.draws)[:, first:]
        draws = torch.from_numpy(np.ascontiguousarray(uniforms)).to(self.device).flatten(0, 1)
        scaled = images.to(self.device).float() / 255
        drawn = recipe(scaled.repeat_interleave(last - first, dim=0), draws)
        return drawn.view(len(images), last - first, *drawn.shape[1:])

    # -- what the attacker holds ---------------------------------------------------------------

    @property
    def shadows(self) -> tuple[Shadow, ...]:
        """The attacker's own encoders.

        Raises:
            InputError: it has none.
        """
        if not self._shadows:
            raise InputError("needs shadow encoders (--shadows N, or --shadow-encoders FOLDER)")
        return self._shadows

    def labels(self, images: Tensor) -> IntArray:
        """True classes int64 (N,) of uint8 (N, C, H, W); no query.

        Raises:
            InputError: an image has none.
        """
        return self._labels.of(images)

    def holder(self, negatives: str) -> SSLMethod:
        """A copy of the model whose bank is the holder's `queue`, or keys of the images it `held`.

        Keys of held images are queries, one an image.

        Raises:
            InputError: `held` where the attacker holds no image.
        """
        method = copy.deepcopy(self._method)
        if negatives == "held":
            self.arm(method)
        return method

    def bank_queries(self, negatives: str) -> int:
        """What the bank of `holder(negatives)` costs.

        Raises:
            InputError: `held` where the attacker holds no image.
        """
        if negatives != "held":
            return 0
        if self._held is None or not len(self._held):
            raise InputError("negatives 'held': this attacker holds no images of its own")
        return len(self._held)

    def arm(self, method: SSLMethod) -> None:
        """Fill the bank of `method` with its keys of the images held; as many queries."""
        self.charge(self.bank_queries("held"))
        self._fill(method)

    def by_negatives(
        self,
        method: SSLMethod,
        negatives: str,
        images: Tensor,
        read: Callable[[Tensor], Tensor],
    ) -> Tensor:
        """`read(rows)` of all images, (N, ...), while the bank of `method` holds their negatives.

        `held` images are keys in two halves, told apart by content. An image meets the half that
        it is not in, so a known image is never its own negative and has as many negatives as any
        other: what is fitted on known images holds for those under test. Both halves are filled,
        whoever meets them: keys of all images held, uncounted here.

        Args:
            read: rows of `images`, (n,) -> (n, ...).
        """
        if negatives != "held":
            return read(torch.arange(len(images)))
        halves, inside = self._halves
        # The second half serves all but its own images.
        first = torch.tensor([name in inside for name in digests(images.numpy())], dtype=torch.bool)
        found: list[tuple[Tensor, Tensor]] = []
        for half, rows in zip(
            halves, (first.nonzero()[:, 0], (~first).nonzero()[:, 0]), strict=True
        ):
            with torch.no_grad():
                method.fill_bank(half.to(self.device).float() / 255)
            if len(rows):
                found.append((rows, read(rows)))
        whole = torch.cat([rows for rows, _ in found])
        return torch.cat([values for _, values in found])[whole.argsort()]

    @cached_property
    def _halves(self) -> tuple[tuple[Tensor, Tensor], set[bytes]]:
        """The images held in two halves, and the names of those in the second."""
        assert self._held is not None
        names = digests(self._held.numpy())
        order = sorted(range(len(names)), key=names.__getitem__)
        second = order[::2]
        first = order[1::2] or second  # one image alone serves everybody
        return (self._held[first], self._held[second]), {names[i] for i in second}

    @torch.no_grad()
    def _fill(self, method: SSLMethod) -> None:
        assert self._held is not None
        method.fill_bank(self._held.to(self.device).float() / 255)

    # -- forward passes ------------------------------------------------------------------------

    def passes(self, pixels: Tensor) -> tuple[Tensor, ...]:
        """(B, C, H, W) in the parts that pass through the encoder, of about one size."""
        most = CHUNK
        if self.device.type == "cpu":
            height, width = pixels.shape[2:]
            most = min(2 * CHUNK, max(LEAST, PIXELS // (height * width)))
        return pixels.chunk(max(1, -(-len(pixels) // most)))

    def _columns(self, layer: str) -> slice:
        """Where `layer` stands in the rows of `_embed`."""
        encoder, avgpool = self._signals.widths[OUTPUTS]
        return slice(0, encoder) if layer == "encoder" else slice(-avgpool, None)

    def _embed(self, pixels: Tensor) -> Tensor:
        """Both outputs side by side, from one forward pass; once where they are the same."""
        rows = []
        for part in self.passes(pixels):
            found = self._method.encoder.features(part.to(self.device), OUTPUTS)
            one = found["encoder"] is found["avgpool"]
            both = found["encoder"] if one else torch.cat([found[o] for o in OUTPUTS], dim=1)
            self._signals.widths[OUTPUTS] = tuple(found[o].shape[1] for o in OUTPUTS)
            rows.append(both.float().cpu())
        return torch.cat(rows)

    def _rows(self, images: Tensor, views: int, recipe: Views | None = None) -> Tensor:
        key = ("views", self.seed, self.augment if recipe is None else recipe)

        def compute(x: Tensor, first: int, last: int) -> Tensor:
            count, rows = last - first, []
            for part in x.split(max(1, CHUNK // count)):
                pixels = self.view_pixels(part, last, recipe)[first:].transpose(0, 1)
                rows.append(self._embed(pixels.flatten(0, 1)).view(len(part), count, -1))
            return torch.cat(rows)

        return self._signals.grow(key, images, views, compute)

    def _respond(self, images: Tensor, crops: Views, first: int, last: int) -> Tensor:
        encoder, count, rows = self._method.encoder, last - first, []
        if encoder.map_layer is None:
            raise InputError("needs a map of the image's parts, and this encoder returns none")
        for part in images.split(CHUNK // 4):
            maps = self._layer(part.to(self.device).float() / 255, encoder.map_layer).flatten(2)
            if maps.shape[2] < 2:
                raise InputError(
                    f"the encoder's last map of {images.shape[2]}x{images.shape[3]} images is "
                    "1x1: one part has nothing to be compared with"
                )
            few = max(1, 2 * CHUNK // count)  # crops are small, and many of them are drawn together
            for some, parts in zip(part.split(few), maps.split(few), strict=True):
                cut = self._draw(some, crops, first, last).flatten(0, 1)
                queries = self._layer(cut, "avgpool").view(len(some), count, -1)  # BxVxD
                if queries.shape[2] != parts.shape[1]:
                    raise InputError(
                        f"the encoder's pooled vectors have length {queries.shape[2]}, the parts "
                        f"of its map {encoder.map_layer} {parts.shape[1]}: they cannot be "
                        "compared (larger images may have a last map of more than one part)"
                    )
                rows.append((queries @ parts).cpu())  # BxVxL
        return torch.cat(rows)

    def _layer(self, pixels: Tensor, name: str) -> Tensor:
        """Output (B, ...) of one layer."""
        encoder = self._method.encoder
        return torch.cat([encoder.features(x, [name])[name] for x in self.passes(pixels)]).float()


def _known(layer: str) -> None:
    if layer not in OUTPUTS:
        raise unknown("output", layer, OUTPUTS)
