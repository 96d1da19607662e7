"""Augmentation of a batch at once, as a pure function of the images and of given uniforms.

The semantics are those of torchvision.transforms.v2 (RandomResizedCrop, ColorJitter,
RandomGrayscale, GaussianBlur, RandomSolarize, RandomHorizontalFlip), in the order of MoCo's public
recipe. All randomness is an argument, so training draws it from a stream and attacks key it by the
image's content.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from fedmia.data.images import ByteArray, digests
from fedmia.errors import InputError
from fedmia.options import Options, option

ATTEMPTS = 10  # at a box that fits, as torchvision
GRAY = (0.2989, 0.587, 0.114)  # luma of red, green, blue, as torchvision
DRAWS = 2 * ATTEMPTS + 16


@dataclass(frozen=True)
class Augment(Options):
    """One recipe of random views.

    Brightness, contrast and saturation factors are uniform in [max(0, 1 - s), 1 + s], the hue
    shift in [-hue, hue] turns. On one-channel images saturation, hue and gray do nothing.
    """

    crop_min: float = option(0.2, "least area of the crop, as part of the image", gt=0, le=1)
    crop_max: float = option(1.0, "largest area of the crop, as part of the image", gt=0, le=1)
    ratio_min: float = option(3 / 4, "least width / height of the crop", gt=0)
    ratio_max: float = option(4 / 3, "largest width / height of the crop", gt=0)
    flip: float = option(0.5, "probability of a horizontal flip", ge=0, le=1)
    brightness: float = option(0.4, "strength of the brightness jitter", ge=0)
    contrast: float = option(0.4, "strength of the contrast jitter", ge=0)
    saturation: float = option(0.4, "strength of the saturation jitter", ge=0)
    hue: float = option(0.4, "strength of the hue jitter, in turns", ge=0, le=0.5)
    jitter_p: float = option(0.8, "probability of the colour jitter", ge=0, le=1)
    gray_p: float = option(0.2, "probability of turning gray", ge=0, le=1)
    blur_p: float = option(0.0, "probability of a Gaussian blur", ge=0, le=1)
    blur_sigma_min: float = option(0.1, "least sigma of the blur, in pixels", gt=0)
    blur_sigma_max: float = option(2.0, "largest sigma of the blur, in pixels", gt=0)
    solarize_p: float = option(0.0, "probability of inverting the pixels >= 0.5", ge=0, le=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        for low, high in (
            ("crop_min", "crop_max"),
            ("ratio_min", "ratio_max"),
            ("blur_sigma_min", "blur_sigma_max"),
        ):
            a, b = getattr(self, low), getattr(self, high)
            if a > b:
                raise InputError(f"Augment.{low} must be <= Augment.{high} ({b}), got {a}")

    @property
    def draws(self) -> int:
        """P, uniforms that one view of one image consumes.

        The same for every recipe, so that a stage switched on leaves the other stages' draws alone.
        """
        return DRAWS

    def __call__(self, images: Tensor, uniforms: Tensor) -> Tensor:
        """One view of each image.

        Args:
            images: (B, C, H, W) floats in [0, 1], C in {1, 3}, B >= 0.
            uniforms: (B, P) in [0, 1), on the images' device; row b drives image b alone.

        Returns:
            (B, C, H, W) in [0, 1]; the crop is resized to the images' own size.

        Raises:
            ValueError: `uniforms` is not (B, P).
        """
        if uniforms.shape != (images.shape[0], DRAWS):
            raise ValueError(
                f"uniforms must be ({images.shape[0]}, {DRAWS}), got {tuple(uniforms.shape)}"
            )
        if images.numel() == 0:
            return images.clone()
        u = uniforms.to(images.dtype)
        geometry, (toss, rest) = u[:, : 2 * ATTEMPTS + 2], u[:, 2 * ATTEMPTS + 2 :].split([5, 9], 1)
        flip, jitter, gray, blur, solar = toss.unbind(1)
        x = self._crop_and_flip(images, geometry, flip < self.flip)
        x = self._jitter(x, jitter < self.jitter_p, rest[:, :4], rest[:, 4:8])
        if self.gray_p and x.shape[1] == 3:
            x = torch.where(_column(gray < self.gray_p), luma(x), x)
        if self.blur_p:
            sigma = self.blur_sigma_min + rest[:, 8] * (self.blur_sigma_max - self.blur_sigma_min)
            x = torch.where(_column(blur < self.blur_p), gaussian_blur(x, sigma), x)
        if self.solarize_p:
            x = torch.where(_column(solar < self.solarize_p) & (x >= 0.5), 1 - x, x)
        return x

    def _crop_and_flip(self, x: Tensor, u: Tensor, flip: Tensor) -> Tensor:
        """Crop, resize and flip at once: every later stage commutes with the flip."""
        whole = self.crop_min == 1 and self.ratio_min == self.ratio_max == 1
        if whole and not self.flip:
            return x
        return resized_crop(x, self.boxes(u, x.shape[2], x.shape[3]), flip)

    def boxes(self, u: Tensor, height: int, width: int) -> Tensor:
        """Crop boxes (B, 4) of whole pixels: top, left, height, width.

        Args:
            u: (B, 2 * ATTEMPTS + 2): areas, log ratios, then the place. The first attempt that
                fits is taken; if none does, the largest central box of an allowed ratio.
        """
        area = height * width * (self.crop_min + u[:, :ATTEMPTS] * (self.crop_max - self.crop_min))
        low, high = math.log(self.ratio_min), math.log(self.ratio_max)
        ratio = torch.exp(low + u[:, ATTEMPTS : 2 * ATTEMPTS] * (high - low))
        w, h = torch.sqrt(area * ratio).round(), torch.sqrt(area / ratio).round()
        fits = (w > 0) & (w <= width) & (h > 0) & (h <= height)
        first = fits.to(torch.uint8).argmax(dim=1, keepdim=True)
        size = torch.stack([h, w], dim=2).gather(1, first[:, :, None].expand(-1, 1, 2))[:, 0]
        central_h, central_w = height, width
        if width / height < self.ratio_min:
            central_h = round(width / self.ratio_min)
        elif width / height > self.ratio_max:
            central_w = round(height * self.ratio_max)
        room = size.new_tensor([height, width]) - size  # Bx2
        place = torch.minimum((u[:, 2 * ATTEMPTS :] * (room + 1)).floor(), room)
        central = size.new_tensor(
            [(height - central_h) // 2, (width - central_w) // 2, central_h, central_w]
        )
        return torch.where(fits.any(1, keepdim=True), torch.cat([place, size], dim=1), central)

    def _jitter(self, x: Tensor, apply: Tensor, u: Tensor, keys: Tensor) -> Tensor:
        strengths = (self.brightness, self.contrast, self.saturation)
        colour = x.shape[1] == 3
        active = [i for i, s in enumerate(strengths) if s and (i < 2 or colour)]
        shift = (2 * u[:, 3] - 1) * self.hue if self.hue and colour else None
        if not self.jitter_p or (not active and shift is None):
            return x
        low = u.new_tensor([max(0.0, 1 - s) for s in strengths])
        high = u.new_tensor([1 + s for s in strengths])
        factors = low + u[:, :3] * (high - low)
        out = color_jitter(x, factors, shift, keys, active)
        return out if self.jitter_p == 1 else torch.where(_column(apply), out, x)


def resized_crop(x: Tensor, boxes: Tensor, flip: Tensor) -> Tensor:
    """Each image's box (B, 4) resized bilinearly to the whole image, mirrored where `flip` (B,).

    A box is never larger than the image, so antialiasing has nothing to do. Neighbours outside the
    box are its border's pixels, as torchvision crops first.
    """
    top, left, h, w = boxes.unbind(1)
    return _separable(x, _bilinear(top, h, x.shape[2], None), _bilinear(left, w, x.shape[3], flip))


def _bilinear(start: Tensor, length: Tensor, size: int, flip: Tensor | None) -> Tensor:
    """(B, size, size): output pixel o is the weighted sum of input pixels over the last axis."""
    pixel = torch.arange(size, device=start.device, dtype=start.dtype)
    out = pixel if flip is None else torch.where(flip[:, None], size - 1 - pixel, pixel)
    at = (out + 0.5) * (length / size)[:, None] - 0.5
    at = torch.minimum(at.clamp(min=0), length[:, None] - 1) + start[:, None]
    return F.relu(1 - (at[:, :, None] - pixel).abs())


def _separable(x: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """rows @ x @ columns^T for each image and channel; weights (B, out, in)."""
    B, C, H, W = x.shape
    x = torch.bmm(x.reshape(B, C * H, W), columns.transpose(1, 2)).view(B, C, H, W)
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
        x = hue_shift(x, shift) if shift is not None else x
        return _blends(x, steps, torch.where(before, 1, factors), len(active))
    return x if shift is None else hue_shift(x, shift)


def _blends(x: Tensor, steps: Tensor, factors: Tensor, count: int) -> Tensor:
    """clamp(f x + (1 - f) other) for each step: other is black, the mean luma, or the luma."""
    for k in range(count):
        step, f = _column(steps[:, k]), _column(factors[:, k])
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


def _column(v: Tensor) -> Tensor:
    return v[:, None, None, None]


def content_uniforms(
    images: ByteArray | Tensor, seed: int, views: int, draws: int, stream: str = "views"
) -> NDArray[np.float32]:
    """Uniforms (N, views, draws) in [0, 1) that depend on an image's bytes, not on its place.

    The same image gets the same views in whatever batch or order it comes, so an attack's score
    of it is a function of the image. View j does not depend on `views`.

    Args:
        images: uint8 (N, C, H, W).
        seed: the run's root seed.
        views, draws: how many views, and uniforms a view (`Augment.draws`).
        stream: name that keeps different uses of the same images apart.

    Raises:
        ValueError: the images are not uint8.
    """
    pixels = images.cpu().numpy() if isinstance(images, Tensor) else images
    if pixels.dtype != np.uint8:
        raise ValueError(f"content_uniforms takes uint8 images, got {pixels.dtype}")
    prefix = hashlib.shake_128(f"{int(seed)}\x1f{stream}\x1f".encode())
    words = bytearray()
    for digest in digests(pixels):
        # An extendable hash: its first bytes do not depend on how many are asked for.
        expand = prefix.copy()
        expand.update(digest)
        words += expand.digest(4 * views * draws)
    top = np.frombuffer(bytes(words), dtype="<u4") >> 8  # the 24 bits that a float32 holds
    uniforms = top.astype(np.float32) * np.float32(2**-24)
    return uniforms.reshape(len(pixels), views, draws)
