"""CAE against a loop, and what its alignment reaches."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from fedmia.ssl.cae import CAE, ContextAutoencoder
from tests.ssl import methods
from tests.ssl.methods import PATCHED, pixels

SMALL = {"decoder_width": 12, "decoder_heads": 2, "decoder_depth": 1, "regressor_depth": 2}


def build(**options: Any) -> ContextAutoencoder:
    """8 of 16 patches are visible."""
    return methods.build(CAE(**{**SMALL, "bank": 6, **options}), net=PATCHED)


def attend(block: Any, x: Tensor, visible: Tensor, places: Tensor) -> Tensor:
    """A cross-attention block in loops: tokens (m, D) of masked and (v, D) of visible patches."""
    both, v = torch.cat([visible, x]), len(visible)
    keys, values = block.k(block.norm_k(both + places)), block.v(block.norm_v(both))
    rows, d = [], x.shape[1] // block.heads
    for i in range(len(x)):
        query, heads = block.q(block.norm_q(x[i] + places[v + i])), []
        for cut in (slice(h * d, (h + 1) * d) for h in range(block.heads)):
            weights = ((keys[:, cut] @ query[cut]) / d**0.5).softmax(0)
            heads.append(weights @ values[:, cut])
        row = x[i] + block.proj(torch.cat(heads))
        rows.append(row + block.mlp(block.norm2(row)))
    return torch.stack(rows)


@torch.no_grad()
@pytest.mark.parametrize(("width", "alignment"), [(12, 2.0), (8, 0.5)])
def test_losses__naive_twin(width: int, alignment: float) -> None:
    method, x = build(decoder_width=width, alignment=alignment), pixels(2)
    vit, decoder = method.encoder.backbone, method.decoder
    orders = method.order(x, method.seed)
    for image, order, got in zip(x, orders.tolist(), method.losses(x, x).tolist(), strict=True):
        plain = method.encoder.normalise(image[None])[0]
        cuts = [plain[:, 2 * (p // 4) :][:, :2, 2 * (p % 4) :][:, :, :2] for p in range(16)]
        patches = [cut.permute(1, 2, 0).flatten() for cut in cuts]
        places = vit.positions.weight.flatten(1, 2)[0]

        tokens = [vit.embed(patch) + place for patch, place in zip(patches, places, strict=True)]

        def encode(which: list[int], tokens: list[Tensor] = tokens) -> Tensor:
            y = torch.stack([vit.cls.weight[0, 0], *(tokens[p] for p in which)])[None]
            for name in vit.layers:
                for block in vit.get_submodule(name):
                    y = block(y)
            out = vit.norm(y)[0, 1:]
            return out if width == 8 else decoder.project[1](decoder.project[0](out))

        places_visible, hidden = order[:8], order[8:]
        visible, wanted_latents = encode(places_visible), encode(hidden)
        own = decoder.positions.weight.flatten(1, 2)[0][order]
        y = decoder.token.weight[0, 0].expand(8, -1)
        for block in decoder.regressor:
            y = attend(block, y, visible, own)
        predicted = decoder.regressor_norm(y)
        z = (predicted + own[8:])[None]
        for block in decoder.blocks:
            z = block(z)
        guess = decoder.predict(decoder.norm(z))[0]
        total = 0.0
        for i, p in enumerate(hidden):
            target = (patches[p] - patches[p].mean()) / (patches[p].var() + 1e-6).sqrt()
            total += float((guess[i] - target).square().mean()) / 8
            total += alignment * float((predicted[i] - wanted_latents[i]).square().mean()) / 8
        assert got == pytest.approx(total, rel=1e-4)


def test_losses__alignment_pulls_the_prediction_and_not_its_target() -> None:
    """The alignment's gradient on the pixels of masked patches is 0: they only make the target."""
    method, x = build(alignment=1.0), pixels(2).requires_grad_()
    other = build(alignment=0.0)
    order = method.order(x.detach(), 1)
    both, plain = method.reconstruction(x, order)[0], other.reconstruction(x, order)[0]
    (gradient,) = torch.autograd.grad((both - plain).sum(), x)
    for image, row in zip(gradient, order.tolist(), strict=True):
        for place, p in enumerate(row):
            cut = image[:, 2 * (p // 4) :][:, :2, 2 * (p % 4) :][:, :, :2]
            assert bool(cut.abs().max() > 1e-6) == (place < 8)
