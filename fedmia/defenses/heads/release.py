"""A head as it is released: its weights with noise, and the answers that they give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedmia.defenses import gaussian
from fedmia.defenses.canaries import guess_canaries
from fedmia.defenses.gaussian import Gaussian, exact_epsilon
from fedmia.defenses.heads.stack import HeadStack
from fedmia.defenses.laplace import Laplace
from fedmia.defenses.logistic import Logistic
from fedmia.records.privacy import NOISE, Epsilon
from fedmia.settings import registry

Mechanism = Gaussian | Laplace | Logistic
CLASSICAL = "gaussian-classical"  # the additive logistic paper's own Gaussian mechanism
ASSUMPTIONS = (
    "Unit: one labelled image of the head, replaced. The sensitivity is the largest seen in "
    "{pairs} pairs of trainings that differ in one image, no bound, itself read off the images: "
    "an estimate, no guarantee, and no random differential privacy either, whose pairs are drawn "
    "from the distribution of the images (Rubinstein and Alda, 2017). The encoder is "
    "public and holds nothing of these images; the weights are noised once, so that every answer "
    "they give is covered by the same epsilon. " + NOISE["seeded"]
)


@dataclass(frozen=True)
class ReleaseSetting:
    """A mechanism at a privacy budget.

    Attributes:
        mechanism: name of the noise: logistic, laplace, gaussian or gaussian-classical.
        epsilon: privacy budget of one release, over 0.
    """

    mechanism: str
    epsilon: float


def mechanism(setting: ReleaseSetting, delta: float) -> Mechanism:
    """The defence of that name, which holds the noise's law.

    Args:
        setting: its mechanism and epsilon.
        delta: of a Gaussian mechanism; the others have none.

    Returns:
        The defence that draws the noise.
    """
    name, _, calibration = setting.mechanism.partition("-")
    options = {"epsilon": setting.epsilon, "sensitivity": "sampled"}
    if name == "gaussian":
        options |= {"delta": delta, "calibration": calibration or "analytic"}
    return registry.build("defense", name, options)


def assumptions(settings: Sequence[ReleaseSetting], delta: float, pairs: int) -> str:
    """What the statements of all settings rest on, and what the classical calibration adds.

    Args:
        settings: mechanisms and epsilons.
        delta: of a Gaussian mechanism.
        pairs: of the Sensitivity Sampler.

    Returns:
        The sentences, as the report prints them.
    """
    text = ASSUMPTIONS.format(pairs=pairs)
    epsilons = sorted(s.epsilon for s in settings if s.mechanism == CLASSICAL)
    if not epsilons:
        return text
    exact = ", ".join(f"{exact_epsilon(e, delta):.3g} at {e:g}" for e in epsilons)
    covers = ", ".join(f"{e:g}" for e in epsilons if e < 1) or "none of these"
    return (
        f"{text} {CLASSICAL}: {gaussian.CLASSICAL}It covers {covers}. Exactly, the noise spends "
        f"{exact} (Balle and Wang, 2018)."
    )


def noise_scale(law: Mechanism, epsilon: float, sensitivity: Mapping[int, float]) -> float:
    """Scale of the noise on each weight at which one release spends `epsilon`.

    Logistic and Laplace: Delta_1 / epsilon (Theorem 4.1, Remark 4.2). Gaussian: exact for Delta_2
    (Balle and Wang, 2018). Classical, as in the paper: sigma = Delta_2 sqrt(2 ln(1.25/delta)) /
    epsilon, proved for an epsilon below 1 only (Dwork and Roth, 2014, Theorem A.1).

    Args:
        law: the defence that draws the noise.
        epsilon: privacy budget of one release.
        sensitivity: by the order of its norm.

    Returns:
        The scale, in units of a weight.
    """
    return law.scale_for(epsilon, sensitivity[law.order], 1)


def add_noise(
    heads: HeadStack, law: Mechanism, scale: float, rng: np.random.Generator
) -> HeadStack:
    """The heads, each with noise of its own on every weight; at scale 0 they themselves.

    Args:
        heads: K heads.
        law: the defence that draws the noise.
        scale: of the noise on each weight.
        rng: draws the noise of all heads.

    Returns:
        K heads; at scale 0 `heads` itself.
    """
    if scale == 0:
        return heads
    shape = heads.flat().shape
    return heads.plus(torch.from_numpy(law.draw(rng, scale, shape.numel())).view(shape))


def audit_noise(
    setting: ReleaseSetting, delta: float, sensitivity: Mapping[int, float], scale: float,
    count: int, rng: np.random.Generator,
) -> Epsilon:  # fmt: skip
    """A setting's statement with the guesses of `count` canaries: made-up heads of one weight, the
    sampled sensitivity apart, by coin. They audit the noise, not whether the sensitivity is enough.

    Args:
        setting: its mechanism and epsilon.
        delta: of a Gaussian mechanism.
        sensitivity: by the order of its norm.
        scale: of the noise on each weight.
        count: canaries.
        rng: draws the coins and the noise.

    Returns:
        The epsilon that the setting states, with the guesses.
    """
    law, inside = mechanism(setting, delta), rng.random(count) < 0.5
    heights = torch.from_numpy(sensitivity[law.order] * (inside - 0.5)).view(-1, 1, 1)
    heads = add_noise(HeadStack((heights,), (torch.zeros(count, 1, 1),)), law, scale, rng)
    memory = {"canaries": {"in": inside, "scores": heads.weights[0].flatten().numpy()}}
    return Epsilon(
        value=setting.epsilon, delta=getattr(law, "delta", 0.0), rounds=1, standing="empirical",
        assumptions="", lower_bound=guess_canaries(memory, law.audit),
    )  # fmt: skip


def predict_probabilities(heads: HeadStack, features: Tensor) -> Tensor:
    """Class probabilities (K, N, classes): what Algorithm 1 answers to N queries.

    The paper trains and noises inside the algorithm and says that the mechanism is applied once;
    here too all answers of a head come of one draw. An interface that drew anew would spend
    epsilon with every answer. Who holds the weights can compute the answers, so an attack on them
    is one on a released head as well.

    Args:
        heads: K heads.
        features: (N, D) of the encoder for the queries, or (K, N, D), each head's own queries.

    Returns:
        (K, N, classes), in [0, 1].
    """
    return heads.logits(features).softmax(dim=2)
