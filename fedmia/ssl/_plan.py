"""What is decided before pixels are touched: which image gets which view, and in whose company.

The steps of the colour jitter come in an order of each image's own. Images of one order stand side
by side, so that a step is done to them alone and at once; parts are small enough that a CPU's cache
holds all that is done to them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Part:
    """Some images, and what is done to each. B of them, by rows; indices are among these B.

    Attributes:
        rows: (B,) where they stand in the batch.
        boxes: (B, 4) of the crop: top, left, height, width.
        flip: (B,) whether mirrored.
        factors: (B, 3) of brightness, contrast, saturation.
        shift: (B,) of the hue, in turns.
        sigma: (B,) of the blur, in pixels.
        gray, blur, solar: indices of those that turn gray, are blurred, are solarized.
        jitters: first image, last and steps of each run of images with the same steps in the same
            order; images without a jitter are in none.
    """

    rows: Tensor
    boxes: Tensor
    flip: Tensor
    factors: Tensor
    shift: Tensor
    sigma: Tensor
    gray: Tensor
    blur: Tensor
    solar: Tensor
    jitters: tuple[tuple[int, int, tuple[int, ...]], ...] = ()

    def to(self, device: torch.device) -> Part:
        """The same on a device, which is not waited for."""
        moved: dict[str, Any] = {
            n: t.to(device, non_blocking=True)
            for n, t in vars(self).items()
            if isinstance(t, Tensor)
        }
        return replace(self, **moved)


@dataclass(frozen=True)
class Plan:
    """What is done to each image of a batch.

    Attributes:
        views: as in `Part`, one row an image, on the CPU; gray, blur, solar are (B,) yes or no.
        steps: of the jitter, those that are in the recipe.
        apply: (B,) which images are jittered.
        keys: (B, 4), an image's steps go in ascending order of its keys.
    """

    views: dict[str, Tensor]
    steps: Sequence[int]
    apply: Tensor
    keys: Tensor

    def parts(self, few: int, device: torch.device) -> Iterator[Part]:
        """The batch in parts of `few` images or fewer."""
        order = self.keys[:, list(self.steps)].argsort(dim=1)  # Bxn
        places = 4 ** torch.arange(len(self.steps))
        code = torch.where(self.apply, (order * places).sum(dim=1) + 1, 0)
        code, rows = code.sort(stable=True)
        kinds, counts = code.unique_consecutive(return_counts=True)
        ends = counts.cumsum(0).tolist()
        runs = [
            (end - count, end, tuple(self.steps[j] for j in order[rows[end - 1]]))
            for kind, count, end in zip(kinds.tolist(), counts.tolist(), ends, strict=True)
            if kind
        ]
        for first in range(0, len(rows), few):
            some = rows[first : first + few]
            last = first + len(some)
            mine = {n: t[some] for n, t in self.views.items()}
            for name in ("gray", "blur", "solar"):
                mine[name] = mine[name].nonzero()[:, 0]
            jitters = tuple(
                (max(a, first) - first, min(b, last) - first, steps)
                for a, b, steps in runs
                if a < last and b > first
            )
            yield Part(some, **mine, jitters=jitters).to(device)
