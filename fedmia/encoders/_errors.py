"""What forms of encoders refuse alike: libraries that are not there, and pixels."""

from __future__ import annotations

import importlib
from typing import Any

from fedmia.settings.errors import InputError

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
