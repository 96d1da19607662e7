"""SAIM against loops over tokens and pixels, and who sees whom."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from fedmia.nets.smallnet import SmallNet
from fedmia.nets.vit import ViTTiny
from fedmia.options.errors import InputError
from fedmia.options.seeding import torch_rng
from fedmia.ssl.base import Recipe
from fedmia.ssl.saim import SAIM, AutoregressiveModel, smoothed
from tests.ssl.per_sample import check_per_sample_gradients

RECIPE = Recipe((0.5, 0.4, 0.6), (0.25, 0.2, 0.3))


def build(depth: int = 4, **options: Any) -> AutoregressiveModel:
    """16 patches of 2x2 on 8x8 pixels."""
    backbone = ViTTiny(width=8, heads=2, depth=depth, patch=2).build(3, 8)
    method = SAIM(**{"bank": 6, **options}).build(backbone, RECIPE, torch_rng(0, "saim"))
    assert isinstance(method, AutoregressiveModel)
    return method


def pixels(count: int, seed: int = 0) -> Tensor:
    return torch.rand(count, 3, 8, 8, generator=torch.Generator().manual_seed(seed))


def patch_of(image: Tensor, p: int) -> Tensor:
    return image[:, 2 * (p // 4) :][:, :2, 2 * (p % 4) :][:, :, :2]


def mix(q: Tensor, keys: list[Tensor], values: list[Tensor], heads: int) -> Tensor:
    """Attention of one query (D,) over some tokens, head by head."""
    d, out = len(q) // heads, []
    for cut in (slice(h * d, (h + 1) * d) for h in range(heads)):
        scores = torch.stack([q[cut] @ k[cut] / math.sqrt(d) for k in keys]).softmax(0)
        out.append(sum(s * v[cut] for s, v in zip(scores, values, strict=True)))
    return torch.cat(out)


def encoder_block(block: Any, tokens: dict[int, Tensor], order: list[int]) -> dict[int, Tensor]:
    """Each token after itself and those before it in `order`; -1 is the class token, the first."""
    line, after = [-1, *order], {}
    parts = {i: block.attn.qkv(block.norm1(tokens[i])).split(8) for i in line}
    for place, i in enumerate(line):
        context = line[: place + 1]
        mixed = mix(parts[i][0], [parts[j][1] for j in context], [parts[j][2] for j in context], 2)
        x = tokens[i] + block.attn.proj(mixed)
        after[i] = x + block.mlp(block.norm2(x))
    return after


def query_block(
    block: Any, queries: dict[int, Tensor], tokens: dict[int, Tensor], order: list[int]
) -> dict[int, Tensor]:
    """Each query after the class token and the patches strictly before it."""
    line, after = [-1, *order], {}
    pairs = {j: block.kv(block.norm1(tokens[j])).split(8) for j in line}
    for place, i in enumerate(order):
        context, q = line[: place + 1], block.q(block.norm1(queries[i]))
        mixed = mix(q, [pairs[j][0] for j in context], [pairs[j][1] for j in context], 2)
        x = queries[i] + block.proj(mixed)
        after[i] = x + block.mlp(block.norm2(x))
    return after


def blur_loop(image: Tensor, sigma: float) -> Tensor:
    """Every pixel the weighted mean of those within 4 sigma; beyond the border there are zeros."""
    reach, out = round(4 * sigma), torch.zeros_like(image)
    taps = [
        (a, b, math.exp(-(a * a + b * b) / (2 * sigma**2)))
        for a in range(-reach, reach + 1)
        for b in range(-reach, reach + 1)
    ]
    for i in range(8):
        for j in range(8):
            for a, b, weight in taps:
                if 0 <= i + a < 8 and 0 <= j + b < 8:
                    out[:, i, j] += image[:, i + a, j + b] * weight
    return out / sum(weight for *_, weight in taps)


@torch.no_grad()
@pytest.mark.parametrize(
    ("depth", "decoder_depth", "smoothing", "norm_pix"), [(4, 4, 1.0, True), (4, 2, 0.0, False)]
)
def test_losses__naive_twin(
    depth: int, decoder_depth: int, smoothing: float, norm_pix: bool
) -> None:
    own = {"decoder_depth": decoder_depth, "smoothing": smoothing, "norm_pix": norm_pix}
    method, x = build(depth, **own), pixels(1)
    vit, decoder = method.encoder.backbone, method.decoder
    orders, got = method.order(x, method.seed).tolist(), method.losses(x, x)
    blocks = [block for name in vit.layers for block in vit.get_submodule(name)]
    for image, order, loss in zip(x, orders, got.tolist(), strict=True):
        plain = method.encoder.normalise(image[None])[0]
        places = vit.positions.weight.flatten(1, 2)[0]
        cuts = [patch_of(plain, p).permute(1, 2, 0).flatten() for p in range(16)]
        tokens = {p: vit.embed(cut) + places[p] for p, cut in enumerate(cuts)}
        tokens[-1], queries = vit.cls.weight[0, 0], dict(enumerate(places))
        for i, block in enumerate(blocks, 1):
            tokens = encoder_block(block, tokens, order)
            if i % (depth // decoder_depth) == 0:
                at = i * decoder_depth // depth - 1
                queries = query_block(decoder.blocks[at], queries, tokens, order)
        errors, soft = [], blur_loop(plain, smoothing) if smoothing else plain
        for p in range(16):
            target = patch_of(soft, p).permute(1, 2, 0).flatten()
            if norm_pix:
                target = (target - target.mean()) / (target.var() + 1e-6).sqrt()
            errors += (decoder.predict(vit.norm(queries[p])) - target).square().tolist()
        assert loss == pytest.approx(sum(errors) / len(errors), rel=1e-4)


def test_losses__a_patch_is_predicted_from_those_before_it_alone() -> None:
    """No pixel of itself or of later patches moves the prediction, every earlier patch does."""
    method, x = build(), pixels(1).requires_grad_()
    order, caught = method.order(x.detach(), 1), list[Tensor]()
    method.decoder.predict.register_forward_hook(lambda module, args, out: caught.append(out))
    method.reconstruction(x, order)
    line = order[0].tolist()
    for place, p in enumerate(line):
        (gradient,) = torch.autograd.grad(caught[0][0, p].square().sum(), x, retain_graph=True)
        moved = [bool(patch_of(gradient[0], q).abs().sum() > 0) for q in line]
        assert moved == [at < place for at in range(16)]


@torch.no_grad()
def test_losses__of_a_prediction_of_zeros_is_what_normalised_patches_have() -> None:
    """12 pixels of mean 0 and variance 1 (over 11) in each patch: 11 / 12."""
    method, x = build(smoothing=0.0), pixels(3)
    for weight in method.decoder.predict[-1].parameters():
        weight.zero_()
    torch.testing.assert_close(method.losses(x, x), torch.full((3,), 11 / 12), atol=1e-4, rtol=0)


def test_losses__are_per_image_and_look_at_the_first_view_only() -> None:
    method, a, b = build(), pixels(5, 0), pixels(5, 1)
    whole = method.losses(a, b)
    alone = torch.cat([method.losses(a[i : i + 1], b[i : i + 1]) for i in range(5)])
    torch.testing.assert_close(whole, alone, atol=1e-5, rtol=0)
    assert torch.equal(method.losses(a, a), whole)
    method.after_step()
    assert not torch.allclose(method.losses(a, b), whole, atol=1e-4)  # another order


@torch.no_grad()
def test_bank__holds_what_an_observer_would_get() -> None:
    """Not the class token of training, which sees nothing and is the same for all images."""
    method, x = build().train(), pixels(2)
    method.losses(x, x)
    method.after_step()
    torch.testing.assert_close(method.bank.rows[:2], F.normalize(method.encoder(x), dim=1))
    assert not torch.allclose(method.bank.rows[0], method.bank.rows[1], atol=1e-4)


def test_losses__every_shared_weight_has_a_gradient() -> None:
    method = build()
    method.losses(pixels(4), pixels(4)).mean().backward()
    for module in method.shared_modules().values():
        for name, weight in module.named_parameters():
            assert weight.grad is not None and bool(weight.grad.abs().sum() > 0), name


@pytest.mark.filterwarnings("ignore:Full backward hook:UserWarning")
def test_losses__per_sample_gradients_of_opacus_equal_a_loop() -> None:
    """On the way from loss to views, as in `dpsgd`."""
    x = pixels(3)
    check_per_sample_gradients(build(), x, inputs=[x])


def test_smoothed__keeps_the_mean_of_a_point_and_is_off_at_0() -> None:
    point = torch.zeros(1, 2, 11, 11)
    point[0, 1, 5, 5] = 1.0
    soft = smoothed(point, 1.0)
    assert not soft[0, 0].any() and float(soft[0, 1].sum()) == pytest.approx(1.0)
    assert float(soft[0, 1, 5, 5] / soft[0, 1, 5, 6]) == pytest.approx(math.exp(0.5), rel=1e-5)
    assert smoothed(point, 0.0) is point


def test_build__refuses_a_net_without_patches_and_a_depth_that_does_not_divide() -> None:
    with pytest.raises(InputError, match="SAIM needs a vision transformer.*got SmallConvNet"):
        SAIM().build(SmallNet().build(3, 8), RECIPE, torch.Generator())
    with pytest.raises(InputError, match=r"ssl\.decoder_depth must divide .*\(4\), got 3"):
        build(decoder_depth=3)
