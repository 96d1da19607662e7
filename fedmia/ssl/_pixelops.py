"""Pixel operations on a batch, each image with its own parameters (torchvision.transforms.v2).

Images are (B, C, H, W) floats in [0, 1], C in {1, 3}, B >= 1; no loop runs over images.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

GRAY = (0.2989, 0.587, 0.114)  # luma of red, green, blue, as torchvision


def per_image(v: Tensor) -> Tensor:
    """(B,) -> (B, 1, 1, 1), to meet images."""
    return v[:, None, None, None]


def resized_crop(
    x: Tensor, boxes: Tensor, flip: Tensor, size: tuple[int, int] | None = None
) -> Tensor:
    """Each image's box (B, 4) resized bilinearly, mirrored where `flip` (B,).

    To the whole image by default: a box is never larger than that, so antialiasing has nothing to
    do. To `size` (height, width) with antialiasing. Neighbours outside the box are its border's
    pixels, as torchvision crops first.
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
    return F.relu(1 - (at[:, :, None] - pixel).abs())


def _antialiased(start: Tensor, length: Tensor, size: int, out: int, flip: Tensor | None) -> Tensor:
    """(B, out, size) like `_bilinear`, to `out` pixels: a triangle as wide as an output pixel.

    Where the box is stretched the triangle is one pixel wide, and this is `_bilinear`.
    """
    pixel = torch.arange(size, device=start.device, dtype=start.dtype)
    o = torch.arange(out, device=start.device, dtype=start.dtype)
    turned = o if flip is None else torch.where(flip[:, None], out - 1 - o, o)
    step = (length / out)[:, None]
    at = (turned + 0.5) * step - 0.5 + start[:, None]  # Bxo
    taps = F.relu(1 - (at[:, :, None] - pixel).abs() / step.clamp(min=1)[:, :, None])
    end = (start + length)[:, None]
    inside = (pixel >= start[:, None]) & (pixel < end)
    taps = taps * inside[:, None]
    return taps / taps.sum(dim=2, keepdim=True)


def _separable(x: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """rows @ x @ columns^T for each image and channel; weights (B, out, in)."""
    B, C, H, W = x.shape
    x = torch.bmm(x.reshape(B, C * H, W), columns.transpose(1, 2)).view(B, C, H, -1)
    return torch.matmul(rows[:, None], x)


def color_jitter(
    x: Tensor, factors: Tensor, shift: Tensor | None, keys: Tensor, active: list[int]
) -> Tensor:
    """Brightness, contrast, saturation and hue, in each image's own order.

    Args:
        x: (B, C, H, W) in [0, 1].
        factors: (B, 3) of brightness, contrast, saturation; 1 is the identity.
        shift: (B,) hue in turns, or None for no hue step.
        keys: (B, 4); an image's steps go in ascending order of its keys, hue having the last.
        active: which of the three columns of `factors` to apply, ascending.
    """
    if active:
        picked = torch.tensor(active, device=x.device)
        sorted_keys, order = keys[:, picked].sort(dim=1)
        steps = picked[order]  # Bxn
        factors = factors.gather(1, steps)
        if shift is None:
            return _blends(x, steps, factors, len(active))
        # Every image passes the same two runs of blends, with factor 1 in the run not its own.
        before = sorted_keys < keys[:, 3:]
        x = _blends(x, steps, torch.where(before, factors, 1), len(active))
        x = hue_shift(x, shift)
        return _blends(x, steps, torch.where(before, 1, factors), len(active))
    return x if shift is None else hue_shift(x, shift)


def _blends(x: Tensor, steps: Tensor, factors: Tensor, count: int) -> Tensor:
    """clamp(f x + (1 - f) other) for each step: other is black, the mean luma, or the luma."""
    for k in range(count):
        step, f = per_image(steps[:, k]), per_image(factors[:, k])
        gray = luma(x)
        mean = gray.mean(dim=(2, 3), keepdim=True)
        other = torch.where(step == 1, mean, torch.zeros_like(mean))
        if x.shape[1] == 3:
            other = torch.where(step == 2, gray, other)
        x = torch.lerp(other, x, f).clamp(0, 1)  # a factor of 1 gives x to the bit
    return x


def luma(x: Tensor) -> Tensor:
    """(B, 1, H, W), gray value of each pixel; a one-channel image is its own."""
    if x.shape[1] == 1:
        return x
    red, green, blue = GRAY
    return red * x[:, 0:1] + green * x[:, 1:2] + blue * x[:, 2:3]


def hue_shift(x: Tensor, shift: Tensor) -> Tensor:
    """Hue turned by `shift` (B,) turns through HSV, for (B, 3, H, W) in [0, 1]."""
    value = x.amax(dim=1)
    chroma = value - x.amin(dim=1)
    red, green, blue = x.unbind(1)
    safe = torch.where(chroma == 0, torch.ones_like(chroma), chroma)
    sextant = torch.where(
        red == value,
        (green - blue) / safe,
        torch.where(green == value, (blue - red) / safe + 2, (red - green) / safe + 4),
    )
    sextant = sextant + 6 * shift[:, None, None]
    # A channel falls from `value` to `value - chroma` within a sextant beside its own third.
    offset = x.new_tensor([5, 3, 1]).view(1, 3, 1, 1)
    k = (sextant[:, None] + offset).remainder(6)
    fall = torch.minimum(k, 4 - k).clamp(0, 1)
    return value[:, None] - chroma[:, None] * fall


def blur_size(side: int) -> int:
    """Odd number of taps, about a tenth of the image's side, at least 3."""
    return max(3, int(0.1 * side) | 1)


def gaussian_blur(x: Tensor, sigma: Tensor) -> Tensor:
    """Gaussian of `sigma` (B,) pixels and `blur_size` taps, borders reflected."""
    return _separable(x, _gaussian(sigma, x.shape[2]), _gaussian(sigma, x.shape[3]))


def _gaussian(sigma: Tensor, size: int) -> Tensor:
    """(B, size, size), each row the taps around its pixel, reflected at the borders."""
    reach = blur_size(size) // 2
    tap = torch.arange(-reach, reach + 1, device=sigma.device)
    weights = torch.softmax(-(tap**2) / (2 * sigma[:, None] ** 2), dim=1)  # Bxk
    at = (torch.arange(size, device=sigma.device)[:, None] + tap).abs()
    at = size - 1 - (size - 1 - at).abs()  # sizexk
    hits = F.one_hot(at, size).to(weights.dtype)
    return torch.einsum("bk,okp->bop", weights, hits)
