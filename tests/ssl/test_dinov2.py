"""DINOv2 against loops over patches and outputs, KoLeo of known points, and its centres."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from fedmia.ssl.dinov2 import DINOv2, DINOv2Method, koleo
from fedmia.ssl.ibot import IBOT
from tests.options import option_fields
from tests.ssl import methods
from tests.ssl.methods import PATCHED, pixels
from tests.ssl.test_ibot import rows_of, scores_of
from tests.ssl.test_swav import by_loop

SMALL = {"dim": 8, "hidden": 12, "prototypes": 6, "head_norm": "none"}


def build(pool: str = "cls", **options: Any) -> DINOv2Method:
    spec = DINOv2(**{**SMALL, "unmasked": 0.0, **options})
    return methods.build(spec, net=replace(PATCHED, pool=pool))


def naive_koleo(rows: list[list[float]]) -> list[float]:
    """-log of the distance of each row, at length 1, to the nearest other."""
    unit = [[v / math.hypot(*row) for v in row] for row in rows]
    return [
        -math.log(min(math.dist(one, two) for j, two in enumerate(unit) if j != i))
        for i, one in enumerate(unit)
    ]


def test_koleo__of_known_points() -> None:
    """A right angle is sqrt(2) apart, opposite ends are 2; lengths play no part."""
    right = koleo(torch.tensor([[3.0, 0.0], [0.0, 0.5]]))
    assert right.tolist() == pytest.approx([-math.log(2) / 2] * 2)
    three = koleo(torch.tensor([[1.0, 0.0], [-2.0, 0.0], [0.0, 1.0]]))
    assert three.tolist() == pytest.approx([-math.log(2) / 2] * 3)
    assert koleo(torch.tensor([[1.0, 0.0], [-2.0, 0.0]])).tolist() == pytest.approx(
        [-math.log(2)] * 2
    )


@pytest.mark.parametrize("count", [2, 5, 40])  # from 26 on torch would take products
def test_koleo__equals_loops_also_of_near_vectors(count: int) -> None:
    generator = torch.Generator().manual_seed(count)
    x = 1 + 1e-3 * torch.randn(count, 6, generator=generator)
    assert koleo(x).tolist() == pytest.approx(naive_koleo(x.tolist()), abs=2e-3)


def test_koleo__of_equal_vectors_has_a_finite_gradient() -> None:
    x = torch.ones(3, 4).mul(torch.tensor([[1.0], [1.0], [-1.0]])).requires_grad_()
    koleo(x).sum().backward()
    assert x.grad is not None and bool(x.grad.isfinite().all())


def test_targets__sum_to_one_and_use_every_prototype_alike() -> None:
    """Also for scores that all prefer one prototype, over both views and all patches."""
    method, generator = build(), torch.Generator().manual_seed(0)
    scores = 0.1 * torch.rand(2, 20, 16, 6, generator=generator)
    scores[..., 0] += 0.8
    one, two = method._targets(list(scores), method.patch_centre, 0.07)
    both = torch.stack([one, two])
    torch.testing.assert_close(both.sum(dim=-1), torch.ones(2, 20, 16))
    share = both.mean(dim=(0, 1, 2))
    torch.testing.assert_close(share, torch.full((6,), 1 / 6), atol=0.01, rtol=0)
    want = torch.tensor(by_loop(scores.flatten(0, 2), 0.07, 3))
    torch.testing.assert_close(both.flatten(0, 2), want, atol=1e-4, rtol=1e-3)


@torch.no_grad()
@pytest.mark.parametrize(("shared", "pool"), [(True, "cls"), (False, "mean")])
def test_losses__naive_twin(shared: bool, pool: str) -> None:
    """L_DINO + L_iBOT + KoLeo of Sec. 4, one image at a time, patches in loops."""
    method = methods.apart(build(shared_head=shared, pool=pool, koleo=0.3))
    method.mask_token.weight.add_(0.5)
    views = pixels(3, 0), pixels(3, 1)
    gone = [method.hidden(x).tolist() for x in views]
    first, last = slice(0, 6), slice(-6, None)
    teacher, student, spread = [], [], []
    for x, masks in zip(views, gone, strict=True):
        key, query = method.key_encoder, method.encoder
        whole = [rows_of(method, key, image, [False] * 16, pool) for image in x]
        masked = [
            rows_of(method, query, image, mask, pool) for image, mask in zip(x, masks, strict=True)
        ]
        teacher.append([scores_of(key, method.key_prototypes, rows) for rows in whole])
        student.append([scores_of(query, method.prototypes, rows) for rows in masked])
        spread.append(naive_koleo([rows[0].tolist() for rows in masked]))
    of_class = torch.stack([t[0][first] for view in teacher for t in view])
    of_patches = torch.stack([s[last] for view in teacher for t in view for s in t[1:]])
    class_targets = by_loop(of_class.double(), 0.04, 3)
    patch_targets = by_loop(of_patches.double(), 0.07, 3)

    def cross(target: list[float], scores: Any) -> float:
        powers = [math.exp(s / 0.1) for s in scores.tolist()]
        return -sum(q * math.log(p / sum(powers)) for q, p in zip(target, powers, strict=True))

    for i, got in enumerate(method.losses(*views).tolist()):
        want = 0.3 * (spread[0][i] + spread[1][i])
        for u in (0, 1):
            want += cross(class_targets[3 * u + i], student[1 - u][i][0][first]) / 2
            terms = [
                cross(patch_targets[16 * (3 * u + i) + p], student[u][i][1 + p][last])
                for p in range(16)
                if gone[u][i][p]
            ]
            assert 0 < len(terms) < 16
            want += sum(terms) / len(terms) / 2
        assert got == pytest.approx(want, rel=1e-3)


@torch.no_grad()
def test_losses__of_one_image_have_no_koleo_and_no_losses_rest_on_the_centres() -> None:
    a, b = pixels(4, 0), pixels(4, 1)
    spread, plain = (methods.apart(build(koleo=weight)) for weight in (0.5, 0.0))
    assert torch.equal(spread.losses(a[:1], b[:1]), plain.losses(a[:1], b[:1]))
    want = spread.losses(a, b)
    assert not torch.allclose(want, plain.losses(a, b))
    spread.centre += torch.linspace(-0.2, 0.2, 6)
    spread.patch_centre += torch.linspace(0.3, -0.1, 6)
    assert torch.equal(spread.losses(a, b), want) and spread.remembers == ""


@torch.no_grad()
def test_output_losses__are_those_of_ibot_whatever_is_read_together() -> None:
    method, z = build(), F.normalize(pixels(4, 0).flatten(1)[:, :8] - 0.5, dim=1)
    other = methods.build(IBOT(**SMALL, shared_head=False), net=PATCHED)
    other.load_shared(method.shared_state())
    for one in (method, other):
        one.fill_bank(pixels(6, 3))
    assert bool(method.centre.any())
    want = method.output_losses(z, z.flip(0))
    torch.testing.assert_close(other.output_losses(z, z.flip(0)), want)
    torch.testing.assert_close(method.output_losses(z[:1], z[-1:]), want[:1])


def test_heads__are_untied_by_default() -> None:
    assert build().prototypes.weight.shape == (12, 8)


def test_options__have_no_momentum_of_a_centre_that_no_step_rests_on() -> None:
    own, others = ({f.name for f, _ in option_fields(spec)} for spec in (DINOv2, IBOT))
    assert others - own == {"centre_momentum"} and own - others == {"koleo"}


def test_koleo__in_training_keeps_the_class_tokens_apart() -> None:
    """The same few steps with and without it, on views that stay."""
    a, b = pixels(8, 0), pixels(8, 1)
    ends = []
    for weight in (0.0, 0.5):
        method = build(koleo=weight)
        sgd = torch.optim.SGD(method.trainable(), lr=0.05)
        losses = []
        for _ in range(15):
            sgd.zero_grad()
            loss = method.losses(a, b).mean()
            loss.backward()
            sgd.step()
            method.after_step()
            losses.append(float(loss.detach()))
        assert losses[-1] < losses[0] and math.isfinite(losses[-1])
        with torch.no_grad():
            tokens = method.encoder.backbone(method.encoder.normalise(a))
        ends.append(float(koleo(tokens).mean()))
    assert ends[1] < ends[0] - 0.1
