"""What the limits of an attack that learns from known images hold, over draws of these images.

Two values may be meant: the AUC of the attack as it was fitted, and its mean over draws of the
known images. Members differ from non-members in one feature. `fits` holds one cell for each
classifier, number of known images a side and largest possible AUC:

- `fit`, `expected`: how often the limits of the report hold the one and the other;
- `quarters`, `halves`: how often they hold the mean where the variance between fits is added, by a
  jackknife over four fits on three quarters of the known images or by eight fits on halves;
- `averaged`: likewise of the mean AUC of four draws of the known images, which needs four
  times as many.

`encoders` holds the same of attacks on small encoders that are trained on CIFAR-10: over draws of
the known images from one pool, all others of which are scored, so that a draw changes few of the
scored images. The mean is of these draws.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import torch
from scipy.stats import norm
from torch import Tensor

import fedmia
from fedmia.attacks.base import Known
from fedmia.attacks.classifier import decide, fit_classifier
from fedmia.attacks.lpla import NormGaussians
from fedmia.seeding import rng
from fedmia.settings import registry
from fedmia.statistics.auc import AucEstimate, auc, auc_estimate, auc_interval
from fedmia.statistics.intervals import FloatArray, Interval

Scoring = Callable[[FloatArray], FloatArray]
Sides = tuple[FloatArray, FloatArray]
KNOWN, AUCS, SCORED, POPULATION = (4, 10, 40, 100, 500), (0.5, 0.6, 0.7), 500, 10_000
QUARTERS, HALVES, DRAWS = 4, 8, 4
FEWER = 10  # a draw of `fits` costs as much as many of the other cells


def _logistic(known: Sides) -> Scoring:
    model = fit_classifier("lr", *_labelled(known))
    return lambda features: decide(model, features)


def _gaussians(known: Sides) -> Scoring:
    fitted = NormGaussians(*(side[:, 0] for side in known))
    return lambda features: fitted.log_ratio(features[:, 0])


def _labelled(known: Sides) -> tuple[FloatArray, FloatArray]:
    return np.concatenate(known), np.repeat([1, 0], [len(side) for side in known])


# What learns, and from how many features: `gaussians` is `lpla`, whose norm is one.
CLASSIFIERS: dict[str, tuple[Callable[[Sides], Scoring], int]] = {
    "logistic": (_logistic, 8), "gaussians": (_gaussians, 1),
}  # fmt: skip


def fits(name: str, draws: int, seed: int) -> Iterator[dict[str, Any]]:
    """95 % intervals of the AUC of attacks that learn.

    Args:
        name: of CLASSIFIERS.
        draws: number of simulated data sets of other cells; one in `FEWER` is drawn.
        seed: root seed.

    Yields:
        rows of results, one for each setting.
    """
    learn, width = CLASSIFIERS[name]
    for at, (known, best) in enumerate(product(KNOWN, AUCS)):
        stream, shift = rng(seed, "fits", name, at), math.sqrt(2) * float(norm.ppf(best))
        draw = _Features(shift, width, stream)
        population, own = draw(POPULATION), []
        limits: dict[str, list[Interval]] = {}
        means = []
        count = max(draws // FEWER, 2)
        for _ in range(count):
            scored, sets = draw(SCORED), [draw(known) for _ in range(DRAWS)]
            scorings = [learn(one) for one in sets]
            means += [_auc(score, population) for score in scorings]
            own.append(means[-DRAWS])
            drawn = [auc_estimate(*map(score, scored)) for score in scorings]
            for rule, interval in _intervals(learn, sets[0], scored, drawn, stream).items():
                limits.setdefault(rule, []).append(interval)
        yield {"shape": name, "known": known, "best": best, "draws": count} | coverages(
            limits, own, means
        )


ENCODERS, ENCODER_KNOWN, ENCODER_DRAWS = ("simclr", "byol"), (4, 20, 100), 20


class _Rows:
    """A view that has embedded all images once: an image is its number."""

    def __init__(self, rows: Tensor) -> None:
        self.rows = rows

    def embed_plain(self, images: Tensor, layer: str) -> Tensor:
        return self.rows[images[:, 0, 0, 0].long()]


def encoders(name: str, seed: int, data_dir: str | None) -> list[dict[str, Any]]:
    """95 % intervals of the AUC of attacks that learn, on an encoder of CIFAR-10 at 16 pixels.

    Args:
        name: of ENCODERS, the self-supervised method.
        seed: root seed.
        data_dir: folder of CIFAR-10; None: the default.

    Returns:
        rows of results, one for each attack and number of known images.
    """
    run = fedmia.run_simulation(
        dataset="cifar10", size=16, data_dir=data_dir, ssl=name, attacker="passive",
        attacks="lpla", clients=2, rounds=1, pretrain="pooled", pretrain_epochs=120,
        model={"name": "smallnet", "width": 8}, train={"batch_size": 32, "schedule": "constant"},
        split={"members": 304, "nonmembers": 500, "known": 8, "test": 40}, seed=seed, quiet=True,
    )  # fmt: skip
    sides, rows = (run.images.members, run.images.nonmembers), []
    with torch.no_grad():
        pixels = torch.cat([torch.as_tensor(side) for side in sides]).float() / 255
        view: Any = _Rows(run.encoder()(pixels))
    numbers = torch.arange(len(pixels), dtype=torch.int32)[:, None, None, None]
    members, others = numbers[: len(sides[0])], numbers[len(sides[0]) :]
    for attack, known in product(("lpla", "supervised-mi"), ENCODER_KNOWN):
        aucs, limits = [], []
        for draw in range(ENCODER_DRAWS):
            stream = rng(seed, "encoders", name, known, draw)
            first, second = (
                torch.from_numpy(stream.permutation(len(n))) for n in (members, others)
            )
            built = registry.build("attack", attack, {})
            built.fit(view, Known(members[first[:known]], others[second[:known]]), stream)
            scored = members[first[known:]], others[second[known:]]
            estimate = auc_estimate(*(built.score(view, images) for images in scored))
            aucs.append(estimate.value)
            limits.append(auc_interval(estimate))
        place = {"ssl": name, "attack": attack, "known": known, "draws": ENCODER_DRAWS}
        measured = coverages({"expected": limits}, aucs, aucs)
        del measured["fit"]  # of which no truth is known
        ends = {"lowest": round(min(aucs), 4), "highest": round(max(aucs), 4)}
        rows.append(place | measured | ends)
    return rows


def coverages(
    limits: dict[str, list[Interval]], own: Sequence[float], means: Sequence[float]
) -> dict[str, Any]:
    """Shares of the limits that hold the AUC of their fit and the mean AUC, and mean widths.

    Args:
        limits: rule -> limits of each draw; those of the report under `expected`.
        own: true AUC of the fit of each draw.
        means: true AUCs of fits, whose mean is the mean AUC.

    Returns:
        shares in [0, 1] and widths, by name.
    """
    mean = float(np.mean(means))
    row = {
        "mean_auc": mean,
        "spread": float(np.std(means)),
        "fit": _holding(limits["expected"], own),
    }
    for rule, intervals in limits.items():
        row[rule] = _holding(intervals, mean)
        row[f"{rule}_width"] = float(np.mean(np.diff(intervals)))
    return {name: round(value, 4) for name, value in row.items()}


def _holding(intervals: Sequence[Interval], truth: float | Sequence[float]) -> float:
    low, high = np.array(intervals).T
    return float(np.mean((low <= truth) & (truth <= high)))


class _Features:
    """Draws features (n, width) of members and of non-members, who differ in the first."""

    def __init__(self, shift: float, width: int, stream: np.random.Generator) -> None:
        self.shift, self.width, self.stream = shift, width, stream

    def __call__(self, n: int) -> Sides:
        members, others = self.stream.normal(20.0, 1.0, (2, n, self.width))  # no norm is under 0
        members[:, 0] += self.shift
        return members, others


def _auc(score: Scoring, sides: Sides) -> float:
    return auc(*map(score, sides))


def _intervals(
    learn: Callable[[Sides], Scoring], known: Sides, scored: Sides, drawn: Sequence[AucEstimate],
    stream: np.random.Generator,
) -> dict[str, Interval]:  # fmt: skip
    """Limits by rule."""
    size, estimate = len(known[0]), drawn[0]

    def refitted(*rows: np.ndarray) -> float:
        return _auc(learn((known[0][rows[0]], known[1][rows[1]])), scored)

    fold = np.arange(size) % QUARTERS
    quarters = [refitted(fold != k, fold != k) for k in range(QUARTERS)]
    halves = [
        refitted(*(stream.permutation(size)[: size // 2] for _ in range(2))) for _ in range(HALVES)
    ]
    values = [one.value for one in drawn]
    middle = replace(estimate, value=float(np.mean(values)), variance=_mean_variance(drawn))
    widened = {
        "quarters": _widened(estimate, (QUARTERS - 1) * float(np.var(quarters)), QUARTERS - 1),
        "halves": _widened(estimate, float(np.var(halves, ddof=1)), HALVES - 1),
        "averaged": _widened(middle, float(np.var(values, ddof=1)) / DRAWS, DRAWS - 1),
    }
    return {rule: auc_interval(one) for rule, one in {"expected": estimate, **widened}.items()}


def _mean_variance(drawn: Sequence[AucEstimate]) -> float:
    return float(np.mean([one.variance for one in drawn]))


def _widened(estimate: AucEstimate, variance: float, freedom: int) -> AucEstimate:
    """The estimate with the variance between fits (Welch and Satterthwaite)."""
    total, parts = estimate.variance + variance, estimate.variance**2 / estimate.freedom
    parts += variance**2 / freedom
    return replace(
        estimate, variance=total, freedom=total**2 / parts if parts else estimate.freedom
    )
