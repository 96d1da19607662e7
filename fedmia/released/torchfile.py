"""A file of weights, read as data: nothing that a pickle asks to be called is called."""

from __future__ import annotations

import pickle
import re
import warnings
from collections import OrderedDict
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from fedmia.errors import InputError
from fedmia.released.base import first


class Inert:
    """Stands for an object of a class that keeps options: it takes what it is given and does
    nothing. The class itself is never imported."""

    def __init__(self, *args: object) -> None:
        pass

    def __setstate__(self, state: object) -> None:
        pass


def empty(*args: object) -> dict[object, object]:
    """Stands for a function that makes a dictionary."""
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
    if not path.is_file():
        raise InputError(f"weights '{path}': no such file")
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        with torch.serialization.safe_globals(_stand_ins()), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a pickle's protocol
            return torch.load(path, map_location="cpu", weights_only=True)
    # What torch makes of bytes that are no file of its own has no common class.
    except (
        pickle.UnpicklingError, SafetensorError, RuntimeError, EOFError, OSError, ValueError,
        LookupError, AttributeError, TypeError,
    ) as error:  # fmt: skip
        raise _refused(path, error) from None


def _stand_ins() -> list[Any]:
    made: list[Any] = [(Inert, name) for name in OPTIONS]
    made += [(OrderedDict, name) for name in MAPPINGS]
    return [*made, (empty, "collections.defaultdict")]


def _refused(path: Path, error: Exception) -> InputError:
    """The error for a file that cannot be read, or asks for what is no data, naming that.

    torch's own words are not repeated where they advise to read the file whatever it runs.
    """
    text = str(error)
    if asked := re.search(r"GLOBAL (\S+)", text):
        return InputError(
            f"weights '{path}': not read: it asks for '{asked[1]}', which is no data and may run "
            "code; nothing of it was run. Save the model's state_dict() alone"
        )
    why = first(error).split(". ")[0]
    if "TorchScript" in text:
        why = "it is a TorchScript archive; torch.export makes a FILE.pt2 of the model"
    elif "weights_only" in text or isinstance(error, pickle.UnpicklingError):
        why = "it is cut short, or no file of tensors and options"
    return InputError(f"weights '{path}': cannot be read: {why}")
