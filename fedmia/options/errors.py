"""The one exception that stands for bad input, and how it names options to whoever gave them."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable
from typing import Any

# Writes an option, and its value where one is told, as its user does: a flag, a key of a file..
Tongue = Callable[[str, str | None], str]
_MARK = re.compile("\ue000([^\ue001\ue002]*)(?:\ue002([^\ue001]*))?\ue001")


class InputError(ValueError):
    """The user's input is wrong. Its message is one line: what, where, the value, what is allowed.

    Options in the message are written with `opt`, by their path in the settings
    (`federation.clients`). The command line says them as flags, a file's as its keys. It prints
    the line on standard error and exits with code 2.

    Attributes:
        text: the message with its options still open, to be part of another one.
        tongue: how `str` says them, once it is known who gave them.
    """

    tongue: Tongue

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text
        self.tongue = in_python

    @property
    def paths(self) -> tuple[str, ...]:
        """Paths of the options that it names, in order."""
        return tuple(mark[1] for mark in _MARK.finditer(self.text))

    def __str__(self) -> str:
        return said(self.text, self.tongue)


def opt(path: str, value: Any = ...) -> str:
    """The option at `path` in a message, with the value that it has or should have."""
    return f"\ue000{path}\ue001" if value is ... else f"\ue000{path}\ue002{shown(value)}\ue001"


def in_python(path: str, value: str | None) -> str:
    """`known`, `known=50`."""
    return path if value is None else f"{path}={value}"


def said(text: str, tongue: Tongue = in_python) -> str:
    """`text` on one line, its options written as `tongue` does."""
    return " ".join(_MARK.sub(lambda mark: tongue(mark[1], mark[2]), text).split())


def renamed(text: str, rename: Callable[[str], str]) -> str:
    """`text` with the path of each option in it renamed."""

    def again(mark: re.Match[str]) -> str:
        return mark[0].replace(mark[1], rename(mark[1]), 1)

    return _MARK.sub(again, text)


def shown(value: Any) -> str:
    """`value` as one types it after a flag."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(map(shown, value)) or "none"
    return str(value)


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
