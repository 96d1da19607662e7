"""Options that several methods have: written once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, cast

from fedmia.settings import option
from fedmia.ssl._heads import HEAD_NORMS
from fedmia.ssl.augment import OPERATIONS, Augment
from fedmia.ssl.base import SSL

MIXES = "batch mixes the images of a batch"
COLLAPSES = "without batch norm the outputs collapse"
BLUR = 0.5  # probability where a blur is asked for and the method has none: MoCo v2's


def head_norm_option(default: str, where: str, why: str) -> Any:
    """`head_norm`, of the `head` or the `heads`; `why` is MIXES or COLLAPSES."""
    return option(default, f"normalisation in the {where}; {why}", choices=HEAD_NORMS)


def operations_option() -> Any:
    help = "augmentations of the views, as in EncoderMI's Fig. 3 (none: all of the method's)"
    return option(None, help, choices=OPERATIONS)


def mixup_option(source: str = "MixCo") -> Any:
    """`mixup`, where `source` defines it for the method."""
    help = f"weight of the loss of mixed pairs of first views, as in {source} (1 there); 0: none"
    return option(0.0, help, ge=0)


def key_option(what: str, of: str = "one") -> Any:
    """`key`, of the momentum encoder, which a method calls `what`."""
    help = f"{what} when a round begins: the client's own, or a copy of the global {of}"
    return option("keep", help, choices=("keep", "reset"))


def momentum_schedule_option(of: str) -> Any:
    """`momentum_schedule`, where a paper raises it."""
    help = f"m over the run's steps: constant, or raised to 1 along a cosine as in {of}"
    return option("constant", help, choices=("constant", "cosine"))


@dataclass(frozen=True)
class ViewsSSL(SSL):
    """A method of random views.

    Attributes:
        paper_views: the paper's augmentation, which a method names.
        crop_min: smallest area of a random resized crop, as part of the image.
        flip: probability of a horizontal flip.
        jitter: factor on the strengths of the colour jitter; 0: none.
    """

    paper_views: ClassVar[Augment]
    # Of methods without these options.
    operations = cast("tuple[str, ...] | None", None)
    rotation = mixup = adversarial = 0.0

    crop_min: float | None = option(
        None,
        "least share of the area that a view shows (none: the data source's, else the paper's)",
        gt=0,
        le=1,
    )
    flip: float | None = option(
        None, "probability of a horizontal flip (none: the data source's, else 0.5)", ge=0, le=1
    )
    jitter: float | None = option(
        None, "factor on the colour jitter, 0 = no jitter (none: the data source's, else 1)", ge=0
    )

    @property
    def coupled(self) -> bool:
        """By mixed images."""
        return self.mixup > 0

    @property
    def harder(self) -> bool:
        """Whether the training loss holds more than the method's own."""
        term = type(self).extra_losses is not SSL.extra_losses
        return term or self.mixup > 0 or self.adversarial > 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.operations is not None:
            _ = self.augment  # refuses an operation that has no strength here

    @property
    def augment(self) -> Augment:
        """The paper's augmentation, with this method's crop, flip and jitter where given."""
        paper, s = self.paper_views, 1.0 if self.jitter is None else self.jitter
        wants_blur = self.operations is not None and "blur" in self.operations
        return replace(
            paper,
            crop_min=paper.crop_min if self.crop_min is None else self.crop_min,
            flip=paper.flip if self.flip is None else self.flip,
            brightness=paper.brightness * s,
            contrast=paper.contrast * s,
            saturation=paper.saturation * s,
            hue=min(paper.hue * s, 0.5),
            blur_p=paper.blur_p or BLUR * wants_blur,
            rotation=self.rotation,
            operations=self.operations,
        )


@dataclass(frozen=True)
class HarderSSL(ViewsSSL):
    """A method whose first views may be turned, and moved so that its loss rises.

    Attributes:
        rotation: largest angle of a random rotation of a view, in degrees.
        adversarial: largest change of a pixel in an adversarial first view; 0: none.
        adversarial_steps: gradient steps that make one.
    """

    rotation: float = option(
        0.0,
        "largest angle of a random rotation of a view, in degrees (180 in PartCrop's Table 7)",
        ge=0,
        le=180,
    )
    adversarial: float = option(
        0.0,
        "largest change of a pixel in an adversarial first view, whose loss is added, as in RoCL "
        f"({8 / 255:.4f} there); 0: none",
        ge=0,
        le=1,
    )
    adversarial_steps: int = option(
        7, "gradient steps that make an adversarial view", ge=1, needs=("adversarial",)
    )
