"""LeJEPA (Balestriero and LeCun, 2025): predict the mean of the views, and stay Gaussian."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from fedmia.nets.base import Backbone
from fedmia.nets.keyed import keyed_uniforms
from fedmia.settings import option
from fedmia.ssl._options import MIXES, head_norm_option
from fedmia.ssl._twoview import TwoView, TwoViewSSL
from fedmia.ssl.augment import Augment
from fedmia.ssl.base import TrainingData

# The paper's 17 points in [-5, 5]; what is integrated is even, so those from 0 on are enough. Its
# public code has 17 points in [0, 3].
LARGEST, POINTS = 5.0, 9


def epps_pulley(x: Tensor) -> Tensor:
    """How far samples are from a standard Gaussian: the Epps-Pulley statistic of each column.

    N times the integral over t of |phi(t) - exp(-t^2/2)|^2 exp(-t^2/2), by the trapezoidal rule;
    phi is the empirical characteristic function.

    Args:
        x: (N, M), N samples of M variables.

    Returns:
        (M,), >= 0; its mean over standard Gaussian samples is about 1.06, whatever N is.
    """
    t = torch.linspace(0, LARGEST, POINTS, dtype=x.dtype, device=x.device)
    gauss = torch.exp(-t.square() / 2)
    angles = x[:, :, None] * t  # N x M x points
    distance = (angles.cos().mean(dim=0) - gauss).square() + angles.sin().mean(dim=0).square()
    both_sides = 2 * torch.trapezoid(distance * gauss, dx=LARGEST / (POINTS - 1), dim=1)
    return len(x) * both_sides


def directions(count: int, dim: int, progress: float, device: torch.device) -> Tensor:
    """Random directions of a step, float32 (count, dim) of unit length.

    They are a function of the step's place in the run, as the public code seeds them by its step:
    equal on every client, and again in a run that is resumed.

    Args:
        count: number of directions.
        dim: their length in numbers.
        progress: share of the run's steps that are over, in [0, 1].
        device: of the result.
    """
    rows = torch.arange(count, dtype=torch.float32, device=device)[:, None]
    u = keyed_uniforms(rows, int(math.ldexp(progress, 53)), dim)  # every bit of a float
    return F.normalize(torch.special.ndtri(u.clamp(min=2.0**-25)), dim=1)  # ndtri(0) is infinite


class LeJEPAMethod(TwoView):
    """One encoder; nothing of its training outlives a step but the weights."""

    spec: LeJEPA

    def losses(self, view1: Tensor, view2: Tensor) -> Tensor:
        """Each image's prediction term plus the batch's SIGReg, the mean of both views'.

        The latter belongs to no image: every image carries it whole, so that the mean is the loss
        of the paper. One image alone has no distribution: its loss is its prediction term.
        """
        z1, z2 = self.encoder(torch.cat([view1, view2])).split(len(view1))
        z1, z2 = z1.float(), z2.float()
        loss = self.output_losses(z1, z2)
        if len(z1) < 2:
            return loss
        A = directions(self.spec.slices, z1.shape[1], self.progress, z1.device).to(z1.dtype)
        sketched = [epps_pulley(z @ A.T).mean() for z in (z1, z2)]
        return loss + self.spec.sigreg * (sketched[0] + sketched[1]) / 2

    def output_losses(self, z1: Tensor, z2: Tensor) -> Tensor:
        """The weighted prediction term, the part of the loss that is the image's own: the mean
        squared distance of its views to their mean.

        The mean over P too, as in the paper's listing; its equation has the squared length.
        """
        centre = (z1 + z2) / 2
        apart = ((z1 - centre).square() + (z2 - centre).square()).mean(dim=1) / 2
        return (1 - self.spec.sigreg) * apart


@dataclass(frozen=True)
class LeJEPA(TwoViewSSL):
    """LeJEPA: outputs of two views agree, and those of a batch are an isotropic Gaussian (SIGReg).

    No negatives, no momentum encoder, no stopped gradient. The two global views only, no local
    crops. The head is that of the public minimal example, there of width 2048. SIGReg grows with
    the batch and the prediction does not: on small batches a larger weight keeps outputs apart.

    Attributes:
        head_norm: normalisation in the head.
    """

    paper: ClassVar[str] = "Balestriero and LeCun, 2025, arXiv 2511.08544"
    coupled: ClassVar[bool] = True
    least_batch: ClassVar[int] = 2

    # The minimal example's, whose views are all alike. The paper's global views have milder colours
    # (0.4, 0.4, 0.2, 0.1) and crops from 0.3, beside local ones.
    paper_views: ClassVar[Augment] = Augment(
        crop_min=0.08, brightness=0.8, contrast=0.8, saturation=0.8, hue=0.2, blur_p=0.5,
        solarize_p=0.2,
    )  # fmt: skip

    sigreg: float = option(
        0.05, "lambda, weight of SIGReg; that of the prediction is 1 - lambda", gt=0, lt=1
    )
    slices: int = option(256, "M, random directions on which SIGReg looks at each step", ge=1)
    head_norm: str = head_norm_option("batch", "head", MIXES)

    def build(
        self, backbone: Backbone, training_data: TrainingData, generator: torch.Generator
    ) -> LeJEPAMethod:
        return LeJEPAMethod(self.encoder(backbone, training_data, generator, 3), self)
