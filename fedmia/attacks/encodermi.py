"""EncoderMI: pairwise similarities of an image's views, fitted on shadows in three ways."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from torch import Tensor, nn

from fedmia.attacks._cosine import SIMILARITIES, pairwise
from fedmia.attacks._fitted import NetworkFitted, ShadowFitted, ThresholdFitted
from fedmia.attacks.base import Known
from fedmia.settings import option
from fedmia.ssl.augment import OPERATIONS
from fedmia.threat import OUTPUTS, BlackBox


@dataclass
class _PairSimilarities(ShadowFitted):
    """Reads the pairwise similarities of the image's views.

    The paper leaves open whether the encoder answers with its projection; MoCo's loss, on which
    it reports, compares the encoder's own outputs (Eq. 1), hence `layer=encoder`.
    """

    looks_at: ClassVar[tuple[str, ...]] = ("similarity",)

    views: int = option(10, "n, augmented views an image", ge=2)
    similarity: str = option(
        "cosine", "of two views: cosine, Pearson correlation, or minus the Euclidean distance",
        choices=SIMILARITIES,
    )  # fmt: skip
    operations: tuple[str, ...] | None = option(
        None,
        "augmentations of the attacker's views; the paper's inferrer of Fig. 3 has gray, crop, "
        "flip, jitter, whatever the target trained with (none: all of the recipe)",
        choices=OPERATIONS,
    )
    layer: str = option(
        "encoder", "output that is compared: the projection, or pooled features", choices=OUTPUTS
    )
    fit_on: str = option(
        "shadow",
        "what the classifier is fitted on: shadow encoders, or known images of the target as "
        "PartCrop and LpLA re-implement it (no shadow is read)",
        choices=("shadow", "known"),
    )

    @property
    def learns(self) -> bool:
        return self.fit_on == "known"

    def asks_shadows(self) -> bool:
        return self.fit_on == "shadow"

    def pools(self, view: BlackBox, known: Known) -> list[tuple[BlackBox, Known]]:
        return [(view, known)] if self.learns else super().pools(view, known)

    def pairs(self, view: BlackBox, images: Tensor) -> Tensor:
        """float64 (N, n (n - 1) / 2), unsorted.

        Raises:
            InputError: an operation that the attacker's recipe lacks.
        """
        own = self.operations
        recipe = None if own is None else replace(view.augment, operations=own)
        return pairwise(view.embed_views(images, self.views, self.layer, recipe), self.similarity)


@dataclass
class EncoderMIV(_PairSimilarities, NetworkFitted):
    """EncoderMI with a vector-based classifier: a network on the sorted similarities of the views.

    Two hidden layers of 256, ReLU. The paper gives neither the batch size nor a scaling of the
    similarities: they go in as they are.
    """

    name: ClassVar[str] = "encodermi-v"
    paper: ClassVar[str] = "Liu et al., EncoderMI, CCS 2021, Sec. 4.2 (EncoderMI-V)"

    def inputs(self, view: BlackBox, images: Tensor) -> Tensor:
        """float64 (N, n (n - 1) / 2), each row in descending order."""
        return self.pairs(view, images).sort(dim=1, descending=True).values


class DeepSets(nn.Module):
    """rho(mean over elements of phi(element)) for sets of numbers (Zaheer et al., 2017, Thm. 2).

    EncoderMI names the public code of DeepSets and no sizes. As in that code's classifier the
    elements are averaged and units are ELU; the widths are our own.

    Args:
        width: units of phi's two layers and of rho's hidden one.
    """

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.phi = nn.Sequential(nn.Linear(1, width), nn.ELU(), nn.Linear(width, width), nn.ELU())
        self.rho = nn.Sequential(nn.Linear(width, width), nn.ELU(), nn.Linear(width, 1))

    def forward(self, sets: Tensor) -> Tensor:
        """(B, K) sets of K numbers -> (B, 1)."""
        out: Tensor = self.rho(self.phi(sets[:, :, None]).mean(dim=1))
        return out


@dataclass
class EncoderMIS(_PairSimilarities, NetworkFitted):
    """EncoderMI with a set-based classifier: DeepSets on the unordered similarities of views."""

    name: ClassVar[str] = "encodermi-s"
    paper: ClassVar[str] = "Liu et al., EncoderMI, CCS 2021, Sec. 4.2 (EncoderMI-S)"

    width: int = option(32, "units of each layer of DeepSets (the paper does not say)", ge=1)

    def inputs(self, view: BlackBox, images: Tensor) -> Tensor:
        """float64 (N, n (n - 1) / 2); their order carries nothing."""
        return self.pairs(view, images)

    def network(self, width: int) -> nn.Module:
        return DeepSets(self.width)

    def scaling(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """One mean and one deviation of all elements: by place they would order the set."""
        return inputs.mean(), inputs.std()


class EncoderMIT(_PairSimilarities, ThresholdFitted):
    """EncoderMI with a threshold: mean similarity of the views, less the shadows' best threshold.

    A member is an image whose mean similarity is no smaller than the threshold: score >= 0.
    """

    name: ClassVar[str] = "encodermi-t"
    paper: ClassVar[str] = "Liu et al., EncoderMI, CCS 2021, Sec. 4.2 (EncoderMI-T)"

    def inputs(self, view: BlackBox, images: Tensor) -> Tensor:
        """float64 (N, 1)."""
        return self.pairs(view, images).mean(dim=1, keepdim=True)
