"""Errors for options that a plugin does not have, or that need another one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedmia.options.errors import InputError, opt, unknown_name


def unknown_option(
    kind: str, name: str, path: str, options: Mapping[str, Sequence[str]]
) -> InputError:
    """The error for an option that the plugin does not have.

    Args:
        kind: of the plugin.
        name: of the plugin.
        path: of the option in the settings.
        options: names of the options of every plugin of the kind.

    Returns:
        The error; it names the plugins that have such an option, else the nearest option.
    """
    key = path.rpartition(".")[2]
    if others := [other for other, own in options.items() if key in own]:
        return InputError(
            f"{opt(path)} is no option of {kind} '{name}', but of {', '.join(others)}"
        )
    return unknown_name(f"option {opt(path)}: {kind} '{name}' has no", key, options[name])


def missing_option(path: str, other: str, value: Any, value_text: Any = ...) -> InputError:
    """The error for an option that needs another option.

    Args:
        path: of the option that was given.
        other: path of the option that is missing.
        value: what the missing option would hold, or a placeholder.
        value_text: the value of the option that was given; `...`: it is not shown.
    """
    return InputError(f"{opt(path, value_text)} needs {opt(other, value)}")
