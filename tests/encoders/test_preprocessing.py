"""What files beside weights, and settings in them, say of pixels is read, or refused by name."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from fedmia.encoders import open_clip
from fedmia.encoders._preprocessing import read_settings
from fedmia.encoders.base import EncoderFacts, LoadOptions, load
from fedmia.encoders.checkpoint import load_checkpoint
from fedmia.report.words.notes import sentences
from fedmia.settings.errors import InputError
from fedmia.untrusted.torchfile import OptionsStub
from tests.encoders.conftest import Tiny, make_tiny, refused, save_program

MEAN, STD = [0.1, 0.2, 0.3], [0.4, 0.5, 0.6]
PIXELS: dict[str, Any] = {"mean": MEAN, "std": STD, "image_size": 24}


def read(folder: Path, tensors: dict[str, Any] | None = None, **content: Any) -> EncoderFacts:
    """What loading a checkpoint with this content collects."""
    state = make_tiny().state_dict() if tensors is None else tensors
    torch.save({"state_dict": state, **content}, folder / "w.ckpt")
    facts = EncoderFacts("tiny", LoadOptions(folder / "w.ckpt"))
    load_checkpoint(facts, Tiny())
    return facts


# Settings in checkpoints


@pytest.mark.parametrize(
    "content",
    [
        {"hyper_parameters": PIXELS},
        {"args": argparse.Namespace(**PIXELS)},
        {"hyper_parameters": {"data": {"norm_mean": MEAN, "norm_std": STD, "img_size": [24, 24]}}},
        {"config": {"transforms": [{"mean": MEAN, "std": tuple(STD)}], "input_size": [3, 24, 24]}},
    ],
)
def test_settings__of_a_checkpoint_normalise_and_size(
    content: dict[str, Any], tmp_path: Path
) -> None:
    facts = read(tmp_path, **content)
    assert (facts.size, facts.constants) == (24, (tuple(MEAN), tuple(STD)))
    assert [n for n in sentences(facts.notes) if "mean and std" in n]


def test_settings__of_omegaconf_are_read() -> None:
    """As its classes keep them: stand-ins of mappings, lists and single values."""

    def stub(state: dict[str, Any]) -> OptionsStub:
        kept = OptionsStub()
        kept.__setstate__(state | {"_metadata": OptionsStub()})
        return kept

    lists = {n: stub({"_content": [stub({"_val": v}) for v in PIXELS[n]]}) for n in ("mean", "std")}
    config = stub({"_content": lists | {"image_size": stub({"_val": 24})}})
    facts = EncoderFacts("tiny", LoadOptions())
    read_settings(facts, "x", {"hyper_parameters": {"cfg": config}}, ())
    assert (facts.size, facts.constants) == (24, (tuple(MEAN), tuple(STD)))


def test_buffers__that_normalise_are_read_where_the_network_has_none(tmp_path: Path) -> None:
    state = {f"model.{n}": t for n, t in make_tiny().state_dict().items()}
    for name, values in (("new_mean", MEAN), ("new_std", STD)):
        state[f"normalizer.{name}"] = torch.tensor(values).view(3, 1, 1)
    constants = read(tmp_path, state).constants
    assert constants is not None
    torch.testing.assert_close(torch.tensor(constants), torch.tensor([MEAN, STD]))


def test_settings__that_are_not_read_are_named(tmp_path: Path) -> None:
    settings = {"arch": "vit_small", "num_heads": 3, "init": {"mean": 0.0, "std": 0.02}}
    facts = read(tmp_path, hyper_parameters=settings)
    assert facts.constants is None and facts.size is None
    for name in ("arch vit_small", "num_heads 3", "init.mean 0.0"):
        assert any(f"hyper_parameters.{name}" in note for note in sentences(facts.notes))
    both = {"train": {"mean": MEAN, "std": STD}, "test": {"mean": STD, "std": STD}}
    assert read(tmp_path, hyper_parameters=both).constants is None


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"image_size": [24, 32]}, "hyper_parameters.image_size: .*only square images"),
        ({"data": {"img_size": 0}}, "hyper_parameters.data.img_size: .*whole number"),
        (
            {"mean": MEAN, "std": [0.5, 0, 0.5]},
            "hyper_parameters.mean: std .* > 0",
        ),
    ],
)
def test_settings__out_of_bounds_are_refused_by_name(
    settings: dict[str, Any], named: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=named):
        read(tmp_path, hyper_parameters=settings)


def test_settings__of_0_to_255_are_refused_and_the_users_own_stand(tmp_path: Path) -> None:
    hyper = {"mean": [123.7, 116.3, 103.5], "std": [58.4] * 3, "image_size": [24, 32]}
    torch.save(
        {"state_dict": make_tiny().state_dict(), "hyper_parameters": hyper}, tmp_path / "w.pt"
    )
    spec, file = "tests.encoders.conftest:make_tiny", tmp_path / "w.pt"
    refused(r"123\.7 is the encoder's own", spec, checkpoint=file, size=16)
    own = load(spec, checkpoint=file, size=16, mean=(0.5,), std=(0.25,)).method.encoder
    assert own.mean.flatten().tolist() == [0.5] * 3


# A folder of timm's


def timm_folder(folder: Path, pretrained: dict[str, Any], **more: Any) -> str:
    timm = pytest.importorskip("timm")
    from safetensors.torch import save_file

    net = timm.create_model("test_resnet", num_classes=0)
    save_file(net.state_dict(), folder / "model.safetensors")
    fields = {"input_size": [3, 32, 32], "mean": MEAN, "std": STD, **pretrained}
    config = {"architecture": "test_resnet", "num_classes": 0, "pretrained_cfg": fields, **more}
    (folder / "config.json").write_text(json.dumps(config))
    return f"timm:{folder}"


@pytest.mark.parametrize("mean", [[0, 0, 0], 0, 0.0])
def test_timm__a_mean_of_0_is_a_mean(mean: Any, tmp_path: Path) -> None:
    encoder = load(timm_folder(tmp_path, {"mean": mean})).method.encoder
    assert encoder.mean.flatten().tolist() == [0.0] * 3
    torch.testing.assert_close(encoder.std.flatten(), torch.tensor(STD))


@pytest.mark.parametrize(
    ("pretrained", "more", "named"),
    [
        ({"input_size": [3, 32, 48]}, {}, r"config.json: input_size: .*only square"),
        ({"input_size": 32}, {}, r"config.json: input_size 32, must be .channels, height, width"),
        ({}, {"model_args": {"img_size": [32, 48]}}, "config.json: img_size: .*only square"),
        ({}, {"model_args": {"global_pool": ""}}, "config.json: global_pool ''"),
        ({"std": 0}, {}, "std 0, must be numbers > 0"),
        ({"mean": []}, {}, "mean .., must be finite numbers"),
        ({"mean": [0.1, 0.2]}, {}, "2 values for images of 3 channels"),
    ],
)
def test_timm__a_field_that_is_not_done_is_refused(
    pretrained: dict[str, Any], more: dict[str, Any], named: str, tmp_path: Path
) -> None:
    refused(named, timm_folder(tmp_path, pretrained, **more))


def test_timm__pools_as_its_folder_says_and_names_other_resizing(tmp_path: Path) -> None:
    fields = {"crop_pct": 0.9, "crop_mode": "squash", "interpolation": "bicubic"}
    released = load(timm_folder(tmp_path, fields, global_pool="max"))
    encoder, pixels = released.method.encoder, torch.rand(2, 3, 64, 64)
    module: Any = encoder.backbone.module
    maps = module.forward_features(encoder.normalise(pixels))
    torch.testing.assert_close(encoder(pixels), maps.amax(dim=(2, 3)))
    said = ("interpolation bicubic", "crop_pct 0.9", "crop_mode squash")
    assert any(all(one in note for one in said) for note in sentences(released.notes))


# open_clip's configuration


@pytest.fixture
def described(tmp_path: Path) -> Any:
    """`described(fields)`: what is read of them, and the notes."""
    own = {"embed_dim": 8, "vision_cfg": {"image_size": 32, "layers": 2}}

    def read_fields(**fields: Any) -> tuple[Any, list[str]]:
        (tmp_path / "open_clip_config.json").write_text(json.dumps(fields))
        facts = EncoderFacts("open_clip:tiny", LoadOptions(tmp_path / "w.pt"))
        return open_clip._read_configuration(facts, own)[0], sentences(facts.notes)

    return read_fields


def test_open_clip__another_tower_is_refused_by_its_field(described: Any) -> None:
    same = {"embed_dim": 8, "quick_gelu": False, "vision_cfg": {"image_size": 48, "layers": 2}}
    assert described(model_cfg=same)[0] == {"size": 48}
    for changed, named in (
        ({"quick_gelu": True}, "quick_gelu True, open_clip:tiny has None"),
        ({"vision_cfg": {"layers": 3}}, "vision_cfg.layers 3, open_clip:tiny has 2"),
        ({"vision_cfg": {"pool_type": "avg", "layers": 2}}, "vision_cfg.pool_type avg"),
    ):
        with pytest.raises(InputError, match=f"open_clip_config.json: {named}"):
            described(model_cfg=same | changed)
    with pytest.raises(InputError, match="open_clip_config.json: mode L"):
        described(preprocess_cfg={"mode": "L"})


def test_open_clip__resizing_and_unknown_fields_are_named(described: Any) -> None:
    pixels = {"interpolation": "bicubic", "resize_mode": "squash", "sharpen": 2, "mean": MEAN}
    fields, notes = described(preprocess_cfg=pixels)
    assert fields["mean"] == MEAN
    assert "interpolation bicubic, resize_mode squash" in notes[0] and "'sharpen'" in notes[1]


# Metadata of ONNX


@pytest.mark.slow
def test_onnx__metadata_normalise_and_size(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    spec = save_program(make_tiny(), tmp_path / "w.onnx")
    model = onnx.load(spec)
    text = {"mean": json.dumps(MEAN), "std": json.dumps(STD), "Image.BitmapPixelFormat": "Bgr8"}
    onnx.helper.set_model_props(model, text)
    onnx.save(model, spec)
    released = load(spec)
    torch.testing.assert_close(released.method.encoder.mean.flatten(), torch.tensor(MEAN))
    assert any("BitmapPixelFormat Bgr8" in note for note in sentences(released.notes))
