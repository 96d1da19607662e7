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

from fedmia.untrusted.torchfile import read_weights
from tests.encoders.conftest import make_tiny, refused

STORED = Path(__file__).resolve().parents[1] / "stored" / "run"
TINY = "tests.encoders.conftest:Tiny"


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
    refused("it asks for '.*(system|eval)'.*nothing of it was run", file)
    file.write_bytes(pickle.dumps(contents["hyper_parameters"]))  # bare
    refused("weights '.*w.pth'", file)
    assert not victim.exists()


def test_read__options_beside_the_weights_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Namespaces, paths, numpy's numbers, and Lightning's dictionary without Lightning."""
    name = "lightning_fabric.utilities.data"
    module: Any = types.ModuleType(name)
    module.AttributeDict = type("AttributeDict", (dict,), {"__module__": name})
    weights, file = make_tiny().state_dict(), tmp_path / "w.ckpt"
    args = argparse.Namespace(lr=0.1, out=tmp_path, inner=argparse.Namespace(x=[1]))
    options = module.AttributeDict(lr=np.float64(0.1), sizes=np.arange(3), args=args)
    with monkeypatch.context() as patch:
        for parent in ("lightning_fabric", "lightning_fabric.utilities"):
            patch.setitem(sys.modules, parent, types.ModuleType(parent))
        patch.setitem(sys.modules, name, module)
        contents = {"args": args, "state_dict": weights, "hyper_parameters": options}
        torch.save(contents | {"best": np.float32(1)}, file)
    content = read_weights(file)
    assert torch.equal(content["state_dict"]["fc.weight"], weights["fc.weight"])
    assert type(content["hyper_parameters"]) is OrderedDict


def test_read__what_is_no_file_of_weights(tmp_path: Path) -> None:
    whole, archive, module = io.BytesIO(), io.BytesIO(), io.BytesIO()
    torch.save({"state_dict": make_tiny().state_dict()}, whole)
    np.savez(archive, a=np.zeros(3))
    torch.save(make_tiny(), module)  # not its weights
    data = whole.getvalue()
    for name, content, message in (
        ("cut.pth", data[: len(data) // 2], "cannot be read"),
        ("cut.safetensors", data[:100], "cannot be read"),
        ("other.pth", data, "neither a ResNet's nor a ViT's by name"),
        ("arrays.pth", archive.getvalue(), "archive, or one of other files: torch.save"),
        ("module.pth", module.getvalue(), "asks for 'tests.encoders.conftest.Tiny'"),
    ):
        (tmp_path / name).write_bytes(content)
        refused(message, tmp_path / name)


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
    spec, options, name = f"{tmp_path}/{form}", dict[str, Any](), form
    if form == "own:net":
        spec, name = TINY, "w.pth"
        options = {"checkpoint": tmp_path / name}
    elif form.endswith(":FOLDER"):
        (tmp_path / "config.json").write_text('{"model_type": "vit", "architecture": "resnet18"}')
        spec, name = form.replace("FOLDER", str(tmp_path)), "model.safetensors"
    elif form == "RUN":
        shutil.copytree(STORED, tmp_path / "RUN")
        name = "RUN/recording/models/main/0002.safetensors"
    (tmp_path / name).write_bytes(MISFITS[what])
    refused(f"{tmp_path / name} is {what}", spec, **options)


def test_load__says_which_weights_are_read(tmp_path: Path) -> None:
    np.savez(tmp_path / "w.npz", a=np.zeros(3))
    refused(r"torch.save\(\{n: torch.from_numpy\(a\)", tmp_path / "w.npz")
    refused(r"torch.save\(\{n: torch.from_numpy\(a\)", TINY, checkpoint=tmp_path / "w.npz")
    refused("a pattern is not expanded", tmp_path / "*.pth")
