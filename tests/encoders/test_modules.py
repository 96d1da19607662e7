"""Torch modules from torchvision, timm and the user's own factories, and their checkpoints."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torchvision import models

from fedmia.encoders import checkpoint, untrained
from fedmia.encoders.base import IMAGENET, EncoderFacts, LoadedEncoder, LoadOptions, load
from fedmia.encoders.describe import probe_encoder
from fedmia.nets.base import initialise
from fedmia.nets.smallnet import SmallNet
from fedmia.report.words.notes import sentences
from fedmia.seeding import torch_rng
from fedmia.settings.errors import InputError
from fedmia.ssl.base import Encoder
from tests.encoders.conftest import SIZE, Tiny, make_tiny, refused


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


class Named(nn.Module):
    """A stage that is called as the output is."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Conv2d(3, 4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.encoder(x).mean(dim=(2, 3))


class Dropping(Tiny):
    """Its dropout is not one that eval() reaches."""

    def forward(self, x: Tensor) -> Any:
        return nn.functional.dropout(super().forward(x), 0.5)


class Steep(nn.Module):
    """Finite only while its two gains stay where they are."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 3))
        self.gain = nn.Parameter(torch.tensor([1e38, 1e-38, 1e-38, 1e-38]))

    def forward(self, x: Tensor) -> Tensor:
        y = (x.mean((2, 3)) @ self.weight.T) * self.gain
        return y / torch.tensor([1e38, 1e-38, 1e-38, 1e-38])


def filled(value: float) -> nn.Module:
    """The tiny network with one value in its last matrix."""
    module = make_tiny()
    nn.init.constant_(module.fc.weight, value)
    return module


def small_vit() -> nn.Module:
    module = models.VisionTransformer(SIZE, 4, 2, 2, 8, 16)
    module.heads = nn.Identity()  # it starts as zeros
    return module


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


@pytest.mark.parametrize(
    ("make", "stages", "last", "fixed"),
    [
        (make_tiny, ("layer1", "layer2"), (12, 4, 4), False),
        (lambda: make_tiny(both=True), ("layer1", "layer2"), (12, 4, 4), False),
        (Patches, ("map",), (8, 4, 4), True),
        (small_vit, ("map",), (8, 4, 4), True),
        (Named, ("encoder.out",), (4, 14, 14), False),
    ],
)
def test_factory__hooks_find_the_stages(
    make: Callable[[], nn.Module], stages: tuple[str, ...], last: tuple[int, ...], fixed: bool,
    code: Any, pictures: Tensor,
) -> None:  # fmt: skip
    code.make = make
    released = load("usercode:make", size=SIZE)
    layers, encoder = check(released, pictures), released.method.encoder
    assert encoder.layers == (*stages, "avgpool", "encoder") and released.fixed_size is fixed
    assert layers[stages[-1]].shape == (7, *last) and released.size == SIZE
    assert fixed or (load("usercode:make").size, released.channels) == (None, 3)
    module: Any = encoder.backbone.module
    normal = encoder.normalise(pictures.float() / 255)
    if isinstance(module, Tiny):
        mean, std = (torch.tensor(c).view(1, 3, 1, 1) for c in IMAGENET)
        with torch.no_grad():
            expected = make_tiny(both=True)((pictures.float() / 255 - mean) / std)
        torch.testing.assert_close((layers["encoder"], layers["layer2"]), expected)
    if isinstance(module, Patches):
        with torch.no_grad():
            patch = module.norm(module.embed(normal)[:, :, 2, 1])
        torch.testing.assert_close(layers["map"][:, :, 2, 1], patch)


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
    first, again, other = (
        load("usercode:make", seed=s).method.shared_state()["backbone.module.fc.weight"]
        for s in (0, 0, 1)
    )
    assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.equal(again, first) and not torch.equal(other, first)


def test_factory__fedmias_own_keep_their_layers(code: Any, pictures: Tensor) -> None:
    backbone = SmallNet(width=4).build(3, SIZE)
    initialise(backbone, torch_rng(0))
    code.backbone = lambda: backbone
    code.encoder = lambda: Encoder(backbone, nn.Linear(16, 6), (0.4,) * 3, (0.2,) * 3)
    assert check(load("usercode:backbone", size=SIZE), pictures)["avgpool"].shape == (7, 16)
    released = load("usercode:encoder", size=SIZE)
    assert check(released, pictures)["encoder"].shape == (7, 6)
    stages = ("layer1", "layer2", "layer3", "layer4", "avgpool", "encoder")
    assert released.method.encoder.layers == stages
    refused(r"data.mean \(--mean\): .* holds its own", "usercode:encoder", mean=[0.5])


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (lambda: 3, "returned int, not a torch module"),
        (lambda x: x, "fails when called without arguments: TypeError"),
        (3, "is not a function"),
        (lambda: nn.Sequential(nn.Conv2d(5, 2, 3), nn.Linear(7, 7)), "fails on blank images of 5x"),
        (lambda: nn.Flatten(0), "returns"),
        (lambda: filled(float("nan")), "layer 'avgpool' is not finite for 7 of 7 images"),
        (Dropping, "differently when it is asked again, from layer 'avgpool' on.*allow_random"),
    ],
)
def test_factory__what_is_no_encoder(value: Any, message: str, code: Any, pictures: Tensor) -> None:
    code.make = value
    with pytest.raises(InputError, match=message):
        probe_encoder(load("usercode:make"), pictures)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("nowhere.at.all:make", "cannot load encoder 'nowhere.at.all:make'"),
        ("usercode:missing", "cannot load encoder"),
        ("./nothing", r"unknown encoder './nothing' \(no such folder\); give one of RUN"),
        *((s, "unknown") for s in ("resnet18", "timm", "timm:", ":make", "c-d:make", "a:b-c:d")),
        ("run@40", "no such folder"),
        ("weights.pth", "'weights.pth': no such file"),
        ("w.h5", r"unknown encoder .*\(a file that ends in '.h5'\); give"),
        ("torchvision:resnet19", r"did you mean 'resnet1\d'"),
        ("timm:resnet18x", "did you mean 'resnet18'"),
    ],
)
def test_load__unknown_encoders(
    spec: str, message: str, code: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("w.h5").touch()
    refused(message, spec)


def test_probe__tells_of_what_is_odd(code: Any, pictures: Tensor) -> None:
    code.make = Patches
    with pytest.raises(InputError, match="no image"):
        probe_encoder(load("usercode:make", size=SIZE), pictures[:0])
    small = pictures[:, :, :4, :4]
    for make, images, said in (
        (make_tiny, small, "last map of usercode:make is 1x1"),
        (lambda: filled(0.0), pictures, "same output for all 7"),
        (Dropping, pictures, "scores depend on chance"),
    ):
        code.make = make
        (note,) = sentences(probe_encoder(load("usercode:make"), images, allow_random=True))
        assert said in note


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "width", "side"),
    [
        ("vgg11", 512, 2), ("squeezenet1_1", 512, 3), ("densenet121", 1024, 2),
        ("mobilenet_v3_small", 576, 2), ("convnext_tiny", 768, 2), ("swin_t", 768, 2),
        ("regnet_y_400mf", 440, 2), ("shufflenet_v2_x0_5", 1024, 2), ("googlenet", 1024, 2),
        ("resnet18", 512, 2), ("vit_b_32", 768, 2),
    ],
)  # fmt: skip
def test_torchvision__many_families(name: str, width: int, side: int, pictures: Tensor) -> None:
    released = load(f"torchvision:{name}", size=64)
    assert "random weights: nothing was trained" in sentences(released.notes)[0]
    assert released.size == 64 and released.fixed_size == (name == "vit_b_32")
    layers = check(released, nn.functional.interpolate(pictures[:2], size=64))
    assert layers["avgpool"].shape == (2, width)
    assert layers[str(released.method.encoder.map_layer)].shape == (2, width, side, side)


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
    with torch.no_grad():
        vector = encoder.backbone.module(encoder.normalise(images.float() / 255))
    torch.testing.assert_close(vector, layers["encoder"])
    config = timm.get_pretrained_cfg(name)
    torch.testing.assert_close(encoder.mean.flatten(), torch.tensor(config.mean))
    assert "nothing was trained" in sentences(released.notes)[0]
    assert load(f"timm:{name}", size=32).size == 32


@pytest.mark.parametrize(
    ("package", "spec", "extra"),
    [
        ("timm", "timm:resnet18", "timm"),
        ("open_clip", "open_clip:ViT-B-32", "clip"),
        ("transformers", "hf:FOLDER", "hf"),
        ("onnxruntime", "FOLDER/net.onnx", "onnx"),
    ],
)
def test_extra__that_is_missing_is_named(
    package: str, spec: str, extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    (tmp_path / "config.json").write_text("{}")
    for name in ("model.safetensors", "net.onnx"):
        (tmp_path / name).write_bytes(b"weights")
    refused(rf"pip install '\.\[{extra}\]'", spec.replace("FOLDER", str(tmp_path)))


def test_checkpoint__what_does_not_fit(tmp_path: Path) -> None:
    weights = dict(make_tiny().state_dict())
    file = tmp_path / "w.pt"

    def fails(message: str, path: Path = file) -> None:
        with pytest.raises(InputError, match=message):
            checkpoint.load_checkpoint(EncoderFacts("tiny", LoadOptions(path)), Tiny())

    for state, message in (
        (
            {n: t for n, t in weights.items() if n != "layer2.0.bias"},
            r"'layer2.0.bias' is missing \(13 of 14 tensors fit\)",
        ),
        ({**weights, "fc.weight": torch.zeros(2, 2)}, r"'fc.weight' is \(2, 2\), tiny needs"),
        ({"epoch": 3}, "no named tensors"),
        ([1], "no named tensors"),
    ):
        torch.save(state, file)
        fails(message)
    file.write_bytes(b"x")
    fails("cannot be read")
    fails("no such file", tmp_path / "none.pt")


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
    code.make = Steep
    state = load("usercode:make", size=SIZE).untrained().shared_state()
    assert torch.equal(state["backbone.module.gain"][:1], torch.tensor([1e38]))
    ordered = {"a": torch.arange(64.0), "b": torch.arange(64.0).view(8, 8)}
    untrained.permute_tensors(ordered, EncoderFacts("net", LoadOptions()), 2)
    assert torch.equal(ordered["a"], torch.arange(64.0))
    assert not torch.equal(ordered["b"].flatten(), ordered["a"])


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
