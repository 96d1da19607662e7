"""BaVarIA against loops: the conjugate prior, what predicts, and where its estimate comes from.

Where images differ in difficulty: test_difficulty.py."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from fedmia.attacks.bavaria import MANY, BaVarIA, Prior, estimate_prior
from fedmia.attacks.lira import LiRA
from fedmia.seeding import rng
from tests.attacks.difficulty import tpr
from tests.attacks.test_lira import drawn, unknown

PRIOR = Prior(0.5, 0.3, 0.2, 6.0)


def naive_prediction(prior: Prior, own: NDArray[np.float64]) -> Any:
    """The posterior predictive of one image, as textbooks write it: alpha and beta halves."""
    n, mean = len(own), sum(own) / len(own)
    kappa, alpha = prior.weight + n, prior.freedom / 2 + n / 2
    beta = prior.freedom * prior.variance / 2 + sum((v - mean) ** 2 for v in own) / 2
    beta += prior.weight * n * (mean - prior.mean) ** 2 / (2 * kappa)
    location = (prior.weight * prior.mean + sum(own)) / kappa
    return stats.t(2 * alpha, location, math.sqrt(beta * (kappa + 1) / (alpha * kappa)))


def test_predict__is_the_integral_over_all_gaussians() -> None:
    """Bayes' rule by quadrature: over the mean and the variance that the prior and two signals
    leave likely."""
    own, x = np.array([0.9, 0.2]), 1.3
    location, scale, freedom = PRIOR.predict(own[:, None], np.ones((2, 1), dtype=bool))

    mean, log_variance = np.meshgrid(np.linspace(-6, 3, 401), np.linspace(-8, 8, 401))
    variance, half = np.exp(log_variance), PRIOR.freedom / 2
    joint = stats.invgamma.pdf(variance, half, scale=half * PRIOR.variance) * variance
    joint *= stats.norm.pdf(mean, PRIOR.mean, np.sqrt(variance / PRIOR.weight))
    for signal in own:
        joint *= stats.norm.pdf(signal, mean, np.sqrt(variance))
    density = (joint * stats.norm.pdf(x, mean, np.sqrt(variance))).sum() / joint.sum()
    got = stats.t.pdf(x, freedom[0], location[0], scale[0])
    assert got == pytest.approx(density, rel=1e-3)


@pytest.mark.parametrize("prior", [None, 3.0])
@pytest.mark.parametrize("predictive", ["t", "normal"])
def test_score__is_the_ratio_of_predictive_likelihoods(
    predictive: str, prior: float | None
) -> None:
    here = drawn()
    every = (*range(12), *range(6))  # the shadows' own, and the known ones among them again
    priors = [
        estimate_prior(here.rows[:, every], which[:, every], prior)
        for which in (here.inside, ~here.inside)
    ]
    got = here.scores(kind=BaVarIA, predictive=predictive, prior=prior)
    offline = here.scores(kind=BaVarIA, predictive=predictive, prior=prior, mode="offline")
    for i in range(12):
        sides = [naive_prediction(p, own) for p, own in zip(priors, here.sides(i), strict=True)]  # type: ignore[arg-type]
        if predictive == "normal":
            sides = [stats.norm(*s.args[1:]) for s in sides]
        x = here.target[i]
        assert got[i] == pytest.approx(sides[0].logpdf(x) - sides[1].logpdf(x))
        mode = sides[1].median()
        root = math.sqrt(2 * (sides[1].logpdf(mode) - sides[1].logpdf(x)))
        assert offline[i] == pytest.approx(math.copysign(root, x - mode))


# -- the prior


def gaussians(
    freedom: float, weight: float = 0.1, images: int = 4000, models: int = 6
) -> NDArray[np.float64]:
    """Signals (R, N) of images drawn from a prior of mean 2 and typical variance 0.25."""
    draw = rng(0, "prior")
    variances = 0.25 * freedom / draw.chisquare(freedom, images) if freedom < MANY else 0.25
    means = 2 + np.sqrt(variances / weight) * draw.standard_normal(images)
    rows: NDArray[np.float64] = means + np.sqrt(variances) * draw.standard_normal((models, images))
    return rows


@pytest.mark.parametrize("freedom", [3.0, 10.0])
def test_estimate__finds_the_prior_that_images_were_drawn_from(freedom: float) -> None:
    rows = gaussians(freedom)
    which = np.ones(rows.shape, dtype=bool)
    which[3:, ::2] = False  # images of three shadows and of six
    got = estimate_prior(rows, which)
    assert got is not None
    assert got.freedom == pytest.approx(freedom, rel=0.25)
    assert got.variance == pytest.approx(0.25, rel=0.06)
    assert got.mean == pytest.approx(2, abs=0.1)
    assert got.weight == pytest.approx(0.1, rel=0.2)


def test_estimate__of_images_of_one_variance_pools_them() -> None:
    rows = gaussians(MANY)
    got = estimate_prior(rows, np.ones(rows.shape, dtype=bool))
    assert got is not None and got.freedom > 200


def test_estimate__of_single_shadows_is_none_and_the_other_kind_stands_in() -> None:
    one = drawn().rows[:1]
    assert estimate_prior(one, np.ones(one.shape, dtype=bool)) is None
    here = unknown(drawn().target, one)
    want = np.argsort(here.target - here.rows[0])
    np.testing.assert_array_equal(np.argsort(here.scores(kind=BaVarIA)), want)


def test_scores__of_shadows_that_agree_stay_finite() -> None:
    here = unknown(drawn(6).target, drawn(6).rows[[0, 0, 0]])
    assert np.isfinite(here.scores(kind=BaVarIA)).all()


# -- what it is for


def test_few_shadows__of_unequal_variances_lose_less_than_lira() -> None:
    """LiRA's own deviations of three shadows are too noisy, its pooled one is wrong for most."""
    n, draw = 3000, rng(0, "unequal")
    spread = np.sqrt(4 / draw.chisquare(4, n + 6))
    hard = 3 * draw.standard_normal(n + 6)
    member = np.arange(n + 6) >= n // 2 + 6
    target = hard + spread * (draw.standard_normal(n + 6) + 2 * member)
    here = unknown(target, hard + spread * draw.standard_normal((3, n + 6)))

    def caught(kind: type[Any], **options: Any) -> float:
        scores = here.scores(6, kind=kind, **options)
        return tpr(scores[n // 2 :], scores[: n // 2], 0.05)

    for variance in ("fixed", "individual"):
        assert caught(BaVarIA) > caught(LiRA, variance=variance) + 0.02
