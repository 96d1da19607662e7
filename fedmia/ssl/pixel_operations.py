"""Pixel operations on a batch, each image with its own parameters (torchvision.transforms.v2).

Images are floats in [0, 1], B >= 1 of C in {1, 3} channels; no loop runs over images. They come as
planes (C, B, H, W): what is done to a channel then meets one piece of memory, in place. Broadcasts
within an operation of three tensors, `where` and gathers are what costs time on a CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

GRAY = (0.2989, 0.587, 0.114)  # luma of red, green, blue, as torchvision
BRIGHTNESS, CONTRAST, SATURATION, HUE = range(4)  # steps of the colour jitter
TINY = 1e-30  # in place of a chroma of 0


def resized_crop(
    x: Tensor, boxes: Tensor, flip: Tensor, size: tuple[int, int] | None = None
) -> Tensor:
    """A box of each image, resized bilinearly.

    A box is never larger than the image, so to the image's own size antialiasing has nothing to do.
    Neighbours outside the box are its border's pixels, as torchvision crops first.

    Args:
        x: images as they are stored, (B, C, H, W).
        boxes: (B, 4), top, left, height and width in pixels, within the image.
        flip: (B,), whether the box is mirrored, left to right.
        size: (height, width) to resize to with antialiasing; None: that of the images.

    Returns:
        Planes (C, B, height, width).
    """
    top, left, h, w = boxes.unbind(1)
    height, width = x.shape[2:]
    if size is None or size == (height, width):
        return _separable(x, _bilinear(top, h, height, None), _bilinear(left, w, width, flip))
    rows = _antialiased(top, h, height, size[0], None)
    return _separable(x, rows, _antialiased(left, w, width, size[1], flip))


def _bilinear(start: Tensor, length: Tensor, size: int, flip: Tensor | None) -> Tensor:
    """(B, size, size): output pixel o is the weighted sum of input pixels over the last axis."""
    pixel = torch.arange(size, device=start.device, dtype=start.dtype)
    out = pixel if flip is None else torch.where(flip[:, None], size - 1 - pixel, pixel)
    at = (out + 0.5) * (length / size)[:, None] - 0.5
    at = torch.minimum(at.clamp(min=0), length[:, None] - 1) + start[:, None]
    return (at[:, :, None] - pixel).abs_().neg_().add_(1).relu_()


def _antialiased(start: Tensor, length: Tensor, size: int, out: int, flip: Tensor | None) -> Tensor:
    """(B, out, size) like `_bilinear`, to `out` pixels: a triangle as wide as an output pixel.

    Where the box is stretched the triangle is one pixel wide, and this is `_bilinear`.
    """
    pixel = torch.arange(size, device=start.device, dtype=start.dtype)
    o = torch.arange(out, device=start.device, dtype=start.dtype)
    turned = o if flip is None else torch.where(flip[:, None], out - 1 - o, o)
    step = (length / out)[:, None]
    at = (turned + 0.5) * step - 0.5 + start[:, None]  # Bxo
    taps = (1 - (at[:, :, None] - pixel).abs() / step.clamp(min=1)[:, :, None]).relu_()
    end = (start + length)[:, None]
    inside = (pixel >= start[:, None]) & (pixel < end)
    taps = taps * inside[:, None]
    return taps / taps.sum(dim=2, keepdim=True)


def _separable(x: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Planes of rows @ x @ columns^T for (B, C, H, W) and weights (B, out, in)."""
    B, C, H, W = x.shape
    across = columns.transpose(1, 2)
    x = torch.bmm(x.reshape(B, C * H, W), across).view(B, C, H, -1)
    out = x.new_empty(C, B, rows.shape[1], x.shape[3])
    for c in range(C):
        torch.bmm(rows, x[:, c], out=out[c])
    return out


@dataclass(frozen=True)
class Jitter:
    """Steps of the colour jitter of B images, n places in an order of each image's own.

    At a place an image becomes scale x + mix luma + flat (mean of luma): one operation serves all
    images whatever their order. Where its hue is turned, that leaves it as it is; turns of hue
    cost most and are done to the images concerned alone.

    Attributes:
        scale: (B, n).
        mix: (B, n), None where no step of the augmentation mixes gray in.
        flat: (B, n), None likewise.
        shift: (B,) hue in turns.
        hues: images a..b-1 have their hue turned at each place, none where b <= a.
    """

    scale: Tensor
    mix: Tensor | None
    flat: Tensor | None
    shift: Tensor
    hues: tuple[tuple[int, int], ...]


def jitter_(x: Tensor, jitter: Jitter) -> None:
    """The colour jitter of planes, in place.

    Args:
        x: (C, B, H, W) in [0, 1].
        jitter: its steps for each of the B images.
    """
    for at, (first, last) in enumerate(jitter.hues):
        scale, gray = jitter.scale[:, at, None, None], None
        if jitter.mix is not None and jitter.flat is not None:
            gray = luma(x)
            # Row by row first: so the sum's bits are those of any batch.
            mean = gray.mean(dim=2).mean(dim=1).mul_(jitter.flat[:, at])
            gray.mul_(jitter.mix[:, at, None, None]).add_(mean[:, None, None])
        x.mul_(scale)
        if gray is not None:
            x.add_(gray)
        x.clamp_(0, 1)
        if last > first:
            hue_shift_(x[:, first:last], jitter.shift[first:last])


def luma(x: Tensor) -> Tensor:
    """(B, H, W), gray value of each pixel of planes (C, B, H, W); of one channel a copy."""
    if len(x) == 1:
        return x[0].clone()
    red, green, blue = GRAY
    return (x[0] * red).add_(x[1], alpha=green).add_(x[2], alpha=blue)


def hue_shift_(x: Tensor, shift: Tensor) -> None:
    """The hue of planes turned in place, as through HSV.

    Args:
        x: (3, B, H, W) in [0, 1].
        shift: (B,), in turns.
    """
    red, green, blue = x
    low, top = torch.minimum(red, green), torch.maximum(red, green)
    torch.minimum(low, blue, out=low)
    torch.maximum(top, blue, out=top)
    chroma = top - low
    # Within (-3, 3], in sextants from red: 1 + (g + b - r) with the least channel 0 and the largest
    # 1, negative where blue exceeds green. A gray pixel has none, and its chroma of 0 hides it.
    hue = (green + blue).sub_(red).sub_(low).div_(chroma.clamp(min=TINY)).add_(1)
    hue.copysign_(green - blue).add_(6 * shift[:, None, None])
    hue.sub_((hue / 6).floor_(), alpha=6)  # [0, 6]
    # Red is high within a sextant of 0 and of 6, so low within one of 3; green is high within one
    # of 2, blue of 4; from there each falls, or rises, over one sextant.
    for plane, centre in zip(x, (3, 2, 4), strict=True):
        torch.sub(hue, centre, out=plane)
    x.abs_().sub_(1).clamp_(0, 1).mul_(chroma)
    red.add_(low)
    torch.sub(top, x[1:], out=x[1:])


def change_(x: Tensor, which: Tensor, by: Callable[[Tensor], Tensor]) -> None:
    """Some images (indices `which`) of planes replaced by what `by` makes of them."""
    if len(which):
        x.index_copy_(1, which, by(x.index_select(1, which)))


def gray(x: Tensor) -> Tensor:
    """Planes that are all the luma."""
    return luma(x).expand_as(x)


def solarize(x: Tensor) -> Tensor:
    """Values >= 0.5 inverted."""
    return torch.where(x >= 0.5, 1 - x, x)


def rotate(x: Tensor, angle: Tensor) -> Tensor:
    """Planes turned about their centre, black outside.

    The nearest pixel, which is torchvision's default too.

    Args:
        x: (C, B, H, W).
        angle: (B,), in degrees, counter-clockwise.

    Returns:
        (C, B, H, W).
    """
    (_, B, H, W), turn = x.shape, torch.deg2rad(angle)
    cos, sin = turn.cos(), turn.sin()
    # Where an output pixel comes from, in halves of the image's sides.
    source = torch.stack([cos, -sin * (H / W), 0 * cos, sin * (W / H), cos, 0 * cos], dim=1)
    grid = F.affine_grid(source.view(B, 2, 3), [B, 1, H, W], align_corners=False)
    turned = F.grid_sample(x.transpose(0, 1), grid.to(x.dtype), "nearest", align_corners=False)
    return turned.transpose(0, 1)


def blur_size(side: int) -> int:
    """Odd number of taps, about a tenth of the image's side, at least 3."""
    return max(3, int(0.1 * side) | 1)


def gaussian_blur(x: Tensor, sigma: Tensor) -> Tensor:
    """Planes under a Gaussian of `blur_size` taps, borders reflected.

    Args:
        x: (C, B, H, W).
        sigma: (B,), in pixels, > 0.

    Returns:
        (C, B, H, W).
    """
    height, width = x.shape[2:]
    across = _gaussian(sigma, width)
    down = across if height == width else _gaussian(sigma, height)
    turned, out = across.transpose(1, 2), torch.empty_like(x)
    for plane, to in zip(x, out, strict=True):
        torch.bmm(down, torch.bmm(plane, turned), out=to)
    return out


def _gaussian(sigma: Tensor, size: int) -> Tensor:
    """(B, size, size), each row the taps around its pixel, reflected at the borders."""
    reach = blur_size(size) // 2
    tap = torch.arange(-reach, reach + 1, device=sigma.device)
    weights = torch.softmax(-(tap**2) / (2 * sigma[:, None] ** 2), dim=1)  # Bxk
    at = (torch.arange(size, device=sigma.device)[:, None] + tap).abs()
    at = size - 1 - (size - 1 - at).abs()  # sizexk
    hits = (at[:, :, None] == torch.arange(size, device=sigma.device)).to(weights.dtype)
    return torch.einsum("bk,okp->bop", weights, hits)
