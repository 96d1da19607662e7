"""Rows of an encoder's outputs: pixels drawn, sent through in batches, remembered; not counted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from fedmia.settings.errors import InputError
from fedmia.ssl.augment import Augment, content_uniforms
from fedmia.ssl.base import PART, SSLMethod
from fedmia.threat.signals import PixelCache, Signals

CHUNK = 1024  # images a forward pass
# Pixels that are drawn, scaled or sent through at once: what is at work takes as much memory for
# large images as for small ones, 24 MiB in three channels of float32 for each copy of them.
DRAWN = 1 << 21
DRAWN_GPU = 1 << 24
PART_GPU = 1 << 22  # of a forward pass on a GPU
# Pixels of a forward pass on a CPU. More of them leave its caches: at 16 times as many a SmallNet
# takes twice as long for each, at 4 times a ResNet-18 1.3 times.
PIXELS = 1 << 15
LEAST = 8  # images of a pass, unless they are large
# What a released encoder answers with: the projection that it was trained on where it has one,
# and the pooled feature vector that users take (the same where there is no projection).
OUTPUTS = ("encoder", "avgpool")
PRECISIONS = ("float32", "bfloat16")
VIEWS = "views"  # stream of the uniforms that views are drawn by


class Augmentation(Protocol):
    """An augmentation, hashable: `Augment`, or another of the same call."""

    @property
    def draws(self) -> int:
        """Uniforms that one view of one image consumes."""

    def __call__(self, images: Tensor, uniforms: Tensor) -> Tensor:
        """(B, C, h, w) from (B, C, H, W) in [0, 1] and (B, draws); rows are independent."""

    def __hash__(self) -> int: ...


class Rows:
    """What one attacker reads of one model, before queries are counted."""

    _method: SSLMethod
    _signals: Signals
    _pixels: PixelCache
    augment: Augment
    _seed: int
    device: torch.device
    precision: str

    # -- views ---------------------------------------------------------------------------------

    def view_pixels(
        self, images: Tensor, views: int, augmentation: Augmentation | None = None
    ) -> Tensor:
        """Augmented pixels (views, N, C, H, W) in [0, 1] on the view's device; no query."""
        augment = self.augment if augmentation is None else augmentation
        key = (self._seed, augment, self.device)
        return self._pixels.get(
            key, images, views, lambda x: self._draw(x, augment, 0, views).transpose(0, 1)
        )

    def _draw(
        self, images: Tensor, augmentation: Augmentation, first: int, last: int, stream: str = VIEWS
    ) -> Tensor:
        """(N, last - first, C, h, w): views `first` to `last` of each image."""
        uniforms = content_uniforms(images, self._seed, last, augmentation.draws, stream)[:, first:]
        draws = torch.from_numpy(np.ascontiguousarray(uniforms)).to(self.device).flatten(0, 1)
        scaled = images.to(self.device).float() / 255
        views = augmentation(scaled.repeat_interleave(last - first, dim=0), draws)
        return views.view(len(images), last - first, *views.shape[1:])

    def _batch_size(self, most: int, images: Tensor) -> int:
        """How many images or views of this size are at work at once, at most `most`."""
        pixels = DRAWN if self.device.type == "cpu" else DRAWN_GPU
        return max(1, min(most, pixels * most // CHUNK // (images.shape[2] * images.shape[3])))

    def _drawn(
        self,
        images: Tensor,
        augmentation: Augmentation,
        first: int,
        last: int,
        most: int,
        stream: str = VIEWS,
    ) -> Iterator[Tensor]:
        """Views `first` to `last`, image by image, in parts (B, C, h, w), B of `_batch_size`."""
        few, count = self._batch_size(most, images), last - first
        if few < count:  # not even all views of one image
            for one in images.split(1):
                for at in range(first, last, few):
                    yield self._draw(one, augmentation, at, min(at + few, last), stream)[0]
        else:
            for part in images.split(few // count):
                yield self._draw(part, augmentation, first, last, stream).flatten(0, 1)

    # -- forward passes ------------------------------------------------------------------------

    def passes(self, pixels: Tensor) -> tuple[Tensor, ...]:
        """(B, C, H, W) in the parts that pass through the encoder, of about one size."""
        most = min(self._batch_size(CHUNK, pixels), max(1, PART_GPU // pixels[0, 0].numel()))
        if self.device.type == "cpu":
            height, width = pixels.shape[2:]
            least = max(1, min(LEAST, PART // (height * width)))
            most = min(2 * CHUNK, max(least, PIXELS // (height * width)))
        return pixels.chunk(max(1, -(-len(pixels) // most)))

    def forward(self, part: Tensor, layers: Sequence[str]) -> dict[str, Tensor]:
        """Outputs of the named layers for one part (B, C, H, W) of `passes`."""
        low = self.precision == "bfloat16"
        with torch.autocast(self.device.type, torch.bfloat16, enabled=low):
            return self._method.encoder.features(part.to(self.device), layers)

    def _columns(self, layer: str) -> slice:
        """Where `layer` stands in the rows of `_embed`."""
        encoder, avgpool = self._signals.widths[OUTPUTS]
        return slice(0, encoder) if layer == "encoder" else slice(-avgpool, None)

    def _embed(self, pixels: Tensor) -> Tensor:
        """Both outputs side by side, from one forward pass; once where they are the same."""
        rows = []
        for part in self.passes(pixels):
            outputs = self.forward(part, OUTPUTS)
            one = outputs["encoder"] is outputs["avgpool"]
            both = outputs["encoder"] if one else torch.cat([outputs[o] for o in OUTPUTS], dim=1)
            self._signals.widths[OUTPUTS] = tuple(outputs[o].shape[1] for o in OUTPUTS)
            rows.append(both.float().cpu())
        return torch.cat(rows)

    def _rows(self, images: Tensor, views: int, augmentation: Augmentation | None = None) -> Tensor:
        key = ("views", self._seed, self.augment if augmentation is None else augmentation)

        def compute(x: Tensor, first: int, last: int) -> Tensor:
            augment, count = self.augment if augmentation is None else augmentation, last - first
            few = self._batch_size(CHUNK, x)
            if few >= last:
                parts = x.split(max(1, few // (count if few == CHUNK else last)))
                views = (self.view_pixels(part, last, augment)[first:] for part in parts)
                chunks: Iterator[Tensor] = (v.transpose(0, 1).flatten(0, 1) for v in views)
            else:  # not even one image's at once: drawn in pieces, which are not kept
                chunks = self._drawn(x, augment, first, last, CHUNK)
            return torch.cat([self._embed(pixels) for pixels in chunks]).view(len(x), count, -1)

        return self._signals.grow(key, images, views, compute)

    def _respond(
        self, images: Tensor, crops: Augmentation, first: int, last: int, stream: str = VIEWS
    ) -> Tensor:
        """(N, last - first, L + 1): each crop's dot products with the L parts of its image's map,
        then its cosine with the image's pooled vector."""
        encoder, count, rows = self._method.encoder, last - first, []
        if encoder.map_layer is None:
            raise InputError("needs a map of the image's parts, and there is none")
        for part in images.split(self._batch_size(CHUNK // 4, images)):
            whole = part.to(self.device).float() / 255
            maps, pooled = self._layers(whole, (encoder.map_layer, "avgpool"))
            maps = maps.flatten(2)
            if maps.shape[2] < 2:
                raise InputError(
                    f"the encoder's last map of {images.shape[2]}x{images.shape[3]} images is "
                    "1x1: one part has nothing to be compared with"
                )
            most = 2 * CHUNK  # crops are small, and many of them are drawn together
            few = max(1, self._batch_size(most, part) // count)
            of_images = zip(part.split(few), maps.split(few), pooled.split(few), strict=True)
            for some, parts, vector in of_images:
                cut = self._drawn(some, crops, first, last, most, stream)
                vectors = torch.cat([self._layers(pixels, ("avgpool",))[0] for pixels in cut])
                queries = vectors.view(len(some), count, -1)  # BxVxD
                if queries.shape[2] != parts.shape[1]:
                    raise InputError(
                        f"the encoder's pooled vectors have length {queries.shape[2]}, the parts "
                        f"of its map {encoder.map_layer} {parts.shape[1]}: they cannot be "
                        "compared (larger images may have a last map of more than one part)"
                    )
                cosines = F.cosine_similarity(queries, vector[:, None], dim=2)[..., None]
                rows.append(torch.cat([queries @ parts, cosines], dim=2).cpu())
        return torch.cat(rows)

    def _layers(self, pixels: Tensor, names: Sequence[str]) -> tuple[Tensor, ...]:
        """Outputs (B, ...) of some layers."""
        passes = [self.forward(part, names) for part in self.passes(pixels)]
        return tuple(torch.cat([outputs[name].float() for outputs in passes]) for name in names)
