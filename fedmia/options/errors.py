"""The exception for bad input, and how its message spells options: each by its dotted path."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

# Paths of options with a short flag -> the flag, in every command that has the option.
SHORT_FLAGS: Mapping[str, str] = {
    "federation.clients": "clients",
    "federation.rounds": "rounds",
    "federation.attack_rounds": "attack_rounds",
    "federation.on_failure": "on_failure",
    "federation.client_timeout": "client_timeout",
    "federation.min_clients": "min_clients",
    "data.name": "dataset",
    "data.dir": "data_dir",
    "data.size": "size",
    "data.mean": "mean",
    "data.std": "std",
    "data.skip_unreadable": "skip_unreadable",
    "data.pixel_range": "pixel_range",
    "pretrain.mode": "pretrain",
    "pretrain.epochs": "pretrain_epochs",
}


class InputError(ValueError):
    """The user's input is wrong. Its message is one line: what, where, the value, what is allowed.

    The command line prints the line on standard error and exits with code 2.
    """

    def __init__(self, text: str) -> None:
        super().__init__(" ".join(text.split()))


def opt(path: str, value: Any = ...) -> str:
    """An option in a message: `federation.clients (--clients)`, `train.lr 0.1`.

    Args:
        path: of the option in the settings.
        value: that it has or should have; `...`: none is shown.

    Returns:
        Its path, its short flag where it has one, and the value.
    """
    short = f" (--{SHORT_FLAGS[path].replace('_', '-')})" if path in SHORT_FLAGS else ""
    return f"{path}{short}" + ("" if value is ... else f" {format_value(value)}")


@contextmanager
def prefix_errors(where: str) -> Iterator[None]:
    """Put `where` before the message of every InputError raised inside, unless it has that."""
    try:
        yield
    except InputError as error:
        if where and where not in str(error):
            error.args = (f"{where}: {error}",)
        raise


def format_value(value: Any) -> str:
    """A value as a user types it after a flag."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(map(format_value, value)) or "none"
    return str(value)


def suggest_nearest(name: str, known: Iterable[str]) -> str:
    """The end of an error that suggests a name.

    Args:
        name: as the user wrote it; case does not matter.
        known: what could be meant. The last part of a path, and the value after a flag, stand for
            the whole.

    Returns:
        `; did you mean 'x'?` with the nearest known name; empty: none is near.
    """
    whole = {one.lstrip("-").lower().replace("_", "-"): one for one in [*known][::-1]}
    near = {re.split(r"[. ]", text)[-1]: one for text, one in whole.items()} | whole
    match = difflib.get_close_matches(name.lower().replace("_", "-"), near, n=1, cutoff=0.5)
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
