"""The exception for bad input, and how its message spells options: as flags, keys or arguments."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

# Spells an option, and its value where there is one: as a flag, as a key of a file, ..
Spelling = Callable[[str, str | None], str]
NO_PATHS: Mapping[str, str] = {}
# How `opt` marks an option in a text; the mark stays legible where nothing spells it otherwise.
_NOTED = re.compile("\u27e8([^\u27e8\u27e9\u2254]*)(?:\u2254([^\u27e9]*))?\u27e9")


class OptionMention(NamedTuple):
    """An option that a message names.

    Attributes:
        path: of the option in the settings.
        value: its value as text; None: the message gives none.
    """

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
        spelling: how `str` says the options, once it is known who gave them.
    """

    spelling: Spelling

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text
        self.parts = _parts(text)
        self.spelling = spell_in_python

    @property
    def options(self) -> list[OptionMention]:
        """The options that it names, with their values, in order."""
        return [part for part in self.parts if isinstance(part, OptionMention)]

    @property
    def paths(self) -> tuple[str, ...]:
        """Paths of the options that it names, in order."""
        return tuple(path for path, _ in self.options)

    def __str__(self) -> str:
        return _join_parts(self.parts, self.spelling)


def opt(path: str, value: Any = ...) -> str:
    """Mention an option in a message. `format_error` later spells it as a flag, a key or an
    argument.

    Args:
        path: of the option in the settings.
        value: that it has or should have; `...`: none is shown.

    Returns:
        Text that marks the option within the message.
    """
    return (
        f"\u27e8{path}\u27e9" if value is ... else f"\u27e8{path}\u2254{format_value(value)}\u27e9"
    )


def _parts(text: str) -> tuple[str | OptionMention, ...]:
    """Split a text into words and mentions of options."""
    parts: list[str | OptionMention] = []
    end = 0
    for noted in _NOTED.finditer(text):
        parts += [text[end : noted.start()], OptionMention(noted[1], noted[2])]
        end = noted.end()
    return (*parts, text[end:])


def _join_parts(parts: Iterable[str | OptionMention], spelling: Spelling) -> str:
    words = (part if isinstance(part, str) else spelling(*part) for part in parts)
    return " ".join("".join(words).split())


def spell_in_python(path: str, value: str | None) -> str:
    """Spell an option as a keyword argument: `known`, `known=50`."""
    return path if value is None else f"{path}={value}"


def format_error(text: str, spelling: Spelling = spell_in_python) -> str:
    """A message on one line, its options spelled in a style.

    Args:
        text: with mentions of options as `opt` makes them.
        spelling: spells one option.

    Returns:
        Plain text.
    """
    return _join_parts(_parts(text), spelling)


def map_options(text: str, rename: Callable[[str], str]) -> str:
    """Replace the path of each option that a message mentions.

    Args:
        text: with mentions of options as `opt` makes them.
        rename: old path -> new path.

    Returns:
        The text, its options still marked.
    """
    return _NOTED.sub(lambda noted: noted[0].replace(noted[1], rename(noted[1]), 1), text)


@contextmanager
def prefix_errors(where: str) -> Iterator[None]:
    """Put `where` before the message of every InputError raised inside; empty: leave it."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{where}: {error.text}" if where else error.text) from None


@contextmanager
def option_style(speak: Spelling) -> Iterator[None]:
    """Give every InputError raised inside the style `speak`, unless it has one."""
    try:
        yield
    except InputError as error:
        if error.spelling is spell_in_python:
            error.spelling = speak
        raise


@contextmanager
def style_of_file(file: Path) -> Iterator[None]:
    """Let every InputError raised inside spell options as keys of a file, which it names."""
    try:
        yield
    except InputError as error:
        if error.spelling is spell_in_python:
            error.spelling = partial(_in_file, f" in {file}", error.paths[:1])
        if type(error) is InputError and not error.paths and str(file) not in error.text:
            raise InputError(f"{file}: {error.text}") from None  # it names no option
        raise


def _in_file(where: str, first: tuple[str, ...], path: str, value: str | None) -> str:
    return (path if value is None else f"{path}: {value}") + where * (path in first)


def format_value(value: Any) -> str:
    """A value as a user types it after a flag."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(map(format_value, value)) or "none"
    return str(value)


def suggest_nearest(name: str, known: Iterable[str], paths: Mapping[str, str] = NO_PATHS) -> str:
    """The end of an error that suggests a name.

    Args:
        name: as the user wrote it; case does not matter.
        known: what could be meant.
        paths: further names -> what the message says for each, as where it lies.

    Returns:
        `; did you mean 'x'?` with the nearest known name; empty: none is near.
    """
    near = {one.lower(): paths.get(one, one) for one in [*known, *paths]}
    match = difflib.get_close_matches(name.lower(), near, n=1, cutoff=0.5)
    return f"; did you mean '{near[match[0]]}'?" if match else ""


def unknown_name(what: str, name: str, known: Iterable[str]) -> InputError:
    """The error for a name that is not known.

    Args:
        what: kind of thing that the name should be.
        name: as the user wrote it.
        known: the names that there are, in any order.

    Returns:
        The error, with the nearest name and the sorted list of the known ones.
    """
    listed = sorted(known)
    return InputError(
        f"unknown {what} '{name}'{suggest_nearest(name, listed)} "
        f"(known: {', '.join(listed) or 'none'})"
    )
