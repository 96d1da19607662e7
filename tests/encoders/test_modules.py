"""Torch modules from torchvision, timm and the user's own factories, and their checkpoints."""

from __future__ import annotations

import copy
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torchvision import models

from fedmia.encoders import checkpoint, untrained
from fedmia.encoders.base import IMAGENET, LoadContext, LoadedEncoder, LoadOptions, load
from fedmia.encoders.describe import probe_encoder
from fedmia.nets.base import initialise
from fedmia.nets.smallnet import SmallNet
from fedmia.options.errors import InputError
from fedmia.options.seeding import torch_rng
from fedmia.ssl.base import Encoder
from tests.encoders.conftest import SIZE, Tiny, make_tiny


class Patches(nn.Module):
    """A transformer's shape: patches, a class token, one layer; returns the class token."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Conv2d(3, 8, 4, 4)
        self.token = nn.Parameter(torch.ones(1, 1, 8))
        self.position = nn.Parameter(torch.zeros(1, 17, 8))
        self.norm = nn.LayerNorm(8)

    def forward(self, x: Tensor) -> Tensor:
        patches = self.embed(x).flatten(2).transpose(1, 2)
        rows = torch.cat([self.token.expand(len(x), -1, -1), patches], dim=1)
        return self.norm(rows + self.position)[:, 0] + patches.mean(dim=1)


@pytest.fixture
def code(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """An importable module `usercode`, to put factories into."""
    module: Any = types.ModuleType("usercode")
    monkeypatch.setitem(sys.modules, "usercode", module)
    yield module


def bad(made: nn.Module) -> nn.Module:
    with torch.no_grad():
        made.get_parameter("fc.weight").fill_(float("nan"))
    return made


def check(released: LoadedEncoder, images: Tensor) -> dict[str, Tensor]:
    """What holds of every white-box encoder; its features."""
    assert released.access == "white_box" and probe_encoder(released, images) == []
    encoder = released.method.encoder
    assert encoder.layers[-2:] == ("avgpool", "encoder")
    pixels = images.float() / 255
    with torch.no_grad():
        features = encoder.features(pixels, encoder.layers)
        again = copy.deepcopy(released.method).encoder(pixels)
    assert torch.equal(features["encoder"], again)
    assert features["avgpool"].ndim == features["encoder"].ndim == 2
    if encoder.map_layer is not None:
        assert encoder.map_layer == encoder.layers[-3] and features[encoder.map_layer].ndim == 4
    return features


def test_factory__hooks_find_the_stages(code: Any, pictures: Tensor) -> None:
    code.make = make_tiny
    released = load("usercode:make")
    layers = check(released, pictures)
    assert released.method.encoder.layers == ("layer1", "layer2", "avgpool", "encoder")
    assert (released.size, released.fixed_size, released.channels) == (None, False, 3)
    module, (mean, std) = make_tiny(both=True), (torch.tensor(c).view(1, 3, 1, 1) for c in IMAGENET)
    with torch.no_grad():
        vector, last = module((pictures.float() / 255 - mean) / std)
    torch.testing.assert_close(layers["encoder"], vector)
    torch.testing.assert_close(layers["layer2"], last)


def test_factory__tuple_gives_the_same_map(code: Any, pictures: Tensor) -> None:
    code.make = lambda: make_tiny(both=True)
    released = load("usercode:make", size=SIZE)
    assert check(released, pictures)["layer2"].shape == (7, 12, 4, 4)
    assert released.size == SIZE


def test_factory__tokens_become_a_map(code: Any, pictures: Tensor) -> None:
    code.make = Patches
    released = load("usercode:make", size=SIZE)
    layers, encoder = check(released, pictures), released.method.encoder
    assert encoder.layers == ("map", "avgpool", "encoder") and released.fixed_size
    module = encoder.backbone.module
    assert isinstance(module, Patches)
    with torch.no_grad():
        patch = module.embed(encoder.normalise(pictures.float() / 255))[:, :, 2, 1]
        expected = module.norm(patch)
    torch.testing.assert_close(layers["map"][:, :, 2, 1], expected)


def test_factory__frozen_and_in_half_precision(code: Any, pictures: Tensor) -> None:
    code.make = lambda: make_tiny().requires_grad_(False).half()
    released = load("usercode:make")
    check(released, pictures)
    loss = released.method.probe_losses(*(torch.rand(2, 3, 3, SIZE, SIZE)))
    grads = torch.autograd.grad(loss.sum(), released.method.trainable())
    assert loss.shape == (3,) and all(torch.isfinite(g).all() for g in grads)


def test_factory__random_weights_are_seeded_and_the_generator_left_alone(code: Any) -> None:
    code.make = Tiny
    before = torch.random.get_rng_state()
    first, again, other = (load("usercode:make", seed=s) for s in (0, 0, 1))
    assert torch.equal(torch.random.get_rng_state(), before)
    names = first.method.shared_state()
    assert all(torch.equal(again.method.shared_state()[n], t) for n, t in names.items())
    assert any(not torch.equal(other.method.shared_state()[n], t) for n, t in names.items())


def test_factory__fedmias_own_keep_their_layers(code: Any, pictures: Tensor) -> None:
    backbone = SmallNet(width=4).build(3, SIZE)
    initialise(backbone, torch_rng(0))
    code.backbone = lambda: backbone
    code.encoder = lambda: Encoder(backbone, nn.Linear(16, 6), (0.4,) * 3, (0.2,) * 3)
    stages = ("layer1", "layer2", "layer3", "layer4", "avgpool", "encoder")
    assert check(load("usercode:backbone", size=SIZE), pictures)["avgpool"].shape == (7, 16)
    released = load("usercode:encoder", size=SIZE)
    assert check(released, pictures)["encoder"].shape == (7, 6)
    assert released.method.encoder.layers == stages
    assert released.method.encoder.map_layer == "layer4"
    with pytest.raises(InputError, match="holds its own"):
        load("usercode:encoder", mean=[0.5])


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (lambda: 3, "returned int, not a torch module"),
        (lambda x: x, "fails when called without arguments: TypeError"),
        (3, "is not a function"),
        (lambda: nn.Identity(), None),
        (lambda: nn.Sequential(nn.Conv2d(5, 2, 3), nn.Linear(7, 7)), "fails on blank images of 5x"),
        (lambda: nn.Flatten(0), "returns"),
        (lambda: bad(make_tiny()), "layer 'avgpool' is not finite for 7 of 7 images"),
    ],
)
def test_factory__what_is_no_encoder(
    value: Any, message: str | None, code: Any, pictures: Tensor
) -> None:
    code.make = value
    if message is None:
        assert load("usercode:make").method.encoder.map_layer == "map"
        return
    with pytest.raises(InputError, match=message):
        probe_encoder(load("usercode:make"), pictures)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("nowhere.at.all:make", "cannot load encoder 'nowhere.at.all:make'"),
        ("usercode:missing", "cannot load encoder"),
        ("./nothing", r"unknown encoder './nothing' \(no such folder\); give one of RUN"),
        ("resnet18", "unknown encoder 'resnet18'"),
        ("run@40", "no such folder"),
        ("weights.pth", "'weights.pth': no such file"),
        ("torchvision:resnet19", r"did you mean 'resnet1\d'"),
    ],
)
def test_load__unknown_encoders(spec: str, message: str, code: Any) -> None:
    with pytest.raises(InputError, match=message) as caught:
        load(spec)
    assert "\n" not in str(caught.value)


def test_probe__images_of_another_kind(code: Any, pictures: Tensor) -> None:
    code.make = Patches
    released = load("usercode:make", size=SIZE)
    with pytest.raises(InputError, match="1 channels, usercode:make takes 3"):
        probe_encoder(released, pictures[:, :1])
    with pytest.raises(InputError, match="size=16 resizes them"):
        probe_encoder(released, pictures[:, :, :12, :12])
    with pytest.raises(InputError, match="no image"):
        probe_encoder(released, pictures[:0])


def test_probe__tells_of_what_is_odd(code: Any, pictures: Tensor) -> None:
    code.make = make_tiny
    notes = probe_encoder(load("usercode:make"), pictures[:, :, :4, :4])
    assert len(notes) == 1 and "last map of usercode:make is 1x1" in notes[0]

    def dead() -> nn.Module:
        module = make_tiny()
        nn.init.zeros_(module.fc.weight)
        return module

    code.make = dead
    assert "same output for all 7" in probe_encoder(load("usercode:make"), pictures)[0]


def test_probe__names_an_encoder_that_draws_anew_at_every_pass(code: Any, pictures: Tensor) -> None:
    class Dropping(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tiny = make_tiny()

        def forward(self, x: Tensor) -> Tensor:
            return nn.functional.dropout(self.tiny(x), 0.5)  # eval() does not reach it

    code.make = Dropping
    sentence = "answers the same image differently when it is asked again, from layer 'avgpool' on"
    with pytest.raises(InputError, match=f"{sentence}.*allow_random"):
        probe_encoder(load("usercode:make"), pictures)
    assert any(
        sentence in n for n in probe_encoder(load("usercode:make"), pictures, allow_random=True)
    )
    code.make = make_tiny
    assert not any("differently" in n for n in probe_encoder(load("usercode:make"), pictures))


@pytest.mark.slow
def test_torchvision__resnet_without_its_classifier(pictures: Tensor) -> None:
    released = load("torchvision:resnet18", size=32)
    assert "random weights: nothing was trained" in released.notes[0]
    big = nn.functional.interpolate(pictures[:2], size=48)
    layers = check(released, big)
    assert layers["avgpool"].shape == (2, 512) and released.size == 32
    assert not released.fixed_size and released.method.encoder.map_layer == "layer3"


def test_factory__torchvisions_vit(code: Any, pictures: Tensor) -> None:
    def make() -> nn.Module:
        module = models.VisionTransformer(SIZE, 4, 2, 2, 8, 16)
        module.heads = nn.Identity()  # it starts as zeros
        return module

    code.make = make
    released = load("usercode:make", size=SIZE)
    layers, encoder = check(released, pictures), released.method.encoder
    assert encoder.layers == ("map", "avgpool", "encoder") and released.fixed_size
    assert layers["map"].shape == (7, 8, 4, 4) and layers["encoder"].shape == (7, 8)


def test_factory__a_stage_called_encoder_is_not_the_output(code: Any, pictures: Tensor) -> None:
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = nn.Conv2d(3, 4, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.encoder(x).mean(dim=(2, 3))

    code.make = Named
    released = load("usercode:make")
    layers = check(released, pictures)
    assert released.method.encoder.layers == ("encoder.out", "avgpool", "encoder")
    assert layers["encoder"].shape == (7, 4) and layers["encoder.out"].shape == (7, 4, 14, 14)


@pytest.mark.slow
def test_torchvision__vit_has_a_map_of_patches(pictures: Tensor) -> None:
    released = load("torchvision:vit_b_32", size=64)
    assert released.fixed_size and released.size == 64
    layers = check(released, nn.functional.interpolate(pictures[:1], size=64))
    assert layers["avgpool"].shape == (1, 768) and layers["map"].shape == (1, 768, 2, 2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "width", "side"),
    [
        ("vgg11", 512, 2), ("alexnet", 256, 1), ("squeezenet1_1", 512, 3), ("densenet121", 1024, 2),
        ("mobilenet_v3_small", 576, 2), ("efficientnet_b0", 1280, 2), ("convnext_tiny", 768, 2),
        ("swin_t", 768, 2), ("regnet_y_400mf", 440, 2), ("shufflenet_v2_x0_5", 1024, 2),
        ("googlenet", 1024, 2), ("maxvit_t", 512, 7), ("resnet50", 2048, 2),
    ],
)  # fmt: skip
def test_torchvision__many_families(name: str, width: int, side: int, pictures: Tensor) -> None:
    size = 224 if name == "maxvit_t" else 64
    released = load(f"torchvision:{name}", size=size)
    layers = check(released, nn.functional.interpolate(pictures[:2], size=size))
    assert layers["avgpool"].shape == (2, width)
    if side > 1:
        assert layers[str(released.method.encoder.map_layer)].shape == (2, width, side, side)
    untrained_out = released.untrained().encoder(torch.rand(2, 3, size, size))
    assert torch.isfinite(untrained_out).all()


@pytest.mark.parametrize(
    ("name", "map_shape", "last"),
    [
        ("test_resnet", (2, 96, 5, 5), "layer4"),
        ("test_vit", (2, 64, 10, 10), "map"),
        ("test_convnext", (2, 64, 5, 5), "stages.3"),
        ("test_efficientnet", (2, 256, 5, 5), "map"),
    ],
)
def test_timm__map_vector_size_and_constants(
    name: str, map_shape: tuple[int, ...], last: str, pictures: Tensor
) -> None:
    timm = pytest.importorskip("timm")
    released = load(f"timm:{name}")
    assert (released.size, released.channels) == (160, 3)
    images = nn.functional.interpolate(pictures[:2], size=160)
    layers, encoder = check(released, images), released.method.encoder
    assert encoder.map_layer == last and layers[last].shape == map_shape
    module = encoder.backbone.module
    with torch.no_grad():
        torch.testing.assert_close(
            module(encoder.normalise(images.float() / 255)), layers["encoder"]
        )
    config = timm.get_pretrained_cfg(name)
    torch.testing.assert_close(encoder.mean.flatten(), torch.tensor(config.mean))
    assert "nothing was trained" in released.notes[0]


def test_constants__those_given_win_over_the_encoders_own() -> None:
    """One of the two leaves the other as the encoder has it."""
    own, mean, std = ((0.1, 0.2, 0.3), (0.4, 0.5, 0.6)), (0.7, 0.8, 0.9), (0.25, 0.35, 0.45)
    notes = list[str]()
    assert LoadOptions().channel_constants(3, own, notes) == own
    assert LoadOptions(mean=mean, std=std).channel_constants(3, own, notes) == (mean, std)
    assert LoadOptions(mean=mean).channel_constants(3, own, notes) == (mean, own[1])
    assert LoadOptions(std=(0.5,)).channel_constants(3, own, notes) == (own[0], (0.5,) * 3)
    assert notes == []


def test_timm__size_and_unknown_name() -> None:
    pytest.importorskip("timm")
    with pytest.raises(InputError, match="did you mean 'resnet18'"):
        load("timm:resnet18x")
    assert load("timm:test_vit", size=32).size == 32


def test_timm__missing_package_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(InputError, match=r"pip install '\.\[timm\]'"):
        load("timm:resnet18")


def test_checkpoint__wrappers_are_stripped(tmp_path: Path, code: Any, pictures: Tensor) -> None:
    code.make = Tiny
    weights = make_tiny().state_dict()
    key = {f"module.encoder_k.{n}": torch.zeros_like(t) for n, t in weights.items()}
    query = {f"module.encoder_q.{n}": t for n, t in weights.items()}
    torch.save({"epoch": 3, "state_dict": {**key, **query}}, tmp_path / "moco.pth")
    save_file(weights, tmp_path / "plain.safetensors")
    outs = []
    for file in ("moco.pth", "plain.safetensors"):
        released = load("usercode:make", checkpoint=tmp_path / file, seed=5)
        assert (released.weights.loaded, released.weights.missing) == (16, ())
        outs.append(released.method.encoder(pictures.float() / 255))
    code.make = make_tiny
    outs.append(load("usercode:make").method.encoder(pictures.float() / 255))
    assert torch.equal(outs[0], outs[2]) and torch.equal(outs[1], outs[2])


def test_checkpoint__what_does_not_fit(tmp_path: Path) -> None:
    weights = dict(make_tiny().state_dict())
    file = tmp_path / "w.pt"

    def fit(path: Path) -> None:
        checkpoint.load_checkpoint(LoadContext("tiny", LoadOptions(path)), Tiny())

    def refused(state: Any, message: str) -> None:
        torch.save(state, file)
        with pytest.raises(InputError, match=message) as caught:
            fit(file)
        assert "\n" not in str(caught.value)

    gone = {n: t for n, t in weights.items() if n != "layer2.0.bias"}
    refused(gone, r"tensor 'layer2.0.bias' is missing \(13 of 14 tensors fit\)")
    refused({**weights, "fc.weight": torch.zeros(2, 2)}, r"'fc.weight' is \(2, 2\), tiny needs")
    refused({"epoch": 3}, "no named tensors")
    refused([1], "no named tensors")
    file.write_bytes(b"x")
    with pytest.raises(InputError, match="cannot be read"):
        fit(file)
    with pytest.raises(InputError, match="no such file"):
        fit(tmp_path / "none.pt")


@pytest.mark.slow
def test_checkpoint__of_a_classifier_leaves_its_head(tmp_path: Path) -> None:
    module = models.resnet18(weights=None)
    torch.save(module.state_dict(), tmp_path / "r.pth")
    released = load("torchvision:resnet18", checkpoint=tmp_path / "r.pth", size=32)
    assert released.weights.dropped == ("fc.weight", "fc.bias")
    assert not any("nothing was trained" in n for n in released.notes)
    got = released.method.shared_state()["backbone.module.layer4.1.conv2.weight"]
    assert torch.equal(got, module.layer4[1].conv2.weight)


def test_control__same_entries_elsewhere(code: Any, pictures: Tensor) -> None:
    code.make = make_tiny
    released = load("usercode:make", seed=3)
    ours, theirs = released.method.shared_state(), released.untrained().shared_state()
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        assert torch.equal(tensor.flatten().sort()[0], theirs[name].flatten().sort()[0])
        assert not torch.equal(tensor, theirs[name]) or len(tensor.unique()) == 1
    pixels = pictures.float() / 255
    outs = [load("usercode:make", seed=s).untrained().encoder(pixels) for s in (3, 3, 4)]
    assert torch.equal(outs[0], outs[1]) and not torch.allclose(outs[0], outs[2])
    assert torch.isfinite(outs[0]).all()
    assert not torch.allclose(outs[0], released.method.encoder(pixels))


def test_control__overflow_keeps_the_vectors(code: Any) -> None:
    class Steep(nn.Module):
        """Finite only while its two gains stay where they are."""

        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(4, 3))
            self.gain = nn.Parameter(torch.tensor([1e38, 1e-38, 1e-38, 1e-38]))

        def forward(self, x: Tensor) -> Tensor:
            y = (x.mean((2, 3)) @ self.weight.T) * self.gain
            return y / torch.tensor([1e38, 1e-38, 1e-38, 1e-38])

    code.make = Steep
    control = load("usercode:make", size=SIZE).untrained()
    state = control.shared_state()
    assert torch.equal(state["backbone.module.gain"][:1], torch.tensor([1e38]))
    assert untrained.permute_tensors({"a": torch.ones(3), "b": torch.ones(2, 2)}, 0, 2) == 1


def test_method__bank_and_losses(code: Any, pictures: Tensor) -> None:
    code.make = make_tiny
    method = load("usercode:make", seed=1).method
    pixels = pictures.float() / 255
    z = method.encoder(pixels)
    before = method.output_losses(z, z.flip(0))
    assert before.shape == (7,) and torch.isfinite(before).all()
    method.fill_bank(pixels)
    bank = nn.functional.normalize(z, dim=1)
    query, key = bank, bank.flip(0)
    logits = torch.cat([(query * key).sum(1, keepdim=True), query @ bank.T], 1) / 0.2
    back = torch.cat([(query * key).sum(1, keepdim=True), key @ bank.T], 1) / 0.2
    expected = torch.stack([-torch.log_softmax(x, 1)[:, 0] for x in (logits, back)]).sum(0)
    torch.testing.assert_close(method.output_losses(z, z.flip(0)), expected)
    assert method.local_state() == {}
    with pytest.raises(RuntimeError):
        method.losses(pixels, pixels)
