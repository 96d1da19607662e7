"""What several methods have in common, each claim over all that make it; `fedmia.testing.ssl` has
what every method promises."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from fedmia.nets.smallnet import SmallNet
from fedmia.report.words.notes import sentences
from fedmia.seeding import rng
from fedmia.settings import registry
from fedmia.settings.errors import InputError
from fedmia.ssl.bank import info_nce
from fedmia.ssl.base import TrainingData
from fedmia.ssl.train import Job, Train, make_optimizer
from fedmia.testing.ssl import coupled
from tests.ssl.methods import PATCHES, apart, case, check_per_sample_gradients, pixels, same

NAMES = registry.names("ssl")
KEYED = ["moco", "mocov3", "byol", "dino", "ibot", "dinov2"]  # have a momentum encoder
BANKED = {"moco": "queue", "simclr": "bank", "mocov3": "bank", "mae": "bank"}
# What is averaged beside the backbone, and what an observer of the client's state gets.
SHARED = {
    "byol": {"head", "predictor"}, "mocov3": {"head", "predictor"}, "dino": {"head", "prototypes"},
    **dict.fromkeys(("ibot", "dinov2"), {"head", "prototypes", "mask_token"}),
    "swav": {"head", "prototypes"},
    "mae": {"decoder"}, "cae": {"decoder"}, "saim": {"decoder"},
}  # fmt: skip
OBSERVED = {
    **dict.fromkeys(("byol", "lejepa", "vicreg"), set()),
    **dict.fromkeys(("dino", "dinov2", "ibot"), {"centre"}),
    "moco": {"queue", "pointer"}, "mocov2": {"queue", "pointer"},
    **dict.fromkeys(("mae", "cae", "saim"), {"bank", "pointer", "steps"}),
}  # fmt: skip
LOUD = {name: {"unmasked": 0.0} for name in ("ibot", "dinov2")}  # some patch of each view is masked
SILENT = ("norm_k.bias", ".k.bias")  # softmax cancels what all keys of CAE share


@pytest.mark.parametrize("name", NAMES)
def test_losses__gradient_reaches_all_that_is_shared_and_no_key(name: str) -> None:
    method = case(name, **LOUD.get(name, {})).build()
    method.losses(pixels(4, 0), pixels(4, 1)).mean().backward()
    for path, weight in zip(method.shared_parameters(), method.trainable(), strict=True):
        assert weight.grad is not None, path
        assert bool(weight.grad.any()) or (name == "cae" and path.endswith(SILENT)), path
    parts = {path.split(".")[0] for path in method.shared_parameters()}
    assert parts == {"backbone", *SHARED.get(name, {"head"})}
    if name in KEYED:
        keys = [w for key, _ in method.pairs().values() for w in key.parameters()]
        assert keys and all(w.grad is None for w in keys)
    observed = {n for n in method.local_state() if not n.startswith("key.")}
    assert observed == OBSERVED.get(name, {"bank", "pointer"})
    assert same(pickle.loads(pickle.dumps(method)).state_dict(), method.state_dict())


@pytest.mark.parametrize("shared_head", [True, False])
@pytest.mark.parametrize("name", sorted({*PATCHES} - {"dinov2"}))  # it compares the images
def test_losses__per_sample_gradients_of_opacus_equal_a_loop(name: str, shared_head: bool) -> None:
    more = {"head_norm": "none", "shared_head": shared_head, **LOUD["ibot"]}
    if name == "ibot" or shared_head:
        check_per_sample_gradients(case(name, **(more if name == "ibot" else {})).build())


@pytest.mark.parametrize("name", KEYED)
def test_after_step__momentum_update_formula(name: str) -> None:
    method = apart(case(name, momentum=0.3).build())
    old = [[w.clone() for w in key.parameters()] for key, _ in method.pairs().values()]
    method.after_step()
    for before, (key, followed) in zip(old, method.pairs().values(), strict=True):
        rows = zip(before, followed.parameters(), key.parameters(), strict=True)
        for was, weight, got in rows:
            torch.testing.assert_close(got, 0.3 * was + 0.7 * weight, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("policy", ["keep", "reset"])
@pytest.mark.parametrize("name", KEYED)
def test_begin_round__keeps_or_resets_the_momentum_encoder_alone(name: str, policy: str) -> None:
    method = apart(case(name, key=policy).build())
    followers = tuple(method.pairs())

    def rest() -> dict[str, Any]:
        return {n: t for n, t in method.local_state().items() if not n.startswith(followers)}

    before, kept = method.local_state(), rest()
    method.begin_round()
    assert same(method.local_state(), before) == (policy == "keep")
    method.begin_first_round()
    assert same(rest(), kept)
    for key, followed in method.pairs().values():
        assert same(key.state_dict(), followed.state_dict())


@pytest.mark.parametrize("norm", ["none", "layer"])
@pytest.mark.parametrize("name", ["byol", "dino", "ibot"])
def test_losses__without_batch_norm_are_per_image(name: str, norm: str) -> None:
    small = case(name, head_norm=norm)
    assert not small.spec.coupled and not coupled(small)


@pytest.mark.parametrize("name", BANKED)
def test_bank__is_capped_at_half_the_images_and_says_so(name: str) -> None:
    small = case(name, **{BANKED[name]: 6})
    for images, K in ((None, 6), (100, 6), (12, 6), (11, 5), (1, 1)):
        assert len(small.build(images=images).bank) == K
        notes = sentences(small.spec.notes(images or 100))
        assert len(notes) == (K < 6)
        assert all(f"from 6 to {K}" in n and f"{images} images" in n for n in notes)


@pytest.mark.parametrize("name", BANKED)
def test_output_losses__info_nce_against_the_bank(name: str) -> None:
    """Before the bank is filled too; lengths of outputs play no part."""
    method, a, b = case(name).build(), pixels(4, 0), pixels(4, 1)
    z1, z2 = (F.normalize(method.encoder(x), dim=1) for x in (a, b))
    for filled in (False, True):
        if filled:
            method.fill_bank(pixels(5, 2))
            keys = F.normalize(method.encoder(pixels(5, 2)), dim=1)
            torch.testing.assert_close(method.bank.rows, keys)
            assert not method.bank.rows.requires_grad and method.bank.pointer == 0
        rows, T = method.bank.rows, method.spec.temperature
        want = info_nce(z1, z2, rows, T) + info_nce(z2, z1, rows, T)
        torch.testing.assert_close(method.probe_losses(a, b), want, atol=1e-5, rtol=1e-5)
        longer = method.output_losses(3 * z1.double(), z2.double())
        assert longer.dtype == torch.float64
        torch.testing.assert_close(longer.float(), want, atol=1e-5, rtol=1e-5)


# Least crop; brightness, contrast, saturation, hue; probabilities of jitter, gray, blur, solarize.
# Where a paper's two views differ (blur 1 and 0.1, solarize 0 and 0.2), both get the mean.
VIEWS = {
    "moco": (0.2, 0.4, 0.4, 0.4, 0.4, 1.0, 0.2, 0.0, 0.0),
    "mocov2": (0.2, 0.4, 0.4, 0.4, 0.1, 0.8, 0.2, 0.5, 0.0),
    "mocov3": (0.2, 0.4, 0.4, 0.2, 0.1, 0.8, 0.2, 0.55, 0.1),
    "simclr": (0.08, 0.4, 0.4, 0.4, 0.1, 0.8, 0.2, 0.0, 0.0),
    "swav": (0.08, 0.8, 0.8, 0.8, 0.2, 0.8, 0.2, 0.5, 0.0),
    **dict.fromkeys(("byol", "vicreg"), (0.08, 0.4, 0.4, 0.2, 0.1, 0.8, 0.2, 0.55, 0.1)),
    "lejepa": (0.08, 0.8, 0.8, 0.8, 0.2, 0.8, 0.2, 0.5, 0.2),
    **dict.fromkeys(("dino", "dinov2", "ibot"), (0.14, 0.4, 0.4, 0.2, 0.1, 0.8, 0.2, 0.55, 0.1)),
    **dict.fromkeys(("mae", "cae", "saim"), (0.2, *(0.0,) * 8)),
}


@pytest.mark.parametrize("name", NAMES)
def test_augment__is_the_published_recipe_and_its_options(name: str) -> None:
    def numbers(**options: Any) -> tuple[float, ...]:
        x = registry.build("ssl", name, options).augment
        jitter = x.brightness, x.contrast, x.saturation, x.hue
        return x.flip, x.crop_min, *jitter, x.jitter_p, x.gray_p, x.blur_p, x.solarize_p

    crop, *views = VIEWS[name]
    jitter, rest = views[:4], views[4:]
    assert numbers() == pytest.approx((0.5, crop, *views))
    mild = numbers(crop_min=0.9, flip=0.0, jitter=0.25)
    assert mild == pytest.approx((0.0, 0.9, *(s / 4 for s in jitter), *rest))
    assert numbers(jitter=9.0)[5] == min(9 * jitter[3], 0.5)  # half the colour circle is all


HEADS = {
    "moco": "", "mocov2": "Linear ReLU Linear", "simclr": "Linear ReLU Linear",
    "mocov3": "Linear LayerNorm ReLU Linear LayerNorm",
    "byol": "Linear BatchNorm ReLU Linear", "swav": "Linear BatchNorm ReLU Linear",
    **dict.fromkeys(
        ("dino", "dinov2", "ibot", "lejepa"), "Linear BatchNorm ReLU Linear BatchNorm ReLU Linear"
    ),
    "vicreg": "Linear LayerNorm ReLU Linear LayerNorm ReLU Linear",
    **dict.fromkeys(("mae", "cae", "saim"), ""),
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_build__heads_are_the_published_ones(name: str) -> None:
    method = case(name).build()
    heads = [method.encoder.head, getattr(method, "predictor", None) or method.encoder.head]
    kinds = [" ".join(type(layer).__name__ for layer in head.children()) for head in heads]
    want = HEADS[name].removesuffix(" LayerNorm") if name == "mocov3" else HEADS[name]
    assert kinds == [HEADS[name], want]


@pytest.mark.parametrize(
    "name",
    [n if n in BANKED else pytest.param(n, marks=pytest.mark.slow) for n in NAMES],
)
def test_training__in_bfloat16_is_near_and_keeps_its_state_in_float32(
    name: str, textures: Any
) -> None:
    """Of nine images: the last batch is one."""
    small, losses = case(name), []
    for precision in ("float32", "bfloat16"):
        method, train = small.build(images=9), Train(1, 4, precision=precision)
        job = Job(
            method, make_optimizer(method, train), textures(9).numpy(), small.spec.augment, train,
            rng(0, "train"), 0, 3, torch.device("cpu"),
        )  # fmt: skip
        losses.append(job.run()["loss"])
        state = (method.shared_state() | method.local_state()).values()
        assert {t.dtype for t in state} <= {torch.float32, torch.int64}
        assert all(bool(t.isfinite().all()) for t in state)
    # Their teachers are so sharp that a small difference of scores is a large one of targets.
    rel = {"dino": 0.5, "dinov2": 0.5, "ibot": 0.15}.get(name, 0.1)
    assert losses[1] == pytest.approx(losses[0], rel=rel)


@pytest.mark.parametrize("name", PATCHES)
def test_build__refuses_a_net_without_patches(name: str) -> None:
    spec = registry.build("ssl", name, {})
    with pytest.raises(InputError, match="needs a vision transformer.*got SmallConvNet"):
        spec.build(SmallNet().build(3, 8), TrainingData((0.5,) * 3, (0.5,) * 3), torch.Generator())
