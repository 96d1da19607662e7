"""Keyword arguments as the settings of a command."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, cast

from fedmia.cli.command import lay_over, load_config
from fedmia.cli.flags import Command
from fedmia.config.tree import normalize
from fedmia.data._arrays import Range
from fedmia.door.images import name_images
from fedmia.door.plugins import name_plugin
from fedmia.options.errors import InputError, suggest_nearest
from fedmia.options.values import convert
from fedmia.options.yamlfile import Tree

IMAGES = (("data",), ("data", "name"), ("members",), ("nonmembers",), ("shadow_data",))
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
        lower = normalize(command.settings, config or {})
    else:
        lower = load_config(command, str(config))
    return lay_over(command, lower, options_tree(command, options, lower), trust_plugins)


def options_tree(command: Command, options: Mapping[str, Any], lower: Tree | None = None) -> Tree:
    """Keyword arguments as a tree of plain values.

    Args:
        command: of whose settings they are.
        options: as for `build_settings`.
        lower: what they are laid over; it may give the range of images in memory.

    Returns:
        The tree, not normalized.

    Raises:
        InputError: an unknown option, or one that is given twice.
    """
    tree: Tree = {}
    # Images last: the range of their values may come after them.
    for name, value in sorted(options.items(), key=lambda one: _place(command, *one) in IMAGES):
        path = _place(command, name, value)
        limits = image_range(value if path == ("data",) else {}, tree, lower or {})
        if path == ("data",) and isinstance(value, Mapping) and "name" in value:
            value = {**value, "name": name_images(value["name"], "data", limits)}
        for keys, plain in _plain_values(command, path, value, limits):
            branch = tree
            for key in keys[:-1]:
                branch = branch.setdefault(key, {})
                if not isinstance(branch, dict):
                    raise InputError(f"{'.'.join(keys)} and {name} are the same option")
            if isinstance(plain, Mapping) and isinstance(branch.get(keys[-1]), dict):
                branch[keys[-1]].update(plain)
            elif keys[-1] in branch:
                raise InputError(f"option '{name}' is given twice")
            else:
                branch[keys[-1]] = dict(plain) if isinstance(plain, Mapping) else plain
    return tree


def image_range(*trees: Any) -> Range:
    """The range of pixel values that the first of some trees has which has one.

    Args:
        trees: of settings or of their section `data`.

    Returns:
        LOW and HIGH, or None.

    Raises:
        InputError: text that says none.
    """
    layers = [one for tree in trees for one in (tree, tree.get("data")) if isinstance(one, Mapping)]
    limits = next((one["pixel_range"] for one in layers if one.get("pixel_range")), None)
    return cast(Range, convert("pixel_range", limits, tuple[float, ...] | None))


def _place(command: Command, name: str, value: Any) -> tuple[str, ...]:
    """The keys of an option in the tree; a mapping as its value may name a section."""
    sections = {path.partition(".")[0] for path in command.shape.options}
    if name in sections | set(command.shape.named_options) | set(command.shape.lists):
        whole = isinstance(value, Mapping | list | tuple) or name not in command.short
        if whole and name not in command.shape.options:
            return (name,)
    if isinstance(value, Mapping) and name in command.shape.heads:
        return tuple(command.shape.heads[name].split("."))
    if path := command.shape.place(command.short.get(name, name)):
        return path
    dotted = (flag.removeprefix("--") for flag in command.flags() if "." in flag)
    known = [*command.short, *command.shape.options, *sections, *dotted]
    raise InputError(f"unknown option {name}{suggest_nearest(name, known)}")


def _plain_values(
    command: Command, path: tuple[str, ...], value: Any, limits: Range = None
) -> Iterable[tuple[tuple[str, ...], Any]]:
    """(keys, plain value) of one argument: objects become names and options."""
    kinds = command.shape.plugins
    if path in IMAGES[1:]:
        yield path, name_images(value, path[0], limits)
    elif path == ("attacks",):
        names = []
        for one in [value] if isinstance(value, str | type) or not listed(value) else value:
            attack = name_plugin("attack", one)
            names.append(attack["name"])
            if options := {k: v for k, v in attack.items() if k != "name"}:
                yield ("attack", attack["name"]), options
        whole = ",".join(names).split(",") if all(isinstance(n, str) for n in names) else names
        yield path, whole
    elif path[0] in kinds and path[1:] in ((), ("name",)):
        kind = kinds[path[0]]
        many = listed(value)
        plugins = [name_plugin(kind, one) for one in (value if many else [value])]
        yield path[:1], plugins if many else plugins[0]
    else:
        yield path, str(value) if isinstance(value, Path) else value


def listed(value: Any) -> bool:
    """Whether a value is a list of several."""
    return isinstance(value, list | tuple)
