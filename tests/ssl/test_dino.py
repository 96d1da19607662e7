"""DINO against loops: its loss, the centre, the teacher, and prototypes of fixed length."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from fedmia.nets.smallnet import SmallNet
from fedmia.options.seeding import torch_rng
from fedmia.ssl._prototypes import Prototypes, cross_entropy, freeze_for
from fedmia.ssl.base import Recipe
from fedmia.ssl.dino import DINO, DINOMethod
from fedmia.ssl.train import Train, make_optimizer


def make(seed: int = 0, images: int | None = None, **options: Any) -> DINOMethod:
    spec = DINO(**{"dim": 8, "hidden": 12, "prototypes": 6, "head_norm": "none", **options})
    recipe = Recipe((0.5,) * 3, (0.25,) * 3, images)
    return spec.build(SmallNet(width=4).build(3, 8), recipe, torch_rng(seed, "test"))


def pixels(count: int, seed: int) -> Tensor:
    return torch.rand(count, 3, 8, 8, generator=torch.Generator().manual_seed(seed))


def apart(method: DINOMethod) -> DINOMethod:
    """`method` with another teacher and a centre that is not zero."""
    with torch.no_grad():
        for weight in (*method.key_encoder.parameters(), *method.key_prototypes.parameters()):
            weight.mul_(1.3).add_(0.02)
        method.centre += torch.linspace(-0.2, 0.2, len(method.centre))
    return method


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[n], b[n]) for n in a)


def softmax(values: list[float]) -> list[float]:
    powers = [math.exp(v) for v in values]
    return [p / sum(powers) for p in powers]


def by_loop(teacher: Tensor, student: Tensor, centre: Tensor) -> float:
    """H(P_t, P_s) of one image (Eq. 1 and 2), temperatures 0.04 and 0.1."""
    rows = zip(teacher.tolist(), centre.tolist(), strict=True)
    q = softmax([(t - c) / 0.04 for t, c in rows])
    p = softmax([s / 0.1 for s in student.tolist()])
    return -sum(a * math.log(b) for a, b in zip(q, p, strict=True))


def test_losses__naive_twin() -> None:
    method, a, b = apart(make()), pixels(3, 0), pixels(3, 1)
    with torch.no_grad():
        losses = method.losses(a, b).tolist()

        def scores(encoder: Any, prototypes: Prototypes, image: Tensor) -> Tensor:
            z = F.normalize(encoder(image[None])[0].double(), dim=0)
            return torch.stack([z @ F.normalize(w.double(), dim=0) for w in prototypes.weight])

        for i, got in enumerate(losses):
            want = 0.0
            for seen, other in ((a[i], b[i]), (b[i], a[i])):
                t = scores(method.key_encoder, method.key_prototypes, seen)
                s = scores(method.encoder, method.prototypes, other)
                want += by_loop(t, s, method.centre) / 2
            assert got == pytest.approx(want, abs=1e-4)


def test_cross_entropy__of_uniform_scores_is_log_k() -> None:
    targets = torch.softmax(torch.randn(3, 7, generator=torch.Generator().manual_seed(0)), dim=1)
    got = cross_entropy(targets, torch.zeros(3, 7), 0.1)
    torch.testing.assert_close(got, torch.full((3,), math.log(7)))


def test_losses__without_batch_norm_are_per_image_given_the_centre() -> None:
    method, a, b = apart(make()), pixels(5, 0), pixels(5, 1)
    alone = torch.cat([method.losses(a[i : i + 1], b[i : i + 1]) for i in range(5)])
    torch.testing.assert_close(method.losses(a, b), alone, atol=1e-4, rtol=0)
    method.after_step()  # the centre has moved, and with it every image's loss
    assert not torch.allclose(method.losses(a, b), alone, atol=1e-4)


@pytest.mark.parametrize("count", [1, 2])
def test_losses__of_the_smallest_batches_with_batch_norm(count: int) -> None:
    method = make(head_norm="batch").train()
    losses = method.losses(pixels(count, 0), pixels(count, 1))
    losses.mean().backward()
    method.after_step()
    assert losses.shape == (count,) and bool(torch.isfinite(losses).all())
    assert bool(torch.isfinite(method.centre).all()) and DINO().coupled is True
    assert not any(DINO(head_norm=norm).coupled for norm in ("layer", "none"))


def test_losses__gradient_reaches_student_and_prototypes_only() -> None:
    method = apart(make())
    method.losses(pixels(4, 0), pixels(4, 1)).mean().backward()
    assert all(w.grad is not None and bool(w.grad.any()) for w in method.trainable())
    frozen = (*method.key_encoder.parameters(), *method.key_prototypes.parameters())
    assert all(w.grad is None for w in frozen)


@pytest.mark.parametrize("m", [0.0, 0.9, 1.0])
def test_after_step__centre_is_the_moving_mean_of_both_views_teacher_scores(m: float) -> None:
    method, a, b = apart(make(centre_momentum=m)), pixels(3, 0), pixels(3, 1)
    before = method.centre.clone()
    rows = [method.key_prototypes(method.key_encoder(x)) for x in (a, b)]
    mean = [sum(float(r[i, k]) for r in rows for i in range(3)) / 6 for k in range(6)]
    method.losses(a, b)
    assert torch.equal(method.centre, before)
    method.after_step()
    torch.testing.assert_close(method.centre, m * before + (1 - m) * torch.tensor(mean))
    after = method.centre.clone()
    method.after_step()  # without new losses the centre stays
    assert torch.equal(method.centre, after)


def test_after_step__momentum_update_of_the_teacher_and_its_prototypes() -> None:
    method = apart(make(momentum=0.3))
    old = [w.clone() for w in method._keys]
    method.after_step()
    student = [*method.encoder.parameters(), method.prototypes.weight]
    teacher = [*method.key_encoder.parameters(), method.key_prototypes.weight]
    for k, q, got in zip(old, student, teacher, strict=True):
        torch.testing.assert_close(got, 0.3 * k + 0.7 * q, atol=1e-6, rtol=1e-6)


def test_prototypes__length_plays_no_part_and_is_one_after_a_step() -> None:
    prototypes = Prototypes(5, 8, 0, torch.Generator().manual_seed(0))
    z = torch.randn(3, 8, generator=torch.Generator().manual_seed(1))
    before = prototypes(z)
    with torch.no_grad():
        prototypes.weight.mul_(0.3)
    torch.testing.assert_close(prototypes(2 * z), before)
    assert prototypes(z.double()).dtype == torch.float64
    prototypes.after_step(3)
    torch.testing.assert_close(prototypes.weight.norm(dim=1), torch.ones(5))
    torch.testing.assert_close(prototypes(z), before)


def test_freeze__prototypes_stay_for_an_epoch_while_the_encoder_trains() -> None:
    method = make(images=8, freeze_epochs=1.0)
    train = Train(weight_decay=0.1, lr=0.1)
    optimizer = make_optimizer(method, train)
    start = method.shared_state()
    for step in range(3):  # two steps of four images are the epoch
        losses = method.losses(pixels(4, 2 * step), pixels(4, 2 * step + 1))
        optimizer.zero_grad()
        losses.mean().backward()
        optimizer.step()
        method.after_step()
        still = torch.equal(method.prototypes.weight, start["prototypes.weight"])
        assert still == (step < 2)
    assert not torch.equal(
        method.shared_state()["backbone.layer1.0.weight"], start["backbone.layer1.0.weight"]
    )


def test_freeze__does_not_change_the_loss_and_is_off_without_a_number_of_images() -> None:
    a, b = pixels(4, 0), pixels(4, 1)
    frozen, free = make(images=8), make(images=None)
    torch.testing.assert_close(frozen.losses(a, b), free.losses(a, b))
    assert (freeze_for(1.5, 8), freeze_for(1.0, None), freeze_for(0.0, 8)) == (12, 0, 0)


def test_output_losses__naive_twin_and_state_untouched() -> None:
    method = apart(make())
    z1, z2 = pixels(4, 0).flatten(1)[:, :8] - 0.5, pixels(4, 1).flatten(1)[:, :8] - 0.5
    before = method.state_dict()
    got = method.output_losses(z1, z2)
    s1, s2 = method.prototypes(z1), method.prototypes(z2)
    for i in range(4):
        want = (by_loop(s1[i], s2[i], method.centre) + by_loop(s2[i], s1[i], method.centre)) / 2
        assert float(got[i].detach()) == pytest.approx(want, abs=1e-4)
    assert got.requires_grad and same(before, method.state_dict())
    torch.testing.assert_close(got[1:2], method.output_losses(z1[1:2], z2[1:2]))
    assert method.output_losses(z1.double(), z2.double()).dtype == torch.float64


def test_fill_bank__centre_becomes_the_mean_score_of_the_images() -> None:
    method, x = apart(make()), pixels(5, 0)
    method.fill_bank(x)
    torch.testing.assert_close(method.centre, method.prototypes(method.encoder(x)).mean(dim=0))
    assert not method.centre.requires_grad


def test_shared_state__has_the_prototypes_and_the_rest_stays() -> None:
    method = make()
    shared = set(method.shared_state())
    assert shared == {n for n, _ in method.encoder.named_parameters()} | {"prototypes.weight"}
    bank = {n for n in method.local_state() if not n.startswith("key.")}
    assert bank == {"centre"}


def test_local_state__round_trip_and_the_centre_alone() -> None:
    method, fresh, observer = apart(make(images=8)), make(seed=1, images=8), make(seed=1)
    method.losses(pixels(5, 0), pixels(5, 1))
    method.after_step()
    fresh.load_local(method.local_state())
    assert same(fresh.local_state(), method.local_state()) and fresh.prototypes.seen == 5
    teacher = observer.key_encoder.state_dict()
    observer.load_local({"centre": method.centre})
    assert torch.equal(observer.centre, method.centre)
    assert same(observer.key_encoder.state_dict(), teacher)


@pytest.mark.parametrize("key", ["keep", "reset"])
def test_begin_round__keeps_or_resets_the_teacher_but_not_the_centre(key: str) -> None:
    method = apart(make(key=key))
    before = method.local_state()
    method.begin_round()
    assert same(method.local_state(), before) == (key == "keep")
    method.begin_first_round()
    assert torch.equal(method.key_prototypes.weight, method.prototypes.weight)
    assert same(method.key_encoder.state_dict(), method.encoder.state_dict())
    assert torch.equal(method.centre, before["centre"])


def test_augment__is_the_mean_of_the_papers_two_recipes() -> None:
    recipe = DINO().augment
    jitter = (recipe.brightness, recipe.contrast, recipe.saturation, recipe.hue)
    assert jitter == (0.4, 0.4, 0.2, 0.1) and recipe.crop_min == 0.14
    assert (recipe.blur_p, recipe.solarize_p) == (0.55, 0.1)
