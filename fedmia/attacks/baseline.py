"""EncoderMI's baselines on a classifier's answers, on the feature vector and on patches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from fedmia.attacks._downstream import DownstreamFitted, confidences
from fedmia.attacks._fitted import NetworkFitted, ThresholdFitted
from fedmia.attacks.base import Scores
from fedmia.settings import option
from fedmia.settings.errors import InputError, option_error
from fedmia.threat import OUTPUTS, BlackBox

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline


class BaselineA(DownstreamFitted):
    """Sorted confidence scores of a downstream classifier, in a network fitted on shadows.

    One downstream task, with labels of its own images only, is learned on the features of each
    shadow encoder and of the target.
    """

    name: ClassVar[str] = "baseline-a"
    paper: ClassVar[str] = "Liu et al., EncoderMI, CCS 2021, Sec. 5.1 (Baseline-A)"

    def answers(self, model: Pipeline, view: BlackBox, images: Tensor) -> Tensor:
        """float64 (N, k) of k classes, each row in descending order."""
        probabilities = confidences(model, view.embed_plain(images, self.layer))
        return probabilities.sort(dim=1, descending=True).values


@dataclass
class BaselineD(NetworkFitted):
    """The plain image's feature vector, in a network fitted on shadow encoders.

    An encoder's features have no common order with another's, so this is near chance, as in the
    paper. Neither sorting nor the network's size is in the paper's text: the vector goes in as it
    is, into the network of EncoderMI-V.
    """

    name: ClassVar[str] = "baseline-d"
    paper: ClassVar[str] = "Liu et al., EncoderMI, CCS 2021, Sec. 5.1 (Baseline-D)"
    looks_at: ClassVar[tuple[str, ...]] = ("features",)

    layer: str = option("avgpool", "output that is read", choices=OUTPUTS)

    def inputs(self, view: BlackBox, images: Tensor) -> Tensor:
        """float64 (N, D)."""
        return view.embed_plain(images, self.layer).double()

    def decide(self, fitted: Any, inputs: Tensor) -> Scores:
        """As `NetworkFitted.decide`.

        Raises:
            InputError: the target's feature vector is not as long as the shadows'.
        """
        learned = fitted[1][0].in_features
        if inputs.shape[1] != learned:
            raise InputError(
                f"{self.name}: feature vectors of length {inputs.shape[1]} at '{self.layer}', "
                f"but the shadow encoders' have {learned}: it needs an architecture of that width"
            )
        return super().decide(fitted, inputs)


@dataclass(frozen=True)
class Patch:
    """One patch of a grid of disjoint ones, resized to the image's own size; nothing is random.

    Where the sides do not divide evenly, borders are rounded to whole pixels.

    Attributes:
        row: from 0, of `rows`.
        column: from 0, of `columns`.
        rows: of the grid.
        columns: of the grid.
    """

    row: int
    column: int
    rows: int
    columns: int

    @property
    def draws(self) -> int:
        """None: nothing is random."""
        return 0

    def __call__(self, images: Tensor, uniforms: Tensor) -> Tensor:
        """(B, C, H, W) from (B, C, H, W); `uniforms` (B, 0) plays no part."""
        cut, cuts = images, ((2, self.row, self.rows), (3, self.column, self.columns))
        for dim, index, parts in cuts:
            if (pixels := images.shape[dim]) < parts:
                raise InputError(f"{pixels} pixels cannot be divided into {parts} patches")
            start, end = round(index * pixels / parts), round((index + 1) * pixels / parts)
            cut = cut.narrow(dim, start, end - start)
        return F.interpolate(cut, images.shape[2:], mode="bilinear", align_corners=False)


@dataclass
class BaselineE(ThresholdFitted):
    """Mean cosine of the centre patch and the others, less the shadows' best threshold.

    The paper divides the image evenly into 3x1, 3x3 (the best) or 3x5 patches. It does not say
    how the encoder takes them: here each is resized to the image's size, as a random crop is.
    """

    name: ClassVar[str] = "baseline-e"
    paper: ClassVar[str] = "Liu et al., EncoderMI, CCS 2021, Sec. 5.1 (Baseline-E)"
    looks_at: ClassVar[tuple[str, ...]] = ("patches",)

    rows: int = option(3, "patches from top to bottom, odd", ge=1)
    columns: int = option(3, "patches from left to right, odd", ge=1)
    layer: str = option(
        "encoder", "output that is compared: the projection, or pooled features", choices=OUTPUTS
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rows * self.columns < 3 or self.rows * self.columns % 2 == 0:
            what = "must be odd, and more than 1 patch: a centre with others around it"
            raise option_error(self, f"rows and columns: {self.rows}x{self.columns}, {what}")

    def inputs(self, view: BlackBox, images: Tensor) -> Tensor:
        """float64 (N, 1); rows x columns queries an image."""
        patches = [
            Patch(row, column, self.rows, self.columns)
            for row in range(self.rows)
            for column in range(self.columns)
        ]
        rows = [view.embed_views(images, 1, self.layer, patch)[:, 0] for patch in patches]
        centre = rows.pop(len(rows) // 2)
        cosines = F.cosine_similarity(centre.double(), torch.stack(rows).double(), dim=2)
        return cosines.mean(dim=0)[:, None]
