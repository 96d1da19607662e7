"""What is decided before pixels are touched: which image gets which view, and in whose company.

The steps of the colour jitter come in an order of each image's own. Images whose hue is turned at
one place of it stand side by side; parts are small enough that a CPU's cache holds all that is done
to them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from fedmia.ssl.pixel_operations import CONTRAST, HUE, SATURATION, Jitter

T = TypeVar("T", "ViewParameters", Jitter)


@dataclass(frozen=True)
class ViewParameters:
    """Some images, and what is done to each. B of them, by rows; indices are among these B.

    Attributes:
        rows: (B,) where they stand in the batch.
        boxes: (B, 4) of the crop: top, left, height, width.
        flip: (B,) whether mirrored.
        sigma: (B,) of the blur, in pixels.
        gray, blur, solar: indices of those that turn gray, are blurred, are solarized.
        jitter: of the first images; the others have none.
        angle: (B,) degrees that each is turned by, None where none is.
    """

    rows: Tensor
    boxes: Tensor
    flip: Tensor
    sigma: Tensor
    gray: Tensor
    blur: Tensor
    solar: Tensor
    jitter: Jitter
    angle: Tensor | None = None

    def to(self, device: torch.device) -> ViewParameters:
        """The same on a device, which is not waited for."""
        return moved(replace(self, jitter=moved(self.jitter, device)), device)


def order_jitter(
    steps: Sequence[int], apply: Tensor, keys: Tensor, factors: Tensor, shift: Tensor
) -> tuple[Tensor, Jitter]:
    """The jitter of a batch, its images by the place where their hue is turned.

    Args:
        steps: those that are in the augmentation.
        apply: (B,) which images are jittered.
        keys: (B, 4), an image's steps go in ascending order of its keys.
        factors: (B, 3) of brightness, contrast, saturation; 1 is the identity.
        shift: (B,) of the hue, in turns.

    Returns:
        (B,) rows of the images in their order, those without a jitter last; and the jitter of the
        first of them.
    """
    places = len(steps)
    step = torch.tensor(steps, dtype=torch.int64)[keys[:, list(steps)].argsort(dim=1)]  # Bxn
    turned = (step == HUE).to(torch.uint8)
    place = turned.argmax(dim=1) if places else apply.long()
    place, rows = torch.where(apply, place, places).sort(stable=True)
    ends = torch.bincount(place, minlength=places + 1).cumsum(0).tolist()
    hues = tuple(zip([0, *ends], ends[:places], strict=False)) if HUE in steps else ()
    hues = hues or ((0, 0),) * places
    some = rows[: ends[places - 1] if places else 0]
    step, shift = step[some], shift[some]
    same = factors.new_ones(len(some), 1)
    scale = torch.cat([factors[some], same], dim=1).gather(1, step)
    if not {CONTRAST, SATURATION} & set(steps):
        return rows, Jitter(scale, None, None, shift, hues)
    mix, flat = ((1 - scale) * (step == one) for one in (SATURATION, CONTRAST))
    return rows, Jitter(scale, mix, flat, shift, hues)


def split_views(
    views: dict[str, Tensor], rows: Tensor, jitter: Jitter, few: int, device: torch.device
) -> Iterator[ViewParameters]:
    """A batch in parts of `few` images or fewer, on a device.

    Args:
        views: fields of `ViewParameters`, a row an image, on the CPU; gray, blur, solar yes or no.
        rows: (B,) of the images in their order.
        jitter: of the first of them.
        few: most images of a part.
        device: which is not waited for.

    Yields:
        Each part.
    """
    for first in range(0, len(rows), few):
        some = rows[first : first + few]
        mine = {n: t[some] for n, t in views.items()}
        for name in ("gray", "blur", "solar"):
            mine[name] = mine[name].nonzero()[:, 0]
        yield ViewParameters(some, **mine, jitter=_within(jitter, first, first + few)).to(device)


def _within(jitter: Jitter, first: int, last: int) -> Jitter:
    """Of the images from `first` up to `last`."""
    cut = {n: t[first:last] for n, t in vars(jitter).items() if isinstance(t, Tensor)}
    hues = tuple((max(a, first) - first, min(b, last) - first) for a, b in jitter.hues)
    return replace(jitter, **cut, hues=hues)


def moved(record: T, device: torch.device) -> T:
    """A dataclass with its tensors on a device, which is not waited for."""
    tensors: dict[str, Any] = {
        n: t.to(device, non_blocking=True) for n, t in vars(record).items() if isinstance(t, Tensor)
    }
    return replace(record, **tensors)
