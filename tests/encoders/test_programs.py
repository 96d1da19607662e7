"""Exported programs: what they compute is what the module computed, and no more is asked."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from fedmia.encoders.base import IMAGENET, load
from fedmia.encoders.describe import probe_encoder
from fedmia.options.errors import InputError
from tests.encoders.conftest import SIZE, make_tiny, save_pt2

Saved = Callable[[str, str], str]
KINDS = pytest.mark.parametrize("kind", ["pt2", pytest.param("onnx", marks=pytest.mark.slow)])


def expected(module: nn.Module, images: Tensor) -> Tensor:
    mean, std = (torch.tensor(c).view(1, 3, 1, 1) for c in IMAGENET)
    with torch.no_grad():
        out = module((images.float() / 255 - mean) / std)
    return out[0] if isinstance(out, tuple) else out


@pytest.mark.slow
@KINDS
@pytest.mark.parametrize("form", ["plain", "both", "fixed"])
def test_program__computes_what_the_module_does(
    kind: str, form: str, saved: Saved, pictures: Tensor
) -> None:
    released = load(saved(kind, form))
    assert (released.access, released.channels, released.size) == ("black_box", 3, SIZE)
    assert released.fixed_size and probe_encoder(released, pictures) == []
    encoder = copy.deepcopy(released.method).encoder
    out = encoder(pictures.float() / 255)
    torch.testing.assert_close(out, expected(make_tiny(), pictures), atol=1e-5, rtol=1e-5)
    assert encoder.map_layer == ("map" if form == "both" else None)
    assert encoder.layers[-2:] == ("avgpool", "encoder")
    features = encoder.features(pictures.float() / 255, encoder.layers)
    assert torch.equal(features["avgpool"], out)
    if form == "both":
        assert features["map"].shape == (7, 12, 4, 4)
        mean, std = (torch.tensor(c).view(1, 3, 1, 1) for c in IMAGENET)
        with torch.no_grad():
            last = make_tiny(both=True)((pictures.float() / 255 - mean) / std)[1]
        torch.testing.assert_close(features["map"], last, atol=1e-5, rtol=1e-5)
    assert ("4 images at a time" in " ".join(released.notes)) == (form == "fixed")


@pytest.mark.slow
@KINDS
def test_program__control_is_finite_seeded_and_another(
    kind: str, saved: Saved, pictures: Tensor
) -> None:
    pixels = pictures.float() / 255
    outs = [load(saved(kind, "plain"), seed=s).untrained().encoder(pixels) for s in (0, 0, 1)]
    trained = load(saved(kind, "plain")).method.encoder(pixels)
    assert outs[0].shape == trained.shape and torch.isfinite(outs[0]).all()
    assert torch.equal(outs[0], outs[1])
    assert not torch.allclose(outs[0], outs[2]) and not torch.allclose(outs[0], trained)
    again = load(saved(kind, "plain")).method.encoder(pixels)
    assert torch.equal(again, trained)  # the file was left alone


@KINDS
def test_program__wrong_images_are_refused_in_one_line(
    kind: str, saved: Saved, pictures: Tensor
) -> None:
    released = load(saved(kind, "plain"))
    with pytest.raises(InputError, match=f"1 channels, tiny.{kind} takes 3"):
        probe_encoder(released, pictures[:, :1])
    with pytest.raises(InputError, match="8x8 pixels.*takes 16x16: size=16"):
        probe_encoder(released, pictures[:, :, :8, :8])
    with pytest.raises(InputError, match="size=32: .* takes 16x16 images only"):
        load(saved(kind, "plain"), size=32)
    with pytest.raises(InputError, match="holds its own weights"):
        load(saved(kind, "plain"), checkpoint=Path("w.pt"))


@KINDS
def test_program__constants_given_win(kind: str, saved: Saved, pictures: Tensor) -> None:
    released = load(saved(kind, "plain"), mean=[0.0], std=[1.0])
    with torch.no_grad():
        expected = make_tiny()(pictures.float() / 255)
    out = released.method.encoder(pictures.float() / 255)
    torch.testing.assert_close(out, expected, atol=1e-5, rtol=1e-5)
    assert not any("normalised" in note for note in released.notes)
    assert any("normalised" in note for note in load(saved(kind, "plain")).notes)
    with pytest.raises(InputError, match="mean: 2 values for images of 3 channels"):
        load(saved(kind, "plain"), mean=[0.1, 0.2])


@KINDS
def test_program__rubbish_is_refused(kind: str, tmp_path: Path) -> None:
    if kind == "onnx":
        pytest.importorskip("onnxruntime")
    file = tmp_path / f"x.{kind}"
    with pytest.raises(InputError, match="no such file"):
        load(str(file))
    file.write_bytes(b"rubbish")
    with pytest.raises(InputError, match="cannot read") as caught:
        load(str(file))
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_onnx__missing_package_is_one_line(saved: Saved, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved("onnx", "plain")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(InputError, match=r"needs the extra: pip install '\.\[onnx\]' in a clone"):
        load(path)


@pytest.mark.slow
def test_program__one_channel(tmp_path: Path, pictures: Tensor) -> None:
    released = load(save_pt2(make_tiny(1), tmp_path / "gray.pt2", None, 1))
    assert released.channels == 1 and probe_encoder(released, pictures[:, :1]) == []
    assert released.method.encoder.mean.flatten().tolist() == [0.5]


def test_program__nan_is_named(tmp_path: Path, pictures: Tensor) -> None:
    module = make_tiny()
    with torch.no_grad():
        module.fc.bias[0] = float("nan")
    released = load(save_pt2(module, tmp_path / "nan.pt2"))
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
    with pytest.raises(InputError, match="takes 2 inputs"):
        load(str(tmp_path / "two.pt2"))


@pytest.mark.slow
def test_program__any_size(tmp_path: Path, pictures: Tensor) -> None:
    dims = {0: torch.export.Dim("b"), 2: torch.export.Dim.AUTO, 3: torch.export.Dim.AUTO}
    exported = torch.export.export(
        make_tiny(), (torch.zeros(2, 3, 24, 24),), dynamic_shapes=(dims,)
    )
    torch.export.save(exported, tmp_path / "any.pt2")
    released = load(str(tmp_path / "any.pt2"))
    if released.size is not None:
        pytest.skip("this torch fixed the size")
    assert probe_encoder(released, pictures) == [] and not released.fixed_size
