"""Files of weights, read as data: nothing that a pickle asks for is called."""

from __future__ import annotations

import glob
import io
import pickle
import re
import warnings
import zipfile
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedmia.settings.errors import InputError
from fedmia.untrusted.archives import check_zip
from fedmia.untrusted.filetype import check_file_type
from fedmia.untrusted.limits import check_unfolded, first_line
from fedmia.untrusted.tensors import read_safetensors

NUMPY = (".npz", ".npy")


class OptionsStub:
    """Stands for an object of a class that keeps options: it keeps their values and does nothing.
    The class itself is never imported."""

    def __init__(self, *args: object) -> None:
        pass

    def __setstate__(self, state: object) -> None:
        self.state = state


class ModuleStub(OptionsStub):
    """Stands for a module in a TorchScript archive: it keeps the tensors of its attributes."""

    def __setstate__(self, state: Any) -> None:
        self.tensors = {n: t for n, t in state.items() if isinstance(t, Tensor)}
        for name, part in state.items():
            if isinstance(part, ModuleStub):
                self.tensors |= {f"{name}.{n}": t for n, t in part.tensors.items()}


def make_dict(*args: object) -> dict[object, object]:
    """Replaces a function that makes a dictionary."""
    return {}


# Classes of the options that training scripts save beside their weights. torch's restricted
# unpickler gets a stand-in for each; every other name in a file is refused before it is looked up.
OPTIONS = (
    "argparse.Namespace",
    "types.SimpleNamespace",
    "typing.Any",
    *(f"{b}.{n}" for b in ("builtins", "__builtin__") for n in ("dict", "list", "int", "str")),
    *(f"pathlib.{n}" for n in ("PosixPath", "PurePosixPath", "WindowsPath")),
    *(f"pathlib._local.{n}" for n in ("PosixPath", "PurePosixPath", "WindowsPath")),
    *(f"omegaconf.base.{n}" for n in ("Metadata", "ContainerMetadata")),
    *(f"omegaconf.nodes.{n}Node" for n in ("Any", "String", "Integer", "Float", "Boolean")),
    "omegaconf.dictconfig.DictConfig",
    "omegaconf.listconfig.ListConfig",
    *(f"{core}.multiarray.scalar" for core in ("numpy.core", "numpy._core")),
    *(f"{core}.multiarray._reconstruct" for core in ("numpy.core", "numpy._core")),
    "numpy.ndarray",
    "numpy.dtype",
    *(f"numpy.dtypes.{n}DType" for n in ("Float32", "Float64", "Int32", "Int64", "Bool")),
)
# Dictionaries with attributes: torch fills plain ones only.
MAPPINGS = (
    "pytorch_lightning.utilities.parsing.AttributeDict",
    "lightning_fabric.utilities.data.AttributeDict",
    "lightning.fabric.utilities.data.AttributeDict",
    "lightning.pytorch.utilities.parsing.AttributeDict",
    "yacs.config.CfgNode",
    "easydict.EasyDict",
)


def why_unread(path: str | Path) -> str:
    """Why a path names no file of weights, and the way out."""
    if Path(path).suffix in NUMPY:
        way_out = "torch.save({n: torch.from_numpy(a) for n, a in numpy.load(F).items()}, 'F.pth')"
        return f"arrays of NumPy are not read: {way_out} makes weights of F"
    pattern = "; a pattern is not expanded: each audit reads one file, named in full"
    return f"no such file{pattern * glob.has_magic(str(path))}"


def read_weights(path: Path) -> Any:
    """What a safetensors file, or a torch file of tensors, containers and options, holds.

    Args:
        path: of the file.

    Returns:
        Tensors by name, or whatever containers hold them.

    Raises:
        InputError: missing, cut short, or a pickle that asks for anything else.
    """
    if path.suffix in NUMPY or not path.is_file():
        raise InputError(f"weights '{path}': {why_unread(path)}")
    check_file_type(path, "weights")
    try:
        content = read_safetensors(path)[0] if path.suffix == ".safetensors" else _load(path)
    except InputError:
        raise
    except Exception as error:  # what readers make of bytes that are no file has no common class
        raise _refusal(path, error) from None
    size = 0
    for name, tensor in _tensors(content):
        size += tensor.numel() * tensor.itemsize  # many may be views of one number
        if "lora_" in name:  # without it the network that the file names would be another one
            way = "merge it into the weights that it changes (peft: merge_and_unload()), save these"
            raise InputError(f"weights '{path}': '{name}' is of a LoRA adapter: {way}")
    check_unfolded(f"weights '{path}'", size, path.stat().st_size)
    return content


def _load(path: Path) -> Any:
    """What a file of torch.save, or a TorchScript archive, holds."""
    if zipfile.is_zipfile(path):
        check_zip(f"weights '{path}'", path)
    with torch.serialization.safe_globals(_stand_ins()), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a pickle's protocol
        try:
            content = torch.load(path, map_location="cpu", weights_only=True)
        except RuntimeError as error:
            if "TorchScript" not in str(error):
                raise
            content = _script(path)
    return content


def _tensors(content: Any, name: str = "") -> Iterator[tuple[str, Tensor]]:
    """Every tensor in containers, with its own name."""
    if isinstance(content, Tensor):
        yield name, content
    elif isinstance(content, dict | list | tuple):
        for key, value in content.items() if isinstance(content, dict) else enumerate(content):
            yield from _tensors(value, str(key))


def _stand_ins() -> list[Any]:
    stubs: list[Any] = [(OptionsStub, name) for name in OPTIONS]
    stubs += [(OrderedDict, name) for name in MAPPINGS]
    stubs += [(make_dict, f"torch.jit._pickle.build_{n}list") for n in ("int", "double", "bool")]
    return [*stubs, (make_dict, "collections.defaultdict")]


def _script(path: Path) -> dict[str, Tensor]:
    """Tensors of a TorchScript archive by the names of `state_dict()`.

    A copy without its constants is to torch a file of tensors. None of its code is compiled.
    """
    copy = io.BytesIO()
    with zipfile.ZipFile(path) as archive, zipfile.ZipFile(copy, "w") as bare:
        for name in archive.namelist():
            if not name.endswith("/constants.pkl"):
                bare.writestr(name, archive.read(name))
    copy.seek(0)
    names = torch.serialization.get_unsafe_globals_in_checkpoint(copy)
    copy.seek(0)
    own: list[Any] = [(ModuleStub, n) for n in names if n.startswith("__torch__.")]
    with torch.serialization.safe_globals(own):
        return torch.load(copy, map_location="cpu", weights_only=True).tensors


def _refusal(path: Path, error: Exception) -> InputError:
    """The error for a file that cannot be read, or asks for what is no data, naming that.

    torch's own words are not repeated where they advise to read the file whatever it runs.
    """
    text = str(error)
    if match := re.search(r"GLOBAL (\S+)", text):
        way = "Save the model's state_dict() alone (of an ArrayRecord to_torch_state_dict())"
        asks = f"it asks for '{match[1]}', which is no data and may run code; nothing of it was run"
        return InputError(f"weights '{path}': not read: {asks}. {way}")
    why = first_line(error).split(". ")[0]
    if "inline_container" in text:
        why = "a damaged archive, or one of other files: torch.save(model.state_dict(), FILE)"
    elif path.suffix == ".pkl":
        why = "it is a pickle of other code (as BYOL's in JAX); save its tensors by name with torch"
    elif "weights_only" in text or isinstance(error, pickle.UnpicklingError):
        why = "it is cut short, or no file of tensors and options"
    return InputError(f"weights '{path}': cannot be read: {why}")
