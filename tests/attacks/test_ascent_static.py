"""Static ascent: Algorithm 1's losses, the climb, and the rise against a loop over batches."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.stats import spearmanr
from torch import Tensor
from torch.nn import functional as F

from fedmia.attacks.ascent_static import (
    RATES,
    AscentStatic,
    attack_losses,
    choose_gentlest,
    read_losses,
)
from fedmia.attacks.base import Known, NotFitted, Scores
from fedmia.attacks.grad_norm import GradNorm
from fedmia.attacks.similarity import Similarity
from fedmia.data.images import digests
from fedmia.settings.errors import InputError
from fedmia.ssl.augment import Augment
from fedmia.ssl.base import outputs
from fedmia.ssl.moco import MomentumContrast
from fedmia.threat import WhiteBox
from tests.attacks.planted import fitted, view_of

AUGMENT = Augment(hue=0.1)


def pixels(count: int, seed: int) -> Tensor:
    return torch.rand(count, 3, 8, 8, generator=torch.Generator().manual_seed(seed))


@torch.no_grad()
def naive_loss(method: MomentumContrast, x1: Tensor, x2: Tensor, reading: str) -> float:
    """Lines 7 to 14 of Algorithm 1 for one pair of views, sums written out."""

    def M(x: Tensor) -> list[float]:
        row: list[float] = F.normalize(method.encoder(x[None]).double(), dim=1)[0].tolist()
        return row

    def dot(a: list[float], b: list[float]) -> float:
        return sum(p * q for p, q in zip(a, b, strict=True))

    Q = method.queue.double().tolist()
    T = 1.0 if reading == "algorithm1" else method.spec.temperature
    q1, k1, q2, k2 = M(x1), M(x2), M(x2), M(x1)
    losses = []
    for q, k in ((q1, k1), (q2, k2)):
        above = math.exp(dot(q, k) / T)
        below = sum(math.exp(dot(q, Qi) / T) for Qi in Q)
        if reading == "training":  # InfoNCE: the positive pair is among the candidates
            below += above
        losses.append(-math.log(above / below))
    return losses[0] + losses[1]


@pytest.mark.parametrize("reading", ["training", "algorithm1"])
def test_attack_losses__lines_12_to_14(make_moco: Any, reading: str) -> None:
    """In one forward pass, as of the outputs of two."""
    method, a, b = make_moco(), pixels(5, 0), pixels(5, 1)
    got = attack_losses(method, a, b, reading)
    want = [naive_loss(method, x1, x2, reading) for x1, x2 in zip(a, b, strict=True)]
    np.testing.assert_allclose(got.detach(), want, atol=1e-5)
    twice = read_losses(method, method.encoder(a), method.encoder(b), reading)
    torch.testing.assert_close(got, twice, atol=1e-5, rtol=1e-5)


def test_attack_losses__algorithm1_needs_a_queue(make_moco: Any) -> None:
    method = make_moco()
    del method.bank
    with pytest.raises(InputError, match="'algorithm1' needs a method with a queue"):
        attack_losses(method, pixels(2, 0), pixels(2, 1), "algorithm1")


def static(known: Known, view: WhiteBox, **options: Any) -> AscentStatic:
    attack: AscentStatic = fitted(AscentStatic(**options), view, known)
    return attack


@pytest.fixture
def view(make_moco: Any, held: Tensor) -> WhiteBox:
    """Of a copy of `method`."""
    return view_of(make_moco(), AUGMENT, held=held)


def steps_of(
    method: MomentumContrast, views: Tensor, reading: str, lr: float, steps: int
) -> list[NDArray[np.float64]]:
    """Losses of a batch (2 pairs, B, C, H, W) before a climb by plain SGD, and after each step."""
    model, pairs, losses = copy.deepcopy(method), len(views) // 2, []
    for _ in range(steps + 1):
        each = [attack_losses(model, views[i], views[pairs + i], reading) for i in range(pairs)]
        mean = torch.stack(each).mean(dim=0)
        losses.append(mean.detach().double().numpy())
        model.zero_grad()
        mean.mean().backward()
        for weight in model.encoder.parameters():
            weight.data += lr * weight.grad
    return losses


@pytest.mark.parametrize("negatives", ["held", "queue"])
@pytest.mark.parametrize("reading", ["training", "algorithm1"])
def test_rise__parameters_equals_a_loop_over_batches(
    method: MomentumContrast, view: WhiteBox, images: Tensor, known: Known, serving: Tensor,
    reading: str, negatives: str,
) -> None:  # fmt: skip
    # An untrained encoder gives all images nearly one key, where long steps jump over the top.
    lr = 0.01 if negatives == "held" else 0.05
    options = {"loss": reading, "negatives": negatives, "lr": lr}
    attack = static(known, view, steps=2, batch=8, pairs=2, **options)
    got = attack.by_step(view, images)
    assert view.queries == 3 * 4 * 24 + 14 * (
        negatives == "held"
    )  # as many as climb, scored or not
    if negatives == "held":  # keys of the released model: the bank stays while weights climb
        method.fill_bank(serving.float() / 255)
    names = digests(images.numpy())
    order = sorted(range(20), key=lambda i: names[i])
    views = view.view_pixels(images, 4)
    for start in (0, 8, 16):
        batch = order[start : start + 8]
        beside = [*batch, *order[: 8 - len(batch)]]  # the last four climb as one of eight
        for step, want in enumerate(steps_of(method, views[:, beside], reading, lr, 2)):
            np.testing.assert_allclose(got[step, batch], want[: len(batch)], atol=1e-4)
    assert (np.diff(got.mean(axis=1)) > 0).all()
    np.testing.assert_array_equal(attack.score(view, images), got[0] - got[2])


@pytest.mark.parametrize("negatives", ["held", "queue"])
def test_short_batch__climbs_beside_images_that_the_attacker_holds(
    method: MomentumContrast, view: WhiteBox, images: Tensor, known: Known, held: Tensor,
    serving: Tensor, negatives: str,
) -> None:  # fmt: skip
    """Alone, their climb would be harder."""
    attack = static(known, view, steps=2, batch=8, pairs=1, lr=0.01, negatives=negatives)
    got = attack.by_step(view, images[:3])
    # Of images of the second half the first serves as negatives: they cannot climb beside these.
    own = set(digests(serving.numpy())) if negatives == "held" else set()
    spare = torch.cat([held, known.both()[0]])
    free = sorted((n, i) for i, n in enumerate(digests(spare.numpy())) if n not in own)
    if negatives == "held":
        method.fill_bank(serving.float() / 255)
    views = view.view_pixels(torch.cat([images[:3], spare[[i for _, i in free[:5]]]]), 2)
    for row, want in zip(got, steps_of(method, views, "training", 0.01, 2), strict=True):
        np.testing.assert_allclose(row, want[:3], atol=1e-4)


def test_rise__pixels_is_equation_8(
    method: MomentumContrast, view: WhiteBox, images: Tensor, known: Known, serving: Tensor
) -> None:
    method.fill_bank(serving.float() / 255)
    attack = static(known, view, steps=3, pairs=1, ascend="pixels", lr=0.2)
    before, *_, after = attack.by_step(view, images)
    assert view.queries == 4 * 2 * 20 + 14
    views = view.view_pixels(images, 2)
    for i in (0, 9, 19):
        x = [views[0, i][None].clone(), views[1, i][None].clone()]
        first = float(method.probe_losses(*x).detach())
        for _ in range(3):  # x(t+1) = x(t) + alpha grad J(x(t))
            x = [v.detach().requires_grad_(True) for v in x]
            slopes = torch.autograd.grad(method.probe_losses(x[0], x[1]).sum(), x)
            x = [v + 0.2 * slope for v, slope in zip(x, slopes, strict=True)]
        assert before[i] == pytest.approx(first, abs=1e-5)
        assert after[i] == pytest.approx(float(method.probe_losses(*x).detach()), abs=1e-4)
    assert (after > before).all()


# -- auto


def climbs(**aucs: float) -> dict[float, Scores]:
    """Rate -> losses of 40 known images by step that give these AUCs, rising unless below 0."""
    results = {}
    for rate, value in aucs.items():
        leading = round(abs(value) * 20)  # so many members rise less than all others
        fall = np.concatenate([np.full(leading, 2.0), np.zeros(20 - leading), np.ones(20)])
        between = np.arange(40.0)  # of a step on the way, which is not read
        rows = [np.zeros(40), between, np.sign(value) * (3 - fall)]
        results[float(rate.removeprefix("lr"))] = np.stack(rows)
    return results


TRUTH = np.repeat([1, 0], 20)


@pytest.mark.parametrize(
    ("aucs", "want"),
    [
        ({"lr2": 0.65, "lr1": 0.6}, 1.0),  # none is better beyond the noise
        ({"lr1": 0.5, "lr2": 0.9}, 2.0),
        ({"lr1": 0.6, "lr2": -0.9}, 1.0),  # who falls has not climbed
        ({"lr1": -0.5, "lr2": -0.1}, 2.0),  # none has: the AUC alone tells
    ],
)
def test_gentlest__is_the_first_within_one_standard_error(
    aucs: dict[str, float], want: float
) -> None:
    for reading in ("rise", "level"):  # losses begin at 0: both are one
        assert choose_gentlest(climbs(**aucs), TRUTH, reading) == want


def test_gentlest__tells_by_the_reading_and_the_truth() -> None:
    """Before the climb half of the members have a low loss, which rises to that of others."""
    before = np.concatenate([np.zeros(10), np.full(10, 5.0), np.tile([0.0, 5.0], 10)])
    rise = before + np.repeat([1.0, 2.0], 20)
    level = np.repeat([10.0, 11.0], 20)
    both = {1.0: np.stack([before, rise]), 2.0: np.stack([before, level])}
    assert choose_gentlest(both, TRUTH, "rise") == 1.0
    assert choose_gentlest(both, TRUTH, "level") == 2.0
    both = climbs(lr1=0.5, lr2=1.0)
    assert choose_gentlest(both, TRUTH, "rise") == 2.0
    assert choose_gentlest(both, 1 - TRUTH, "rise") == 1.0


def passes_of(method: MomentumContrast) -> list[int]:
    """It grows by each pass of which a climb, on whichever copy, needs the gradient."""
    passes = list[int]()
    method.encoder.register_forward_hook(
        lambda _, args, out: passes.append(len(out)) if out.requires_grad else None
    )
    return passes


@pytest.mark.parametrize("steps", [1, 3])
def test_auto__climbs_as_the_images_under_test_do_and_once_for_all_fits(
    make_moco: Any, known: Known, held: Tensor, steps: int
) -> None:
    """Another reading climbs the same once more; fits on parts of the known images, for the
    threshold, find the climbs of the whole, and count them all the same. Which rate is chosen:
    test_rehearsal.py."""
    # What the attacker holds has the known images in it, as in a run: so they climb the same.
    images, truth = known.both()
    both, method = torch.cat([held, images]), make_moco()
    passes, view = passes_of(method), view_of(method, AUGMENT, held=both)
    attack, few = static(known, view, pairs=1, steps=steps), known.members[:6]
    queries, batches, view.queries = view.queries, len(passes), 0
    assert batches >= len(RATES) * (steps - 1) + 1
    static(Known(few, known.nonmembers[:6]), view, pairs=1, steps=steps, reading="level")
    assert len(passes) == batches and view.queries == queries
    climbed = {
        lr: static(known, view, pairs=1, steps=steps, lr=lr).by_step(view, both)[:, len(held) :]
        for lr in RATES
    }
    assert attack.learns
    assert attack.choices == {"lr": choose_gentlest(climbed, truth, "rise")}
    assert static(known, view, steps=3, lr=0.02).choices == {}


def test_score__climbs_once_however_often_the_same_images_are_asked_for(
    make_moco: Any, held: Tensor, images: Tensor, known: Known
) -> None:
    """The fits behind a threshold score the same images; so does the twin without the climb, minus
    the loss that any attack reads."""
    method = make_moco()
    passes, view = passes_of(method), view_of(method, AUGMENT, held=held)
    attack = static(known, view, steps=1, lr=0.01, pairs=2)
    want, queries, climbs = attack.score(view, images), view.queries, len(passes)
    np.testing.assert_array_equal(attack.score(view, images.flip(0)), want[::-1])
    without = attack.score_without(view, images)
    assert len(passes) == climbs and view.queries > 3 * queries  # counted all the same
    np.testing.assert_allclose(without[:, 0], -view.losses(images, 2, "held").numpy(), atol=1e-5)
    norms = fitted(GradNorm(), view, known).score(view, images)
    np.testing.assert_array_equal(without[:, 1], norms)
    assert [*AscentStatic.without] == ["loss-before", GradNorm.name]
    climbs = len(passes)
    static(known, view, steps=1, lr=0.02, pairs=2).score(view, images)
    assert len(passes) > climbs


@pytest.mark.parametrize("lr", RATES[:1])
def test_score__at_the_lowest_rate_is_a_statistic_of_the_gradient(
    lr: float, method: MomentumContrast, view: WhiteBox, images: Tensor, known: Known
) -> None:
    """One step of `auto` is too small to climb: alone in its batch the loss of an image rises by
    the rate times the squared norm of its gradient."""
    alone = static(known, view, steps=1, lr=lr, batch=1, pairs=1, negatives="queue")
    rise, squares = -alone.score(view, images), list[float]()
    for image in images:
        z1, z2 = outputs(method.encoder, view.view_pixels(image[None], 2).flatten(0, 1)).chunk(2)
        loss = read_losses(method, z1, z2, "training").mean()
        slopes = torch.autograd.grad(loss, [*method.trainable()], allow_unused=True)
        squares.append(sum(float((slope**2).sum()) for slope in slopes if slope is not None))
    assert spearmanr(rise, squares).statistic > 0.95


# -- sets


def test_score_sets__is_the_rise_of_known_members_sets_minus_its_own(
    method: MomentumContrast, images: Tensor, known: Known
) -> None:
    """Sec. V-B4 transcribed: climb a batch, take its rise off that of member data. Too few known
    members for a set are not compared."""
    view, sets = view_of(copy.deepcopy(method), AUGMENT), images.view(4, 5, *images.shape[1:])
    attack = static(known, view, steps=2, pairs=1, lr=0.05, negatives="queue")

    def climbed(batch: Tensor) -> NDArray[np.float64]:
        first, _, last = steps_of(method, view.view_pixels(batch, 2), "training", 0.05, 2)
        return np.array([last.mean() - first.mean(), first.mean()])

    norms = fitted(GradNorm(negatives="queue"), view, known).score(view, images).reshape(4, 5)
    members = np.mean([climbed(known.members[at : at + 5]) for at in (0, 5)], axis=0)
    own = np.array([climbed(batch) for batch in sets])
    want = np.column_stack([members - own, norms.mean(axis=1)])
    np.testing.assert_allclose(attack.score_sets(view, sets, known), want, atol=2e-5)
    few = Known(known.members[:3], known.nonmembers)
    np.testing.assert_allclose(attack.score_sets(view, sets, few)[:, :2], -own, atol=2e-5)
    assert fitted(Similarity(), view, known).score_sets(view, sets, known) is None
    with pytest.raises(NotFitted, match="call fit before score"):
        AscentStatic().score_sets(view, sets, known)
