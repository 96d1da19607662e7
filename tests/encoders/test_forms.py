"""Checkpoints of public code: nothing is missing, and the features are those of their library."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from torchvision import models

from fedmia.encoders._vit import set_heads
from fedmia.encoders.base import LoadedEncoder, load
from fedmia.encoders.describe import describe
from fedmia.nets.resnet import BasicBlock, Bottleneck, ResNet
from fedmia.report.words.notes import sentences
from tests.encoders.conftest import refused
from tests.encoders.forms import FORMS, SIZE, Made, make, spread, vit

QUICK = ("moco_v2", "lightly_cifar", "dino", "moco_v3_vit")


def check(released: LoadedEncoder, made: Made) -> None:
    """The same features and projection as the library's network, from every weight of the file."""
    assert released.weights.missing == ()
    encoder = released.method.encoder
    pixels = torch.rand(3, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        features = encoder.features(pixels, ("avgpool", "encoder"))
        vector = made.backbone(encoder.normalise(pixels))
        expected = vector if made.head is None else made.head(vector)
    torch.testing.assert_close(features["avgpool"], vector, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(features["encoder"], expected, atol=1e-5, rtol=1e-5)
    assert isinstance(encoder.head, nn.Identity) == (made.head is None)


@pytest.mark.parametrize(
    "form", [f if f in QUICK else pytest.param(f, marks=pytest.mark.slow) for f in FORMS]
)
def test_form__loads_whole_and_computes_the_same(form: str, tmp_path: Path) -> None:
    if any(word in form for word in ("vit", "dino", "mae")):
        pytest.importorskip("timm")
    made = make(form, tmp_path / "file.pth")
    check(load(str(tmp_path / "file.pth"), key=made.key), made)


@pytest.mark.parametrize(
    ("block", "apart"), [(BasicBlock, 0.0), (Bottleneck, 0.0), (BasicBlock, 0.4)]
)
def test_form__a_resnet_of_any_width_whose_statistics_may_be_split(
    block: type[BasicBlock | Bottleneck], apart: float, tmp_path: Path
) -> None:
    """The house's own narrow ResNet, which has torchvision's names. Parts of a batch norm see other
    images, and differ: they are averaged, as the code that splits it does when it evaluates."""
    net = ResNet(block, (1, 1, 1, 1), 3, 12, "batch", "cifar")
    state = dict(spread(net).state_dict())
    for name in [n for n in state if apart and "running_" in n]:
        shift = apart * torch.rand(state[name].shape)
        state[name] = torch.cat([state[name] - shift, state[name] + shift])
    torch.save({"state_dict": state}, tmp_path / "w.pth")
    released = load(str(tmp_path / "w.pth"))
    assert released.weights.dropped == ()
    check(released, Made(None, net, None))


def test_form__what_a_file_holds_is_told(tmp_path: Path) -> None:
    pytest.importorskip("timm")
    file = tmp_path / "dino.pth"
    made = make("dino", file)
    released = load(str(file), mean=0.5, std=0.25)
    weights, row = released.weights, describe(released, SIZE)
    assert weights.form == row.form == "DINO" and row.size == SIZE
    assert (row.mean, row.std) == ([0.5] * 3, [0.25] * 3)
    assert [(one.name, one.kind, one.shape) for one in row.outputs] == [
        ("map", "map", [192, 4, 4]), ("avgpool", "pooled", [192]), ("encoder", "projection", [8]),
    ]  # fmt: skip
    assert weights.dropped == ("head.last_layer.weight_g", "head.last_layer.weight_v")
    head = made.head.state_dict() if made.head else {}
    assert weights.loaded == len(made.backbone.state_dict()) + len(head)
    refused("no such network in dino.pth; did you mean 'student'", file, key="studnt")
    refused("checkpoint_key .* student is given without", "torchvision:resnet18", key="student")


@pytest.mark.slow
@pytest.mark.parametrize("library", ["torchvision", "timm"])
def test_name__takes_the_stem_the_norms_and_the_channels_of_the_file(
    library: str, tmp_path: Path
) -> None:
    """By name too: a ResNet-18 with group norms on one channel, with a 3x3 stem."""
    pytest.importorskip(library)
    file, name = tmp_path / "w.pth", f"{library}:resnet18"
    net: Any = models.resnet18(norm_layer=lambda width: nn.GroupNorm(32, width))
    net.conv1 = nn.Conv2d(1, 64, 3, 1, 1, bias=False)
    net.maxpool = net.fc = nn.Identity()
    torch.save(net.state_dict(), file)
    # Group norms have the tensors of batch norms whose buffers were left out.
    refused("no running_mean and running_var .*allow_missing", name, checkpoint=file)
    released = load(name, checkpoint=file, allow_missing=True)
    assert (released.channels, released.size, released.weights.missing) == (1, None, ())
    pixels, encoder = torch.rand(2, 1, 16, 16), released.method.encoder
    with torch.no_grad():
        torch.testing.assert_close(encoder(pixels), net.eval()(encoder.normalise(pixels)))
    torch.save(models.resnet34(weights=None).state_dict(), file)
    assert load(str(file)).weights.missing == ()
    refused("'layer1.0.conv1.weight' is|is missing", f"{library}:resnet50", checkpoint=file)


def test_heads__of_moco_v3s_small_transformer() -> None:
    """It has twelve, timm's has six, and no tensor tells."""
    pytest.importorskip("timm")
    theirs, ours = vit(384, 12), vit(384, 6)
    ours.load_state_dict(theirs.state_dict())
    pixels = torch.rand(2, 3, SIZE, SIZE)
    with torch.no_grad():
        assert not torch.allclose(ours(pixels), theirs(pixels), atol=1e-3)
        assert set_heads(ours, theirs.state_dict(), "MAE") == []
        assert len(set_heads(ours, theirs.state_dict(), "MoCo v3")) == 1
        torch.testing.assert_close(ours(pixels), theirs(pixels))


def test_timm__positions_are_resampled_as_timm_does(tmp_path: Path) -> None:
    timm = pytest.importorskip("timm")
    from timm.models.vision_transformer import checkpoint_filter_fn

    own, expected = (timm.create_model("test_vit", num_classes=0, img_size=s) for s in (160, 96))
    nn.init.normal_(own.pos_embed)
    save_file(own.state_dict(), tmp_path / "w.safetensors")
    expected.load_state_dict(checkpoint_filter_fn(own.state_dict(), expected))
    released = load("timm:test_vit", checkpoint=tmp_path / "w.safetensors", size=96)
    assert released.weights.missing == () and "resampled" in " ".join(sentences(released.notes))
    pixels, encoder = torch.rand(2, 3, 96, 96), released.method.encoder
    with torch.no_grad():
        torch.testing.assert_close(encoder(pixels), expected.eval()(encoder.normalise(pixels)))


@pytest.mark.slow
def test_timm__a_folder_names_the_model_and_holds_its_weights(tmp_path: Path) -> None:
    timm = pytest.importorskip("timm")
    net = timm.create_model("test_vit", num_classes=10)
    mean, std = [0.1, 0.2, 0.3], [0.5, 0.6, 0.7]
    config = {"input_size": [3, 160, 160], "mean": mean, "std": std, "num_classes": 10}
    fields = {"architecture": "test_vit", "num_classes": 10, "pretrained_cfg": config}
    (tmp_path / "config.json").write_text(json.dumps(fields))
    refused("model.safetensors or pytorch_model.bin", f"timm:{tmp_path}")
    save_file(net.state_dict(), tmp_path / "model.safetensors")
    for spec in (f"timm:{tmp_path}", f"timm:local-dir:{tmp_path}"):
        released = load(spec)
        assert released.weights.missing == () and released.size == 160
        encoder, pixels = released.method.encoder, torch.rand(1, 3, 160, 160)
        torch.testing.assert_close(encoder.mean.flatten(), torch.tensor(mean))
        with torch.no_grad():
            tokens = net.eval().forward_features(encoder.normalise(pixels))
            expected = net.forward_head(tokens, pre_logits=True)
            torch.testing.assert_close(encoder(pixels), expected)
    refused("nothing is downloaded", f"timm:{tmp_path}/none")
