"""Plugins as trees say them: with a path in the name, and several in order, as a list of mappings
or what is short for one.

A layer is a mapping of its plugin's `name`, the `clients` that it is for (where they are named) and
the plugin's options. Short for a list of them are a name, names with commas between, `none`, a list
of names, and a mapping of `name`, options of the single layer, and options of each by its name. A
mapping without a `name`, as flags give it beside a file's layers, holds options alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedmia.options import registry, session
from fedmia.options.errors import InputError, opt
from fedmia.options.yamlfile import Tree

Layers = list[Tree]


def expand_layers(path: str, value: Any) -> Layers | Tree:
    """The layers that a value of a list of plugins means.

    Args:
        path: of the field, for errors.
        value: names (`a,b`), a list of names and mappings, or a mapping of options.

    Returns:
        A list of layers; a mapping of options without a name stays a mapping.

    Raises:
        InputError: another value, or options that could belong to more than one layer.
    """
    if value is None or isinstance(value, str):
        return [{"name": name} for name in _names(value)]
    if isinstance(value, Mapping):
        return _layers_of_mapping(path, {str(k): v for k, v in value.items()})
    if not isinstance(value, list | tuple):
        raise InputError(f"{opt(path)} must be names or a list of layers, got {value!r}")
    layers = [{"name": one} if isinstance(one, str) else one for one in value]
    for one in layers:
        if not isinstance(one, Mapping) or not isinstance(one.get("name"), str):
            raise InputError(f"{opt(path)}: each of the list is a name or has one, got {one!r}")
    return [{str(k): v for k, v in one.items()} for one in layers]


def overlay_layers(path: str, below: Any, above: Layers | Tree) -> Layers | Tree:
    """Combine two values of a list of plugins; the upper one wins.

    A layer keeps the options that a layer of its name has below. A mapping without a name changes
    the options of the layers below.

    Args:
        path: of the field, for errors.
        below: layers, or a mapping of options.
        above: likewise, laid over them.

    Returns:
        The combined layers, or a mapping of options where no layer is named.
    """
    if not isinstance(below, list):
        return above
    if isinstance(above, list):
        first = {one["name"]: one for one in reversed(below)}
        return [{**first.get(one["name"], {}), **one} for one in above]
    return _add_options(path, below, above)


def _names(value: str | None) -> list[str]:
    names = [] if value is None else [one.strip() for one in value.split(",")]
    return [] if names == ["none"] else names


def _layers_of_mapping(path: str, tree: Tree) -> Layers | Tree:
    """The layers of a mapping with a `name`."""
    if "name" not in tree:
        return tree
    options = {k: v for k, v in tree.items() if k != "name"}
    names = tree["name"]
    if names is not None and not isinstance(names, str):
        raise InputError(f"{opt(f'{path}.name')} must be a string, got {names!r}")
    layers: Layers = [{"name": type(names)(n)} for n in _names(names)] if names else []
    return _add_options(path, layers, options) if options else layers


def _add_options(path: str, layers: Layers, options: Tree) -> Layers | Tree:
    """Add options to layers: those of a single layer, and those of each layer by its name."""
    own = {k: v for k, v in options.items() if not isinstance(v, Mapping)}
    by_name = {k: v for k, v in options.items() if isinstance(v, Mapping)}
    names = [one["name"] for one in layers]
    if not names:
        return {**own, **by_name}
    if own and len(names) > 1:
        key = next(iter(own))
        raise InputError(
            f"{opt(f'{path}.{key}')}: of which one? " + opt(f"{path}.{names[0]}.{key}")
        )
    for name in by_name:
        if name not in names:
            raise InputError(
                f"options for {path} '{name}', which is not applied (applied: {', '.join(names)})"
            )
    return [
        {**one, **(own if len(layers) == 1 else {}), **by_name.get(one["name"], {})}
        for one in layers
    ]


def plain_layers(layers: Sequence[Any]) -> Layers | None:
    """Built layers as a tree holds them; None where there is none."""
    return [
        {
            "name": one.name,
            **({} if one.clients is None else {"clients": one.clients}),
            **one.options,
        }
        for one in layers
    ] or None


def copy_mapping(path: str, value: Any) -> Tree:
    """A copy of a mapping, its keys as text; InputError, which names `path`, for anything else."""
    if not isinstance(value, Mapping):
        raise InputError(f"{opt(path)} must be a mapping of options, got {value!r}")
    return {str(key): own for key, own in value.items()}


def refuse_class_alone(path: str, name: str, options: Mapping[str, Any], chosen: Any) -> None:
    """Refuse options under `Class` where `package.module:Class` runs; the message says the way.

    Args:
        path: of the mapping of options, such as `attack`.
        name: the plugin that the options stand under.
        options: option -> value.
        chosen: the plugins that run: a list, or text with commas; None: not said.

    Raises:
        InputError: `name` is the last part of one that runs.
    """
    names = chosen.split(",") if isinstance(chosen, str) else chosen or ()
    for one in (str(one).strip() for one in names):
        short = session.short_name(one).rpartition(":")[2]
        if ":" in one and name.lower() == short.lower() and name != one and options:
            first = next(iter(options))
            wrong, right = (opt(f"{path}.{key}.{first}") for key in (name, one))
            if session.is_session_name(one):
                right = f"those of the object: {short}({first}={options[first]!r})"
            raise InputError(f"{wrong}: options of '{session.short_name(one)}' are {right}")


def split_file_path(field: str, kind: str, tree: Tree) -> Tree:
    """Read `name: file:PATH` as `name: file` with `path: PATH`, where the plugin takes a path.

    Args:
        field: the field that holds the plugin.
        kind: of the plugin.
        tree: `name` and options of the plugin.

    Returns:
        The tree, its path among the options.

    Raises:
        InputError: two paths.
    """
    name, colon, path = str(tree.get("name")).partition(":")
    known = colon and name in registry.names(kind)
    if not known or not getattr(registry.load(kind, name), "takes_path", False):
        return tree
    if "path" in tree:
        raise InputError(
            f"{opt(field, tree['name'])} and {opt(f'{field}.path', tree['path'])} are two paths"
        )
    return {**tree, "name": name, "path": path}
