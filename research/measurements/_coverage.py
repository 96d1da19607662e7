"""How often the intervals hold the truth: by simulation, each with its mean width.

`auc` holds one cell for each shape of the scores, pair of sizes and true AUC; `family` how often
any of the simultaneous intervals of independent attacks misses; `paired` the difference of two
attacks on the same images; `tpr` the rate at a fixed false-positive rate; `subjects` and
`subjects_tpr` the same of images that belong to subjects, beside what intervals by image cover;
`fits` attacks that learn from known images (`_coverage_fits.py`). A share that is c in
truth comes out within two of `error` = sqrt(c (1 - c) / draws) of it. `coverage.py`
runs all cells, side by side; its result lies in `research/results/coverage.json`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np
from _coverage_fits import CLASSIFIERS, fits  # beside this file
from scipy.optimize import brentq
from scipy.stats import norm

from fedmia.seeding import rng
from fedmia.statistics.auc import auc_estimate, auc_interval, difference_interval
from fedmia.statistics.intervals import FloatArray, IntArray, Interval
from fedmia.statistics.thresholds import tpr_at_fpr

SIZES = (
    (20, 20), (20, 500), (500, 20), (100, 100), (104, 1080), (1080, 104), (500, 500), (2000, 2000),
)  # fmt: skip
AUCS = (0.5, 0.7, 0.9, 0.95, 0.99)
SPREADS = {"equal": 1.0, "twice": 2.0, "four times": 4.0, "half": 0.5, "rounded": 1.0, "told": 1.0}
FLAGRANT_SHARE = 0.2  # share of the members who lie over everyone else
FAMILY, MEMBERS, NONMEMBERS = 15, 104, 1080  # the default run's


class ScoreDistribution:
    """Scores of members and of standard normal non-members.

    Args:
        name: of SPREADS, the members' standard deviation; `rounded` to whole numbers.
        truth: the AUC that they shall have, or the members' mean itself where `mean` is given.
        mean: of the members' scores, in standard deviations; None: the one that gives `truth`.
    """

    def __init__(self, name: str, truth: float = 0.5, mean: float | None = None) -> None:
        self.name, self.spread = name, SPREADS[name]
        share = (truth - FLAGRANT_SHARE) / (1 - FLAGRANT_SHARE) if name == "told" else truth
        self.mean = float(norm.ppf(share)) * math.hypot(1, self.spread) if mean is None else mean
        if name == "rounded" and mean is None:
            self.mean = float(brentq(lambda x: _rounded_auc(x) - truth, -9.0, 9.0))

    def draw(self, n: int, m: int, stream: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        """Scores (n,) and (m,).

        Args:
            n: number of members.
            m: number of non-members.
            stream: random generator.

        Returns:
            scores of members `(n,)` and of non-members `(m,)`.
        """
        members, others = stream.normal(self.mean, self.spread, n), stream.normal(size=m)
        if self.name == "told":
            members[stream.random(n) < FLAGRANT_SHARE] += 50
        return (np.rint(members), np.rint(others)) if self.name == "rounded" else (members, others)

    def tpr(self, fpr: float) -> float:
        """The largest TPR at an FPR of at most `fpr`."""
        cut = float(norm.isf(fpr))
        if self.name == "rounded":
            cut = math.ceil(cut + 0.5) - 0.5
        rate = float(norm.sf((cut - self.mean) / self.spread))
        return FLAGRANT_SHARE + (1 - FLAGRANT_SHARE) * rate if self.name == "told" else rate


def _rounded_auc(mean: float) -> float:
    k = np.arange(-20, 21)
    members, others = (norm.cdf(k + 0.5 - x) - norm.cdf(k - 0.5 - x) for x in (mean, 0.0))
    return float((members * (np.cumsum(others) - others / 2)).sum())


def summary(intervals: Sequence[Interval], truth: float) -> dict[str, Any]:
    """Share of intervals that hold the truth, of those over and under it, and the mean width.

    Args:
        intervals: the intervals of all draws.
        truth: the true value.

    Returns:
        shares in [0, 1] and the mean width, by name.
    """
    low, high = np.array(intervals).T
    return {
        "coverage": round(float(np.mean((low <= truth + 1e-9) & (truth - 1e-9 <= high))), 4),
        "over": round(float(np.mean(low > truth + 1e-9)), 4),
        "under": round(float(np.mean(high < truth - 1e-9)), 4),
        "width": round(float(np.mean(high - low)), 4),
    }


def alone(name: str, draws: int, seed: int) -> Iterator[dict[str, Any]]:
    """95 % intervals of an AUC.

    Args:
        name: of SPREADS.
        draws: number of simulated data sets.
        seed: root seed.

    Yields:
        rows of results, one for each setting.
    """
    for at, ((n, m), truth) in enumerate(product(SIZES, AUCS)):
        stream, shape = rng(seed, "auc", name, at), ScoreDistribution(name, truth)
        intervals = [auc_interval(auc_estimate(*shape.draw(n, m, stream))) for _ in range(draws)]
        yield {"shape": name, "members": n, "nonmembers": m, "auc": truth} | summary(
            intervals, truth
        )


def family(name: str, draws: int, seed: int) -> Iterator[dict[str, Any]]:
    """Simultaneous intervals of independent attacks: how often any of them misses.

    Args:
        name: of SPREADS.
        draws: number of simulated data sets.
        seed: root seed.

    Yields:
        rows of results, one for each setting.
    """
    for at, truth in enumerate((0.5, 0.7)):
        stream, shape = rng(seed, "family", name, at), ScoreDistribution(name, truth)
        missed, over = [], []
        for _ in range(draws):
            scores = (shape.draw(MEMBERS, NONMEMBERS, stream) for _ in range(FAMILY))
            intervals = [auc_interval(auc_estimate(*pair), family=FAMILY) for pair in scores]
            over.append(any(low > truth for low, _ in intervals))
            missed.append(any(not low <= truth <= high for low, high in intervals))
        yield {
            "shape": name, "members": MEMBERS, "nonmembers": NONMEMBERS, "auc": truth,
            "attacks": FAMILY, "missed": round(float(np.mean(missed)), 4),
            "over": round(float(np.mean(over)), 4),
        }  # fmt: skip


def paired(name: str, draws: int, seed: int) -> Iterator[dict[str, Any]]:
    """Differences of two attacks that share most of what they read, correlated 0.8 by image, for
    normal scores.

    Args:
        name: of SPREADS.
        draws: number of simulated data sets.
        seed: root seed.

    Yields:
        rows of results, one for each setting.
    """
    sizes, gaps = ((30, 60), (MEMBERS, NONMEMBERS)), (0.0, 0.5, 1.0)
    spread, mix = SPREADS[name], np.array([[1.0, 0.0], [0.8, 0.6]])
    for at, ((n, m), gap) in enumerate(product(sizes, gaps)):
        stream = rng(seed, "paired", name, at)
        shifts, intervals = np.array([[0.3 + gap], [0.3]]), []
        truth = float(np.diff(norm.cdf(-shifts[:, 0] / math.hypot(1, spread)))[0])
        for _ in range(draws):
            members = mix @ stream.normal(0, spread, (2, n)) + shifts
            others = mix @ stream.normal(size=(2, m))
            intervals.append(difference_interval((members[0], others[0]), (members[1], others[1])))
        place = {"shape": name, "members": n, "nonmembers": m, "difference": round(truth, 4)}
        yield place | summary(intervals, truth)


def rates(name: str, draws: int, seed: int) -> Iterator[dict[str, Any]]:
    """95 % intervals of the TPR at a fixed FPR; members `mean` standard deviations higher.

    Args:
        name: of SPREADS.
        draws: number of simulated data sets.
        seed: root seed.

    Yields:
        rows of results, one for each setting.
    """
    sizes = ((104, 1080, 0.01), (960, 960, 0.01), (100, 100, 0.1), (104, 1080, 0.001),
             (1000, 5000, 0.001))  # fmt: skip
    for at, ((n, m, fpr), mean) in enumerate(product(sizes, (1.0, 2.0))):
        stream, shape = rng(seed, "tpr", name, at), ScoreDistribution(name, mean=mean)
        results = [tpr_at_fpr(*shape.draw(n, m, stream), fpr) for _ in range(draws)]
        truth = shape.tpr(fpr)
        place = {"shape": name, "members": n, "nonmembers": m, "fpr": fpr, "mean": mean}
        yield place | {"tpr": round(truth, 4)} | summary([f[1] for f in results if f], truth)


def of_subjects(
    sizes: str, count: int, within: float, shift: float, stream: np.random.Generator
) -> list[tuple[FloatArray, IntArray]]:
    """Scores and subjects of members and of non-members.

    Args:
        sizes: of SUBJECT_SIZES.
        count: subjects a side.
        within: correlation of two images of one subject.
        shift: mean of the members' scores, in standard deviations.
        stream: random generator.

    Returns:
        of each side scores `(n,)` and subjects `(n,)`.
    """
    sides = []
    for mean in (shift, 0.0):
        images = SUBJECT_SIZES[sizes](count, stream)
        subjects = np.repeat(np.arange(count), images)
        common, own = stream.normal(size=count)[subjects], stream.normal(size=len(subjects))
        sides.append((mean + math.sqrt(within) * common + math.sqrt(1 - within) * own, subjects))
    return sides


def by_subject(sizes: str, draws: int, seed: int) -> Iterator[dict[str, Any]]:
    """95 % intervals of an AUC, by subject and by image.

    Args:
        sizes: of SUBJECT_SIZES.
        draws: number of simulated data sets.
        seed: root seed.

    Yields:
        rows of results, one for each setting.
    """
    settings = product(SUBJECTS, WITHIN, (0.5, 0.6, 0.75, 0.95))
    for at, (count, within, truth) in enumerate(settings):
        stream, shift = rng(seed, "subjects", sizes, at), math.sqrt(2) * float(norm.ppf(truth))
        by_subjects, by_image = [], []
        for _ in range(draws):
            (a, mine), (b, theirs) = of_subjects(sizes, count, within, shift, stream)
            by_subjects.append(auc_interval(auc_estimate(a, b, subjects=(mine, theirs))))
            by_image.append(auc_interval(auc_estimate(a, b)))
        place = {"sizes": sizes, "subjects": count, "correlation": within, "auc": truth}
        row = place | summary(by_subjects, truth)
        yield row | {"coverage_by_image": summary(by_image, truth)["coverage"]}


def rates_by_subject(sizes: str, draws: int, seed: int) -> Iterator[dict[str, Any]]:
    """95 % intervals of the TPR at a fixed FPR, by subject.

    Args:
        sizes: of SUBJECT_SIZES.
        draws: number of simulated data sets.
        seed: root seed.

    Yields:
        rows of results, one for each setting.
    """
    for at, (count, within, fpr) in enumerate(product((20, 50, 200), WITHIN, (0.01, 0.1))):
        stream, shift, intervals = rng(seed, "subjects-tpr", sizes, at), 1.0, []
        truth = float(norm.sf(norm.isf(fpr) - shift))
        for _ in range(draws):
            (a, mine), (b, theirs) = of_subjects(sizes, count, within, shift, stream)
            if (rate := tpr_at_fpr(a, b, fpr, (mine, theirs))) is not None:
                intervals.append(rate[1])
        if intervals:
            place = {"sizes": sizes, "subjects": count, "correlation": within, "fpr": fpr}
            yield place | {"tpr": round(truth, 4)} | summary(intervals, truth)


SUBJECTS, WITHIN = (10, 20, 50, 200), (0.1, 0.5)
SUBJECT_SIZES: dict[str, Callable[[int, np.random.Generator], IntArray]] = {
    "8 each": lambda count, _: np.full(count, 8),
    "geometric": lambda count, stream: stream.geometric(1 / 8, count),
    "lognormal": lambda count, stream: np.rint(stream.lognormal(1.6, 1, count)).astype(int) + 1,
}
PARTS: dict[str, Callable[[str, int, int], Iterator[dict[str, Any]]]] = {
    "auc": alone, "family": family, "paired": paired, "tpr": rates,
    "subjects": by_subject, "subjects_tpr": rates_by_subject,
    "fits": fits,
}  # fmt: skip


def names(part: str) -> Iterable[str]:
    """The shapes of scores, sizes of subjects or classifiers that a part goes through."""
    if part == "fits":
        return CLASSIFIERS
    return SUBJECT_SIZES if part.startswith("subjects") else SPREADS


def cells(part: str, name: str, draws: int, seed: int) -> list[dict[str, Any]]:
    """All cells of a part for one shape.

    Args:
        part: of PARTS.
        name: of `names`.
        draws: number of simulated data sets.
        seed: root seed.

    Returns:
        the rows of the part.
    """
    normal = name not in ("rounded", "told")
    return list(PARTS[part](name, draws, seed)) if part != "paired" or normal else []
