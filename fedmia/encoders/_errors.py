"""What forms of encoders refuse alike: files, libraries and names that are not there."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from fedmia.settings.errors import InputError, suggest_nearest

# What modules and programs raise on pixels that they do not take.
FAILURES = (RuntimeError, AssertionError, ValueError, TypeError, IndexError)


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


def unknown_model_error(library: str, name: str, known: Sequence[str]) -> InputError:
    """The error for a model that a library lacks, with the nearest name of `known`: all of them are
    too many to print."""
    near = suggest_nearest(name, known)
    return InputError(f"unknown {library} model '{name}'{near} ({len(known)} are known)")
