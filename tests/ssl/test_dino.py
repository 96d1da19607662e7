"""DINO against loops: its loss, the centre, the teacher, and prototypes of fixed length."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from fedmia.ssl._prototypes import Prototypes, freeze_for
from fedmia.ssl.dino import DINO, DINOMethod
from fedmia.ssl.train import Train, make_optimizer
from tests.ssl import methods
from tests.ssl.methods import build, pixels, same


def make(images: int | None = None, **options: Any) -> DINOMethod:
    small = {"dim": 8, "hidden": 12, "prototypes": 6, "head_norm": "none", **options}
    return build(DINO(**small), images=images)


def apart(method: DINOMethod) -> DINOMethod:
    """`method` with another teacher and a centre that is not zero."""
    method.centre += torch.linspace(-0.2, 0.2, len(method.centre))
    return methods.apart(method)


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


def test_load_local__of_the_centre_alone_leaves_the_teacher() -> None:
    method, observer = apart(make()), make()
    teacher = observer.key_encoder.state_dict()
    observer.load_local({"centre": method.centre})
    assert torch.equal(observer.centre, method.centre)
    assert same(observer.key_encoder.state_dict(), teacher)
