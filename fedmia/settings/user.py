"""What a user gave: a file or preset of `--config`, and options laid over it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from pathlib import Path
from typing import Any

from fedmia.settings.effects import build_effective
from fedmia.settings.errors import InputError, prefix_errors
from fedmia.settings.flags import Command
from fedmia.settings.layout import Flat
from fedmia.settings.presets import PRESETS, find_config
from fedmia.settings.tree import flatten, from_tree, merge, read_values
from fedmia.settings.yamlfile import load


@dataclass(frozen=True)
class UserSettings:
    """What a user gave: the values of a file or a preset, and options laid over them.

    `complete` makes of it what runs.

    Attributes:
        command: of whose settings it is.
        lower: values of the file by path.
        upper: values of the options over it by path.
        preset: paths of `lower` that a preset says, and the user's own file does not.
        name: of the file or preset; empty: of none.
    """

    command: Command
    lower: Flat = field(default_factory=dict)
    upper: Flat = field(default_factory=dict)
    preset: frozenset[str] = frozenset()
    name: str = ""

    def over(self, options: Mapping[str, Any]) -> UserSettings:
        """The same file with options over it.

        Args:
            options: as a tree or flat.

        Raises:
            InputError: an option that is given twice.
        """
        return replace(self, upper=flatten(self.command.settings, options))

    def complete(self, trust_plugins: bool = False) -> Any:
        """The settings that run, checked.

        Args:
            trust_plugins: whether plugins from outside that the folder of a run names are imported.

        Returns:
            An instance of the command's settings, without a preset's options that have no effect.

        Raises:
            InputError: an option or a value is wrong, the user's own option has no effect, or a
                check refuses the settings. The message names the file where the file alone is wrong
                in the same way.
        """
        root = self.command.settings
        try:
            whole = merge(root, self.lower, self.upper)
            settings, idle = build_effective(root, whole, trust_plugins)
        except InputError as error:
            if self.name and str(error) == _error_alone(root, self.lower):
                with prefix_errors(self._file()):
                    raise
            raise
        for path, refusal in idle.items():
            if path not in self.preset or path in self.upper:
                in_file = self.name and path in self.lower and path not in self.upper
                with prefix_errors(self._file() if in_file else ""):
                    raise refusal
        self.command.refuse(settings)
        return settings

    def _file(self) -> str:
        return str(find_config(self.name, self.command.presets))


def read_user_settings(command: Command, name: str) -> UserSettings:
    """Read the settings of `--config NAME`, which options can complete.

    Args:
        name: a path, or the name of a preset.

    Returns:
        The settings.

    Raises:
        InputError: it cannot be read, or a value in it is wrong by itself: the message names the
            file.
    """
    file = find_config(name, command.presets)
    with prefix_errors(str(file)):
        layers = _read_layers(command, file)
        read_values(command.settings, flat := _merge_layers(command, layers))
    presets = PRESETS.resolve()
    own = {path for place, layer in layers if presets not in place.parents for path in layer}
    return UserSettings(command, flat, preset=frozenset(flat.keys() - own), name=name)


def read_config(command: Command, file: Path) -> Flat:
    """Read a file of settings, laid over the file or preset that its key `base` names.

    Args:
        file: path of the file.

    Returns:
        The settings, flat.

    Raises:
        InputError: a file that cannot be read, or whose base is itself.
    """
    return _merge_layers(command, _read_layers(command, file))


def _merge_layers(command: Command, layers: Sequence[tuple[Path, Flat]]) -> Flat:
    merge_two = partial(merge, command.settings)
    return reduce(lambda upper, lower: merge_two(lower, upper), [flat for _, flat in layers])


def _read_layers(command: Command, file: Path) -> list[tuple[Path, Flat]]:
    """The file and its settings, then those of its base, and so on."""
    layers, name = list[tuple[Path, Flat]](), str(file)
    while True:
        place = file.resolve()
        if place in (known for known, _ in layers):
            raise InputError(f"base '{name}' leads back to itself")
        layers.append((place, flat := flatten(command.settings, load(file))))
        if "base" not in flat:
            return layers
        name = str(flat.pop("base"))
        near = file.parent / name
        file = near if near.is_file() else find_config(name, command.presets)


def _error_alone(root: type[Any], flat: Flat) -> str:
    """What is wrong with the settings of a file by themselves; empty if nothing is."""
    try:
        from_tree(root, flat)
    except InputError as error:
        return str(error)
    return ""
