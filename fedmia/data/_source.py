"""What file-reading sources share: their path, and labels renumbered from zero."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmia.data.base import Request
from fedmia.data.images import UNLABELLED, IntArray
from fedmia.options.errors import InputError, opt


def file_path(request: Request, name: str) -> Path:
    """The non-empty file that `name:PATH` names.

    Raises:
        InputError: no path given, or it is missing, a folder or empty.
    """
    path = check_path(require_path(request, name), name, "file")
    if path.stat().st_size == 0:
        raise InputError(f"{name}: {path} is empty")
    return path


def check_path(path: Path, name: str, what: str) -> Path:
    """`path` itself; InputError if it is missing or no `what`, `file` or `folder`."""
    if not path.exists():
        raise InputError(f"{name}: no such {what}: {path}")
    if not (path.is_file() if what == "file" else path.is_dir()):
        other = "folder" if what == "file" else "file"
        raise InputError(f"{name}: {path} is a {other}, expected a {what}")
    return path


def require_path(request: Request, name: str) -> Path:
    """The path after the colon of `name:PATH`; InputError without one."""
    if not request.path:
        raise InputError(f"{name} needs a path: {opt('data.name', f'{name}:PATH')}")
    return Path(request.path)


def renumber_labels(labels: NDArray[Any]) -> tuple[IntArray, tuple[str, ...]]:
    """Labels as 0..classes-1, in ascending order of their values, and these values."""
    values, numbers = np.unique(labels, return_inverse=True)
    return numbers.astype(np.int64), tuple(map(str, values.tolist()))


def absent_labels(count: int) -> tuple[IntArray, tuple[str, ...]]:
    """Labels and classes of so many images whose source tells none."""
    return np.zeros(count, dtype=np.int64), UNLABELLED
