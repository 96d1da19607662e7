"""Convert values of options from text (flags) or YAML to the option's type, and back."""

from __future__ import annotations

import glob
import os
import re
import typing
import unicodedata
from contextlib import suppress
from pathlib import Path
from typing import Any

from fedmia.settings.errors import wrong_value
from fedmia.settings.options import type_name, union_members

_INT = re.compile(r"[+-]?[0-9]+")
_NAMES = re.compile(r"(?:[A-Za-z0-9_.-]+:)*")
_SPAN = re.compile(r"([0-9]{1,9})-([0-9]{1,9})")
_LONGEST_SPAN = 1_000_000


class Text(str):
    """A value typed on the command line, its type not yet known."""

    def __repr__(self) -> str:
        """As one from a file reads in an error: a number without quotes."""
        try:
            float(str(self))
        except ValueError:
            return super().__repr__()
        return super().__repr__() if "_" in self else str(self)


def convert(where: str, value: Any, kind: Any) -> Any:
    """Convert a value from YAML or from the command line (a `Text`) to an option's type.

    Integers become floats where a float is needed, lists become tuples, `none` becomes None
    where None is allowed. A YAML string is parsed as a list where a list is needed (`0-4,7`), and
    never else.

    Args:
        where: the option, for the error.
        value: to convert.
        kind: the option's type.

    Returns:
        The converted value. A YAML value of a wrong type is returned as it is, for the option's own
        check to refuse.

    Raises:
        InputError: text that does not say a value of the type.
    """
    kinds = union_members(kind)
    if isinstance(value, str) and type(None) in kinds and value.lower() == "none":
        return None
    tuples = [k for k in kinds if typing.get_origin(k) is tuple]
    if isinstance(value, Text) or (isinstance(value, str) and tuples and str not in kinds):
        return from_text(where, str(value), kind)
    if isinstance(value, list | tuple) and tuples:
        item = typing.get_args(tuples[0])[0]
        return tuple(convert(where, v, item) for v in value)
    if isinstance(value, int) and not isinstance(value, bool) and int not in kinds:
        return float(value) if float in kinds else value
    return disk_path(value) if isinstance(value, str) else value


def from_text(where: str, text: str, kind: Any) -> Any:
    """Parse a value: `true`, `3`, `0.1`, `a,b`, `0-4,7`, `none`.

    Args:
        where: the option, for the error.
        text: to parse.
        kind: the option's type.

    Returns:
        The value.

    Raises:
        InputError: the text does not say a value of the type.
    """
    kinds = union_members(kind)
    if type(None) in kinds and text.lower() == "none":
        return None
    for one in sorted(kinds, key=lambda k: k is str):  # a string is what nothing else is
        try:
            return _parse(text, one)
        except (ValueError, LookupError, OverflowError):
            continue
    raise wrong_value(where, Text(text), type_name(kind))


def _parse(text: str, kind: Any) -> Any:
    """`text` as a value of a type; ValueError or LookupError: it says none."""
    if typing.get_origin(kind) is tuple:
        item = typing.get_args(kind)[0]
        parts = [p.strip() for p in text.split(",")] if text.strip() else []
        items: list[Any] = []
        for part in parts:
            items.extend(_span(part) if item is int else [_parse(part, item)])
        return tuple(items)
    if typing.get_origin(kind) is typing.Literal and text in typing.get_args(kind):
        return text
    if kind is bool:
        return {"true": True, "false": False}[text.lower()]
    if kind not in (int, float, str) or not text or (kind is int and not _INT.fullmatch(text)):
        raise ValueError
    return disk_path(text) if kind is str else kind(text)


def _span(part: str) -> list[int]:
    """`4` is [4]; `0-2` is [0, 1, 2]."""
    match = _SPAN.fullmatch(part)
    if not match:
        return [_parse(part, int)]
    low, high = int(match[1]), int(match[2])
    if not low <= high < low + _LONGEST_SPAN:
        raise ValueError
    return list(range(low, high + 1))


def disk_path(value: str | Path) -> str:
    """A path, alone or after `NAME:`, as the disk has it.

    The home folder replaces its `~`, which a shell leaves in `folder:~/data` and `--out=~/RUN`. An
    accent is a letter in one name and a mark in another (Unicode's forms NFC and NFD): each part of
    the path that is there, `RUN` of `RUN@ROUND` too, is spelt as it is there.

    Args:
        value: any text or path that an option takes.

    Returns:
        The path; text that names no file and no folder comes back as it is.
    """
    before = match[0] if (match := _NAMES.match(str(value))) else ""
    path = str(value).removeprefix(before)
    if path[:1] == "~" and "/" in path:
        path = os.path.expanduser(path)
    parts = path.split("/")
    for at, part in enumerate(parts):
        parts[at] = _stored_name("/".join([*parts[:at], ""]) or ".", part)
    return before + "/".join(parts)


def _stored_name(folder: str, name: str) -> str:
    """The name of a file as its folder has it; `name` where it has none that reads the same."""
    if name.isascii() or os.path.lexists(os.path.join(folder, name)):
        return name
    with suppress(OSError, ValueError):
        for other in sorted(os.listdir(folder)):
            if escape_name(other) == escape_name(name):
                return other
    stem, at, turn = name.rpartition("@")
    return _stored_name(folder, stem) + at + turn if turn.isdigit() else name


def disk_paths(pattern: str) -> list[str]:
    """The paths that a pattern as of `glob` names, whichever form their accents have; sorted."""
    folder, name = os.path.split(disk_path(pattern))
    names = {name, *(unicodedata.normalize(form, name) for form in ("NFC", "NFD"))}
    return sorted(path for one in names for path in glob.glob(os.path.join(folder, one)))


def escape_name(text: str) -> str:
    """A name as text that any file and terminal takes and that compares by what is read: in
    Unicode's form NFC, as accents may be letters or marks; what is no UTF-8 in it, which Python
    holds as half characters, is escaped (`caf\\xe9`)."""
    escaped = text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return unicodedata.normalize("NFC", escaped)


def plain(value: Any) -> Any:
    """`value` as YAML and JSON hold it: tuples as lists, mappings as dicts."""
    if isinstance(value, tuple | list):
        return [plain(v) for v in value]
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    return value
