"""SimCLR's NT-Xent against a double loop, closed forms, and batches of one image."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from fedmia.nets.smallnet import SmallNet
from fedmia.ssl.base import Recipe
from fedmia.ssl.simclr import SimCLR, SimCLRMethod, nt_xent

RECIPE = Recipe((0.5,) * 3, (0.25,) * 3)


def unit(rows: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return F.normalize(torch.randn(rows, 6, generator=generator, dtype=torch.float64), dim=1)


def pixels(count: int, seed: int) -> Tensor:
    return torch.rand(count, 3, 8, 8, generator=torch.Generator().manual_seed(seed))


def make(norm: str = "group", **options: object) -> SimCLRMethod:
    spec = SimCLR(**{"dim": 8, "bank": 6, **options})
    return spec.build(SmallNet(width=4, norm=norm).build(3, 8), RECIPE, torch.Generator())


def paper_loss(z1: Tensor, z2: Tensor, T: float) -> list[float]:
    """Algorithm 1: views 2k - 1 and 2k belong to image k; l(i, j) over all k != i."""
    views = [row.tolist() for pair in zip(z1, z2, strict=True) for row in pair]

    def s(i: int, j: int) -> float:
        return sum(a * b for a, b in zip(views[i], views[j], strict=True))

    def loss(i: int, j: int) -> float:
        others = [math.exp(s(i, k) / T) for k in range(len(views)) if k != i]
        return -math.log(math.exp(s(i, j) / T) / sum(others))

    return [(loss(i, i + 1) + loss(i + 1, i)) / 2 for i in range(0, len(views), 2)]


@pytest.mark.parametrize("T", [0.1, 1.0])
@pytest.mark.parametrize("B", [1, 2, 5])
def test_nt_xent__equals_the_papers_loop(B: int, T: float) -> None:
    z1, z2 = unit(B, 0), unit(B, 1)
    assert nt_xent(z1, z2, T).tolist() == pytest.approx(paper_loss(z1, z2, T), abs=1e-9)


@pytest.mark.parametrize("B", [1, 2, 7])
def test_nt_xent__constant_outputs_give_log_of_2b_minus_1(B: int) -> None:
    one = unit(1, 0).expand(B, 6)
    assert nt_xent(one, one, 0.07).tolist() == pytest.approx([math.log(2 * B - 1)] * B)


def test_nt_xent__orthogonal_images_closed_form() -> None:
    z = torch.eye(4, dtype=torch.float64)
    want = math.log(1 + 6 * math.exp(-2))
    assert nt_xent(z, z, 0.5).tolist() == pytest.approx([want] * 4)


@pytest.mark.parametrize("norm", ["group", "batch"])
def test_losses__are_nt_xent_of_the_outputs(norm: str) -> None:
    method, a, b = make(norm).eval(), pixels(4, 0), pixels(4, 1)
    z1, z2 = (F.normalize(method.encoder(x), dim=1) for x in (a, b))
    want = paper_loss(z1, z2, method.spec.temperature)
    assert method.losses(a, b).tolist() == pytest.approx(want, abs=1e-5)


@pytest.mark.parametrize("head_norm", ["none", "layer", "batch"])
def test_losses__one_image_has_no_negative_and_loss_0(head_norm: str) -> None:
    method = make(head_norm=head_norm)
    loss = method.losses(pixels(1, 0), pixels(1, 1))
    assert loss.tolist() == [0.0]
    loss.mean().backward()
    grads = [w.grad for w in method.trainable()]
    assert all(g is not None and not bool(g.any()) for g in grads)


def test_augment__the_cifar_recipe_and_its_options() -> None:
    recipe = SimCLR().augment
    assert (recipe.brightness, recipe.contrast, recipe.saturation) == (0.4, 0.4, 0.4)
    assert (recipe.hue, recipe.jitter_p, recipe.gray_p) == (0.1, 0.8, 0.2)
    assert (recipe.crop_min, recipe.flip, recipe.blur_p) == (0.08, 0.5, 0.0)
    imagenet = SimCLR(jitter=2.0, blur=0.5).augment  # Appendix A: strength 1
    assert (imagenet.brightness, imagenet.hue, imagenet.blur_p) == (0.8, 0.2, 0.5)


def test_build__two_layers_without_norm() -> None:
    names = [type(layer).__name__ for layer in make().encoder.head.children()]
    assert names == ["Linear", "ReLU", "Linear"]


def test_chance_loss__is_the_mean_loss_where_all_outputs_are_one() -> None:
    one = F.normalize(torch.ones(8, 16), dim=1)
    batches = [nt_xent(one[:size], one[:size], 0.5) for size in (8, 8, 4)]
    assert float(torch.cat(batches).mean()) == pytest.approx(SimCLR().chance_loss(20, 8), abs=1e-5)
