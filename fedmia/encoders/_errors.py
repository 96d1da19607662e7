"""What forms of encoders refuse alike: files, libraries and names that are not there."""

from __future__ import annotations

import glob
import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedmia.settings.errors import InputError, suggest_nearest

NUMPY = (".npz", ".npy")
# What modules and programs raise on pixels that they do not take.
FAILURES = (RuntimeError, AssertionError, ValueError, TypeError, IndexError)


def why_unread(path: str | Path) -> str:
    """Why a path names no file of weights, and the way out."""
    if Path(path).suffix in NUMPY:
        way_out = "torch.save({n: torch.from_numpy(a) for n, a in numpy.load(F).items()}, 'F.pth')"
        return f"arrays of NumPy are not read: {way_out} makes weights of F"
    pattern = "; a pattern is not expanded: each audit reads one file, named in full"
    return f"no such file{pattern * glob.has_magic(str(path))}"


def import_extra(module: str, what: str, name: str) -> Any:
    """Import a library that is installed only with an extra.

    Args:
        module: to import.
        what: needs it, for the error.
        name: of the extra.

    Returns:
        The module.

    Raises:
        InputError: the extra is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError:
        install = f"pip install '.[{name}]' in a clone of fedmia"
        raise InputError(f"{what} needs the extra: {install}") from None


def first_line(error: BaseException) -> str:
    """First line of an exception's message, its first 300 characters, or its type where there is
    none: a file of others may put a whole page into a name that the message repeats."""
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else type(error).__name__


def unknown_model_error(library: str, name: str, known: Sequence[str]) -> InputError:
    """The error for a model that a library lacks, with the nearest name of `known`: all of them are
    too many to print."""
    near = suggest_nearest(name, known)
    return InputError(f"unknown {library} model '{name}'{near} ({len(known)} are known)")
