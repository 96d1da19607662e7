"""Weights from a file into an architecture: every tensor must find its place."""

from __future__ import annotations

import itertools
import pickle
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from fedmia.errors import InputError
from fedmia.released.base import first

KEYS = ("state_dict", "model", "model_state_dict")  # under which training scripts keep weights
# Wrappers around the encoder. MoCo's file also holds `encoder_k`: the query encoder is taken.
PREFIXES = ("module.", "backbone.", "encoder.", "encoder_q.", "model.")
DEPTH = 3  # most wrappers around one another


def read(path: Path) -> dict[str, Tensor]:
    """Named tensors of a safetensors file, or of a torch file that holds nothing but data.

    Raises:
        InputError: missing, unreadable, or without named tensors.
    """
    if not path.is_file():
        raise InputError(f"--checkpoint {path}: no such file")
    found: Any
    try:
        if path.suffix == ".safetensors":
            found = load_file(path)
        else:
            found = torch.load(path, map_location="cpu", weights_only=True)
    except (SafetensorError, pickle.UnpicklingError, RuntimeError, EOFError, OSError) as error:
        raise InputError(f"--checkpoint {path}: cannot be read: {first(error)}") from None
    for key in KEYS:
        if isinstance(found, dict) and isinstance(found.get(key), dict):
            found = found[key]
    tensors = found.items() if isinstance(found, dict) else ()
    named = {str(n): t for n, t in tensors if isinstance(t, Tensor)}
    if not named:
        what = ", ".join(map(str, list(found)[:5])) if isinstance(found, dict) else type(found)
        raise InputError(f"--checkpoint {path}: no named tensors in it (it holds {what})")
    return named


def fit(module: nn.Module, path: Path, where: str) -> str:
    """Load every parameter and running statistic of `module` from `path`; returns a note.

    The prefix of wrappers that makes most names fit is stripped.

    Raises:
        InputError: a tensor that the file lacks, or of another shape.
    """
    given = read(path)
    own = module.state_dict()
    needed = [n for n, t in own.items() if t.is_floating_point()]
    prefixes = ["".join(p) for d in range(DEPTH + 1) for p in itertools.product(PREFIXES, repeat=d)]
    prefix = max(prefixes, key=lambda p: sum(p + n in given for n in own))
    found = {n: given[prefix + n] for n in own if prefix + n in given}
    fits = [n for n in needed if n in found and found[n].shape == own[n].shape]
    for name in needed:
        if name in fits:
            continue
        wrong = "is missing"
        if name in found:
            wrong = f"is {tuple(found[name].shape)}, {where} needs {tuple(own[name].shape)}"
        raise InputError(
            f"--checkpoint {path}: tensor '{prefix + name}' {wrong} "
            f"({len(fits)} of {len(needed)} tensors fit)"
        )
    ready = {n: t for n, t in found.items() if t.shape == own[n].shape}
    module.load_state_dict(ready, strict=False)
    unused = [n for n in given if n.removeprefix(prefix) not in ready or not n.startswith(prefix)]
    more = f"; {len(unused)} others in the file were not used, e.g. {unused[0]}" if unused else ""
    return f"{len(fits)} of {len(needed)} tensors loaded from {path.name}{more}."
