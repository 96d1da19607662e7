"""The one exception that stands for bad input."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class InputError(ValueError):
    """The user's input is wrong. Its message is one line: what, where, the value, what is allowed.

    The command line prints it on standard error and exits with code 2, without a traceback.
    """


def nearest(name: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?` for the known name nearest to `name`, or the empty string."""
    match = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f"; did you mean '{match[0]}'?" if match else ""


def unknown(what: str, name: str, known: Iterable[str]) -> InputError:
    """The error for a name that is not among the known ones, with the nearest of them."""
    listed = sorted(known)
    return InputError(
        f"unknown {what} '{name}'{nearest(name, listed)} (known: {', '.join(listed) or 'none'})"
    )
