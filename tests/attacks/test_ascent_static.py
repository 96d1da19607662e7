"""Static ascent: Algorithm 1's losses, the climb, and the rise against a loop over batches."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from fedmia.attacks._tuning import choose_gentlest
from fedmia.attacks.ascent_static import (
    MOST,
    STEPS,
    AscentStatic,
    attack_losses,
    climb,
    read_losses,
)
from fedmia.attacks.base import Known, Scores
from fedmia.data.images import digests
from fedmia.options.errors import InputError
from fedmia.ssl.augment import Augment
from fedmia.ssl.moco import MomentumContrast
from fedmia.threat import WhiteBox

AUGMENT = Augment(hue=0.1)
CPU = torch.device("cpu")


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
    method, a, b = make_moco(), pixels(5, 0), pixels(5, 1)
    got = attack_losses(method, a, b, reading)
    want = [naive_loss(method, x1, x2, reading) for x1, x2 in zip(a, b, strict=True)]
    np.testing.assert_allclose(got.detach(), want, atol=1e-5)


@pytest.mark.parametrize("reading", ["training", "algorithm1"])
def test_attack_losses__one_forward_equals_two(make_moco: Any, reading: str) -> None:
    method, a, b = make_moco(), pixels(5, 0), pixels(5, 1)
    want = read_losses(method, method.encoder(a), method.encoder(b), reading)
    torch.testing.assert_close(attack_losses(method, a, b, reading), want, atol=1e-5, rtol=1e-5)


def test_attack_losses__algorithm1_needs_a_queue(make_moco: Any) -> None:
    method = make_moco()
    del method.bank
    with pytest.raises(InputError, match="'algorithm1' needs a method with a queue"):
        attack_losses(method, pixels(2, 0), pixels(2, 1), "algorithm1")


@pytest.mark.parametrize("reading", ["training", "algorithm1"])
def test_climb__raises_the_loss(make_moco: Any, reading: str) -> None:
    method, a, b = make_moco(), pixels(6, 0), pixels(6, 1)
    read = [float(attack_losses(method, a, b, reading).detach().mean())]
    for _ in range(5):
        climb(method, lambda: attack_losses(method, a, b, reading), 1, 0.02)
        read.append(float(attack_losses(method, a, b, reading).detach().mean()))
    assert all(later > earlier for earlier, later in zip(read, read[1:], strict=False))


def test_climb__is_plain_sgd_uphill(make_moco: Any) -> None:
    method, a, b = make_moco(), pixels(4, 0), pixels(4, 1)
    plain = copy.deepcopy(method)
    climb(method, lambda: attack_losses(method, a, b, "training"), 3, 0.1)
    for _ in range(3):
        plain.zero_grad()
        plain.probe_losses(a, b).mean().backward()
        for weight in plain.encoder.parameters():
            weight.data += 0.1 * weight.grad
    for got, want in zip(method.encoder.parameters(), plain.encoder.parameters(), strict=True):
        torch.testing.assert_close(got, want, atol=1e-6, rtol=1e-5)
    assert all(w.grad is None for w in method.parameters())
    for got, want in zip(method.key_encoder.parameters(), plain.key_encoder.parameters(),
                         strict=True):  # fmt: skip
        assert torch.equal(got, want)


def fitted(known: Known, view: WhiteBox, **options: Any) -> AscentStatic:
    attack = AscentStatic(**options)
    attack.fit(view, known, np.random.default_rng(0))
    return attack


@pytest.mark.parametrize("negatives", ["held", "queue"])
@pytest.mark.parametrize("reading", ["training", "algorithm1"])
def test_rise__parameters_equals_a_loop_over_batches(
    make_moco: Any,
    images: Tensor,
    known: Known,
    held: Tensor,
    serving: Tensor,
    reading: str,
    negatives: str,
) -> None:
    method = make_moco()
    view = WhiteBox(copy.deepcopy(method), AUGMENT, seed=0, device=CPU, held=held)
    # An untrained encoder gives all images nearly one key, where long steps jump over the top.
    lr = 0.01 if negatives == "held" else 0.05
    options = {"loss": reading, "negatives": negatives, "lr": lr}
    attack = fitted(known, view, steps=2, batch=8, pairs=2, **options)
    got = attack.by_step(view, images)
    if negatives == "held":  # keys of the released model: the bank stays while weights climb
        method.fill_bank(serving.float() / 255)

    names = digests(images.numpy())
    order = sorted(range(20), key=lambda i: names[i])
    views = view.view_pixels(images, 4)
    for start in (0, 8, 16):
        batch = order[start : start + 8]
        beside = [*batch, *order[: 8 - len(batch)]]  # the last four climb as one of eight
        model = copy.deepcopy(method)

        def losses(model: MomentumContrast = model, batch: list[int] = beside) -> Tensor:
            a = attack_losses(model, views[0, batch], views[2, batch], reading)
            b = attack_losses(model, views[1, batch], views[3, batch], reading)
            return (a + b) / 2

        for step in range(3):
            want = losses().detach().numpy()[: len(batch)]
            np.testing.assert_allclose(got[step, batch], want, atol=1e-4 if step else 1e-5)
            model.zero_grad()
            losses().mean().backward()
            for weight in model.encoder.parameters():
                weight.data += lr * weight.grad
    assert (np.diff(got.mean(axis=1)) > 0).all()
    np.testing.assert_array_equal(attack.score(view, images), got[0] - got[2])


@pytest.mark.parametrize("negatives", ["held", "queue"])
def test_short_batch__climbs_beside_images_that_the_attacker_holds(
    make_moco: Any, images: Tensor, known: Known, held: Tensor, serving: Tensor, negatives: str
) -> None:
    method = make_moco()
    view = WhiteBox(copy.deepcopy(method), AUGMENT, seed=0, device=CPU, held=held)
    attack = fitted(known, view, steps=2, batch=8, pairs=1, lr=0.01, negatives=negatives)
    got = attack.by_step(view, images[:3])
    # Of images of the second half the first serves as negatives: they cannot climb beside these.
    own = set(digests(serving.numpy())) if negatives == "held" else set()
    spare = torch.cat([held, known.both()[0]])
    free = sorted((n, i) for i, n in enumerate(digests(spare.numpy())) if n not in own)
    if negatives == "held":
        method.fill_bank(serving.float() / 255)
    views = view.view_pixels(torch.cat([images[:3], spare[[i for _, i in free[:5]]]]), 2)
    for step in range(3):
        want = attack_losses(method, views[0], views[1], "training")
        np.testing.assert_allclose(got[step], want[:3].detach().numpy(), atol=1e-4)
        climb(method, lambda: attack_losses(method, views[0], views[1], "training"), 1, 0.01)


def test_short_batch__is_as_strong_as_a_full_one(
    make_moco: Any, images: Tensor, known: Known, held: Tensor
) -> None:
    """Two images alone rise as they do among twenty; unfilled, their climb would be harder."""
    view = WhiteBox(make_moco(), AUGMENT, seed=0, device=CPU, held=held)
    attack = fitted(known, view, steps=3, batch=16, lr=0.003)
    whole = attack.score(view, images)
    few = np.concatenate([attack.score(view, images[i : i + 2]) for i in range(0, 20, 2)])
    assert few.mean() == pytest.approx(whole.mean(), rel=0.1)


def test_rise__pixels_is_equation_8(
    make_moco: Any, images: Tensor, known: Known, held: Tensor, serving: Tensor
) -> None:
    method = make_moco()
    view = WhiteBox(copy.deepcopy(method), AUGMENT, seed=0, device=CPU, held=held)
    method.fill_bank(serving.float() / 255)
    attack = fitted(known, view, steps=3, pairs=1, ascend="pixels", lr=0.2)
    before, *_, after = attack.by_step(view, images)
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


@pytest.mark.parametrize("ascend", ["parameters", "pixels"])
def test_rise__never_pools_batches(
    make_moco: Any, images: Tensor, known: Known, held: Tensor, ascend: str
) -> None:
    """Each batch climbs from the released model: what other batches hold changes nothing."""
    view = WhiteBox(make_moco(), AUGMENT, seed=0, device=CPU, held=held)
    attack = fitted(known, view, batch=5, ascend=ascend, steps=5, lr=0.1)
    names = digests(images.numpy())
    order = sorted(range(20), key=lambda i: names[i])
    whole = attack.score(view, images)
    third = order[10:15]
    np.testing.assert_allclose(attack.score(view, images[third]), whole[third], atol=1e-6)


@pytest.mark.parametrize("options", [{}, {"pairs": 3, "batch": 7}, {"ascend": "pixels"},
                                     {"negatives": "queue"}])  # fmt: skip
def test_queries__are_the_bank_then_each_step_and_after_of_all_that_climb(
    make_moco: Any, images: Tensor, known: Known, held: Tensor, options: dict[str, Any]
) -> None:
    view = WhiteBox(make_moco(), AUGMENT, seed=0, device=CPU, held=held)
    attack = fitted(known, view, steps=3, lr=0.01, **options)
    assert view.queries == 0
    attack.score(view, images)
    bank = 14 if attack.negatives == "held" else 0
    climbing = 20 if attack.ascend == "pixels" else -(-20 // attack.batch) * attack.batch
    assert view.queries == 2 * attack.pairs * climbing * 4 + bank


# -- auto


def climbs(**aucs: Sequence[float]) -> dict[float, Scores]:
    """Rate -> losses of 40 known images by step that give these AUCs, rising unless below 0."""
    results = {}
    for rate, values in aucs.items():
        rows = [np.zeros(40)]
        for value in values:
            told = round(abs(value) * 20)  # so many members rise less than all others
            fall = np.concatenate([np.full(told, 2.0), np.zeros(20 - told), np.ones(20)])
            rows.append(np.sign(value) * (3 - fall))
        results[float(rate.removeprefix("lr"))] = np.stack(rows)
    return results


TRUTH = np.repeat([1, 0], 20)


@pytest.mark.parametrize(
    ("aucs", "want"),
    [
        ({"lr1": (0.6, 0.6), "lr2": (0.6, 0.65)}, (1, 1.0)),  # none is better beyond the noise
        ({"lr1": (0.5, 0.5), "lr2": (0.5, 0.9)}, (2, 2.0)),
        ({"lr1": (0.5, 0.9), "lr2": (0.9, 0.9)}, (1, 2.0)),  # fewer steps come first
        ({"lr1": (0.6, 0.6), "lr2": (-0.9, -1.0)}, (1, 1.0)),  # who falls has not climbed
        ({"lr1": (-0.5, -0.5), "lr2": (-0.5, -0.1)}, (2, 2.0)),  # none has: the AUC alone tells
    ],
)
def test_gentlest__is_the_first_within_one_standard_error(
    aucs: dict[str, Sequence[float]], want: tuple[int, float]
) -> None:
    for reading in ("rise", "level"):  # losses begin at 0: both are one
        assert choose_gentlest(climbs(**aucs), (1, 2), TRUTH, reading) == want


def test_gentlest__tells_by_the_reading() -> None:
    """Before the climb half of the members have a low loss, which rises to that of others."""
    before = np.concatenate([np.zeros(10), np.full(10, 5.0), np.tile([0.0, 5.0], 10)])
    rise = before + np.repeat([1.0, 2.0], 20)
    level = np.repeat([10.0, 11.0], 20)
    both = {1.0: np.stack([before, rise]), 2.0: np.stack([before, level])}
    assert choose_gentlest(both, (1,), TRUTH, "rise") == (1, 1.0)
    assert choose_gentlest(both, (1,), TRUTH, "level") == (1, 2.0)


def test_gentlest__members_are_those_of_the_truth() -> None:
    both = climbs(lr1=(0.5,), lr2=(1.0,))
    assert choose_gentlest(both, (1,), TRUTH, "rise") == (1, 2.0)
    assert choose_gentlest(both, (1,), 1 - TRUTH, "rise") == (1, 1.0)


@pytest.mark.slow
def test_auto__tries_the_grid_as_the_images_under_test_climb(
    make_moco: Any, known: Known, held: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: dict[str, Any] = {}

    def noted(climbs: Any, steps: Any, truth: Any, reading: str) -> tuple[int, float]:
        calls.update(climbs=climbs, steps=steps, truth=truth, reading=reading)
        return 2, 0.01

    monkeypatch.setattr("fedmia.attacks.ascent_static.choose_gentlest", noted)
    # What the attacker holds has the known images in it, as in a run: so they climb the same.
    images, truth = known.both()
    both = torch.cat([held, images])
    view = WhiteBox(make_moco(), AUGMENT, seed=0, device=CPU, held=both)
    fitted(known, view, reading="level")
    assert calls["reading"] == "level"
    attack = fitted(known, view)
    assert calls["reading"] == "rise"
    assert attack.learns and attack.choices == {"steps": 2, "lr": 0.01}
    assert tuple(calls["climbs"]) == tuple(MOST) and calls["steps"] == STEPS
    np.testing.assert_array_equal(calls["truth"], truth)
    want = fitted(known, view, steps=STEPS[-1], lr=0.01).by_step(view, both)
    np.testing.assert_allclose(calls["climbs"][0.01], want[:, len(held) :], atol=1e-5)


@pytest.mark.slow
def test_auto__climbs_once_however_many_of_the_held_are_known(
    make_moco: Any, known: Known, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fits on parts of the known images, for the threshold, find the climbs of the whole."""
    view = WhiteBox(make_moco(), AUGMENT, seed=0, device=CPU, held=known.both()[0])
    fitted(known, view)
    queries, calls = view.queries, list[int]()
    monkeypatch.setattr("fedmia.attacks.ascent_static.climb", lambda *a: calls.append(1))
    fitted(Known(known.members[:6], known.nonmembers[:6]), view)
    assert not calls and view.queries == 2 * queries  # counted all the same


def test_score__climbs_once_however_often_the_same_images_are_asked_for(
    make_moco: Any, images: Tensor, known: Known, held: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fits behind a threshold score the same images; so does the twin without the climb."""
    view = WhiteBox(make_moco(), AUGMENT, seed=0, device=CPU, held=held)
    attack = fitted(known, view, steps=1, lr=0.01)
    want, queries = attack.score(view, images), view.queries
    calls = list[int]()
    monkeypatch.setattr("fedmia.attacks.ascent_static.climb", lambda *a: calls.append(1))
    np.testing.assert_array_equal(attack.score(view, images.flip(0)), want[::-1])
    attack.score_without(view, images)
    assert not calls and view.queries - queries == 2 * queries  # counted all the same
    fitted(known, view, steps=1, lr=0.02).score(view, images)
    assert calls


def test_score_without__is_minus_the_loss_that_any_attack_reads(
    make_moco: Any, images: Tensor, known: Known, held: Tensor
) -> None:
    view = WhiteBox(make_moco(), AUGMENT, seed=0, device=CPU, held=held)
    got = fitted(known, view, steps=1, lr=0.01, pairs=2).score_without(view, images)
    np.testing.assert_allclose(got, -view.losses(images, 2, "held").numpy(), atol=1e-5)


@pytest.mark.slow
def test_auto__one_of_the_two_may_be_given(make_moco: Any, known: Known, held: Tensor) -> None:
    view = WhiteBox(make_moco(), AUGMENT, seed=0, device=CPU, held=held)
    assert fitted(known, view, steps=3, batch=16).choices["steps"] == 3
    assert fitted(known, view, lr=0.02, batch=16).choices["lr"] == 0.02
    given = fitted(known, view, steps=3, lr=0.02)
    assert given.choices == {} and not given.learns


@pytest.mark.parametrize("value", [0.0, -1.0, "fast"])
def test_options__out_of_range(value: Any) -> None:
    with pytest.raises(InputError, match="AscentStatic.lr must be"):
        AscentStatic(lr=value)
