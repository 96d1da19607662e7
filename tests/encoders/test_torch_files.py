"""Files of weights are read as data: options pass, no code runs, what is broken is said."""

from __future__ import annotations

import argparse
import gzip
import io
import os
import pickle
import shutil
import sys
import types
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedmia.encoders.base import load
from fedmia.encoders.torchfile import read
from fedmia.options.errors import InputError
from tests.encoders.conftest import make_tiny

STORED = Path(__file__).resolve().parents[1] / "stored" / "run"


class Planted:
    """A pickle that writes a file when it is read by one who trusts it."""

    def __init__(self, victim: Path) -> None:
        self.victim = victim

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.victim}",)


class Evaluates(Planted):
    def __reduce__(self) -> tuple[Any, ...]:
        return eval, (f"open({str(self.victim)!r}, 'w').close()",)


class Hidden(Planted):
    """Within what an allowed class is built from."""

    def __reduce__(self) -> tuple[Any, ...]:
        return argparse.Namespace, (), {"args": Planted(self.victim)}


@pytest.mark.parametrize("kind", [Planted, Evaluates, Hidden])
@pytest.mark.parametrize("zipped", [True, False])
def test_read__a_planted_payload_is_named_and_does_not_run(
    kind: type[Planted], zipped: bool, tmp_path: Path
) -> None:
    victim, file = tmp_path / "victim", tmp_path / "w.pth"
    contents = {"state_dict": make_tiny().state_dict(), "hyper_parameters": kind(victim)}
    torch.save(contents, file, _use_new_zipfile_serialization=zipped)
    torch.load(file, weights_only=False)
    assert victim.exists()  # the trap works on whoever trusts it
    victim.unlink()
    with pytest.raises(InputError, match="it asks for '.*(system|eval)'.*nothing of it was run"):
        load(str(file))
    assert not victim.exists()


def test_read__a_bare_pickle_does_not_run(tmp_path: Path) -> None:
    victim, file = tmp_path / "victim", tmp_path / "w.pt"
    file.write_bytes(pickle.dumps(Planted(victim)))
    with pytest.raises(InputError, match="weights '.*w.pt'") as caught:
        load(str(file))
    assert not victim.exists() and "\n" not in str(caught.value)


def test_read__options_beside_the_weights_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Namespaces, paths, numpy's numbers, and Lightning's dictionary without Lightning."""
    module: Any = types.ModuleType("lightning_fabric.utilities.data")
    module.AttributeDict = type("AttributeDict", (dict,), {"__module__": module.__name__})
    parents = ["lightning_fabric", "lightning_fabric.utilities"]
    for name in parents:
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    weights = make_tiny().state_dict()
    args = argparse.Namespace(lr=0.1, out=tmp_path, inner=argparse.Namespace(x=[1]))
    options = module.AttributeDict(lr=np.float64(0.1), sizes=np.arange(3), args=args)
    torch.save(
        {"args": args, "state_dict": weights, "hyper_parameters": options, "best": np.float32(1)},
        tmp_path / "w.ckpt",
    )
    for name in (*parents, module.__name__):
        monkeypatch.delitem(sys.modules, name)
    found = read(tmp_path / "w.ckpt")
    assert torch.equal(found["state_dict"]["fc.weight"], weights["fc.weight"])
    assert type(found["hyper_parameters"]) is OrderedDict


def test_read__omegaconf_passes(tmp_path: Path) -> None:
    omegaconf = pytest.importorskip("omegaconf")
    cfg = omegaconf.OmegaConf.create({"a": {"b": [1, 2.5, "x", None, True]}, "c": "${a.b}"})
    torch.save({"state_dict": make_tiny().state_dict(), "hyper_parameters": cfg}, tmp_path / "w.pt")
    assert "fc.weight" in read(tmp_path / "w.pt")["state_dict"]


def test_read__what_is_no_file_of_weights(tmp_path: Path) -> None:
    whole = tmp_path / "whole.pth"
    torch.save({"state_dict": make_tiny().state_dict()}, whole)

    def refused(name: str, data: bytes, message: str) -> None:
        (tmp_path / name).write_bytes(data)
        with pytest.raises(InputError, match=message) as caught:
            load(str(tmp_path / name))
        assert "\n" not in str(caught.value)

    data = whole.read_bytes()
    refused("cut.pth", data[: len(data) // 2], "cannot be read")
    refused("cut.safetensors", data[:100], "cannot be read")
    refused("other.pth", data, "neither a ResNet's nor a ViT's by name")
    archive = io.BytesIO()
    np.savez(archive, a=np.zeros(3))
    refused("arrays.pth", archive.getvalue(), "archive, or one of other files: torch.save")
    torch.save(make_tiny(), whole)  # a module, not its weights
    refused("module.pth", whole.read_bytes(), "asks for 'tests.encoders.conftest.Tiny'")


MISFITS = {
    "a Git LFS pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n",
    "the page of a web server": b"<!DOCTYPE html><html>404</html>",
    "empty": b"",
    "compressed with gzip": gzip.compress(b"weights", mtime=0),
}


@pytest.mark.parametrize("what", MISFITS)
@pytest.mark.parametrize(
    "form",
    ["w.pth", "w.safetensors", "w.pt2", "w.onnx", "own:net", "timm:FOLDER", "hf:FOLDER", "RUN"],
)
def test_load__names_what_the_file_is_before_any_reader(
    form: str, what: str, tmp_path: Path
) -> None:
    """In every form; no library that reads the form is needed for that."""
    spec, options, name = form, {}, form
    if form == "own:net":
        spec, name = "tests.encoders.conftest:Tiny", "w.pth"
        options = {"checkpoint": tmp_path / name}
    elif form.endswith(":FOLDER"):
        (tmp_path / "config.json").write_text('{"model_type": "vit", "architecture": "resnet18"}')
        spec, name = form.replace("FOLDER", str(tmp_path)), "model.safetensors"
    elif form == "RUN":
        shutil.copytree(STORED, tmp_path / "run")
        spec, name = str(tmp_path / "run"), "run/snapshots/main/round-0002.safetensors"
    (tmp_path / name).write_bytes(MISFITS[what])
    with pytest.raises(InputError) as refused:
        load(str(tmp_path / spec) if spec.startswith("w.") else spec, **options)
    text = str(refused.value)
    assert f"{tmp_path / name} is {what}" in text and "\n" not in text


@pytest.mark.parametrize("spec", ["w.npz", "own", "*.pth"])
def test_load__says_which_weights_are_read(spec: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "w.npz", a=np.zeros(3))
    path = tmp_path / ("w.npz" if spec == "own" else spec)
    with pytest.raises(InputError) as refused:
        if spec == "own":
            load("tests.encoders.conftest:Tiny", checkpoint=path)
        else:
            load(str(path))
    way_out = (
        "a pattern is not expanded" if spec == "*.pth" else "torch.save({n: torch.from_numpy(a)"
    )
    assert way_out in str(refused.value)
