"""The losses behind the figures of an active attack, as a file: `curves.npz`."""

from __future__ import annotations

import dataclasses
import io
from pathlib import Path
from typing import Any

import numpy as np

from fedmia.options.bounded import check_npz
from fedmia.records import Curves


def to_npz(curves: Curves) -> bytes:
    """Every array of `curves` under its field's name, those that are None left out; losses in
    float32. The same curves give the same bytes."""
    by_field = {f.name: getattr(curves, f.name) for f in dataclasses.fields(curves)}
    arrays: dict[str, Any] = {n: np.asarray(v) for n, v in by_field.items() if v is not None}
    arrays = {n: a.astype(np.float32) if a.dtype.kind == "f" else a for n, a in arrays.items()}
    data = io.BytesIO()
    np.savez_compressed(data, **arrays)
    return data.getvalue()


def from_npz(file: Path) -> Curves:
    """The curves that `to_npz` wrote."""
    check_npz(str(file), file)
    with np.load(file, allow_pickle=False) as stored:
        arrays = {name: stored[name] for name in stored.files}
    return Curves(act=str(arrays.pop("act")), **arrays)
