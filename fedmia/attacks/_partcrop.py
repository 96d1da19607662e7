"""Parts of an image: crops of it, and the energies of its map's responses to them (PartCrop)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from fedmia.attacks.base import Attack, Scores
from fedmia.settings import Options, option
from fedmia.settings.errors import InputError, opt, option_error
from fedmia.ssl.augment import ATTEMPTS, Augment, content_uniforms
from fedmia.ssl.pixel_operations import resized_crop
from fedmia.threat import BlackBox, BudgetError, Threat

ENERGIES = ("both", "uniform", "gaussian")
EPS = 1e-6  # inside the benchmark's logarithm
CHUNK = 1 << 22  # responses a block of energies
# What an encoder of somebody else's raises on pixels of a size that it does not take.
FAILURES = (RuntimeError, AssertionError, ValueError, TypeError, IndexError)
BENCHMARK = "partcrop benchmark"  # stream of the samples under the bell
PLACE = 2 * ATTEMPTS + 2  # uniforms that choose a box


@dataclass(frozen=True)
class Crops(Options):
    """A box of a random area and shape, cut from the plain image, mirrored at random and resized.

    The paper's values (Sec. 5.4) and, where it is silent, those of its public code: the ratios and
    the flip. That code cuts parts from a view that was itself cropped, of members only; here they
    come from the image, member or not. Resizing is bilinear with antialiasing.
    """

    scale_min: float = option(0.08, "least area of a crop, as part of the image", gt=0, le=1)
    scale_max: float = option(0.2, "largest area of a crop, as part of the image", gt=0, le=1)
    ratio_min: float = option(3 / 4, "least width / height of a crop", gt=0)
    ratio_max: float = option(4 / 3, "largest width / height of a crop", gt=0)
    flip: float = option(0.5, "probability of a horizontal flip", ge=0, le=1)
    size: float = option(0.5, "sides of a resized crop, as part of the image's", gt=0, le=1)
    patch: int = option(1, "sides of a resized crop are multiples of so many pixels", ge=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._boxes()  # refuses a least value above the largest

    @property
    def draws(self) -> int:
        """Uniforms that one crop of one image consumes, the same for every recipe."""
        return PLACE + 1

    def pixels(self, height: int, width: int) -> tuple[int, int]:
        """Height and width of a resized crop of an image of these: whole patches, at least 2."""
        sides = (self.patch * max(1, round(self.size * s / self.patch)) for s in (height, width))
        high, wide = sides
        return max(2, high), max(2, wide)

    def __call__(self, images: Tensor, uniforms: Tensor) -> Tensor:
        """One crop (B, C, h, w) of each of (B, C, H, W) in [0, 1], from (B, draws) in [0, 1)."""
        height, width = images.shape[2:]
        boxes = self._boxes().boxes(uniforms[:, :PLACE], height, width)
        flip = uniforms[:, PLACE] < self.flip
        planes = resized_crop(images, boxes, flip, self.pixels(height, width))
        return planes.transpose(0, 1).contiguous()

    def _boxes(self) -> Augment:
        return Augment(
            crop_min=self.scale_min,
            crop_max=self.scale_max,
            ratio_min=self.ratio_min,
            ratio_max=self.ratio_max,
        )


def gaussian_benchmark(
    images: Tensor, seed: int, crops: int, parts: int, stream: str = BENCHMARK
) -> Tensor:
    """(N, crops, parts) float64 distributions, a bell over the parts of each crop of each image.

    The density of sorted normal samples at those samples, normalised, as the public code draws it;
    there anew at every pass for the whole batch, here from the image's content and the crop.

    Args:
        images: uint8 (N, C, H, W).
        seed: of the view.
        parts: L >= 2.
        stream: name of the draw.
    """
    u = content_uniforms(images, seed, crops, parts, stream)
    z = torch.special.ndtri(torch.from_numpy(u).double() + 2.0**-25)  # the middle of u's step
    z = z.sort(dim=2).values
    apart = (z - z.mean(dim=2, keepdim=True)) / z.std(dim=2, keepdim=True)
    return torch.softmax(-apart.square() / 2, dim=2)


def energies(responses: Tensor, benchmark: Tensor | None) -> Tensor:
    """KL(benchmark || softmax(responses)) of each crop, (N, V) float64 (Eq. 4-5).

    Args:
        responses: (N, V, L).
        benchmark: (N, V, L), or None for the uniform one.
    """
    v = torch.log_softmax(responses.double(), dim=2)
    if benchmark is None:
        return float(np.log(1 / v.shape[2] + EPS)) - v.mean(dim=2)
    return (benchmark * (torch.log(benchmark + EPS) - v)).sum(dim=2)


def sorted_energies(
    responses: Tensor, images: Tensor, seed: int, kinds: str, stream: str = BENCHMARK
) -> list[Tensor]:
    """Each kind of energy in descending order, (N, V) float32, uniform first.

    Args:
        responses: (N, V, L) of uint8 `images` (N, C, H, W).
        kinds: one of ENERGIES.
        stream: as of `gaussian_benchmark`.
    """
    N, V, L = responses.shape
    few, parts = max(1, CHUNK // (V * L)), []
    if kinds != "gaussian":
        parts.append([energies(r, None) for r in responses.split(few)])
    if kinds != "uniform":
        pairs = zip(images.split(few), responses.split(few), strict=True)
        parts.append([energies(r, gaussian_benchmark(x, seed, V, L, stream)) for x, r in pairs])
    return [torch.cat(e).sort(dim=1, descending=True).values.float() for e in parts]


@dataclass
class PartAttack(Attack):
    """An attack that reads how an image's map responds to crops of the image."""

    needs: ClassVar[Threat] = Threat("black_box", "outsider")
    by_round: ClassVar[bool] = False
    looks_at: ClassVar[tuple[str, ...]] = ("parts",)

    crops: int = option(128, "m, crops an image", ge=1)
    scale_min: float = option(0.08, "least area of a crop, as part of the image", gt=0, le=1)
    scale_max: float = option(0.2, "largest area of a crop, as part of the image", gt=0, le=1)
    part: float = option(
        0.5,
        "sides of a resized crop, as part of the image's (the paper's 16 of 32; 0.25 for its 16 "
        "of 64; 1.0 for encoders that take one size only)",
        gt=0,
        le=1,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self.recipe(1)  # refuses a least scale above the largest

    def recipe(self, patch: int) -> Crops:
        """The recipe of the crops for an encoder of so large patches."""
        if self.scale_min > self.scale_max:
            most = f"scale_max ({self.scale_max})"
            raise option_error(self, f"scale_min: {self.scale_min}, must be <= {most}")
        return Crops(
            scale_min=self.scale_min, scale_max=self.scale_max, size=self.part, patch=patch
        )

    def read_energies(
        self, view: BlackBox, images: Tensor, kinds: str, draw: int = 0
    ) -> list[Tensor]:
        """`sorted_energies` of uint8 `images`; views of one model share those of a later draw."""
        if not draw:
            return sorted_energies(self.read_parts(view, images)[0], images, view.seed, kinds)
        view.charge(len(images) * (1 + self.crops))
        recipe, stream = self.recipe(view.patch), f"{BENCHMARK} {draw}"

        def compute(some: Tensor) -> Tensor:
            with view.unmetered():
                responses, _ = view.responses(some, recipe, self.crops, draw)
            return torch.stack(sorted_energies(responses, some, view.seed, kinds, stream), dim=1)

        key = ("energies", recipe, self.crops, kinds, draw, view.seed)
        return [*view.shared(key, images, compute).unbind(dim=1)]

    def part_means(self, view: BlackBox, images: Tensor) -> Scores:
        """(N, 3) means over the crops of uint8 (N, C, H, W): uniform and Gaussian energy, cosine
        with the whole image."""
        responses, cosines = self.read_parts(view, images)
        energies = sorted_energies(responses, images, view.seed, "both")
        return np.column_stack([kind.double().mean(dim=1) for kind in (*energies, cosines)])

    def read_parts(self, view: BlackBox, images: Tensor) -> tuple[Tensor, Tensor]:
        """`view.responses` of the crops; of an encoder that does not take their size an error that
        says what it may take."""
        crops = self.recipe(view.patch)
        try:
            return view.responses(images, crops, self.crops)
        except (BudgetError, torch.OutOfMemoryError):
            raise
        except FAILURES as error:
            if not self._takes_whole(view, images[:1], replace(crops, size=1.0)):
                raise
            height, width = crops.pixels(*images.shape[2:])
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise InputError(
                f"the encoder does not take crops of {height}x{width} pixels ({reason}); "
                f"{opt(f'attack.{self.name}.part', '1.0')} makes them as large as the image"
            ) from None

    def _takes_whole(self, view: BlackBox, image: Tensor, crops: Crops) -> bool:
        """Whether the encoder takes crops of the image's own size, so that theirs was to blame."""
        if self.part == 1:
            return False
        try:
            with view.unmetered():
                view.responses(image, crops, 1)
        except FAILURES:
            return False
        return True
