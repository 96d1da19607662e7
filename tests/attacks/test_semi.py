"""SeMI from rounds against densities, image by image; where members gain little in each round.

Where images differ in difficulty: test_difficulty.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.covariance import LedoitWolf
from torch import Tensor

from fedmia.attacks._reference import ReferenceSignals
from fedmia.attacks.base import Known, Scores
from fedmia.attacks.lira import LiRARounds
from fedmia.attacks.semi import SeMIRounds
from fedmia.seeding import rng
from fedmia.settings.errors import InputError
from fedmia.statistics.auc import auc
from tests.attacks.planted import fitted
from tests.attacks.test_lira import blanks, client


def scores_of(kind: type[Any], logits: Any, known: int) -> tuple[Scores, Scores]:
    """Of members and of others under logits (R + 1, N) in the order of rounds: the first `known`
    images are known members, as many more known non-members, the first half of the rest members."""
    images = blanks(logits.shape[1])
    place = {bytes(image.numpy()): i for i, image in enumerate(images)}

    def read(self: Any, view: Any, some: Tensor) -> ReferenceSignals:
        at = [place[bytes(image.numpy())] for image in some]
        p = 1 / (1 + np.exp(-logits[:, at]))
        return ReferenceSignals(p[-1], p[:-1], np.zeros(p[:-1].shape, dtype=bool))

    given = type("Given", (kind,), {"read": read, "name": kind.name})
    attack = fitted(given(), None, Known(images[:known], images[known : 2 * known]))
    both = attack.score(None, images[2 * known :])
    return both[: len(both) // 2], both[len(both) // 2 :]


def test_score__is_the_ratio_of_the_likelihoods_of_all_changes() -> None:
    logits = np.cumsum(rng(0, "walk").standard_normal((5, 40)) * [[1], [2], [1], [3], [1]], axis=0)
    got = np.concatenate(scores_of(SeMIRounds, logits, 10))
    steps = np.array([[logits[r + 1, i] - logits[r, i] for r in range(4)] for i in range(40)])
    null = steps[10:20]
    standard = (steps - np.mean(null, axis=0)) / np.std(null, axis=0)
    shared = LedoitWolf(assume_centered=True).fit(standard[10:20]).covariance_
    for i in range(20, 40):
        densities = [multivariate_normal(np.full(4, m), shared) for m in (1.0, 0.0)]
        want = densities[0].logpdf(standard[i]) - densities[1].logpdf(standard[i])
        assert got[i - 20] == pytest.approx(want)


def rounds_of(gain: float, wander: float) -> tuple[Any, int]:
    """Logits of 9 rounds, 50 known images a side and 1,000 scored: every image has a level of its
    own and wanders, each model is read with noise; a member gains in every round."""
    known, scored, draw = 50, 1000, rng(0, "rounds")
    count = 2 * (known + scored)
    member = np.repeat([1, 0, 1, 0], [known, known, scored, scored])
    steps = wander * draw.standard_normal((9, count)) + gain * member
    noise = 0.3 * draw.standard_normal((9, count))
    return 2 * draw.standard_normal(count) + np.cumsum(steps, axis=0) + noise, known


@pytest.mark.parametrize("wander", [0.05, 0.3])
def test_score__finds_what_the_mean_of_the_early_rounds_dilutes(wander: float) -> None:
    logits, known = rounds_of(0.12, wander)
    ours = auc(*scores_of(SeMIRounds, logits, known))
    theirs = auc(*scores_of(LiRARounds, logits, known))
    assert ours > theirs + 0.01 and ours > 0.75


def test_score__of_no_gain_is_chance() -> None:
    logits, known = rounds_of(0.0, 0.3)
    value = auc(*scores_of(SeMIRounds, logits, known))
    assert value == pytest.approx(0.5, abs=0.04)


def test_score__of_one_model_is_the_same_for_all(
    make_moco: Callable[..., Any], images: Tensor, known: Known
) -> None:
    attack, view = SeMIRounds(), client(make_moco(), [0])
    attack.fit(view, known, rng(0))
    assert len(np.unique(attack.score(view, images))) == 1


def test_sequence__has_every_received_model_in_order(
    make_moco: Callable[..., Any], images: Tensor
) -> None:
    view = client(make_moco(), [20, 0, 10])
    models = [model for model, _ in SeMIRounds().models(view, images)]
    assert models == [view.at(0), view.at(10)]  # and the view itself is of the last


def test_rounds__none_is_refused(make_moco: Callable[..., Any], known: Known) -> None:
    with pytest.raises(InputError, match="semi-rounds needs the models of a federation's rounds"):
        SeMIRounds().fit(client(make_moco(), []), known, rng(0))
