"""BYOL against loops, its target's moving average, and what leaves the client."""

from __future__ import annotations

import math
import operator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fedmia.nets.smallnet import SmallNet
from fedmia.options.seeding import torch_rng
from fedmia.ssl._heads import BatchNorm
from fedmia.ssl.base import Recipe
from fedmia.ssl.byol import BYOL, BYOLMethod, distance


def make(seed: int = 0, **options: Any) -> BYOLMethod:
    spec = BYOL(**{"dim": 8, "hidden": 12, "head_norm": "none", **options})
    return spec.build(
        SmallNet(width=4).build(3, 8), Recipe((0.5,) * 3, (0.25,) * 3), torch_rng(seed, "test")
    )


def pixels(count: int, seed: int) -> Tensor:
    return torch.rand(count, 3, 8, 8, generator=torch.Generator().manual_seed(seed))


def apart(method: BYOLMethod) -> BYOLMethod:
    """`method` with a target that differs from the online encoder."""
    with torch.no_grad():
        for weight in method.key_encoder.parameters():
            weight.mul_(1.3).add_(0.01)
    return method


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[n], b[n]) for n in a)


def loop_distance(p: Tensor, z: Tensor) -> float:
    """||p/|p| - z/|z| ||^2 of two vectors, number by number."""
    a, b = p.double().tolist(), z.double().tolist()
    la, lb = (math.sqrt(sum(map(operator.mul, v, v))) for v in (a, b))
    return sum((x / la - y / lb) ** 2 for x, y in zip(a, b, strict=True))


def test_losses__naive_twin() -> None:
    method, a, b = apart(make()), pixels(3, 0), pixels(3, 1)
    assert method.predictor is not None
    with torch.no_grad():
        for i, got in enumerate(method.losses(a, b).tolist()):
            want = 0.0
            for online, target in ((a[i : i + 1], b[i : i + 1]), (b[i : i + 1], a[i : i + 1])):
                p = method.predictor(method.encoder(online))[0]
                want += loop_distance(p, method.key_encoder(target)[0])
            assert got == pytest.approx(want, abs=1e-5)


def test_distance__is_least_for_one_direction_and_largest_for_the_opposite() -> None:
    z = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(distance(z, 3 * z), torch.zeros(4), atol=1e-6, rtol=0)
    torch.testing.assert_close(distance(z, -z), torch.full((4,), 4.0))


def test_losses__identical_views_and_a_predictor_that_does_nothing_give_zero() -> None:
    method, x = make(), pixels(4, 0)
    method.predictor = nn.Identity()
    torch.testing.assert_close(method.losses(x, x), torch.zeros(4), atol=1e-6, rtol=0)
    assert float(method.losses(x, pixels(4, 1)).detach().min()) > 1e-4


def test_output_losses__are_symmetric_least_for_equal_outputs_and_differentiable() -> None:
    method = make()
    z1, z2 = pixels(4, 0).flatten(1)[:, :8].double(), pixels(4, 1).flatten(1)[:, :8].double()
    got = method.output_losses(z1, z2)
    assert got.tolist() == pytest.approx(
        [loop_distance(p, z) for p, z in zip(z1, z2, strict=True)], abs=1e-9
    )
    torch.testing.assert_close(got, method.output_losses(z2, z1))
    assert float(method.output_losses(z1, z1).abs().max()) < 1e-9
    assert method.probe_losses(pixels(4, 0), pixels(4, 1)).requires_grad


def test_losses__gradient_reaches_encoder_and_predictor_only() -> None:
    method = make()
    method.losses(pixels(4, 0), pixels(4, 1)).mean().backward()
    assert all(w.grad is not None and bool(w.grad.any()) for w in method.trainable())
    assert all(w.grad is None for w in method.key_encoder.parameters())


@pytest.mark.parametrize("norm", ["none", "layer"])
def test_losses__without_batch_norm_are_per_image(norm: str) -> None:
    method, a, b = apart(make(head_norm=norm)), pixels(5, 0), pixels(5, 1)
    alone = torch.cat([method.losses(a[i : i + 1], b[i : i + 1]) for i in range(5)])
    torch.testing.assert_close(method.losses(a, b), alone, atol=1e-5, rtol=0)


def test_losses__with_batch_norm_are_coupled_as_the_spec_says() -> None:
    method, a, b = apart(make(head_norm="batch")), pixels(5, 0), pixels(5, 1)
    whole = method.losses(a, b)[:3].detach()
    assert not torch.allclose(whole, method.losses(a[:3], b[:3]).detach(), atol=1e-3)
    assert BYOL().coupled is True and BYOL().head_norm == "batch"
    assert not any(BYOL(head_norm=norm).coupled for norm in ("layer", "none"))


@pytest.mark.parametrize("count", [1, 2])
def test_losses__of_the_smallest_batches_with_batch_norm(count: int) -> None:
    method = make(head_norm="batch").train()
    losses = method.losses(pixels(count, 0), pixels(count, 1))
    losses.mean().backward()
    assert losses.shape == (count,) and bool(torch.isfinite(losses).all())


def test_batch_norm__of_one_image_reads_the_running_statistics() -> None:
    mine, plain = BatchNorm(4), nn.BatchNorm1d(4)
    x = torch.randn(6, 4, generator=torch.Generator().manual_seed(0)) * 3 + 1
    torch.testing.assert_close(mine(x), plain(x))
    before = {n: t.clone() for n, t in mine.state_dict().items()}
    torch.testing.assert_close(mine(x[:1]), plain.eval()(x[:1]))
    assert same(mine.state_dict(), before)


@pytest.mark.parametrize("m", [0.0, 0.3, 1.0])
def test_after_step__momentum_update_of_the_target(m: float) -> None:
    method = apart(make(momentum=m))
    targets = [w.clone() for w in method.key_encoder.parameters()]
    method.after_step()
    for old, online, got in zip(
        targets, method.encoder.parameters(), method.key_encoder.parameters(), strict=True
    ):
        torch.testing.assert_close(got, m * old + (1 - m) * online, atol=1e-6, rtol=1e-6)


def test_shared_state__is_encoder_and_predictor_and_the_target_stays() -> None:
    method = make()
    names = set(method.shared_state())
    assert method.predictor is not None
    predictor = {f"predictor.{n}" for n, _ in method.predictor.named_parameters()}
    assert names == {n for n, _ in method.encoder.named_parameters()} | predictor
    assert all(n.startswith("key.") for n in method.local_state())
    other = make(seed=1)
    other.load_shared(method.shared_state())
    assert same(other.shared_state(), method.shared_state())


def test_local_state__round_trip() -> None:
    method, fresh = apart(make()), make(seed=1)
    fresh.load_local(method.local_state())
    assert same(fresh.local_state(), method.local_state())
    fresh.after_step()
    assert not same(fresh.local_state(), method.local_state())


@pytest.mark.parametrize("key", ["keep", "reset"])
def test_begin_round__keeps_or_resets_the_target(key: str) -> None:
    method = apart(make(key=key))
    before = method.local_state()
    method.begin_round()
    assert same(method.local_state(), before) == (key == "keep")
    method.begin_first_round()
    assert same(method.key_encoder.state_dict(), method.encoder.state_dict())


def test_fill_bank__changes_nothing_as_there_are_no_negatives() -> None:
    method = make()
    before = {n: t.clone() for n, t in method.state_dict().items()}
    method.fill_bank(pixels(5, 0))
    assert same(method.state_dict(), before)


def test_augment__is_the_mean_of_the_papers_two_recipes() -> None:
    recipe = BYOL().augment
    jitter = (recipe.brightness, recipe.contrast, recipe.saturation, recipe.hue)
    assert jitter == (0.4, 0.4, 0.2, 0.1) and recipe.crop_min == 0.08
    assert (recipe.blur_p, recipe.solarize_p) == (0.55, 0.1)
    given = BYOL(crop_min=0.9, flip=0.0, jitter=0.5).augment
    assert (given.crop_min, given.flip, given.hue) == (0.9, 0.0, 0.05)
