"""MAE against a loop, what the encoder never sees, what repeats, and a federation of it."""

from __future__ import annotations

import copy
import itertools
import json
import pickle
import shlex
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import functional as F

from fedmia.nets._keyed import keyed_uniforms
from fedmia.nets.smallnet import SmallNet
from fedmia.nets.vit import ViTTiny
from fedmia.options.errors import InputError
from fedmia.options.seeding import rng, torch_rng
from fedmia.report.figures import draw
from fedmia.simulate import main
from fedmia.ssl._bank import info_nce
from fedmia.ssl.base import Recipe
from fedmia.ssl.mae import MAE, MaskedAutoencoder, visible_count
from fedmia.ssl.train import Job, Train, make_optimizer
from tests.ssl.per_sample import check_per_sample_gradients

torch.set_num_threads(1)
SMALL = {"decoder_width": 8, "decoder_heads": 2, "decoder_depth": 1}
RECIPE = Recipe((0.5, 0.4, 0.6), (0.25, 0.2, 0.3))


def build(
    seed: int = 0, images: int | None = None, width: int = 8, **options: Any
) -> MaskedAutoencoder:
    """16 patches of 2x2 on 8x8 pixels; 4 of them visible."""
    backbone = ViTTiny(width=width, heads=2, depth=4, patch=2).build(3, 8)
    recipe = Recipe(RECIPE.mean, RECIPE.std, images)
    return MAE(**{**SMALL, "bank": 6, **options}).build(backbone, recipe, torch_rng(seed, "mae"))


def pixels(count: int, seed: int = 0) -> Tensor:
    return torch.rand(count, 3, 8, 8, generator=torch.Generator().manual_seed(seed))


def everything(method: MaskedAutoencoder) -> dict[str, Tensor]:
    state = {n: t.clone() for n, t in method.state_dict().items()}
    return state | {"steps": torch.tensor(method.steps), "seed": torch.tensor(method.seed)}


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[n], b[n]) for n in a)


def masked_pixels(order: Tensor, visible: int) -> Tensor:
    """(8, 8), true where a pixel lies in a masked patch of one image's `order` (16,)."""
    grid = torch.zeros(4, 4, dtype=torch.bool)
    for patch in order[visible:].tolist():
        grid[patch // 4, patch % 4] = True
    return grid.repeat_interleave(2, 0).repeat_interleave(2, 1)


@torch.no_grad()
@pytest.mark.parametrize("norm_pix", [True, False])
def test_losses__naive_twin(norm_pix: bool) -> None:
    """One image, one patch, one pixel at a time; the mask token as a token of its own."""
    method, x = build(norm_pix=norm_pix), pixels(3)
    vit, decoder = method.encoder.backbone, method.decoder
    orders = method.order(x, method.seed)
    for image, order, got in zip(x, orders.tolist(), method.losses(x, x).tolist(), strict=True):
        seen, hidden = order[:4], order[4:]
        plain = (image - torch.tensor(RECIPE.mean)[:, None, None]) / torch.tensor(RECIPE.std)[
            :, None, None
        ]
        patches = []
        for i in range(4):
            for j in range(4):
                cut = plain[:, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2]
                patches.append(
                    torch.stack([cut[:, r, c] for r in (0, 1) for c in (0, 1)]).flatten()
                )
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


def test_losses__masked_patches_never_reach_the_encoder() -> None:
    method, x = build(), pixels(1)
    order = method.order(x, 1)
    mask = masked_pixels(order[0], 4)
    assert int(mask.sum()) == 12 * 4
    loss, latent = method.reconstruction(x, order)
    other = torch.where(mask, 1 - x, x)
    changed, same_latent = method.reconstruction(other, order)
    assert latent.shape == (1, 5, 8) and torch.equal(latent, same_latent)
    assert not torch.equal(loss, changed)
    seen = torch.where(mask, x, 1 - x)
    assert not torch.allclose(method.reconstruction(seen, order)[1], latent)


def test_losses__only_masked_patches_are_reconstructed() -> None:
    method, x = build(), pixels(2)
    order = method.order(x, 1)
    caught: list[Tensor] = []
    handle = method.decoder.predict.register_full_backward_hook(
        lambda module, inputs, outputs: caught.append(outputs[0])
    )
    method.reconstruction(x, order)[0].sum().backward()
    handle.remove()
    for row, gradient in zip(order, caught[0], strict=True):
        touched = gradient[1:].abs().sum(dim=1) > 0
        assert set(touched.nonzero()[:, 0].tolist()) == set(row[4:].tolist())
        assert not gradient[0].any()


def test_losses__are_per_image_and_look_at_the_first_view_only() -> None:
    method, a, b = build(), pixels(6, 0), pixels(6, 1)
    whole = method.losses(a, b)
    assert whole.shape == (6,) and whole.unique().numel() == 6
    alone = torch.cat([method.losses(a[i : i + 1], b[i : i + 1]) for i in range(6)])
    torch.testing.assert_close(whole, alone, atol=1e-5, rtol=0)
    assert torch.equal(method.losses(a, a), whole)
    assert torch.equal(method.losses(a, b), whole)  # nothing moved before the step


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


def test_targets__have_mean_0_and_deviation_1() -> None:
    got = build().targets(pixels(2))
    torch.testing.assert_close(got.mean(-1), torch.zeros(got.shape[:2]), atol=1e-5, rtol=0)
    torch.testing.assert_close(got.std(-1), torch.ones(got.shape[:2]), atol=1e-3, rtol=0)
    flat = build().targets(torch.ones_like(pixels(1)))
    assert torch.equal(flat, torch.zeros_like(flat))  # patches of one colour


def test_losses__every_shared_weight_has_a_gradient() -> None:
    method = build()
    method.losses(pixels(4), pixels(4)).mean().backward()
    for module in method.shared_modules().values():
        for name, weight in module.named_parameters():
            assert weight.grad is not None and bool(weight.grad.abs().sum() > 0), name


def test_shared_state__holds_encoder_and_decoder() -> None:
    method, other = build(0), build(1)
    state = method.shared_state()
    assert {n.partition(".")[0] for n in state} == {"backbone", "decoder"}
    assert not any("positions" in n or "bank" in n for n in state)
    assert len(method.trainable()) == len(state)
    other.load_shared(state)
    assert same(other.shared_state(), state)
    with pytest.raises(ValueError, match="does not fit"):
        other.load_shared({n: t for n, t in state.items() if n != "decoder.embed.weight"})


def test_after_step__counts_and_keeps_the_pooled_vectors_in_the_bank() -> None:
    method, x = build(), pixels(4)
    before = everything(method)
    losses = method.losses(x, x)
    assert same(before, everything(method))
    latent = method.reconstruction(x, method.order(x, method.seed))[1]
    method.after_step()
    assert method.steps == 1 and method.bank.rows.shape == (6, 8)
    torch.testing.assert_close(method.bank.rows[:4], F.normalize(latent[:, 0].detach(), dim=1))
    assert torch.equal(method.bank.rows[4:], before["bank.rows"][4:])
    assert not torch.equal(method.losses(x, x), losses)  # another mask
    method.losses(pixels(9), x)
    method.after_step()
    assert method.bank.rows.shape == (6, 8) and method.steps == 2
    bank = method.bank.rows.clone()
    method.after_step()
    assert torch.equal(method.bank.rows, bank)  # without new losses there are no new vectors


def test_local_state__round_trip_gives_the_next_mask() -> None:
    trained, fresh, x = build(), build(), pixels(5)
    for _ in range(3):
        trained.losses(x, x)
        trained.after_step()
    snapshot = {n: t.clone() for n, t in trained.local_state().items()}
    fresh.load_local(trained.local_state())
    assert fresh.steps == 3 and torch.equal(fresh.bank.rows, trained.bank.rows)
    assert torch.equal(fresh.losses(x, x), trained.losses(x, x))
    fresh.after_step()
    assert same(trained.local_state(), snapshot)
    back = pickle.loads(pickle.dumps(trained))
    assert torch.equal(back.losses(x, x), trained.losses(x, x))
    assert torch.equal(copy.deepcopy(trained).losses(x, x), trained.losses(x, x))


def test_build__draws_everything_from_the_generator() -> None:
    torch.manual_seed(1)
    one = everything(build(seed=3))
    torch.manual_seed(2)
    assert same(one, everything(build(seed=3)))
    assert not same(one, everything(build(seed=4)))


def test_output_losses__is_info_nce_against_the_bank() -> None:
    method, a, b = build(), pixels(4, 0), pixels(4, 1)
    method.fill_bank(pixels(9, 2))
    bank = F.normalize(method.encoder(pixels(9, 2)), dim=1)
    torch.testing.assert_close(method.bank.rows, bank)
    assert not method.bank.rows.requires_grad
    before = everything(method)
    got = method.probe_losses(a, b)
    assert got.requires_grad and same(before, everything(method))
    z1, z2 = (F.normalize(method.encoder(x), dim=1) for x in (a, b))
    torch.testing.assert_close(got, info_nce(z1, z2, bank, 0.2) + info_nce(z2, z1, bank, 0.2))
    doubles = method.output_losses(3 * z1.double(), z2.double())
    assert doubles.dtype == torch.float64
    torch.testing.assert_close(doubles.float(), got)


def test_encoder__has_no_head() -> None:
    method, x = build(), pixels(3)
    features = method.encoder.features(x, ["layer4", "avgpool", "encoder"])
    assert torch.equal(features["encoder"], features["avgpool"]) and features["layer4"].shape == (
        3,
        8,
        4,
        4,
    )
    assert method.encoder(pixels(3)[:, :, :4, :4]).shape == (3, 8)  # a part of an image


@pytest.mark.parametrize(("images", "K"), [(None, 6), (100, 6), (12, 6), (11, 5), (1, 1)])
def test_bank__is_capped_at_half_the_images_and_says_so(images: int | None, K: int) -> None:
    assert len(build(images=images).bank) == K
    if images is not None:
        notes = MAE(bank=6).notes(images)
        assert len(notes) == (K < 6)
        assert all(f"from 6 to {K}" in n and f"{images} images" in n for n in notes)


def test_augment__crops_and_flips_only() -> None:
    recipe = MAE().augment
    assert (recipe.crop_min, recipe.flip) == (0.2, 0.5)
    assert (recipe.jitter_p, recipe.gray_p, recipe.blur_p, recipe.solarize_p) == (0, 0, 0, 0)
    assert MAE(crop_min=0.9, flip=0.0).augment.crop_min == 0.9
    assert MAE(flip=0.0).augment.flip == 0.0
    assert MAE(jitter=1.0).augment == MAE(jitter=0.0).augment == recipe


def test_build__refuses_a_net_without_patches_and_a_width_that_does_not_divide() -> None:
    with pytest.raises(InputError, match="needs a vision transformer.*got SmallConvNet"):
        MAE().build(SmallNet().build(3, 8), RECIPE, torch.Generator())
    with pytest.raises(InputError, match=r"decoder_heads \(3\), got 128"):
        MAE(decoder_heads=3)
    with pytest.raises(InputError, match="multiple of 4, got 6"):
        MAE(decoder_width=6, decoder_heads=2)
    with pytest.raises(InputError, match=r"ssl\.mask_unit must be under the 4 patches .*got 4"):
        build(mask_unit=4)
    single = ViTTiny(width=8, heads=2, depth=4, patch=1).build(1, 8)
    with pytest.raises(InputError, match="1x1 gray pixels has one value"):
        MAE(**SMALL).build(single, RECIPE, torch.Generator())
    MAE(**{**SMALL, "norm_pix": False}).build(single, RECIPE, torch.Generator())


# training


def train(method: MaskedAutoencoder, images: Tensor, rounds: int, epochs: int) -> list[float]:
    options = Train(local_epochs=epochs, batch_size=16, schedule="constant")
    optimizer, losses = make_optimizer(method, options), []
    augment = MAE(crop_min=0.8).augment
    for turn in range(rounds):
        job = Job(method, optimizer, images.numpy(), augment, options, rng(0, "train", turn), 0, 1,
                  torch.device("cpu"))  # fmt: skip
        losses.append(job.run()["loss"])
    return losses


@pytest.mark.slow
def test_training__lowers_the_loss_and_repeats(textures: Any) -> None:
    images = textures(64)
    method, again = (build(width=32, decoder_width=32) for _ in range(2))
    losses = train(method, images, 3, 8)
    assert losses[-1] < 0.8 * losses[0]
    assert train(again, images, 3, 8) == losses
    assert same(everything(again), everything(method))


def test_training__in_bfloat16_keeps_the_bank_in_float32(textures: Any) -> None:
    method = build()
    options = Train(local_epochs=1, precision="bfloat16")
    Job(method, make_optimizer(method, options), textures(16).numpy(), MAE().augment, options,
        rng(0, "train"), 0, 1, torch.device("cpu")).run()  # fmt: skip
    assert method.bank.rows.dtype == torch.float32 and torch.isfinite(method.bank.rows).all()


@pytest.mark.filterwarnings("ignore:Full backward hook:UserWarning")
def test_losses__per_sample_gradients_of_opacus_equal_a_loop() -> None:
    check_per_sample_gradients(build(), pixels(3))


# a federation

FLAGS = (
    "--ssl mae --ssl.decoder_width 8 --ssl.decoder_heads 2 --ssl.decoder_depth 1 --model vit-tiny "
    "--model.width 8 --model.heads 2 --model.depth 4 --clients 2 --rounds 2 "
    "--train.local_epochs 1 --train.batch_size 4 --split.members 16 --split.nonmembers 40 "
    "--split.known 8 --split.test 20 --device cpu --attacks similarity "
    "--attack.similarity.views 2 --federation.snapshots 1 "
)


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs that draw no figures."""
    monkeypatch.setattr(draw, "draw_all", lambda scores, report: {})


def federated(out: Path, more: str = "") -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The last global state, and the report."""
    assert main(shlex.split(f"{FLAGS} {more} --quiet --out {out}")) == 0
    state = load_file(sorted((out / "snapshots" / "main").glob("*.safetensors"))[-1])
    return state, json.loads((out / "report.json").read_text(encoding="utf-8"))


@pytest.mark.slow
def test_federation__averages_the_decoder_and_repeats_to_the_bit(
    undrawn: None, tmp_path: Path
) -> None:
    one, report = federated(tmp_path / "one")
    two, again = federated(tmp_path / "two")
    assert any("decoder." in n for n in one) and any("backbone." in n for n in one)
    assert same(one, two)
    assert report["attacks"] == again["attacks"]
    assert (report["config"]["ssl"]["name"], report["config"]["model"]["name"]) == (
        "mae", "vit-tiny")  # fmt: skip


@pytest.mark.slow
def test_federation__on_ray_is_the_same_to_the_bit(
    one_ray: None, undrawn: None, tmp_path: Path
) -> None:
    inline, _ = federated(tmp_path / "inline", "--attacker passive")
    ray, _ = federated(tmp_path / "ray", "--attacker passive --backend ray")
    assert same(inline, ray)


def test_federation__refuses_a_net_without_patches(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--ssl", "mae", "--device", "cpu"]) != 0
    assert "needs a vision transformer" in capsys.readouterr().err
