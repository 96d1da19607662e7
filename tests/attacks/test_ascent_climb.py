"""The static climb of many steps: a plain loop with SGD, one step of it, and how it is chosen."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedmia.attacks.ascent_climb import RATES, STEPS, AscentClimb, choose_climb
from fedmia.attacks.ascent_static import AscentStatic, attack_losses
from fedmia.attacks.base import Known, Scores
from fedmia.attacks.grad_norm import GradNorm
from fedmia.data.images import digests
from fedmia.ssl.augment import Augment
from fedmia.ssl.moco import MomentumContrast
from fedmia.threat import WhiteBox
from tests.attacks.planted import fitted, view_of

AUGMENT = Augment(hue=0.1)


@pytest.fixture
def view(make_moco: Any, held: Tensor) -> WhiteBox:
    return view_of(make_moco(), AUGMENT, held=held)


def climb(known: Known, view: WhiteBox, **options: Any) -> AscentClimb:
    attack: AscentClimb = fitted(AscentClimb(**options), view, known)
    return attack


def rises(method: MomentumContrast, views: Tensor, lr: float, steps: int) -> NDArray[np.float64]:
    """By torch's own SGD that maximises the mean loss, on a copy of the model."""
    model, pairs = copy.deepcopy(method), len(views) // 2
    optimizer = torch.optim.SGD(model.encoder.parameters(), lr=lr, maximize=True)

    def losses() -> Tensor:
        each = [attack_losses(model, views[i], views[pairs + i], "training") for i in range(pairs)]
        return torch.stack(each).mean(dim=0)

    before = losses().detach()
    for _ in range(steps):
        optimizer.zero_grad()
        losses().mean().backward()
        optimizer.step()
    return (losses().detach() - before).double().numpy()


def test_score__is_that_of_a_plain_loop(
    method: MomentumContrast, view: WhiteBox, images: Tensor, known: Known, serving: Tensor
) -> None:
    scores = climb(known, view, steps=4, lr=0.01, batch=5, pairs=2).score(view, images)
    method.fill_bank(serving.float() / 255)
    names = digests(images.numpy())
    order, views = sorted(range(20), key=lambda i: names[i]), view.view_pixels(images, 4)
    for start in range(0, 20, 5):
        batch = order[start : start + 5]
        want = -rises(method, views[:, batch], 0.01, 4)
        np.testing.assert_allclose(scores[batch], want, atol=2e-4)


def test_one_step_at_the_lowest_rate__is_ascent_static(
    view: WhiteBox, images: Tensor, known: Known
) -> None:
    one = climb(known, view, steps=1, lr=RATES[0])
    static: AscentStatic = fitted(AscentStatic(lr=RATES[0]), view, known)
    assert one.choices == {} and not one.learns
    np.testing.assert_array_equal(one.score(view, images), static.score(view, images))
    without = one.score_without(view, images)
    np.testing.assert_array_equal(without, static.score_without(view, images))
    assert [*AscentClimb.without] == ["loss-before", GradNorm.name]
    more = climb(known, view, steps=3, lr=RATES[0]).score(view, images)
    assert (more < one.score(view, images)).all()  # it rises with each step


# -- the choice


def losses(*aucs: float) -> Scores:
    """Losses of 40 known images by step that give these AUCs of the rise, the start first."""
    rows = [np.zeros(40)]
    for auc in aucs:
        leading = round(auc * 20)  # so many members rise less than all others
        rows.append(
            np.concatenate([np.full(leading, 1.0), np.full(20 - leading, 3.0), np.full(20, 2.0)])
        )
    return np.stack(rows)


TRUTH = np.repeat([1, 0], 20)


def test_choice__is_the_highest_auc_of_any_number_of_steps_from_two_on() -> None:
    both = {0.1: losses(1.0, 0.5, 0.8), 0.01: losses(1.0, 0.7, 0.6)}
    assert choose_climb(both, TRUTH) == (3, 0.1)
    assert choose_climb(both, TRUTH, least=1) == (1, 0.01)  # equal ones: the lowest rate
    assert choose_climb(both, 1 - TRUTH) == (2, 0.1)  # of the other side's truth
    assert choose_climb({0.01: losses(0.5, 0.9, 0.9)}, TRUTH) == (2, 0.01)  # the fewest steps


def test_choice__reads_the_rise_and_not_the_level() -> None:
    """Members begin high and rise least, in the third step: by the level no step tells them."""
    start = np.where(TRUTH == 1, 9.0, 0.0)
    last = start + np.where(TRUTH == 1, 1.0, 2.0)
    assert choose_climb({0.1: np.stack([start, start + 1, start + 1, last])}, TRUTH) == (3, 0.1)


def test_choice__ends_where_a_loss_is_no_longer_finite() -> None:
    broken = losses(0.6, 0.7, 0.9, 1.0)
    broken[3, 0] = np.inf
    assert choose_climb({0.1: broken}, TRUTH) == (2, 0.1)
    broken[1, 5] = np.nan
    assert choose_climb({0.1: broken, 0.03: losses(0.1, 0.1)}, TRUTH) == (2, 0.03)
    assert choose_climb({0.1: broken}, TRUTH) == (2, 0.1)


def test_auto__tries_every_rate_once_and_as_many_steps_as_one_climb_has(
    view: WhiteBox, known: Known, images: Tensor
) -> None:
    both, truth = known.both()
    assert view.held is not None
    climbing = torch.cat([view.held, both])

    def losses_of(steps: int, *rates: float) -> dict[float, Scores]:
        statics = {lr: AscentStatic(steps=steps, lr=lr, pairs=1) for lr in rates}
        each = {lr: fitted(one, view, known).by_step(view, climbing) for lr, one in statics.items()}
        return {lr: losses[:, len(climbing) - len(both) :] for lr, losses in each.items()}

    attack = climb(known, view, pairs=1)
    queries, tried = view.queries, losses_of(STEPS, *RATES)
    assert view.queries == 2 * queries
    steps, lr = choose_climb(tried, truth)
    assert attack.learns and attack.choices == {"steps": steps, "lr": lr}
    chosen = climb(known, view, pairs=1, steps=steps, lr=lr).score(view, images)
    np.testing.assert_array_equal(attack.score(view, images), chosen)
    two = climb(known, view, pairs=1, steps=2)  # a number of steps alone
    assert two.choices == {"lr": choose_climb(losses_of(2, *RATES), truth)[1]}
    at_rate = climb(known, view, pairs=1, lr=0.02)
    assert at_rate.choices == {"steps": choose_climb(losses_of(STEPS, 0.02), truth)[0]}
    # Where no loss is finite, the fewest steps: two, of which one alone is `ascent-static`.
    assert climb(known, view, pairs=1, lr=1e30).choices == {"steps": 2}
