"""PartCrop, SupervisedMI and Variance-onlyMI: crops, energies, views and their network against
transcriptions, and leaks planted where each of them looks."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torchvision.transforms.v2 import InterpolationMode
from torchvision.transforms.v2 import functional as tv

from fedmia.attacks._cosine import pairwise_cosines
from fedmia.attacks._mlp import RMSNorm, alternate_classes
from fedmia.attacks._network import WIDTHS, init_normal, spread, spread_of_each
from fedmia.attacks._partcrop import Crops, energies, gaussian_benchmark, sorted_energies
from fedmia.attacks.base import Known
from fedmia.attacks.partcrop import PartCrop, PartCropV2
from fedmia.attacks.supervised_mi import SupervisedMI
from fedmia.attacks.variance_only import Rotations, VarianceOnly
from fedmia.nets.base import Backbone, initialise
from fedmia.nets.resnet import ResNet18
from fedmia.nets.vit import ViTTiny
from fedmia.seeding import torch_rng
from fedmia.settings import registry
from fedmia.settings.errors import InputError
from fedmia.ssl.augment import Augment, content_uniforms
from fedmia.statistics.auc import auc
from fedmia.threat import Shadow
from tests.attacks.planted import EXACT, NOBODY, auc_of, chance, fitted, method_of, mixing, view_of

Textures = Callable[..., Tensor]


def view_through(backbone: Backbone, **more: Any) -> Any:
    return view_of(method_of(backbone, mean=0.5, std=0.25), Augment(hue=0.1), **more)


def few(**options: Any) -> PartCrop:
    return PartCrop(crops=4, epochs=2, **options)


def pixels(count: int, side: int = 32, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (count, 3, side, side), dtype=torch.uint8, generator=generator)


# -- crops


def naive_crop(image: Tensor, u: list[float], crops: Crops) -> Tensor:
    """RandomResizedCrop of one image, as torchvision draws it, and a flip."""
    _, H, W = image.shape
    for k in range(10):
        area = H * W * (crops.scale_min + u[k] * (crops.scale_max - crops.scale_min))
        low, high = math.log(crops.ratio_min), math.log(crops.ratio_max)
        ratio = math.exp(low + u[10 + k] * (high - low))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= W and 0 < h <= H:
            break
    top, left = int(u[20] * (H - h + 1)), int(u[21] * (W - w + 1))
    assert min(top, left) >= 0 and top + h <= H and left + w <= W
    size = [max(2, round(crops.size * H)), max(2, round(crops.size * W))]
    cut = tv.resized_crop(image, top, left, h, w, size=size, antialias=True)
    return cut.flip(2) if u[22] < crops.flip else cut


@pytest.mark.parametrize(("side", "size"), [(32, 0.5), (64, 0.25), (8, 1.0), (9, 0.5)])
def test_crops__naive_twin(side: int, size: int) -> None:
    """The paper's 16 of 32 and 16 of 64, a crop as large as its image, and an odd side."""
    crops = Crops(size=size)
    x = pixels(40, side).float() / 255
    u = torch.rand(40, crops.draws, generator=torch.Generator().manual_seed(1))
    got = crops(x, u)
    want = torch.stack([naive_crop(i, r.tolist(), crops) for i, r in zip(x, u, strict=True)])
    torch.testing.assert_close(got, want, atol=1e-5, rtol=0)


def test_crops__sizes_are_whole_pixels_and_at_least_two() -> None:
    assert Crops().pixels(32, 32) == (16, 16)
    assert Crops(size=0.25).pixels(64, 48) == (16, 12)
    assert Crops(size=0.01).pixels(8, 8) == (2, 2)
    wide = torch.rand(3, 1, 6, 20)
    assert Crops()(wide, torch.rand(3, Crops().draws)).shape == (3, 1, 3, 10)
    with pytest.raises(InputError, match="crop_min: .*must be <= "):
        Crops(scale_min=0.3)


# -- energies


def naive_energies(v: list[float], z: list[float] | None) -> float:
    """Eq. 4-5 for one crop: KL of the benchmark from the softmax of the responses."""
    L = len(v)
    top = max(v)
    powers = [math.exp(x - top) for x in v]
    p = [x / sum(powers) for x in powers]
    if z is None:
        b = [1 / L] * L
    else:
        z = sorted(z)
        mean = sum(z) / L
        var = sum((x - mean) ** 2 for x in z) / (L - 1)
        bell = [math.exp(-((x - mean) ** 2) / (2 * var)) for x in z]
        b = [x / sum(bell) for x in bell]
    return sum(bj * (math.log(bj + 1e-6) - math.log(pj)) for bj, pj in zip(b, p, strict=True))


@pytest.mark.parametrize("parts", [2, 16])
def test_energies__naive_twin(parts: int) -> None:
    images = pixels(3, 4)
    responses = 3 * torch.randn(3, 5, parts, generator=torch.Generator().manual_seed(0))
    u = content_uniforms(images, 9, 5, parts, stream="partcrop benchmark").astype(np.float64)
    normal = torch.special.ndtri(torch.from_numpy(u) + 2.0**-25)
    benchmark = gaussian_benchmark(images, 9, 5, parts)
    for at in np.ndindex(3, 5):
        v, z = responses[at].tolist(), normal[at].tolist()
        uniform, bell = (float(energies(responses, b)[at]) for b in (None, benchmark))
        assert uniform == pytest.approx(naive_energies(v, None), abs=1e-6)
        assert bell == pytest.approx(naive_energies(v, z), abs=1e-6)


def test_benchmark__is_a_bell_over_the_parts_of_its_own_image_and_crop() -> None:
    images = pixels(6, 4)
    benchmark = gaussian_benchmark(images, 0, 7, 16)
    torch.testing.assert_close(benchmark.sum(dim=2), torch.ones(6, 7, dtype=torch.float64))
    assert bool((benchmark.argmax(dim=2) > 2).all()) and bool((benchmark.argmax(dim=2) < 13).all())
    assert len({tuple(row) for row in benchmark.flatten(0, 1).tolist()}) == 42
    order = torch.tensor([4, 0, 5])
    assert torch.equal(gaussian_benchmark(images[order], 0, 7, 16), benchmark[order])
    assert torch.equal(gaussian_benchmark(images, 0, 3, 16), benchmark[:, :3])
    assert not torch.equal(gaussian_benchmark(images, 1, 7, 16), benchmark)


def test_sorted_energies__each_kind_descends_and_the_rest_of_the_batch_plays_no_part() -> None:
    images, responses = pixels(7, 4), torch.randn(7, 8, 16)
    uniform, gaussian = sorted_energies(responses, images, 0, "both")
    for kind in (uniform, gaussian):
        assert kind.shape == (7, 8) and bool((kind.diff(dim=1) <= 0).all())
    (alone,) = sorted_energies(responses[2:3], images[2:3], 0, "gaussian")
    assert torch.equal(alone, gaussian[2:3])
    # Sharper responses lie farther off; which part or which crop answers plays no part.
    (sharper,) = sorted_energies(3 * responses, images, 0, "uniform")
    assert bool((sharper > uniform).all())
    (shuffled,) = sorted_energies(responses.flip(1, 2), images, 0, "uniform")
    torch.testing.assert_close(shuffled, uniform)


def test_sorted_energies__of_too_many_responses_for_one_block_are_those_of_each_image() -> None:
    images, responses = pixels(3, 4), torch.randn(3, 70_000, 20)
    last = sorted_energies(responses[2:], images[2:], 0, "both")
    for got, want in zip(sorted_energies(responses, images, 0, "both"), last, strict=True):
        assert got.shape == (3, 70_000) and torch.equal(got[2:], want)


# -- the network


@pytest.mark.parametrize("cls", [PartCrop, PartCropV2])
def test_network__widths(cls: type[PartCrop]) -> None:
    for name, widths in WIDTHS.items():
        net = cls(attacker=name).network((256, *widths))
        linear = [m for m in net.modules() if isinstance(m, nn.Linear)]
        assert [m.in_features for m in linear] == [256, *widths]
        assert linear[-1].out_features == 1 and net(torch.randn(3, 256)).shape == (3, 1)
        norms = sum(isinstance(m, RMSNorm) for m in net.modules())
        assert norms == (len(widths) if cls is PartCropV2 else 0)


def test_network__v2_norms_each_layer_and_not_its_input() -> None:
    assert [type(m) for m in PartCropV2().network((6, 5))] == [
        nn.Linear,
        RMSNorm,
        nn.Tanh,
        nn.Linear,
    ]


@pytest.mark.parametrize(
    "norm, divisor",
    [("none", 1.0), ("rms", math.sqrt(12.5)), ("l2", 5.0), ("layer", None)],
)
@pytest.mark.parametrize("activation", ["relu", "tanh", "leaky-relu", "silu"])
def test_network__norm_then_activation(norm: str, divisor: float | None, activation: str) -> None:
    """Tables 12 and 13, on a row of known lengths."""
    net = PartCrop(activation=activation, norm=norm).network((2, 2))
    with torch.no_grad():
        net[0].weight.copy_(torch.eye(2))
        net[0].bias.zero_()
        net[-1].weight.copy_(torch.tensor([[1.0, 10.0]]))
        net[-1].bias.zero_()
    # Layer norm: less the mean of -.5, over the deviation of 3.5.
    row = [3.0 / divisor, -4.0 / divisor] if divisor else [1.0, -1.0]
    formula = {
        "relu": lambda x: max(x, 0.0),
        "tanh": math.tanh,
        "leaky-relu": lambda x: x if x > 0 else 0.01 * x,
        "silu": lambda x: x / (1 + math.exp(-x)),
    }[activation]
    want = formula(row[0]) + 10 * formula(row[1])
    assert float(net(torch.tensor([[3.0, -4.0]]))) == pytest.approx(want, abs=1e-4)


def test_start__small_normal_weights_no_bias_and_inputs_of_one_spread() -> None:
    net = PartCrop().network((256, 512))
    init_normal(net, torch.Generator().manual_seed(0))
    weight, bias = net[0].weight.detach(), net[0].bias.detach()
    assert float(weight.std()) == pytest.approx(0.01, abs=1e-4)
    assert abs(float(weight.mean())) < 1e-4 and not bool(bias.any())
    assert spread(torch.full((3, 4), 7.0)) == 1
    assert spread(torch.tensor([[0.0, 6.0]])) == 3


@pytest.mark.parametrize("sides", [(300, 300), (90, 30)])
def test_balanced__every_batch_holds_its_share_of_members(sides: tuple[int, int]) -> None:
    truth = np.repeat([1, 0], sides)
    order = alternate_classes(truth, np.random.default_rng(0))
    assert sorted(order) == list(range(len(truth)))
    share = sides[0] / sum(sides)
    for first in range(0, len(truth), 40):
        assert abs(truth[order[first : first + 40]].sum() - 40 * share) <= 1
    assert not np.array_equal(order, alternate_classes(truth, np.random.default_rng(1)))


# -- a leak in the parts and nowhere else


class Sharp(Backbone):
    """Vectors of a stored image's parts stand three times as far from their mean.

    The pooled vector is the mean, so nothing but the parts tells. Crops and views are no stored
    image, to the pixel, and are answered alike.
    """

    layers = ("map",)
    width = 24

    def __init__(self, stored: Tensor, factor: float = 3.0) -> None:
        super().__init__()
        self.mix = torch.randn(self.width, 3, 3, 3, generator=torch_rng(0, "mix")) / 5
        self.stored, self.factor = (stored.float() / 255 - 0.5) / 0.25, factor

    def stages(self, x: Tensor) -> dict[str, Tensor]:
        out = F.conv2d(x, self.mix, stride=2, padding=1)
        if x.shape[1:] == self.stored.shape[1:]:
            far = torch.cdist(x.flatten(1), self.stored.flatten(1), compute_mode=EXACT).amin(dim=1)
            factor = torch.where(far < 1e-3, self.factor, 1.0)[:, None, None, None]
            mean = out.mean(dim=(2, 3), keepdim=True)
            out = mean + factor * (out - mean)
        return {"map": out}


@pytest.fixture(scope="module")
def leak(textures: Textures) -> dict[str, Any]:
    """Known and unknown members of a `Sharp` encoder, and others of the same source."""
    pool = textures(320, seed=4)
    known = Known(pool[:80], pool[80:160])  # of 40 a side a fit now and then learns too little
    members, others = pool[160:240], pool[240:]
    backbone = Sharp(torch.cat([known.members, members]))
    return {"view": view_through(backbone), "known": known, "members": members, "others": others}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("partcrop", {"energies": "uniform", "part": 1.0}),
        ("partcrop", {"energies": "gaussian", "attacker": "deep"}),
        ("partcrop", {"scale": "none", "epochs": 200}),  # half of them on a plateau
        ("partcrop", {"with_similarity": True, "attacker": "shallow"}),
        ("partcrop-v2", {}),
        ("partcrop-v2", {"attacker": "narrow"}),
        ("partcrop", {"scale": "standard", "draws": 3, "steps": 300}),
        ("partcrop-energy", {}),
        ("partcrop-logistic", {}),
    ],
)
def test_leak__is_found_in_every_reading(
    name: str, options: dict[str, Any], leak: dict[str, Any]
) -> None:
    assert auc_of(registry.build("attack", name, {"crops": 16, **options}), **leak) > 0.9


# -- what is read without a network


def test_readouts__naive_twin(leak: dict[str, Any]) -> None:
    """Means over crops that are cut, embedded and compared one by one."""
    view, images = leak["view"], leak["others"][:3]
    crops, m = Crops(), 6
    u = torch.from_numpy(content_uniforms(images, 0, m, crops.draws))
    bells = gaussian_benchmark(images, view.seed, m, 16).tolist()
    want = []
    for i, image in enumerate(images.float() / 255):
        whole = view._method.encoder.features(image[None], ["map", "avgpool"])
        parts, pooled = whole["map"][0].flatten(1).double(), whole["avgpool"][0].double()
        numbers = []
        for j in range(m):
            cut = crops(image[None], u[i, j][None])
            vector = view._method.encoder.features(cut, ["avgpool"])["avgpool"][0].double()
            v = [float(vector @ parts[:, at]) for at in range(parts.shape[1])]
            top = max(v)
            p = [math.exp(x - top) / sum(math.exp(y - top) for y in v) for x in v]
            uniform, bell = (
                sum(b * (math.log(b + 1e-6) - math.log(q)) for b, q in zip(bench, p, strict=True))
                for bench in ([1 / len(v)] * len(v), bells[i][j])
            )
            cosine = float(vector @ pooled) / float(vector.norm() * pooled.norm())
            numbers.append((uniform, bell, cosine))
        want.append(np.mean(numbers, axis=0))
    means = np.array(want)
    energy, cosine, both = (
        fitted(registry.build("attack", f"partcrop-{name}", {"crops": m}), view, leak["known"])
        for name in ("energy", "cosine", "logistic")
    )
    np.testing.assert_allclose(energy.score(view, images), means[:, :2].mean(axis=1), rtol=1e-4)
    np.testing.assert_allclose(cosine.score(view, images), means[:, 2], rtol=1e-5)
    before = view.queries
    np.testing.assert_allclose(both.inputs(view, images), means, rtol=1e-4)
    assert view.queries - before == 3 * (1 + m)


# -- how its authors train the network


def test_draws__epochs_take_other_crops_in_turn(leak: dict[str, Any]) -> None:
    view, known = leak["view"], Known(leak["known"].members[:8], leak["known"].nonmembers[:8])
    images, _ = known.both()
    attack = few(draws=3)
    each = [attack.inputs(view, images), *attack.redraw(view, images)]
    assert len(each) == 3
    for kinds in zip(*each, strict=True):
        assert len({tuple(kind.flatten().tolist()) for kind in kinds}) == 3
    before = view.queries
    fitted(attack, view, known)
    assert view.queries - before == 3 * 16 * (1 + 4)
    # What is scored is the first draw, however many the network has seen.
    torch.testing.assert_close(attack.inputs(view, images), each[0], rtol=0, atol=0)
    # The mean over draws is that over as many crops.
    many = PartCrop(crops=400).inputs(view, images)[0].mean(dim=1)
    for kinds in PartCrop(crops=400, draws=2).redraw(view, images):
        torch.testing.assert_close(kinds[0].mean(dim=1), many, rtol=0.2, atol=0)


def test_draws__are_computed_once_a_model_and_paid_by_each_attack(leak: dict[str, Any]) -> None:
    view, images = leak["view"], leak["others"][20:24]
    passed: list[int] = []
    hook = view._method.encoder.register_forward_pre_hook(lambda m, x: passed.append(len(x[0])))
    first = list(few(draws=2).redraw(view, images))
    alone, before = len(passed), view.queries
    second = list(PartCropV2(crops=4, draws=2).redraw(view, images))
    hook.remove()
    assert len(passed) == alone and view.queries - before == 4 * (1 + 4)
    torch.testing.assert_close(first, second, rtol=0, atol=0)


def test_steps__are_a_floor(leak: dict[str, Any]) -> None:
    view, known, others = leak["view"], leak["known"], leak["others"][:8]  # 160 known: one step

    def scores(**options: Any) -> Any:
        return fitted(PartCrop(crops=4, **options), view, known).score(view, others)

    assert np.array_equal(scores(epochs=1, steps=7), scores(epochs=7))
    assert np.array_equal(scores(epochs=7, steps=3), scores(epochs=7))
    assert not np.array_equal(scores(epochs=7), scores(epochs=3))


def test_scale__standard_inputs_have_mean_0_and_deviation_1(leak: dict[str, Any]) -> None:
    network_inputs: list[Tensor] = []

    class Looked(PartCrop):
        def network(self, widths: Any) -> nn.Module:
            net = super().network(widths)
            net.register_forward_pre_hook(lambda module, inputs: network_inputs.append(inputs[0]))
            return net

    fitted(Looked(crops=4, scale="standard", epochs=1), leak["view"], leak["known"])
    assert network_inputs[0].shape == (160, 8)
    torch.testing.assert_close(network_inputs[0].mean(dim=0), torch.zeros(8), atol=1e-4, rtol=0)
    torch.testing.assert_close(network_inputs[0].std(dim=0, unbiased=False), torch.ones(8))
    assert torch.equal(spread_of_each(torch.tensor([[1.0, 2.0], [1.0, 4.0]])), torch.ones(2))


# -- inputs and settings


def test_inputs__energies_then_the_cosines_of_encodermi(leak: dict[str, Any]) -> None:
    view, images = leak["view"], leak["others"][:3]
    attack = PartCrop(crops=5, with_similarity=True, views=4, layer="avgpool")
    before = view.queries
    uniform, gaussian, cosines = attack.inputs(view, images)
    assert view.queries - before == 3 * (1 + 5 + 4)
    assert uniform.shape == gaussian.shape == (3, 5)
    want = pairwise_cosines(view.embed_views(images, 4, "avgpool"))
    np.testing.assert_allclose(cosines, want, atol=1e-6)
    assert len(PartCrop(crops=5).inputs(view, images)) == 2
    assert len(PartCrop(crops=5, energies="gaussian").inputs(view, images)) == 1


@pytest.mark.slow
def test_shadow__fits_on_the_attackers_own_encoders(textures: Textures) -> None:
    """The leak is learned where the attacker knows the truth, and found in another encoder."""
    (first, others, second, more), target = textures(160, seed=5).chunk(4), textures(160, seed=6)
    shadows = [Shadow(view_through(Sharp(x)), x, y) for x, y in ((first, others), (second, more))]
    members, nonmembers = target.chunk(2)
    view = view_through(Sharp(members), shadows=shadows)
    attack = PartCrop(crops=32, setting="shadow")
    assert not attack.learns and PartCrop().learns and not PartCrop.uses_shadows
    value = auc_of(attack, view, NOBODY, members, nonmembers)
    assert value > 0.95
    assert view.queries == 160 * 33  # the shadows' are the attacker's own


# -- encoders


@pytest.mark.parametrize("net", [ResNet18(), ViTTiny(depth=4)])
def test_encoders__of_32_pixels(net: Any) -> None:
    backbone = net.build(3, 32)
    initialise(backbone, torch_rng(0, "net"))
    images = pixels(4)
    uniform, gaussian = PartCrop(crops=3).inputs(view_through(backbone), images)
    assert uniform.shape == gaussian.shape == (4, 3)
    assert bool(torch.isfinite(uniform).all()) and bool((uniform > -1e-4).all())


class OneSize(Sharp):
    """Takes images of 8x8 pixels and no others, and says so in its own way."""

    def stages(self, x: Tensor) -> dict[str, Tensor]:
        assert x.shape[2:] == (8, 8), "input height (4) doesn't match model (8)"
        return super().stages(x)


class OnePart(Sharp):
    def stages(self, x: Tensor) -> dict[str, Tensor]:
        return {"map": super().stages(x)["map"].mean(dim=(2, 3), keepdim=True)}


def test_encoders__that_take_one_size_ask_for_whole_crops(leak: dict[str, Any]) -> None:
    known, images = leak["known"], leak["others"][:4]
    view = view_through(OneSize(images))
    want = r"crops of 4x4 pixels \(input height .*; attack.partcrop.part 1.0 makes them as large as"
    with pytest.raises(InputError, match=want):
        fitted(few(), view, known)
    attack = fitted(few(part=1.0), view, known)
    assert np.isfinite(attack.score(view, images)).all()


def test_crops__of_a_transformer_are_whole_patches() -> None:
    assert Crops(size=0.3, patch=4).pixels(32, 32) == (8, 8)
    assert Crops(size=0.5, patch=14).pixels(518, 518) == (252, 252)
    assert Crops(size=0.01, patch=4).pixels(32, 16) == (4, 4)
    backbone = ViTTiny(depth=4, patch=4).build(3, 32)
    initialise(backbone, torch_rng(0, "net"))
    view = view_through(backbone)
    images, attack = pixels(2), few(part=0.3)
    want, _ = view.responses(images, Crops(size=0.25), attack.crops)
    assert torch.equal(view.responses(images, attack.recipe(view.patch), attack.crops)[0], want)
    assert view.patch == 4


def test_encoders__with_one_part_are_refused_without_advice(leak: dict[str, Any]) -> None:
    images = leak["others"][:4]
    with pytest.raises(InputError, match="1x1: one part has nothing to be compared with$"):
        few().inputs(view_through(OnePart(images)), images)


# -- SupervisedMI


Textures = Callable[..., Tensor]


@pytest.mark.parametrize("layer", ["avgpool", "encoder"])
def test_supervised__reads_the_features_of_the_plain_image(
    layer: str, make_moco: Any, images: Tensor
) -> None:
    moco = make_moco()
    (got,) = SupervisedMI(layer=layer).inputs(view_of(moco), images)
    with torch.no_grad():
        want = moco.eval().encoder.features(images.float() / 255, [layer])[layer]
    torch.testing.assert_close(got, want)


class Marked(Backbone):
    """A stored image's vector points along one direction, as no other's does."""

    layers = ("map",)
    width = 12

    def __init__(self, stored: Tensor) -> None:
        super().__init__()
        self.stored = stored.flatten(1).float() / 255
        self.weight = mixing(self.width, self.stored.shape[1])
        self.weight[5] /= 5

    def stages(self, x: Tensor) -> dict[str, Tensor]:
        flat = x.flatten(1)
        known = torch.cdist(flat, self.stored, compute_mode=EXACT).amin(dim=1) < 1e-3
        out = (flat - 0.5) @ self.weight.T
        out[:, 5] += known.float()
        return {"map": out[:, :, None, None]}


def test_leak__in_the_features_is_found(textures: Textures) -> None:
    pool = textures(320, seed=8)
    known, members, others = Known(pool[:80], pool[80:160]), pool[160:240], pool[240:]
    view, attack = view_of(Marked(torch.cat([known.members, members]))), SupervisedMI()
    assert auc_of(attack, view, known, members, others) > 0.95
    poser = view_of(Marked(known.members))  # none of them stored
    assert auc(*(attack.score(poser, side) for side in (members, others))) == chance(80, 80)


# -- Variance-onlyMI


def shifts(d: int, u: Tensor) -> list[tuple[int, int]]:
    """Pixels to the right and down of views with these uniforms: where a bright pixel goes."""
    pixel = torch.zeros(len(u), 1, 9, 9)
    pixel[:, 0, 4, 4] = 1
    moved = Rotations(degrees=0.0, translate=d)(pixel, torch.stack([u, u], dim=1)).flatten(1)
    return [(int(at % 9) - 4, int(at // 9) - 4) for at in moved.argmax(dim=1)]


@pytest.mark.parametrize("shape", [(8, 8), (9, 14)])
@pytest.mark.parametrize("translate", [0, 1, 3])
def test_rotations__equal_torchvision(shape: tuple[int, int], translate: int) -> None:
    recipe = Rotations(degrees=40.0, translate=translate)
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(30, 3, *shape, generator=generator)
    u = torch.rand(30, recipe.draws, generator=generator)
    got = recipe(x, u)
    for i, shift in enumerate(shifts(translate, u[:, 1])):
        want = tv.affine(
            x[i], angle=float(2 * u[i, 0] - 1) * 40, translate=list(shift), scale=1.0,
            shear=[0.0, 0.0], interpolation=InterpolationMode.BILINEAR,
        )  # fmt: skip
        torch.testing.assert_close(got[i], want, atol=1e-4, rtol=0)


@pytest.mark.parametrize("d", [0, 1, 2, 3])
def test_rotations__shift_by_every_place_at_distance_d(d: int) -> None:
    reach = range(-d, d + 1)
    places = set(shifts(d, torch.linspace(0, 1, 400)[:-1]))
    assert places == {(i, j) for i in reach for j in reach if abs(i) + abs(j) == d}


class Steady(Backbone):
    """A stored image has one vector however it is turned: its middle tells which it is."""

    layers = ("map",)
    width = 16

    def __init__(self, stored: Tensor) -> None:
        super().__init__()
        self.stored = stored.float() / 255
        self.weight = mixing(self.width, stored[0].numel())

    def stages(self, x: Tensor) -> dict[str, Tensor]:
        far, index = torch.cdist(middle(x), middle(self.stored), compute_mode=EXACT).min(dim=1)
        seen = torch.where((far < 1e-3)[:, None], self.stored[index].flatten(1), x.flatten(1))
        return {"map": (seen @ self.weight.T)[:, :, None, None]}


def middle(x: Tensor) -> Tensor:
    return x[:, :, 3:5, 3:5].mean(dim=(2, 3))


@pytest.fixture(scope="module")
def turned() -> dict[str, Any]:
    """Plain colours: turned and shifted, only their borders change."""
    colours = torch.randint(0, 256, (200, 3, 1, 1), generator=torch.Generator().manual_seed(0))
    pool = colours.expand(-1, -1, 8, 8).to(torch.uint8).contiguous()
    known, members, others = Known(pool[:40], pool[40:80]), pool[80:140], pool[140:]
    view = view_of(Steady(torch.cat([known.members, members])), Augment())
    return {"view": view, "known": known, "members": members, "others": others}


def test_variance__naive_twin(turned: dict[str, Any]) -> None:
    view, images = turned["view"], turned["members"][:3]
    before = view.queries
    (got,) = VarianceOnly(views=5).inputs(view, images)
    assert view.queries - before == 15
    pixels = view.view_pixels(images, 5, Rotations())  # views x images
    encoder = view.copy_method().encoder
    for i in range(3):
        rows = torch.cat([encoder.features(pixels[m, i][None], ["avgpool"])["avgpool"]
                          for m in range(5)])  # fmt: skip
        for k in range(16):
            column = rows[:, k].tolist()
            mean = sum(column) / 5
            want = sum((v - mean) ** 2 for v in column) / 4
            assert math.isclose(float(got[i, k]), want, rel_tol=1e-3, abs_tol=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("degrees", [15.0, 5.0])
def test_turned__leak_is_found(degrees: float, turned: dict[str, Any]) -> None:
    assert auc_of(VarianceOnly(degrees=degrees), **turned) > 0.95
