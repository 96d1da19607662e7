"""The forms in the registry: which one takes what the user gives, and how messages list them."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedmia.encoders.base import find_form, forms
from fedmia.settings import registry
from tests.commands import fedmia
from tests.encoders.conftest import refused

LISTED = (
    "RUN or RUN@ROUND (a run folder of fedmia), FILE.pt2, FILE.onnx, FILE.pth (.pt, .ckpt, .tar, "
    ".bin, .torch, .pkl, .safetensors), timm:NAME, timm:FOLDER, torchvision:NAME, hf:FOLDER, "
    "open_clip:NAME, http:URL, package.module:factory"
)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a folder and files of several names."""
    monkeypatch.chdir(tmp_path)
    for folder in ("run", "run.pth", "at@3", "timm:run"):
        (tmp_path / folder).mkdir()
    for file in ("a.pt2", "a.onnx", "a.pth", "b:c.safetensors", "hf:d.bin"):
        (tmp_path / file).write_bytes(b"")
    return tmp_path


@pytest.mark.parametrize(
    ("spec", "name", "source"),
    [
        ("run", "run", "run"), ("run@12", "run", "run@12"), ("at@3", "run", "at@3"),
        ("run.pth", "run", "run.pth"), ("a.pt2", "exported", "a.pt2"), ("a.onnx", "onnx", "a.onnx"),
        ("a.pth", "weights", "a.pth"), ("b:c.safetensors", "weights", "b:c.safetensors"),
        ("hf:d.bin", "hf", "d.bin"), ("timm:run", "timm", "run"), ("hf:a.pth", "hf", "a.pth"),
        ("torchvision:resnet18", "torchvision", "resnet18"), ("timm:a:b", "timm", "a:b"),
        ("open_clip:RN50", "open-clip", "RN50"), ("code:make", "factory", "code:make"),
        ("http://a.b:80/c", "http", "http://a.b:80/c"), ("https://a/b", "http", "https://a/b"),
        ("code.more:make", "factory", "code.more:make"), ("timmy:x", "factory", "timmy:x"),
    ],
)  # fmt: skip
def test_find_form__the_one_that_takes_it(here: Path, spec: str, name: str, source: str) -> None:
    form, rest = find_form(spec)
    assert (type(form), rest) == (registry.load("encoder", name), source)


def test_forms__each_says_how_it_is_written(here: Path) -> None:
    assert ", ".join(form.written for form in forms()) == LISTED
    page = " ".join(fedmia("list encoder").out.split())
    for form in forms():
        assert f"--encoder {form.written}" in page
    refused(
        r"^encoder.checkpoint \(--checkpoint\) a.pth: 'a.pt2' holds its own weights; a checkpoint "
        "goes with timm:NAME, torchvision:NAME, open_clip:NAME and package.module:factory$",
        "a.pt2", checkpoint=Path("a.pth"),
    )  # fmt: skip
    refused("^encoder 'no.pt2': no such file$", "no.pt2", checkpoint=Path("a.pth"))
    refused("'a.pth' is a file", "a.pth@3")
