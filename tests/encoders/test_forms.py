"""Checkpoints of public code: nothing is missing, and the features are those of their library."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from torchvision import models

from fedmia.encoders._vit import set_heads
from fedmia.encoders.base import LoadedEncoder, load
from fedmia.nets.resnet import BasicBlock, Bottleneck, ResNet
from fedmia.options.errors import InputError
from tests.encoders.forms import FORMS, SIZE, Made, make, spread, vit

QUICK = ("moco-v2", "lightly cifar", "dino", "moco-v3 vit")


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
    path = tmp_path / "file.pth"
    form_file = make(form, path)
    released = load(str(path), key=form_file.key)
    check(released, form_file)


@pytest.mark.parametrize("block", [BasicBlock, Bottleneck])
def test_form__a_resnet_of_any_width(block: type[BasicBlock | Bottleneck], tmp_path: Path) -> None:
    """The house's own narrow ResNet, which has torchvision's names."""
    net = ResNet(block, (1, 1, 1, 1), 3, 12, "batch", "cifar")
    torch.save({"state_dict": spread(net).state_dict()}, tmp_path / "w.pth")
    released = load(str(tmp_path / "w.pth"))
    assert released.weights.missing == () and released.weights.dropped == ()
    check(released, Made(None, net, None))


def test_form__statistics_split_in_parts_are_averaged(tmp_path: Path) -> None:
    """As the code that splits a batch norm does when it evaluates; parts see other images, and
    differ."""
    net = ResNet(BasicBlock, (1, 1, 1, 1), 3, 12, "batch", "cifar")
    state = {}
    for name, tensor in spread(net).state_dict().items():
        apart = 0.4 * torch.rand(tensor.shape, generator=torch.Generator().manual_seed(2))
        both = torch.cat([tensor - apart, tensor + apart]) if "running_" in name else tensor
        state[name] = both
    torch.save({"state_dict": state}, tmp_path / "w.pth")
    check(load(str(tmp_path / "w.pth")), Made(None, net, None))


def test_form__what_a_file_holds_is_told(tmp_path: Path) -> None:
    pytest.importorskip("timm")
    form_file = make("dino", tmp_path / "dino.pth")
    weights = load(str(tmp_path / "dino.pth")).weights
    assert weights.form == "DINO"
    assert weights.dropped == ("head.last_layer.weight_g", "head.last_layer.weight_v")
    head = form_file.head.state_dict() if form_file.head else {}
    assert weights.loaded == len(form_file.backbone.state_dict()) + len(head)
    with pytest.raises(InputError, match="no such network in dino.pth; did you mean 'student'"):
        load(str(tmp_path / "dino.pth"), key="studnt")
    with pytest.raises(InputError, match="checkpoint_key=student is given without checkpoint"):
        load("torchvision:resnet18", key="student")


@pytest.mark.slow
@pytest.mark.parametrize("library", ["torchvision", "timm"])
def test_name__takes_the_stem_the_norms_and_the_channels_of_the_file(
    library: str, tmp_path: Path
) -> None:
    """By name too: a ResNet-18 with group norms on one channel, with a 3x3 stem."""
    pytest.importorskip(library)
    net = models.resnet18(norm_layer=lambda width: nn.GroupNorm(32, width))
    net.conv1, net.maxpool, net.fc = (
        nn.Conv2d(1, 64, 3, 1, 1, bias=False),
        nn.Identity(),
        nn.Identity(),
    )
    torch.save(net.state_dict(), tmp_path / "w.pth")
    # Group norms have the tensors of batch norms whose buffers were left out.
    with pytest.raises(InputError, match="no running_mean and running_var .*allow_missing"):
        load(f"{library}:resnet18", checkpoint=tmp_path / "w.pth")
    released = load(f"{library}:resnet18", checkpoint=tmp_path / "w.pth", allow_missing=True)
    assert (released.channels, released.size, released.weights.missing) == (1, None, ())
    pixels, encoder = torch.rand(2, 1, 16, 16), released.method.encoder
    with torch.no_grad():
        torch.testing.assert_close(encoder(pixels), net.eval()(encoder.normalise(pixels)))
    torch.save(models.resnet34(weights=None).state_dict(), tmp_path / "w.pth")
    assert load(str(tmp_path / "w.pth")).weights.missing == ()
    with pytest.raises(InputError, match="tensor 'layer1.0.conv1.weight' is|is missing"):
        load(f"{library}:resnet50", checkpoint=tmp_path / "w.pth")


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
    assert released.weights.missing == () and "resampled" in " ".join(released.notes)
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
    with pytest.raises(InputError, match="no weights in .*model.safetensors or pytorch_model.bin"):
        load(f"timm:{tmp_path}")
    save_file(net.state_dict(), tmp_path / "model.safetensors")
    for spec in (f"timm:{tmp_path}", f"timm:local-dir:{tmp_path}"):
        released = load(spec)
        assert released.weights.missing == () and released.size == 160
        encoder, pixels = released.method.encoder, torch.rand(1, 3, 160, 160)
        torch.testing.assert_close(encoder.mean.flatten(), torch.tensor(mean))
        with torch.no_grad():
            expected = net.eval().forward_head(
                net.forward_features(encoder.normalise(pixels)), pre_logits=True
            )
            torch.testing.assert_close(encoder(pixels), expected)
    with pytest.raises(InputError, match="no such folder.*nothing is downloaded"):
        load(f"timm:{tmp_path}/none")
