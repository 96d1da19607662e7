"""The settings of a command: a file or preset of `--config`, and options laid over it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedmia.cli.flags import Command
from fedmia.cli.presets import find_config
from fedmia.config.layout import Flat
from fedmia.config.tree import flatten, from_tree, merge, read_values
from fedmia.options.errors import InputError, prefix_errors
from fedmia.options.yamlfile import load


def load_config(command: Command, name: str) -> Flat:
    """Read the settings of `--config NAME`, which options can complete.

    Args:
        name: a path, or the name of a preset.

    Returns:
        The settings, flat.

    Raises:
        InputError: it cannot be read, or a value in it is wrong by itself: the message names the
            file.
    """
    file = find_config(name, command.presets)
    with prefix_errors(str(file)):
        read_values(command.settings, flat := read_config(command, file))
    return flat


def read_config(command: Command, file: Path, above: tuple[Path, ...] = ()) -> Flat:
    """Read a file of settings, laid over the file or preset that its key `base` names.

    Args:
        file: path of the file.
        above: files that are laid over it.

    Returns:
        The settings, flat.

    Raises:
        InputError: a file that cannot be read, or whose base is itself.
    """
    flat = flatten(command.settings, load(file))
    if "base" not in flat:
        return flat
    name, whole = str(flat.pop("base")), (*above, file.resolve())
    near = file.parent / name
    base = near if near.is_file() else find_config(name, command.presets)
    if base.resolve() in whole:
        raise InputError(f"base '{name}' leads back to itself")
    return merge(command.settings, read_config(command, base, whole), flat)


def lay_over(
    command: Command, lower: Flat, upper: Mapping[str, Any], trust_plugins: bool = False,
    config: str = "",
) -> Any:  # fmt: skip
    """The checked settings of a command.

    Args:
        lower: flat settings that the user's options are laid over.
        upper: these options, as a tree or flat.
        trust_plugins: whether plugins from outside that the folder of a run names are imported.
        config: path or preset of the flat settings; empty where they are of no file.

    Returns:
        An instance of the command's settings.

    Raises:
        InputError: an option or a value is wrong, or a check refuses the settings. The message
            names the file where the file alone is wrong in the same way.
    """
    root = command.settings
    flat = merge(root, lower, flatten(root, upper))
    try:
        settings: Any = from_tree(root, flat, trust_plugins=trust_plugins)
    except InputError as error:
        if config and str(error) == _error_alone(root, lower):
            with prefix_errors(str(find_config(config, command.presets))):
                raise
        raise
    command.refuse(settings)
    return settings


def _error_alone(root: type[Any], flat: Flat) -> str:
    """What is wrong with the settings of a file by themselves; empty if nothing is."""
    try:
        from_tree(root, flat)
    except InputError as error:
        return str(error)
    return ""
