"""Keyword arguments as the settings of a command."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from fedmia.cli.commands import SIMULATE, STUDY
from fedmia.data.arrays import Range
from fedmia.door.images import name_images
from fedmia.door.plugins import name_plugin
from fedmia.encoders.base import channel_constants
from fedmia.settings.errors import InputError, format_value, suggest_nearest
from fedmia.settings.flags import Command
from fedmia.settings.layout import Flat
from fedmia.settings.tree import flatten
from fedmia.settings.user import UserSettings, read_user_settings
from fedmia.settings.values import convert, plain
from fedmia.ssl.augment import Augment
from fedmia.storage.runfolder import RunFolder

IMAGES = ("data.name", "members", "nonmembers", "shadow.data")
CONSTANTS = ("data.mean", "data.std")
Config = str | Path | Mapping[str, Any] | None


def build_settings(
    command: Command, config: Config, options: Mapping[str, Any], trust_plugins: bool = False
) -> Any:
    """The checked settings of a command.

    Args:
        command: such as `SIMULATE`.
        config: preset, YAML file or tree that the options are laid over; None: the defaults.
        options: keyword arguments: a short flag with `_` for `-`, a path with dots, or a section
            with a mapping. Plugins and images may be objects.
        trust_plugins: whether plugins from outside that the folder of a run names are imported.

    Returns:
        An instance of the command's settings.

    Raises:
        InputError: an unknown option (the message has the nearest one), a value that it does not
            take, or settings that do not suit one another.
    """
    if config is None or isinstance(config, Mapping):
        user = UserSettings(command, flatten(command.settings, config or {}))
    else:
        user = read_user_settings(command, str(config))
    return user.over(options_tree(command, options, user.lower)).complete(trust_plugins)


def options_tree(command: Command, options: Mapping[str, Any], lower: Flat | None = None) -> Flat:
    """Keyword arguments as plain values by path; those of a section as one mapping.

    Args:
        command: of whose settings they are.
        options: as for `build_settings`.
        lower: what they are laid over; it may give the range of images in memory.

    Returns:
        The values.

    Raises:
        InputError: an unknown option, or one that is given twice.
    """
    flat: Flat = {}
    options = {k: vars(v) if isinstance(v, Augment) else v for k, v in options.items()}
    subjects = options.get("groups")
    if isinstance(subjects, str | None):
        subjects = None
    else:
        options["groups"] = "in memory"
    # Images last: the range of their values may come after them.
    last = ("data", *IMAGES)
    for name, value in sorted(options.items(), key=lambda one: _place(command, *one) in last):
        path = _place(command, name, value)
        limits = image_range(value if path == "data" else {}, flat, lower or {})
        if path == "data" and isinstance(value, Mapping) and "name" in value:
            value = {**value, "name": name_images(value["name"], "data", limits, subjects)}
        for key, one in _plain_values(command, path, value, limits, subjects):
            if isinstance(one, Mapping) and isinstance(flat.get(key), dict):
                flat[key].update(one)
            elif key in flat:
                raise InputError(f"option '{name}' is given twice")
            else:
                flat[key] = dict(one) if isinstance(one, Mapping) else one
    return flat


def image_range(*trees: Any) -> Range:
    """The range of pixel values that the first of some trees has which has one.

    Args:
        trees: of settings, flat, or of their section `data`.

    Returns:
        LOW and HIGH, or None.

    Raises:
        InputError: text that says none.
    """
    layers = [one for tree in trees for one in (tree, tree.get("data")) if isinstance(one, Mapping)]
    keys = ("pixel_range", "data.pixel_range")
    limits = next((one[key] for one in layers for key in keys if one.get(key)), None)
    return cast(Range, convert("pixel_range", limits, tuple[float, ...] | None))


def _place(command: Command, name: str, value: Any) -> str:
    """The path of an option; a mapping as its value may name a section."""
    sections = {path.partition(".")[0] for path in command.shape.options}
    if name in sections | set(command.shape.named_options) | set(command.shape.lists):
        whole = isinstance(value, Mapping | list | tuple) or name not in command.shape.short
        if whole and name not in command.shape.options:
            return name
    if isinstance(value, Mapping) and name in command.shape.heads:
        return name
    if path := command.shape.find(command.shape.whole(name)):
        return path
    dotted = (flag.removeprefix("--") for flag in command.flags() if "." in flag)
    known = [*command.shape.short, *command.shape.options, *sections, *dotted]
    raise InputError(f"unknown option {name}{suggest_nearest(name, known)}")


def _plain_values(
    command: Command, path: str, value: Any, limits: Range = None, subjects: Any = None
) -> Iterable[tuple[str, Any]]:
    """(path, plain value) of one argument: objects become names and options."""
    kinds = command.shape.plugins
    if path in IMAGES and not isinstance(value, Mapping):
        yield path, name_images(value, path.removesuffix(".name"), limits, subjects)
    elif path == "attacks":
        names = []
        for one in [value] if isinstance(value, str | type) or not listed(value) else value:
            attack = name_plugin("attack", one)
            names.append(attack["name"])
            if options := {k: v for k, v in attack.items() if k != "name"}:
                yield "attack", {attack["name"]: options}
        whole = ",".join(names).split(",") if all(isinstance(n, str) for n in names) else names
        yield path, whole
    elif (field := path.removesuffix(".name")) in kinds and field not in IMAGES:
        kind = kinds[field]
        many = listed(value)
        plugins = [name_plugin(kind, one) for one in (value if many else [value])]
        yield field, plugins if many else plugins[0]
    elif path == "over":
        grids = [value] if isinstance(value, Mapping) else value
        yield path, [_name_values(grid) for grid in grids]
    elif path == "baseline" and value is not None:
        yield path, name_plugin("attack", value)["name"]
    elif path in CONSTANTS and not isinstance(value, str):
        yield path, channel_constants(value)
    else:
        yield path, str(value) if isinstance(value, Path) else value


def listed(value: Any) -> bool:
    """Whether a value is a list of several."""
    return isinstance(value, list | tuple)


def _name_values(grid: Mapping[str, Sequence[Any]]) -> dict[str, list[Any]]:
    """A grid of a study, path of an option -> values; its plugins become names, or mappings."""
    grids: dict[str, list[Any]] = {}
    kinds = STUDY.shape.plugins
    for path, values in grid.items():
        if not listed(values):
            raise InputError(f"over: {path} needs a list of values, got {values!r}")
        place = STUDY.shape.whole(path)  # `clients` is short for `federation.clients`
        kind = kinds.get(place.removesuffix(".name"))
        grids[place] = [v if kind is None else _plugin_value(kind, v) for v in values]
    return grids


def _plugin_value(kind: str, value: Any) -> Any:
    """A plugin as a value: its name, or a mapping where it has options of its own."""
    plugin = name_plugin(kind, value)
    return plugin if len(plugin) > 1 else plugin["name"]


def resumed_settings(
    folder: Path, config: Config, out: str | Path | None, options: Mapping[str, Any], trust: bool
) -> Any:
    """The settings of a run that is continued.

    Args:
        folder: of the run.
        config: refused, as the run has its settings; so is `out`.
        out: refused.
        options: the objects that it was started with, and nothing else.
        trust: whether plugins from outside that its settings name are imported.

    Returns:
        An `Experiment`.

    Raises:
        InputError: no run, or options that differ from its own.
    """
    run = RunFolder(folder, trust)
    if config is not None or out is not None:
        name = "config" if config is not None else "out"
        raise InputError(
            f"resume goes on with the settings of '{folder}': {name} cannot be given too"
        )
    tree = flatten(SIMULATE.settings, run.resumable())
    again = options_tree(SIMULATE, options)  # gives the objects their names
    for path, value in flatten(SIMULATE.settings, again).items():
        run_value, value = plain(tree.get(path)), plain(value)
        if run_value != value:
            raise InputError(
                f"resume goes on with the settings of '{folder}', where {path} is "
                f"{format_value(run_value)}, not {format_value(value)}; leave it out"
            )
    return build_settings(SIMULATE, run.config, {}, trust)
