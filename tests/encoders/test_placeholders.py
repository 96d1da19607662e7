"""What foreign files say of pixels is held to the options' bounds; what is no data is named."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import nn
from torch.nn.utils import parametrizations, prune, spectral_norm

from fedmia.data.base import Request
from fedmia.data.images import count_uniform
from fedmia.encoders._preprocessing import own_constants
from fedmia.encoders.base import EncoderFacts, LoadOptions, load
from fedmia.encoders.hf import read_preprocessing
from fedmia.encoders.memory import load_module
from fedmia.encoders.reparametrised import refuse_parts
from fedmia.encoders.vectors import as_vectors
from fedmia.encoders.weight_checks import refuse_diverged
from fedmia.report.words.notes import sentences
from fedmia.settings import registry
from fedmia.settings.errors import InputError

MODEL = SimpleNamespace(config=SimpleNamespace(image_size=32))


def make_net() -> nn.Module:
    """The same network at every call."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        conv, more = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3)
        return nn.Sequential(conv, nn.ReLU(), more, nn.AdaptiveAvgPool2d(1), nn.Flatten())


def make_lazy() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.LazyLinear(4))


# Files that describe pixels


def preprocessing(folder: Path, **fields: Any) -> Any:
    (folder / "preprocessor_config.json").write_text(json.dumps(fields))
    return read_preprocessing(EncoderFacts("x", LoadOptions()), folder, MODEL)


def test_processor__without_rescaling_has_constants_of_0_to_255(tmp_path: Path) -> None:
    means, deviations = [123.675, 116.28, 103.53], [58.395, 57.12, 57.375]
    fields = {"do_rescale": False, "image_mean": means, "image_std": deviations}
    _, constants = preprocessing(tmp_path, **fields)
    expected = np.array([means, deviations]) / 255
    np.testing.assert_allclose(constants, expected)
    _, doubled = preprocessing(
        tmp_path, rescale_factor=2 / 255, image_mean=[0.5] * 3, image_std=[1.0] * 3
    )
    np.testing.assert_allclose(doubled, [[0.25] * 3, [0.5] * 3])
    _, bare = preprocessing(tmp_path, do_rescale=False, do_normalize=False)
    np.testing.assert_allclose(bare, [[0.0], [1 / 255]])


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"do_flip_channel_order": True}, "do_flip_channel_order"),
        ({"offset": True}, "offset"),
        ({"rescale_offset": True}, "rescale_offset"),
        ({"include_top": True}, "include_top"),
        ({"size": {"height": 40, "width": 48}}, "size: .*only square images"),
        ({"size": 40, "crop_size": [32, 24], "do_center_crop": True}, "crop_size: .*only square"),
        ({"size": "large"}, "size: 'large', must be a whole number"),
        ({"rescale_factor": "1/255"}, "rescale_factor 1/255, must be a number > 0"),
        ({"image_mean": [0.5], "image_std": [0.0]}, "std .0.0., must be numbers > 0"),
        ({"image_mean": "x", "image_std": [1]}, "mean x, must be finite numbers"),
    ],
)
def test_processor__a_field_that_is_not_done_is_refused(
    fields: dict[str, Any], named: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=f"preprocessor_config.json: .*{named}"):
        preprocessing(tmp_path, **fields)


def test_size__of_a_processor_that_does_not_resize_is_the_models(tmp_path: Path) -> None:
    assert preprocessing(tmp_path, size=224)[0] == 224
    assert preprocessing(tmp_path, size=224, do_resize=False)[0] == 32


def test_processor__names_what_is_not_done_or_read(tmp_path: Path) -> None:
    fields = {"size": 40, "crop_size": 32, "do_center_crop": True, "resample": 3, "sharpen": 2}
    nested = {"image_processor": fields | {"image_mean": 0, "image_std": [0.5] * 3}}
    (tmp_path / "processor_config.json").write_text(json.dumps(nested))
    facts = EncoderFacts("x", LoadOptions())
    side, constants = read_preprocessing(facts, tmp_path, MODEL)
    assert (side, constants) == (32, ((0.0,), (0.5,) * 3))
    unread, resized = sentences(facts.notes)
    assert "'sharpen'" in unread and "resample 3, crop_pct 0.8" in resized


def test_constants__of_an_encoder_are_of_pixels_in_0_to_1() -> None:
    assert own_constants("x", 0.5, 0.25) == ((0.5,), (0.25,))  # one number stands for all channels
    own = own_constants("x", [123.675] * 3, [58.4] * 3)
    with pytest.raises(InputError, match=r"123\.675 is the encoder's own, must be in \[0, 1\]"):
        LoadOptions().channel_constants(3, own, [])
    options = LoadOptions(mean=(0.5,), std=(0.5,))
    assert options.channel_constants(3, own, []) == ((0.5,) * 3, (0.5,) * 3)


@pytest.mark.parametrize("own", [{"mean": 123.675}, {"mean": [123.675] * 3}])
def test_timm__of_which_a_folder_says_means_of_0_to_255(
    own: dict[str, Any], tmp_path: Path
) -> None:
    timm = pytest.importorskip("timm")
    from safetensors.torch import save_file

    net = timm.create_model("resnet10t", num_classes=0)
    save_file(net.state_dict(), tmp_path / "model.safetensors")
    pretrained = {"input_size": [3, 32, 32], "std": [58.4] * 3, **own}
    config = {"architecture": "resnet10t", "num_classes": 0, "pretrained_cfg": pretrained}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match=r"123\.675"):
        load(f"timm:{tmp_path}")


def test_timm__says_the_size_and_how_to_give_another(tmp_path: Path) -> None:
    timm = pytest.importorskip("timm")
    state = timm.create_model("resnet10t", num_classes=0).state_dict()
    torch.save({"state_dict_ema": state}, tmp_path / "w.pth")
    notes = sentences(load("timm:resnet10t", checkpoint=tmp_path / "w.pth").notes)
    assert any("brought to 176 pixels a side" in note and "--size" in note for note in notes)
    sized = sentences(load("timm:resnet10t", checkpoint=tmp_path / "w.pth", size=32).notes)
    assert not any("brought to" in note for note in sized)


# Weights in parts


def reparametrise(how: str, net: nn.Module) -> nn.Module:
    for layer in (net[0], net[2]):
        if how == "pruned":
            prune.l1_unstructured(layer, "weight", 0.5)
        elif how == "normed":
            parametrizations.weight_norm(layer)
        elif how == "normed-over-inputs":
            parametrizations.weight_norm(layer, dim=1)
        elif how == "spectral":
            spectral_norm(layer)
        else:
            parametrizations.spectral_norm(layer)
    return net.eval()


@pytest.mark.parametrize("how", ["pruned", "normed", "normed-over-inputs"])
def test_parts__are_joined_as_their_layers_use_them(how: str, tmp_path: Path) -> None:
    net = make_net()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.mul_(3)
    net = reparametrise(how, net)
    torch.save(net.state_dict(), tmp_path / "w.pth")
    loaded = load(f"{__name__}:make_net", checkpoint=tmp_path / "w.pth", allow_missing=True)
    assert not loaded.weights.missing
    assert any("2 weights of the file" in n for n in sentences(loaded.notes))
    encoder, pixels = loaded.method.encoder, torch.rand(2, 3, 16, 16)
    torch.testing.assert_close(encoder(pixels), net(encoder.normalise(pixels)))


@pytest.mark.parametrize("how", ["spectral", "spectral-new"])
def test_parts__of_another_make_are_refused_by_name(how: str, tmp_path: Path) -> None:
    torch.save(reparametrise(how, make_net()).state_dict(), tmp_path / "w.pth")
    with pytest.raises(InputError, match="is part of a tensor.*remove_parametrizations"):
        load(f"{__name__}:make_net", checkpoint=tmp_path / "w.pth", allow_missing=True)


def test_quantised__folder_is_refused_by_its_field(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    save_file({"x": torch.zeros(2)}, tmp_path / "model.safetensors")
    config = {"model_type": "vit", "quantization_config": {"bits": 4}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match="config.json: quantization_config"):
        load(f"hf:{tmp_path}")
    with pytest.raises(InputError, match="x: 'a.weight_orig' is part of a tensor"):
        refuse_parts(["a.bias", "a.weight_orig"], "x")


def make_pruned() -> nn.Module:
    return reparametrise("pruned", make_net())


def test_parts__that_the_network_has_itself_stay(tmp_path: Path) -> None:
    net = make_pruned()
    torch.save(net.state_dict(), tmp_path / "w.pth")
    encoder = load(f"{__name__}:make_pruned", checkpoint=tmp_path / "w.pth").method.encoder
    pixels = torch.rand(2, 3, 16, 16)
    torch.testing.assert_close(encoder(pixels), net(encoder.normalise(pixels)))


# What is no data


def test_lazy_layers__are_refused_by_name(tmp_path: Path) -> None:
    torch.save(make_net().state_dict(), tmp_path / "w.pth")
    for options in ({}, {"checkpoint": tmp_path / "w.pth"}):
        with pytest.raises(InputError, match="'2.weight' has no shape before the module is called"):
            load(f"{__name__}:make_lazy", **options)


def test_zero_weights__are_refused() -> None:
    net = make_net()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.zero_()
    with pytest.raises(InputError, match="every weight is zero"):
        load_module(net, LoadOptions())


def test_diverged_weights__are_refused_by_name() -> None:
    state = {"0.weight": torch.zeros(2, 2), "1.running_mean": torch.ones(2)}
    with pytest.raises(InputError, match="every weight is zero"):
        refuse_diverged("round 3", state, ["0.weight"])
    state["0.weight"][1, 0] = 1.0
    refuse_diverged("round 3", state, ["0.weight"])
    state["1.running_mean"][0] = torch.nan
    with pytest.raises(InputError, match="round 3: '1.running_mean' is not finite"):
        refuse_diverged("round 3", state, ["0.weight"])


@pytest.mark.parametrize("value", [0.0, -1.0])
def test_vectors__rows_of_one_number_are_refused(value: float) -> None:
    rows = np.random.default_rng(0).normal(size=(20, 4))
    rows[[3, 7]] = value
    with pytest.raises(InputError, match=rf"2 of 20 rows .*row 3, {value:g}\)"):
        as_vectors(rows, "members", "x")
    assert len(as_vectors(rows[:, :1], "members", "x").vectors) == 20  # of vectors of one number


def test_cmyk__without_adobes_marker_is_refused_by_name(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (16, 16, 3), dtype=np.uint8)
    Image.fromarray(pixels).convert("CMYK").save(tmp_path / "a.jpg")
    data = (tmp_path / "a.jpg").read_bytes()
    at = data.index(b"\xff\xee")  # the segment with the marker
    length = int.from_bytes(data[at + 2 : at + 4], "big")
    (tmp_path / "a.jpg").write_bytes(data[:at] + data[at + 2 + length :])
    folder = registry.build("dataset", "folder", {})
    with pytest.raises(InputError, match="a.jpg is CMYK without Adobe's marker"):
        folder.load(Request(str(tmp_path), None, None, 0))


def test_uniform_images__are_counted() -> None:
    images: NDArray[np.uint8] = np.zeros((4, 3, 8, 8), np.uint8)
    images[1] = np.arange(8)
    images[2] = np.array([10, 20, 30])[:, None, None]
    assert count_uniform(images) == 3
