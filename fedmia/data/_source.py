"""What file-reading sources share: their path, and labels renumbered from zero."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmia.data.base import Request
from fedmia.data.images import IntArray
from fedmia.errors import InputError, opt


def file_path(request: Request, name: str) -> Path:
    """The non-empty file that `name:PATH` names.

    Raises:
        InputError: no path given, or it is missing, a folder or empty.
    """
    path = Path(given(request, name))
    if not path.exists():
        raise InputError(f"{name}: no such file: {path}")
    if not path.is_file():
        raise InputError(f"{name}: {path} is a folder, expected a file")
    if path.stat().st_size == 0:
        raise InputError(f"{name}: {path} is empty")
    return path


def folder_path(request: Request, name: str) -> Path:
    """The folder that `name:PATH` names.

    Raises:
        InputError: no path given, or it is missing or not a folder.
    """
    return as_folder(Path(given(request, name)), name)


def as_folder(path: Path, name: str) -> Path:
    """`path` itself; InputError if it is missing or not a folder."""
    if not path.exists():
        raise InputError(f"{name}: no such folder: {path}")
    if not path.is_dir():
        raise InputError(f"{name}: {path} is a file, expected a folder")
    return path


def given(request: Request, name: str) -> str:
    """The text after the colon; InputError if there is none."""
    if not request.path:
        raise InputError(f"{name} needs a path: {opt('data.name', f'{name}:PATH')}")
    return request.path


def renumbered(labels: NDArray[Any]) -> IntArray:
    """Labels as 0..classes-1, in ascending order of their values."""
    return np.unique(labels, return_inverse=True)[1].astype(np.int64)
