"""The exception for bad input, and how its message spells options: each by its dotted path."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

# Paths of options -> a short name, which stands for the path in every command that has the option.
SHORT_FLAGS: Mapping[str, str] = {
    "federation.clients": "clients",
    "federation.rounds": "rounds",
    "federation.attack_rounds": "attack_rounds",
    "federation.on_failure": "on_failure",
    "federation.client_timeout": "client_timeout",
    "federation.min_clients": "min_clients",
    "data.name": "dataset",
    "data.dir": "data_dir",
    "pretrain.mode": "pretrain",
    "pretrain.epochs": "pretrain_epochs",
    "encoder.name": "encoder",
    "federation.recording": "federation",
    "shadow.count": "shadows",
    "shadow.data": "shadow_data",
    "shadow.encoders": "shadow_encoders",
    "shadow.defense": "shadow_defense",
    "shadow.cache": "cache",
} | {
    f"{section}.{name}": name
    for section, names in {
        "data": ("size", "mean", "std", "channels", "skip_unreadable", "pixel_range", "fit"),
        "encoder": ("checkpoint", "checkpoint_key", "allow_missing", "allow_random", "embedding",
                    "access", "rate", "batch", "precision"),
        "federation": ("owners", "loss", "notes", "order", "round"),
        "split": ("known", "knows", "limit"),
        "machine": ("device", "threads", "backend", "threads_per_client", "clients_at_once",
                    "cpus_per_client", "gpus_per_client", "ray_address", "checkpoint_every"),
    }.items()
    for name in names
}  # fmt: skip

# What other programs call an option -> options, of which a command has one.
MEANT: Mapping[str, str] = {
    "epochs": "train.local-epochs",
    "learning-rate": "train.lr",
    "gpu": "device",
    "gpus": "device",
    "arch": "model",
    "backbone": "model",
    "method": "ssl",
    "num-clients": "clients",
    "n-clients": "clients",
}

LONGEST = 200  # characters of a wrong value in a message


class InputError(ValueError):
    """The user's input is wrong. Its message is one line: what, where, the value, what is allowed.

    The command line prints the line on standard error and exits with code 2.
    `prefix_errors` puts before it what it is about, once.
    """

    place = ""  # what was put before the message last
    owner = ""  # the beginning that stands for the path of a plugin's options, which it cannot know

    def __init__(self, text: str) -> None:
        super().__init__(" ".join(text.split()))


class IncompleteError(InputError):
    """All that is missing at once, and the options that would do.

    Args:
        lacks: what is wrong, a clause each.
        options: path of an option -> the value that mends it, as settings have it.

    Python's traceback ends with them as arguments: `size=64, pixel_range=(0, 4095)`.

    Attributes:
        options: as given; the command line prints the command with them.
    """

    def __init__(self, lacks: Sequence[str], options: Mapping[str, Any]) -> None:
        super().__init__("; ".join(lacks))
        self.options = dict(options)
        arguments = {SHORT_FLAGS.get(path, path): value for path, value in options.items()}
        if arguments:
            listed = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
            self.add_note(f"arguments that would do: {listed}")


def opt(path: str, value: Any = ...) -> str:
    """An option in a message: `federation.clients (--clients)`, `seed (--seed)`, `train.lr 0.1`.

    Args:
        path: of the option in the settings.
        value: that it has or should have; `...`: none is shown.

    Returns:
        Its path, its short flag where it has one, and the value. A path without a dot, which is its
            own flag, is shown as one where no value shows that it is an option.
    """
    flag = SHORT_FLAGS.get(path, path if value is ... and "." not in path else "")
    short = f" (--{flag.replace('_', '-')})" if flag else ""
    return f"{path}{short}" + ("" if value is ... else f" {format_value(value)}")


@contextmanager
def prefix_errors(where: str, path: str = "") -> Iterator[None]:
    """Put `where` before the message of every InputError raised inside that is not about it yet.

    Args:
        where: what the messages are about; empty: nothing is put before them.
        path: of the plugin or section that is built inside. A message of `option_error` then
            begins with the path of its option, and not with `where`.

    Yields:
        Nothing.

    Raises:
        InputError: what was raised inside, with its new beginning.
    """
    try:
        yield
    except InputError as error:
        if path and error.owner:
            text = str(error).removeprefix(error.owner)
            error.args, error.owner, error.place = (f"{path}.{text}",), "", where
        elif where and error.place != where:
            error.args, error.place = (f"{where}: {error}",), where
        raise


def option_error(owner: object, text: str) -> InputError:
    """The error of a plugin or section about an option of its own, whose path it cannot know.

    Args:
        owner: the plugin or section, as it is built.
        text: begins with the option's name: `p: 0.05, must be 0 or from 0.1 to 5`.

    Returns:
        The error: `LpLA: option p: 0.05, must be ..`; where settings build the plugin
        (`prefix_errors`) it becomes `attack.lpla.p: 0.05, must be ..`.
    """
    beginning = f"{type(owner).__name__}: option "
    error = InputError(beginning + text)
    error.owner = beginning
    return error


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
    word = name.lower().replace("_", "-")
    if (meant := MEANT.get(word)) in whole:
        return f"; did you mean '{whole[meant]}'?"
    match = difflib.get_close_matches(word, near, n=1, cutoff=0.5)
    return f"; did you mean '{near[match[0]]}'?" if match else ""


def wrong_value(where: str, value: Any, allowed: str) -> InputError:
    """The error for a value that an option does not take.

    Args:
        where: the option, as `opt` names it.
        value: that it has.
        allowed: what it must be.

    Returns:
        The error: `federation.clients (--clients): 0, must be >= 1`.
    """
    return InputError(f"{where}: {value!r:.{LONGEST}}, must be {allowed}")


def check_arguments(function: str, arguments: Mapping[str, tuple[Any, str, bool]]) -> None:
    """Refuse the first argument of a public function that is out of its range.

    Args:
        function: what errors begin with.
        arguments: name -> its value, what is allowed, and whether it is.

    Raises:
        InputError: `watch: every=0, must be an integer >= 1`.
    """
    for name, (value, allowed, fits) in arguments.items():
        if not fits:
            raise InputError(f"{function}: {name}={value!r}, must be {allowed}")


def unknown_value(where: str, value: str, choices: Iterable[str]) -> InputError:
    """The error for a value that is none of an option's choices.

    Args:
        where: the option, as `opt` names it.
        value: as the user wrote it.
        choices: the values that it takes.

    Returns:
        The error, with the nearest choice and the list of all.
    """
    return InputError(f"{where}: {unknown_name('value', value, choices)}")


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
