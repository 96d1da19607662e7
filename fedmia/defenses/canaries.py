"""Canaries: records made to be noticed, in a run of the mechanism of their own beside the client's.

Half of them are in, by coin; the guesses of which are what a lower bound of epsilon rests on
(`fedmia.lowerbounds.onerun`). The client's training never meets one. Both the coins and the scores
stay in the client's memory, so that they add up over the rounds as epsilon does.

A canary's gradient is FAR times the clipping norm, in one weight of its own, of a data set that
holds no image: DP promises the same of every data set, and there nothing hides a canary. It is
sampled, clipped and noised by what samples, clips and noises images.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedmia.data.images import IntArray
from fedmia.defenses._persample import poisson_rows, private_optimizer
from fedmia.records import FloatArray
from fedmia.records.privacy import CanaryBoundRow
from fedmia.runtime.eager import SGD
from fedmia.settings.errors import InputError, option_error
from fedmia.ssl.train import Job

if TYPE_CHECKING:
    from opacus.optimizers import DPOptimizer

FAR = 100.0  # norm of a canary in units of the clipping norm: unclipped, it stands out
# Shares of the canaries that are guessed, fixed in advance: the surest half in, half out.
GUESSED = (0.05, 0.35, 0.7)
TOGETHER = 1000  # canaries of one run of the mechanism; more take more runs
FEWEST = 100  # fewer show next to nothing, however weak the mechanism
NUMBERS = 1 << 23  # that the gradients of a physical batch may hold


def check_noise(mechanism: Any, strength: str) -> None:
    """Refuse a mechanism whose noise is given twice, or whose audit could show nothing.

    Args:
        mechanism: has the options `canaries`, `epsilon` and `strength`.
        strength: its option that gives the noise in place of `epsilon`.

    Raises:
        InputError: with the numbers.
    """
    count, epsilon, noise = mechanism.canaries, mechanism.epsilon, getattr(mechanism, strength)
    if 0 < count < FEWEST:
        raise option_error(mechanism, f"canaries: {count}, must be 0 or at least {FEWEST}")
    if epsilon is not None and noise is not None:
        both = f"epsilon: {epsilon}, beside {strength} {noise}: give one, not both"
        raise option_error(mechanism, both)


def other_stream(stream: np.random.Generator) -> np.random.Generator:
    """A generator 2^127 draws ahead of `stream`, which stays where it is."""
    ahead = stream.bit_generator.jumped()  # type: ignore[attr-defined]
    return np.random.Generator(ahead)


def draw_coins(
    memory: dict[str, Any], count: int, stream: np.random.Generator
) -> NDArray[np.bool_]:
    """Which canaries are in, thrown in the first round and kept from then on.

    Args:
        memory: of the mechanism over the rounds; what was thrown is kept under `canaries`.
        count: number of canaries.
        stream: of the coins.

    Returns:
        (count,), true: in.
    """
    if "canaries" not in memory:
        thrown = stream.random(count) < 0.5
        memory["canaries"] = {"in": thrown.astype(int).tolist(), "scores": [0.0] * count}
    return np.array(memory["canaries"]["in"], dtype=bool)


def add_scores(memory: dict[str, Any], scores: FloatArray) -> None:
    """Add a round's scores.

    Args:
        memory: into which `draw_coins` wrote m canaries.
        scores: (m,), the higher, the rather in.
    """
    canaries = memory["canaries"]
    canaries["scores"] = (np.array(canaries["scores"]) + scores).tolist()


def guess_canaries(memory: dict[str, Any], audit: str = "one-run") -> CanaryBoundRow | None:
    """What is guessed of the canaries by their scores, and how much of it is right.

    Args:
        memory: into which `draw_coins` and `add_scores` wrote.
        audit: as of `CanaryBoundRow`. With a run each, `own-runs-gdp`, all canaries are guessed: in
            where the score is over 0.

    Returns:
        The guesses, whose bounds the report computes; None where no canaries were sent.
    """
    if "canaries" not in memory:
        return None
    inside = np.array(memory["canaries"]["in"], dtype=bool)
    scores = np.nan_to_num(memory["canaries"]["scores"])
    halves = [int(share * len(scores)) // 2 for share in GUESSED]
    guesses, order = [2 * k for k in halves], np.argsort(scores, kind="stable")
    right = [int(inside[order[-k:]].sum() + (~inside[order[:k]]).sum()) for k in halves]
    if audit == "own-runs-gdp":
        guesses, right = [len(inside)], [int((inside == (scores > 0)).sum())]
    return CanaryBoundRow(audit=audit, canaries=len(inside), guesses=guesses, correct=right)


class AuditedSteps:
    """DP-SGD as it ran, and what an auditor who sees every noised step makes of canaries in it.

    Args:
        noise: standard deviation over `clip`.
        clip: L2 norm to which a gradient is clipped.
        rate: at which an image is sampled, in (0, 1].
        expected: images of a batch on average.
        count: of steps.
    """

    def __init__(self, noise: float, clip: float, rate: float, expected: float, count: int) -> None:
        self.noise, self.clip = noise, clip
        self.rate, self.expected, self.count = rate, expected, count

    def score(self, job: Job, inside: NDArray[np.bool_], stream: np.random.Generator) -> FloatArray:
        """Scores of canaries.

        The log-likelihood ratio, summed over steps, of a canary that is sampled at `rate` against
        one that is not, at the noise that the weights without canaries show: a function of the
        release alone.

        Args:
            job: of the client that was trained; left as it is.
            inside: (m,) which canaries are in.
            stream: of places, noise and samples.

        Returns:
            float64 (m,), the higher, the rather in.

        Raises:
            InputError: the model has fewer than two weights.
        """
        weights = sum(w.numel() for w in job.method.trainable())
        if weights < 2:
            raise InputError(f"canaries need a model of at least 2 weights, got {weights}")
        most = min(TOGETHER, weights // 2)
        parts = [inside[at : at + most] for at in range(0, len(inside), most)]
        return np.concatenate([self._score_together(job, part, stream) for part in parts])

    def _score_together(
        self, job: Job, inside: NDArray[np.bool_], stream: np.random.Generator
    ) -> FloatArray:
        """`score` of canaries that share one run."""
        method = copy.deepcopy(job.method)
        trained = method.trainable()
        twin = replace(job, method=method, optimizer=SGD(trained, lr=0.0))
        places = stream.permutation(sum(w.numel() for w in trained))[: 2 * len(inside)]
        mine, bare = np.split(places, 2)
        scores = np.zeros(len(inside))
        generator = torch.Generator(device=job.device)
        generator.manual_seed(int(stream.integers(2**63 - 1)))
        setting = (self.noise, self.clip, self.expected, generator)
        with private_optimizer(twin, *setting) as private:

            def observe(_: Any) -> None:
                gradient = torch.cat([w.grad.flatten() for w in trained if w.grad is not None])
                values = gradient.double().cpu().numpy() * (self.expected / self.clip)
                scores[:] += log_likelihood_ratio(values[mine], values[bare], self.rate)

            private.attach_step_hook(observe)
            for _ in range(self.count):
                (rows,) = poisson_rows(stream, int(inside.sum()), self.rate, 1)
                _take_step(private, trained, mine[inside][rows], FAR * self.clip)
        return scores


def _take_step(
    private: DPOptimizer, trained: Sequence[Tensor], places: IntArray, far: float
) -> None:
    """One step on canaries of norm `far` in the weights at `places`, none or many of them."""
    weights = sum(w.numel() for w in trained)
    parts = np.array_split(places, max(1, math.ceil(len(places) * weights / NUMBERS)))
    for number, part in enumerate(parts, start=1):
        at = 0
        for weight in trained:
            count = weight.numel()
            gradients = weight.new_zeros((len(part), count))
            rows = np.flatnonzero((part >= at) & (part < at + count))
            gradients[rows, part[rows] - at] = far
            weight.grad_sample = gradients.view(-1, *weight.shape)  # type: ignore[attr-defined]
            at += count
        private.signal_skip_step(number < len(parts))
        private.step()
        private.zero_grad(set_to_none=True)


def log_likelihood_ratio(observed: FloatArray, bare: FloatArray, rate: float) -> FloatArray:
    """log of (1 - q) + q N(x; 1, s) / N(x; 0, s), with s as `bare` spreads; units of the norm."""
    spread = max(float(np.sqrt(np.mean(bare**2))), 1e-6)
    sampled = np.log(rate) + (2 * observed - 1) / (2 * spread**2)
    return sampled if rate >= 1 else np.logaddexp(np.log1p(-rate), sampled)
