"""Files of weights, and folders of them, read as data: nothing that a pickle asks for is called."""

from __future__ import annotations

import io
import pickle
import pickletools
import re
import struct
import warnings
import zipfile
import zlib
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from fedmia.encoders.base import FAILURES, NUMPY, first_line, why_unread
from fedmia.options import bounded
from fedmia.options.errors import InputError
from fedmia.options.filetype import check_file_type

# Weights beside a config.json, as model hubs keep them.
IN_FOLDERS = ("model.safetensors", "pytorch_model.bin")


class OptionsStub:
    """Stands for an object of a class that keeps options: it takes what it is given and does
    nothing. The class itself is never imported."""

    def __init__(self, *args: object) -> None:
        pass

    def __setstate__(self, state: object) -> None:
        pass


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


def read(path: Path) -> Any:
    """What a safetensors file, or a torch file of tensors, containers and options, holds.

    Raises:
        InputError: missing, cut short, or a pickle that asks for anything else.
    """
    if path.suffix in NUMPY or not path.is_file():
        raise InputError(f"weights '{path}': {why_unread(path)}")
    check_file_type(path, "weights")
    try:
        if path.suffix == ".safetensors":
            return _refuse_adapters(path, load_file(path))
        if zipfile.is_zipfile(path):
            bounded.check_zip(f"weights '{path}'", path)
        with torch.serialization.safe_globals(_stand_ins()), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a pickle's protocol
            try:
                content = torch.load(path, map_location="cpu", weights_only=True)
            except RuntimeError as error:
                if "TorchScript" not in str(error):
                    raise
                content = _script(path)
        size = sum(t.numel() * t.itemsize for t in _list_tensors(content))
        bounded.check_unfolded(f"weights '{path}'", size, path.stat().st_size)
        return _refuse_adapters(path, content)
    except InputError:
        raise
    # What torch makes of bytes that are no file of its own has no common class.
    except (
        pickle.UnpicklingError, SafetensorError, RuntimeError, EOFError, OSError, ValueError,
        LookupError, AttributeError, TypeError, AssertionError, MemoryError, OverflowError,
        zipfile.BadZipFile, zlib.error, struct.error,
    ) as error:  # fmt: skip
        raise _refusal(path, error) from None


def _refuse_adapters(path: Path, content: Any) -> Any:
    """The content, unless a tensor of it belongs to an adapter: without it the network that the
    file names would be another one."""
    for name, value in content.items() if isinstance(content, dict) else ():
        if isinstance(value, Tensor) and "lora_" in str(name):
            raise InputError(
                f"weights '{path}': '{name}' is of a LoRA adapter, which changes the weights of "
                "another file: merge it into them (peft: merge_and_unload()) and save the "
                "state_dict() of the whole"
            )
        _refuse_adapters(path, value)
    return content


def _list_tensors(content: Any) -> Iterator[Tensor]:
    """Every tensor in containers; many may be views of one number."""
    if isinstance(content, Tensor):
        yield content
    elif isinstance(content, dict | list | tuple):
        for value in content.values() if isinstance(content, dict) else content:
            yield from _list_tensors(value)


def _stand_ins() -> list[Any]:
    stubs: list[Any] = [(OptionsStub, name) for name in OPTIONS]
    stubs += [(OrderedDict, name) for name in MAPPINGS]
    stubs += [(make_dict, f"torch.jit._pickle.build_{n}list") for n in ("int", "double", "bool")]
    return [*stubs, (make_dict, "collections.defaultdict")]


def _script(path: Path) -> dict[str, Tensor]:
    """Tensors of a TorchScript archive by the names of `state_dict()`.

    A copy without its constants is to torch a file of tensors. None of its code is compiled.
    """
    copy, storages = io.BytesIO(), set[str]()
    with zipfile.ZipFile(path) as archive, zipfile.ZipFile(copy, "w") as bare:
        for name in archive.namelist():
            content = archive.read(name)
            if name.endswith("/data.pkl"):
                storages = {str(a) for op, a, _ in pickletools.genops(content) if "GLOB" in op.name}
            if not name.endswith("/constants.pkl"):
                bare.writestr(name, content)
    own: list[Any] = [
        (ModuleStub, n.replace(" ", ".")) for n in storages if n.startswith("__torch__")
    ]
    copy.seek(0)
    with torch.serialization.safe_globals(own):
        return torch.load(copy, map_location="cpu", weights_only=True).tensors


def _refusal(path: Path, error: Exception) -> InputError:
    """The error for a file that cannot be read, or asks for what is no data, naming that.

    torch's own words are not repeated where they advise to read the file whatever it runs.
    """
    text = str(error)
    if match := re.search(r"GLOBAL (\S+)", text):
        return InputError(
            f"weights '{path}': not read: it asks for '{match[1]}', which is no data and may run "
            "code; nothing of it was run. Save the model's state_dict() alone (of an "
            "ArrayRecord to_torch_state_dict())"
        )
    why = first_line(error).split(". ")[0]
    if "inline_container" in text:
        why = "a damaged archive, or one of other files: torch.save(model.state_dict(), FILE)"
    elif path.suffix == ".pkl":
        why = "it is a pickle of other code (as BYOL's in JAX); save its tensors by name with torch"
    elif "weights_only" in text or isinstance(error, pickle.UnpicklingError):
        why = "it is cut short, or no file of tensors and options"
    return InputError(f"weights '{path}': cannot be read: {why}")


def folder_weights(folder: Path, form: str, files: tuple[str, ...] = IN_FOLDERS) -> Path:
    """The file of weights in a folder that also holds a configuration.

    Args:
        folder: the folder.
        form: how the user names such a folder, for errors.
        files: names of files that may hold the weights; the first that exists is taken.

    Returns:
        Path of the file.

    Raises:
        InputError: no such folder, or it lacks one of the two.
    """
    if not folder.is_dir():
        raise InputError(f"{form}: no such folder: '{folder}' (nothing is downloaded)")
    read_json(folder / "config.json")
    present = [folder / name for name in files if (folder / name).is_file()]
    for file in (*present, *folder.glob("*.safetensors")):
        check_file_type(file, form)
    if not present:
        raise InputError(f"{form}: no weights in '{folder}': it has no {' or '.join(files)}")
    return present[0]


def read_json(path: Path) -> dict[str, Any]:
    """The dictionary in a JSON file.

    Raises:
        InputError: there is none, or it cannot be read.
    """
    check_file_type(path, "configuration")
    try:
        content = bounded.read_json(path)
    except FileNotFoundError:
        raise InputError(f"'{path.parent}' has no {path.name}") from None
    except (OSError, ValueError) as error:
        raise InputError(f"'{path}' cannot be read: {error}") from None
    if not isinstance(content, dict):
        raise InputError(f"'{path}' holds no configuration")
    return content


@contextmanager
def of_configuration(folder: Path) -> Iterator[None]:
    """Refuse the configuration of a folder in one line where what is done inside fails on it.

    Raises:
        InputError: it names the folder.
    """
    try:
        yield
    except InputError as error:
        if folder.name in str(error):
            raise
        raise InputError(f"the configuration in '{folder}': {error}") from None
    except (LookupError, ArithmeticError, AttributeError, *FAILURES) as error:
        what = f"{type(error).__name__}: {first_line(error)}"
        raise InputError(f"the configuration in '{folder}' cannot be used: {what}") from error
