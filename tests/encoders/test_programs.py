"""Exported programs: what they compute is what the module computed, and no more is asked."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from fedmia.encoders.base import IMAGENET, LoadedEncoder, load
from fedmia.encoders.describe import probe_encoder
from fedmia.report.words.notes import sentences
from fedmia.settings.errors import InputError
from tests.encoders.conftest import SIZE, make_tiny, refused, save_program

Saved = Callable[[str, str], str]
ONNX = pytest.param("onnx", marks=pytest.mark.slow)
KINDS = pytest.mark.parametrize("kind", ["pt2", ONNX])


def outputs(images: Tensor) -> tuple[Tensor, Tensor]:
    """Vector and map of the module itself."""
    mean, std = (torch.tensor(c).view(1, 3, 1, 1) for c in IMAGENET)
    with torch.no_grad():
        return make_tiny(both=True)((images.float() / 255 - mean) / std)


def embed(released: LoadedEncoder, images: Tensor) -> Tensor:
    return released.method.encoder(images.float() / 255)


@pytest.mark.slow
@KINDS
@pytest.mark.parametrize("form", ["both", "fixed"])
def test_program__computes_what_the_module_does(
    kind: str, form: str, saved: Saved, pictures: Tensor
) -> None:
    released = load(saved(kind, form))
    assert (released.access, released.channels, released.size) == ("black_box", 3, SIZE)
    assert released.fixed_size and probe_encoder(released, pictures) == []
    encoder = copy.deepcopy(released.method).encoder
    assert encoder.map_layer == ("map" if form == "both" else None)
    assert encoder.layers[-2:] == ("avgpool", "encoder")
    vector, last = outputs(pictures)
    features = encoder.features(pictures.float() / 255, encoder.layers)
    torch.testing.assert_close(features["encoder"], vector, atol=1e-5, rtol=1e-5)
    assert torch.equal(features["avgpool"], features["encoder"])
    if form == "both":
        torch.testing.assert_close(features["map"], last, atol=1e-5, rtol=1e-5)
    assert ("4 images at a time" in " ".join(sentences(released.notes))) == (form == "fixed")


@pytest.mark.slow
@KINDS
def test_program__control_is_finite_seeded_and_another(
    kind: str, saved: Saved, pictures: Tensor
) -> None:
    path, pixels = saved(kind, "plain"), pictures.float() / 255
    outs = [load(path, seed=s).untrained().encoder(pixels) for s in (0, 0, 1)]
    trained = embed(load(path), pictures)
    assert outs[0].shape == trained.shape and torch.isfinite(outs[0]).all()
    assert torch.equal(outs[0], outs[1])
    assert not torch.allclose(outs[0], outs[2]) and not torch.allclose(outs[0], trained)
    # The file was left alone.
    torch.testing.assert_close(trained, outputs(pictures)[0], atol=1e-5, rtol=1e-5)


@KINDS
def test_program__wrong_images_and_constants_are_refused_and_given_ones_win(
    kind: str, saved: Saved, pictures: Tensor
) -> None:
    path = saved(kind, "plain")
    released = load(path)
    for images, message in (
        (pictures[:, :1], f"1 channels, tiny.{kind} takes 3"),
        (pictures[:, :, :8, :8], "8x8 pixels.*takes 16x16: data.size .* 16"),
    ):
        with pytest.raises(InputError, match=message):
            probe_encoder(released, images)
    refused("data.size .* 32: .* takes 16x16 images only", path, size=32)
    refused(r"data.mean \(--mean\): 2 values for images of 3 channels", path, mean=[0.1, 0.2])
    plain = load(path, mean=[0.0], std=[1.0])
    with torch.no_grad():
        expected = make_tiny()(pictures.float() / 255)
    torch.testing.assert_close(embed(plain, pictures), expected, atol=1e-5, rtol=1e-5)
    noted = [
        any("normalised" in note for note in sentences(one.notes)) for one in (released, plain)
    ]
    assert noted == [True, False]


@pytest.mark.parametrize("kind", ["pt2", "onnx"])
def test_program__rubbish_is_refused(kind: str, tmp_path: Path) -> None:
    if kind == "onnx":
        pytest.importorskip("onnxruntime")
    file = tmp_path / f"x.{kind}"
    refused("no such file", file)
    file.write_bytes(b"rubbish")
    refused("cannot read", file)


def test_program__nan_is_named(tmp_path: Path, pictures: Tensor) -> None:
    module = make_tiny()
    nn.init.constant_(module.fc.bias, float("nan"))
    released = load(save_program(module, tmp_path / "nan.pt2"))
    with pytest.raises(InputError, match="layer 'avgpool' is not finite for 7 of 7 images"):
        probe_encoder(released, pictures)
    with pytest.raises(InputError, match="no untrained control"):
        released.untrained()


def test_program__two_inputs_are_no_encoder(tmp_path: Path) -> None:
    class Two(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return x.mean((2, 3)) + y.mean((2, 3))

    blank = torch.zeros(2, 3, 8, 8)
    torch.export.save(torch.export.export(Two(), (blank, blank)), tmp_path / "two.pt2")
    refused("takes 2 inputs", tmp_path / "two.pt2")


@pytest.mark.slow
def test_program__of_one_channel_and_of_any_size(tmp_path: Path, pictures: Tensor) -> None:
    released = load(save_program(make_tiny(1), tmp_path / "gray.pt2", None, 1))
    assert released.channels == 1 and probe_encoder(released, pictures[:, :1]) == []
    assert released.method.encoder.mean.flatten().tolist() == [0.5]
    dims = {0: torch.export.Dim("b"), 2: torch.export.Dim.AUTO, 3: torch.export.Dim.AUTO}
    example = (torch.zeros(2, 3, 24, 24),)
    exported = torch.export.export(make_tiny(), example, dynamic_shapes=(dims,))
    torch.export.save(exported, tmp_path / "any.pt2")
    released = load(str(tmp_path / "any.pt2"))
    if released.size is not None:
        pytest.skip("this torch fixed the size")
    assert probe_encoder(released, pictures) == [] and not released.fixed_size
