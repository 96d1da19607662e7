"""SAIM against loops over tokens and pixels, and who sees whom."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from fedmia.settings.errors import InputError
from fedmia.ssl.saim import SAIM, AutoregressiveModel
from tests.ssl import methods
from tests.ssl.methods import PATCHED, pixels


def build(**options: Any) -> AutoregressiveModel:
    return methods.build(SAIM(**{"bank": 6, **options}), net=PATCHED)


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
@pytest.mark.parametrize(("depth", "smoothing", "norm_pix"), [(4, 1.0, True), (2, 0.0, False)])
def test_losses__naive_twin(depth: int, smoothing: float, norm_pix: bool) -> None:
    """Of the first view alone."""
    method, x = build(decoder_depth=depth, smoothing=smoothing, norm_pix=norm_pix), pixels(1)
    vit, decoder = method.encoder.backbone, method.decoder
    orders, got = method.order(x, method.seed).tolist(), method.losses(x, pixels(1, 1))
    blocks = [block for name in vit.layers for block in vit.get_submodule(name)]
    for image, order, loss in zip(x, orders, got.tolist(), strict=True):
        plain = method.encoder.normalise(image[None])[0]
        places = vit.positions.weight.flatten(1, 2)[0]
        cuts = [patch_of(plain, p).permute(1, 2, 0).flatten() for p in range(16)]
        tokens = {p: vit.embed(cut) + places[p] for p, cut in enumerate(cuts)}
        tokens[-1], queries = vit.cls.weight[0, 0], dict(enumerate(places))
        for i, block in enumerate(blocks, 1):
            tokens = encoder_block(block, tokens, order)
            if i % (4 // depth) == 0:
                own = decoder.blocks[i * depth // 4 - 1]
                queries = query_block(own, queries, tokens, order)
        errors, soft = [], blur_loop(plain, smoothing) if smoothing else plain
        for p in range(16):
            target = patch_of(soft, p).permute(1, 2, 0).flatten()
            if norm_pix:
                target = (target - target.mean()) / (target.var() + 1e-6).sqrt()
            errors += (decoder.predict(vit.norm(queries[p])) - target).square().tolist()
        assert loss == pytest.approx(sum(errors) / len(errors), rel=1e-4)


@torch.no_grad()
def test_bank__holds_what_an_observer_would_get() -> None:
    """Not the class token of training, which sees nothing and is the same for all images."""
    method, x = build().train(), pixels(2)
    method.losses(x, x)
    method.after_step()
    torch.testing.assert_close(method.bank.rows[:2], F.normalize(method.encoder(x), dim=1))
    assert not torch.allclose(method.bank.rows[0], method.bank.rows[1], atol=1e-4)


def test_build__refuses_a_depth_that_does_not_divide() -> None:
    with pytest.raises(InputError, match=r"ssl\.decoder_depth must divide .*\(4\), got 3"):
        build(decoder_depth=3)
