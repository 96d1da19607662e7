"""Noise on the update that a client releases: what logistic, laplace and gaussian share."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedmia.defenses.base import Defense, Metrics, Preparation, TrainingConditions
from fedmia.defenses.canaries import (
    FAR,
    add_scores,
    check_noise,
    draw_coins,
    guess_canaries,
    other_stream,
)
from fedmia.defenses.sensitivity import (
    difference,
    measure_update,
    norm,
    protected,
    refuse_running,
    sampled_sensitivity,
)
from fedmia.records.privacy import Epsilon
from fedmia.settings import option
from fedmia.settings.errors import option_error
from fedmia.ssl.base import State

CLIPPED = (
    "Unit: the client as a whole, all its images replaced. Each round's update is clipped to "
    "{bound}, so it moves by at most 2C, and noised before it leaves; rounds add up. Assumes that "
    "the client follows the protocol, that the number of its images is public, and exact "
    "arithmetic with true random noise; loss and norms in this report are not covered."
)
CLIP_OPTION, REHEARSED, FIXED = (
    "given",
    "the norm of an update that public images gave in a first round",
    "a fixed amount for each weight: the run has no public images to take it from",
)
SAMPLED = (
    "Unit: one image of the client. Its sensitivity is the largest seen in {pairs} pairs of "
    "trainings in the first round, no bound, and nothing is clipped: an estimate, no guarantee. "
    "It is not random differential privacy either, whose pairs are drawn from the distribution of "
    "the images and not from the images themselves (Rubinstein and Alda, 2017)."
)


@dataclass(frozen=True)
class ReleaseNoise(Defense):
    """Clip the update (trained minus received weights) to C, add noise, release the sum.

    Replacing the whole data of a client moves a clipped update by at most 2C, whatever training
    did, so the guarantee rests on no property of the method. It covers every round: the releases
    of a run compose adaptively. By default the noise is pure DP in L1, whose epsilons add up.
    """

    releases: ClassVar[bool] = True
    withholds: ClassVar[bool] = True
    order: ClassVar[int] = 1  # of the norm that clips
    default_clip: ClassVar[float] = 0.01  # C = default_clip * weights^(1/order)
    default_scale: ClassVar[float] = 0.005
    audit: ClassVar[str] = "one-run"  # each canary has a run, but only a Gaussian's law is told
    strength: ClassVar[str] = "scale"
    strengths: ClassVar[tuple[float, ...]] = (0.005, 0.02, 0.05, 0.1)
    neutral: ClassVar[Mapping[str, Any]] = {
        "epsilon": None, "scale": 0.0, "clip": 1e6, "sensitivity": "clip", "canaries": 0,
    }  # fmt: skip

    epsilon: float | None = option(
        None, "privacy budget of the whole run, for the client as a whole", gt=0
    )
    scale: float | None = option(None, "noise scale given directly, in place of epsilon", ge=0)
    clip: float | None = option(
        None,
        "C, largest norm of an update; none: that of a first round on the run's public images, a "
        "fixed amount for each weight where it has none",
        gt=0,
    )
    sensitivity: str = option(
        "clip",
        "bound by clipping (2C), or estimated by the Sensitivity Sampler",
        choices=("clip", "sampled"),
    )
    samples: int = option(
        20, "m, pairs of the Sensitivity Sampler: 2 m trainings", ge=1,
        needs=("sensitivity", "sampled"),
    )  # fmt: skip
    canaries: int = option(
        0, "clients made up to audit the mechanism, for a lower bound of epsilon: 1000", ge=0
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_noise(self, "scale")
        if self.sensitivity == "sampled" and self.clip is not None:
            raise option_error(self, f"clip: {self.clip}, is not used with sensitivity 'sampled'")
        if self.sensitivity == "sampled" and self.canaries:
            why = "nothing bounds what a made-up client sends under 'sampled'"
            raise option_error(self, f"canaries: {self.canaries}, need sensitivity 'clip': {why}")

    @abstractmethod
    def draw(self, rng: np.random.Generator, scale: float, count: int) -> NDArray[np.float64]:
        """`count` independent draws of the noise at scale > 0, mean 0."""

    @abstractmethod
    def deviation(self, scale: float) -> float:
        """Standard deviation of the noise on one weight."""

    def scale_for(self, epsilon: float, sensitivity: float, rounds: int) -> float:
        """Scale at which `rounds` releases spend `epsilon`."""
        return sensitivity * rounds / epsilon

    def spent(self, sensitivity: float, scale: float, rounds: int) -> float:
        """Epsilon of `rounds` releases at scale > 0."""
        return rounds * sensitivity / scale

    def check(self, setting: TrainingConditions) -> None:
        refuse_running(setting.norm)

    def prepare(self, preparation: Preparation, memory: dict[str, Any]) -> None:
        """Note the rounds to come and, where asked for, estimate the sensitivity."""
        memory["planned"] = preparation.rounds
        if self.sensitivity == "sampled":
            memory["sensitivity"] = sampled_sensitivity(preparation, self.samples, self.order)
        elif self.clip is None and preparation.rehearse_public is not None:
            received, trained = preparation.rehearse_public()
            length = norm(difference(trained, received, protected(trained)), self.order)
            if math.isfinite(length) and length > 0:
                memory["clip"] = length

    def release(
        self, received: State, trained: State, memory: dict[str, Any], rng: np.random.Generator
    ) -> tuple[State, Metrics]:
        """Clipped and noised weights; tensors that cannot be noised leave as they came.

        Raises:
            ValueError: an epsilon or a sampled sensitivity, but `prepare` was never called.
        """
        names = protected(trained)
        update, length = measure_update(trained, received, self.order)
        weights = sum(trained[n].numel() for n in names)  # a public number, as is C
        fixed = self.default_clip * weights ** (1 / self.order)
        bound = float(self.clip or memory.get("clip") or fixed)
        scale = self._fix_scale(bound, memory)
        clips = self.sensitivity == "clip" and length > bound
        released = {n: received[n] for n in trained}
        if clips:
            update = {n: t * (bound / length) for n, t in update.items()}
        noise = {n: self._noise(trained[n], scale, rng) for n in names} if scale else {}
        for n in names:
            # Not received + (trained - received): that differs from trained in the last bit.
            sent = received[n].double() + update[n] if clips or not length else trained[n]
            sent = (sent + noise[n] if noise else sent).to(trained[n].dtype)
            released[n] = torch.nan_to_num(sent)  # noise may carry a weight beyond its type
        memory["rounds"] = memory.get("rounds", 0) + 1
        metrics = {
            "noise_std": self.deviation(scale),
            "clipped": float(clips),
            "update_norm": length,
        }
        if noise:
            metrics["signal_to_noise"] = norm(update, 2) / norm(noise, 2)
        memory["metrics"] = dict(metrics)
        if self.canaries:
            self._audit(bound, memory, other_stream(rng))
        return released, metrics

    def privacy(self, memory: dict[str, Any]) -> Epsilon | None:
        """Epsilon of the releases so far; None where the scale is 0: nothing is promised."""
        rounds = int(memory.get("rounds", 0))
        if rounds and not memory["scale"]:
            return None
        value = self.spent(memory["sensitivity"], memory["scale"], rounds) if rounds else 0.0
        sampled = self.sensitivity == "sampled"
        return Epsilon(
            value=value if math.isfinite(value) else None,
            delta=float(getattr(self, "delta", 0.0)),
            rounds=rounds,
            standing="empirical" if sampled else "guaranteed",
            assumptions=SAMPLED.format(pairs=self.samples)
            if sampled
            else self._describe_clip(memory),
            unit="image" if sampled else "client",
            lower_bound=guess_canaries(memory, self.audit),
        )

    def _describe_clip(self, memory: dict[str, Any]) -> str:
        """What the guarantee rests on, and where C comes from."""
        source = CLIP_OPTION if self.clip else REHEARSED if "clip" in memory else FIXED
        known = "sensitivity" in memory
        bound = f"C = {memory['sensitivity'] / 2:.3g}" if known else "C"
        return CLIPPED.format(bound=f"{bound}, {source}")

    def _audit(self, bound: float, memory: dict[str, Any], rng: np.random.Generator) -> None:
        """A release of each of many made-up clients, whose one weight says which data it holds.

        A client is one unit, so a run of it holds one canary: the audit is one of the mechanism,
        repeated. In or out, its update is FAR times C, up or down; clipped they are 2C apart.
        """
        inside = draw_coins(memory, self.canaries, rng)
        alone = replace(self, clip=bound, canaries=0)
        received = {"weight": torch.zeros(1, dtype=torch.float64)}
        scores = np.zeros(len(inside))
        for i, up in enumerate(inside):
            far = {"weight": torch.full((1,), FAR * bound * (1 if up else -1), dtype=torch.float64)}
            released, _ = alone.release(received, far, dict(memory), rng)
            scores[i] = float(released["weight"]) / bound
        add_scores(memory, scores)

    def _fix_scale(self, bound: float, memory: dict[str, Any]) -> float:
        """The run's noise scale; it and the sensitivity are fixed in the first round."""
        if "scale" in memory:
            return float(memory["scale"])
        if self.sensitivity == "clip":
            memory["sensitivity"] = 2 * bound
        try:
            sensitivity, scale = memory["sensitivity"], self.scale
            if self.epsilon is not None:
                scale = self.scale_for(self.epsilon, sensitivity, memory["planned"])
        except KeyError:
            raise ValueError("prepare() must be called before the first release") from None
        memory["scale"] = self.default_scale if scale is None else float(scale)
        return float(memory["scale"])

    def _noise(self, like: Tensor, scale: float, rng: np.random.Generator) -> Tensor:
        """Noise of the shape of a tensor, float64 on its device."""
        noise = torch.from_numpy(self.draw(rng, scale, like.numel()))
        return noise.view(like.shape).to(like.device)
