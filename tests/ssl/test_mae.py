"""MAE against a loop, its masks, and what comes into its bank."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from fedmia.nets.keyed import keyed_uniforms
from fedmia.nets.vit import ViTTiny
from fedmia.settings.errors import InputError
from fedmia.ssl.mae import MAE, MaskedAutoencoder, visible_count
from tests.ssl import methods
from tests.ssl.methods import PATCHED, TRAINING_DATA, pixels

SMALL = {"decoder_width": 8, "decoder_heads": 2, "decoder_depth": 1, "bank": 6}


def build(seed: int = 0, net: ViTTiny = PATCHED, **options: Any) -> MaskedAutoencoder:
    """4 of 16 patches are visible."""
    return methods.build(MAE(**{**SMALL, **options}), seed, net=net)


@torch.no_grad()
@pytest.mark.parametrize("norm_pix", [True, False])
def test_losses__naive_twin(norm_pix: bool) -> None:
    """One image, one patch, one pixel at a time; the mask token as a token of its own. Of the first
    view alone."""
    method, x = build(norm_pix=norm_pix), pixels(3)
    vit, decoder = method.encoder.backbone, method.decoder
    orders = method.order(x, method.seed)
    mean, std = (torch.tensor(v)[:, None, None] for v in (TRAINING_DATA.mean, TRAINING_DATA.std))
    losses = method.losses(x, pixels(3, 1)).tolist()
    for image, order, got in zip(x, orders.tolist(), losses, strict=True):
        seen, hidden = order[:4], order[4:]
        plain, patches = (image - mean) / std, []
        for i, j in itertools.product(range(0, 8, 2), repeat=2):
            rows = [plain[:, r, c] for r in (i, i + 1) for c in (j, j + 1)]
            patches.append(torch.stack(rows).flatten())
        places = vit.positions.weight.flatten(1, 2)[0]
        tokens = torch.stack([vit.embed(patches[p]) + places[p] for p in seen])
        x_ = torch.cat([vit.cls.weight[0], tokens])[None]
        for name in vit.layers:
            for block in vit.get_submodule(name):
                x_ = block(x_)
        latent = vit.norm(x_)[0]
        weight, bias = decoder.embed.weight, decoder.embed.bias
        slots = [weight[:, -1] + bias] * 16  # the mask token
        for k, p in enumerate(seen):
            slots[p] = weight[:, :-1] @ latent[1 + k] + bias
        placed = torch.stack(slots) + decoder.positions.weight.flatten(1, 2)[0]
        y = torch.cat([(weight[:, :-1] @ latent[0] + bias)[None], placed])[None]
        for block in decoder.blocks:
            y = block(y)
        guess = decoder.predict(decoder.norm(y))[0, 1:]
        errors = []
        for p in hidden:
            target = patches[p]
            if norm_pix:
                target = (target - target.mean()) / (target.var() + 1e-6).sqrt()
            errors += [float(d) ** 2 for d in guess[p] - target]
        assert got == pytest.approx(sum(errors) / len(errors), rel=1e-4)


def test_order__is_a_permutation_keyed_by_image_step_and_seed() -> None:
    method, x = build(), pixels(40)
    order = method.order(x, method.seed)
    assert torch.equal(order.sort(dim=1).values, torch.arange(16).expand(40, 16))
    assert len(order[:, :4].unique(dim=0)) == 40
    assert torch.equal(method.order(x.flip(0), method.seed).flip(0), order)
    assert not torch.equal(method.order(x, method.seed + 1), order)
    assert build(seed=1).seed != method.seed
    share = torch.bincount(method.order(pixels(4000), 5)[:, :4].flatten(), minlength=16) / 4000
    assert share.tolist() == pytest.approx([0.25] * 16, abs=0.04)


def test_order__long_sequences_hide_whole_units() -> None:
    """Hu et al., 2022: squares of 2x2 patches are seen or masked as one; those at an odd border
    are cut. A quarter of 16 patches is one square, whose place is even over images."""
    method = build(mask_unit=2)
    visible = method.order(pixels(400), 1)[:, :4].tolist()
    squares = [
        {4 * (r + i) + c + j for i in (0, 1) for j in (0, 1)} for r in (0, 2) for c in (0, 2)
    ]
    counts = [sum(set(row) == square for row in visible) for square in squares]
    assert sum(counts) == 400 and min(counts) > 70
    odd = method.order(pixels(1)[:, :, :6], 1)[0].tolist()  # 3x4 patches
    assert sorted(odd) == list(range(12))
    where = {p: (p // 4 // 2, p % 4 // 2) for p in odd}
    runs = [unit for unit, _ in itertools.groupby(where[p] for p in odd)]
    assert len(runs) == len(set(runs)) == 4
    alone = keyed_uniforms(pixels(9), 5, 16).argsort(dim=1, stable=True)
    assert torch.equal(build().order(pixels(9), 5), alone)  # as ever


@pytest.mark.parametrize(
    ("patches", "mask", "visible"),
    [(64, 0.75, 16), (16, 0.75, 4), (4, 0.75, 1), (196, 0.75, 49), (4, 0.9, 1), (4, 0.1, 3)],
)
def test_visible_count__leaves_one_seen_and_one_masked(
    patches: int, mask: float, visible: int
) -> None:
    assert visible_count(patches, mask) == visible


def test_targets__of_patches_of_one_colour_are_zeros() -> None:
    flat = build().targets(torch.ones_like(pixels(1)))
    assert torch.equal(flat, torch.zeros_like(flat))


def test_after_step__counts_and_keeps_the_pooled_vectors_in_the_bank() -> None:
    method, x = build(), pixels(4)
    rows = method.bank.rows.clone()
    losses = method.losses(x, x)
    assert method.steps == 0 and torch.equal(method.bank.rows, rows)
    latent = method.reconstruction(x, method.order(x, method.seed))[1]
    method.after_step()
    assert method.steps == 1
    torch.testing.assert_close(method.bank.rows[:4], F.normalize(latent[:, 0].detach(), dim=1))
    assert torch.equal(method.bank.rows[4:], rows[4:])
    assert not torch.equal(method.losses(x, x), losses)  # another mask


def test_encoder__has_no_head_and_takes_a_part_of_an_image() -> None:
    encoder, x = build().encoder, pixels(3)
    features = encoder.features(x, ["layer4", "avgpool", "encoder"])
    assert torch.equal(features["encoder"], features["avgpool"])
    assert features["layer4"].shape == (3, 8, 4, 4)
    assert encoder(x[:, :, :4, :4]).shape == (3, 8)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"decoder_width": 128, "decoder_heads": 3}, r"128, must be .*decoder_heads \(3\)"),
        ({"decoder_width": 6}, "6, must be a multiple of 4"),
        ({"mask_unit": 4}, r"ssl\.mask_unit: 4, must be under the 4 patches"),
    ],
)
def test_build__refuses_what_does_not_divide(options: dict[str, Any], named: str) -> None:
    with pytest.raises(InputError, match=named):
        build(**options)


def test_build__refuses_to_normalise_patches_of_one_value() -> None:
    single = ViTTiny(width=8, heads=2, depth=4, patch=1).build(1, 8)
    with pytest.raises(InputError, match="1x1 gray pixels has one value"):
        MAE(**SMALL).build(single, TRAINING_DATA, torch.Generator())
    MAE(**SMALL, norm_pix=False).build(single, TRAINING_DATA, torch.Generator())
