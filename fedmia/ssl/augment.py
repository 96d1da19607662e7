"""Augmentation of a batch at once, as a pure function of the images and of given uniforms.

The semantics are those of torchvision.transforms.v2 (RandomResizedCrop, ColorJitter,
RandomGrayscale, GaussianBlur, RandomSolarize, RandomHorizontalFlip), in the order of MoCo v2's
public code. All randomness is an argument, so training draws it from a stream and attacks key it by
the image's content.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedmia.data.images import ByteArray, digests
from fedmia.settings import Options, option
from fedmia.settings.errors import option_error
from fedmia.ssl._plan import ViewParameters, order_jitter, split_views
from fedmia.ssl.pixel_operations import (
    CONTRAST,
    HUE,
    change_,
    gaussian_blur,
    gray,
    jitter_,
    resized_crop,
    rotate,
    solarize,
)

# What EncoderMI takes apart (Fig. 3), and rotation, with their strengths where they are not done.
OFF: Mapping[str, Mapping[str, float]] = {
    "crop": {"crop_min": 1.0, "crop_max": 1.0, "ratio_min": 1.0, "ratio_max": 1.0},
    "flip": {"flip": 0.0},
    "jitter": {"jitter_p": 0.0},
    "gray": {"gray_p": 0.0},
    "blur": {"blur_p": 0.0},
    "rotation": {"rotation": 0.0},
}
OPERATIONS = tuple(OFF)
ATTEMPTS = 10  # at a box that fits, as torchvision
DRAWS = 2 * ATTEMPTS + 16  # of an augmentation without rotation, which takes one more
# Numbers of the images at work at once: few enough for a core's cache, or enough for a GPU.
CELLS, CELLS_GPU = 1 << 19, 1 << 26


@dataclass(frozen=True)
class Augment(Options):
    """One augmentation: how random views are drawn.

    Brightness, contrast and saturation factors are uniform in [max(0, 1 - s), 1 + s], the hue
    shift in [-hue, hue] turns. On one-channel images saturation, hue and gray do nothing. The
    rotation comes last, by an angle uniform in [-rotation, rotation]: its corners are black, as in
    PartCrop's Fig. 6.
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
    gray_first: bool = option(False, "turn gray before the colour jitter, as MoCo v1 does")
    blur_p: float = option(0.0, "probability of a Gaussian blur", ge=0, le=1)
    blur_sigma_min: float = option(0.1, "least sigma of the blur, in pixels", gt=0)
    blur_sigma_max: float = option(2.0, "largest sigma of the blur, in pixels", gt=0)
    solarize_p: float = option(0.0, "probability of inverting the pixels >= 0.5", ge=0, le=1)
    rotation: float = option(
        0.0, "largest angle of a random rotation, in degrees; corners turn black", ge=0, le=180
    )
    operations: tuple[str, ...] | None = option(
        None, "what is done to an image, each at its strength (none: all)", choices=OPERATIONS
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in self.operations or ():
            off = all(getattr(self, field) == value for field, value in OFF[name].items())
            strengths = self.brightness, self.contrast, self.saturation, self.hue
            if off or (name == "jitter" and not any(strengths)):
                field, value = next(iter(OFF[name].items())) if off else ("brightness", 0.0)
                way = f"give {field} other than {value:g}"
                raise option_error(self, f"operations: it has no {name} to be done; {way}")
        for name in ("crop", "ratio", "blur_sigma"):
            a, b = getattr(self, f"{name}_min"), getattr(self, f"{name}_max")
            if a > b:
                raise option_error(self, f"{name}_min: {a}, must be <= {name}_max ({b})")

    @property
    def draws(self) -> int:
        """P, uniforms that one view of one image consumes.

        The same for all without rotation, so that a stage switched on leaves the other
        stages' draws alone.
        """
        return DRAWS + (self.rotation > 0)

    def done(self) -> Augment:
        """The same augmentation without `operations`: those that are not named have no strength."""
        if self.operations is None:
            return self
        off: dict[str, Any] = {"solarize_p": 0.0, "operations": None}
        for name in OFF.keys() - set(self.operations):
            off |= OFF[name]
        return replace(self, **off)

    def __call__(self, images: Tensor, uniforms: Tensor) -> Tensor:
        """One view of each image.

        Args:
            images: (B, C, H, W) floats in [0, 1], or uint8, C in {1, 3}, B >= 0.
            uniforms: (B, P) in [0, 1); row b drives image b alone. What is done to which image is
                decided on the CPU: uniforms that are there cost a GPU no waiting.

        Returns:
            (B, C, H, W) in [0, 1] up to rounding; the crop is resized to the images' own size.

        Raises:
            ValueError: `uniforms` is not (B, P).
        """
        count, channels, height, width = images.shape
        if uniforms.shape != (count, self.draws):
            want = f"({count}, {self.draws})"
            raise ValueError(f"uniforms must be {want}, got {tuple(uniforms.shape)}")
        if self.operations is not None:
            augmentation = self.done()
            return augmentation(images, uniforms[:, : augmentation.draws])
        dtype = images.dtype if images.is_floating_point() else torch.get_default_dtype()
        out = torch.empty(images.shape, dtype=dtype, device=images.device)
        if images.numel() == 0:
            return out
        cells = CELLS if images.device.type == "cpu" else CELLS_GPU
        few, u = max(1, cells // images[0].numel()), uniforms.to("cpu", dtype)
        for part in self.plan(u, channels == 3, (height, width), few, images.device):
            x = images.index_select(0, part.rows)
            if x.dtype == torch.uint8:
                x = x.to(dtype).div_(255)
            out.index_copy_(0, part.rows, self.view(x, part).transpose(0, 1))
        return out

    def view(self, x: Tensor, part: ViewParameters) -> Tensor:
        """One view of each image, as planes: nothing here is waited for on a GPU.

        Args:
            x: (B, C, H, W) floats in [0, 1], the images of `part`.
            part: of `plan`.

        Returns:
            (C, B, H, W).
        """
        if self.flip or not self.crop_min == self.ratio_min == self.ratio_max == 1:
            # Crop, resize and flip at once: every later stage commutes with the flip.
            x = resized_crop(x, part.boxes, part.flip)
        else:
            x = x.transpose(0, 1).contiguous()
        if self.gray_first:
            change_(x, part.gray, gray)
        if len(part.jitter.scale):
            jitter_(x[:, : len(part.jitter.scale)], part.jitter)
        if not self.gray_first:
            change_(x, part.gray, gray)
        change_(x, part.blur, lambda some: gaussian_blur(some, part.sigma[part.blur]))
        change_(x, part.solar, solarize)
        return x if part.angle is None else rotate(x, part.angle)

    def boxes(self, u: Tensor, height: int, width: int) -> Tensor:
        """Crop boxes: the first attempt that fits, else the largest central one of a ratio allowed.

        Args:
            u: (B, 2 * ATTEMPTS + 2) uniforms: areas, log ratios, then the place.
            height, width: of the images, in pixels.

        Returns:
            (B, 4) whole numbers as floats: top, left, height, width.
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

    def plan(
        self, u: Tensor, colour: bool, size: tuple[int, int], few: int, device: torch.device
    ) -> Iterator[ViewParameters]:
        """What uniforms mean, decided on the CPU.

        Args:
            u: (B, P) in [0, 1).
            colour: whether the images have three channels.
            size: height and width of the images, in pixels.
            few: most images of a part.
            device: of the images.

        Returns:
            what is done to each image, in parts.
        """
        geometry, toss, amounts, keys, blur, *turn = u.split(
            [2 * ATTEMPTS + 2, 5, 4, 4, 1, *[1] * (self.draws - DRAWS)], dim=1
        )
        flipped, jittered, grayed, blurred, solarized = toss.unbind(1)
        strengths = (self.brightness, self.contrast, self.saturation, self.hue)
        low = u.new_tensor([max(0.0, 1 - s) for s in strengths[:HUE]])
        high = u.new_tensor([1 + s for s in strengths[:HUE]])
        views = {
            "boxes": self.boxes(geometry, *size),
            "flip": flipped < self.flip,
            "sigma": self.blur_sigma_min + blur[:, 0] * (self.blur_sigma_max - self.blur_sigma_min),
            "gray": (grayed < self.gray_p) & colour,
            "blur": blurred < self.blur_p,
            "solar": solarized < self.solarize_p,
        }
        if turn:
            views["angle"] = (2 * turn[0][:, 0] - 1) * self.rotation
        steps = [i for i, s in enumerate(strengths) if s and (colour or i <= CONTRAST)]
        factors = low + amounts[:, :HUE] * (high - low)
        shift = (2 * amounts[:, HUE] - 1) * self.hue
        apply = (jittered < self.jitter_p) & bool(steps)
        rows, jitter = order_jitter(steps, apply, keys, factors, shift)
        return split_views(views, rows, jitter, few, device)


def content_uniforms(
    images: ByteArray | Tensor, seed: int, views: int, draws: int, stream: str = "views"
) -> NDArray[np.float32]:
    """Uniforms in [0, 1) that depend on an image's bytes, not on its place.

    The same image gets the same views in whatever batch or order it comes, so an attack's score
    of it is a function of the image. View j does not depend on `views`.

    Args:
        images: uint8 (N, C, H, W).
        seed: the run's root seed.
        views, draws: how many views, and uniforms a view (`Augment.draws`).
        stream: name that keeps different uses of the same images apart.

    Returns:
        float32 (N, views, draws).

    Raises:
        InputError: the images are not uint8.
    """
    pixels = images.cpu().numpy() if isinstance(images, Tensor) else images
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
