"""The one exception that stands for bad input, and how it names options to whoever gave them."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

# Writes an option, and its value where one is told, as its user does: a flag, a key of a file..
Tongue = Callable[[str, str | None], str]
# How `opt` writes one into a text, where it stays legible should nobody say it otherwise.
_NOTED = re.compile("\u27e8([^\u27e8\u27e9\u2254]*)(?:\u2254([^\u27e9]*))?\u27e9")


class OptionMention(NamedTuple):
    """An option that a message names: its path in the settings, and a value where one is told."""

    path: str
    value: str | None = None


class InputError(ValueError):
    """The user's input is wrong. Its message is one line: what, where, the value, what is allowed.

    A message is written with `opt` where it names an option. The error keeps words and options
    apart, and who reports it says the options: the command line as the flags that were typed, a
    file's as its keys, Python as arguments. The command line prints the line on standard error and
    exits with code 2.

    Attributes:
        text: the message as it was written, to be part of another one.
        parts: words and options of the message, in turn.
        tongue: how `str` says the options, once it is known who gave them.
    """

    tongue: Tongue

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text
        self.parts = _parts(text)
        self.tongue = spell_in_python

    @property
    def options(self) -> list[OptionMention]:
        """The options that it names, with their values, in order."""
        return [part for part in self.parts if isinstance(part, OptionMention)]

    @property
    def paths(self) -> tuple[str, ...]:
        """Paths of the options that it names, in order."""
        return tuple(path for path, _ in self.options)

    def __str__(self) -> str:
        return _joined(self.parts, self.tongue)


def opt(path: str, value: Any = ...) -> str:
    """The option at `path` in a message, with the value that it has or should have."""
    return (
        f"\u27e8{path}\u27e9" if value is ... else f"\u27e8{path}\u2254{format_value(value)}\u27e9"
    )


def _parts(text: str) -> tuple[str | OptionMention, ...]:
    """The words of a text and the options between them."""
    parts: list[str | OptionMention] = []
    end = 0
    for noted in _NOTED.finditer(text):
        parts += [text[end : noted.start()], OptionMention(noted[1], noted[2])]
        end = noted.end()
    return (*parts, text[end:])


def _joined(parts: Iterable[str | OptionMention], tongue: Tongue) -> str:
    format_error = (part if isinstance(part, str) else tongue(*part) for part in parts)
    return " ".join("".join(format_error).split())


def spell_in_python(path: str, value: str | None) -> str:
    """`known`, `known=50`."""
    return path if value is None else f"{path}={value}"


def format_error(text: str, tongue: Tongue = spell_in_python) -> str:
    """`text` on one line, its options written as `tongue` does."""
    return _joined(_parts(text), tongue)


def map_options(text: str, rename: Callable[[str], str]) -> str:
    """`text` with the path of each option in it renamed."""
    return _NOTED.sub(lambda noted: noted[0].replace(noted[1], rename(noted[1]), 1), text)


@contextmanager
def prefix_errors(where: str) -> Iterator[None]:
    """Errors inside begin with `where`, an option or what else they are of, if it says anything."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{where}: {error.text}" if where else error.text) from None


@contextmanager
def option_style(speak: Tongue) -> Iterator[None]:
    """Errors inside say their options as `speak` does, unless they know better."""
    try:
        yield
    except InputError as error:
        if error.tongue is spell_in_python:
            error.tongue = speak
        raise


@contextmanager
def style_of_file(file: Path) -> Iterator[None]:
    """Errors inside say their options to who wrote them all into `file`; the first names it."""
    try:
        yield
    except InputError as error:
        if error.tongue is spell_in_python:
            error.tongue = partial(_in_file, f" in {file}", error.paths[:1])
        raise


def _in_file(where: str, first: tuple[str, ...], path: str, value: str | None) -> str:
    return (path if value is None else f"{path}: {value}") + where * (path in first)


def format_value(value: Any) -> str:
    """`value` as one types it after a flag."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(map(format_value, value)) or "none"
    return str(value)


def suggest_nearest(name: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?` for the known name nearest to `name`, or the empty string."""
    match = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f"; did you mean '{match[0]}'?" if match else ""


def unknown_name(what: str, name: str, known: Iterable[str]) -> InputError:
    """The error for a name that is not among the known ones, with the nearest of them."""
    listed = sorted(known)
    return InputError(
        f"unknown {what} '{name}'{suggest_nearest(name, listed)} "
        f"(known: {', '.join(listed) or 'none'})"
    )
