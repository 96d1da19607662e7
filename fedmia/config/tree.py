"""A command's settings as a tree of plain values, and back: strict, and the round trip is exact.

A section is a mapping; a plugin is its name, or a mapping with `name` and the options.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from fedmia.config.forms import (
    Chosen,
    Field,
    Layer,
    all_values,
    dataset_and_path,
    in_tree_of,
    needs,
    open_heads,
    option_paths,
    parts,
    plugin_options,
)
from fedmia.config.layered import Layers, overlaid, plain_layers, written_out
from fedmia.options import registry
from fedmia.options.errors import InputError, nearest, opt, unknown
from fedmia.options.option import check_limits, check_type, option_fields
from fedmia.options.values import convert, plain
from fedmia.options.yamlfile import Tree

Root = TypeVar("Root")


def to_tree(settings: Any) -> Tree:
    """The complete settings in plain mappings, lists and scalars; without empty open groups, and
    options that are `omitted` at their defaults."""
    tree: Tree = {}
    for one, _ in parts(type(settings)):
        value = getattr(settings, one.name)
        if isinstance(value, Chosen):
            value = {"name": value.name, **value.options}
        elif "layers" in one.metadata:
            value = plain_layers(value)
        elif "section" in one.metadata:
            value = all_values(value) | dict(getattr(value, "options", {}))
        elif value == {} or (one.metadata.get("omitted") and value == one.default):
            continue
        tree[one.name] = plain(value)
    return tree


def from_tree(root: type[Root], tree: Mapping[str, Any], **more: Any) -> Root:
    """The settings that `tree` tells, defaults for what it leaves out.

    Args:
        root: the dataclass of a command's settings.
        tree: nested mappings as `to_tree` gives them; shorter forms of plugins are understood.
        more: fields of `root` that no user gives.

    Raises:
        InputError: an unknown key (with the nearest), a wrong type, a value out of range.
    """
    tree = normal(root, tree)
    fields = {one.name: (one, kind) for one, kind in parts(root)}
    made: Tree = dict(more)
    others = in_tree_of(root)
    for name, value in tree.items():
        if name not in fields:
            raise _unknown(str(name), fields)
        if name in others:
            made.setdefault(others[name], {})[name] = value
            continue
        one, kind = fields[name]
        made[name] = _option(one, kind, name, value) if kind else _form(one, value, tree)
    return root(**made)


def normal(root: type, tree: Mapping[str, Any]) -> Tree:
    """`tree` with every short form written out: `partition: iid` as `partition: {name: iid}`.

    Raises:
        InputError: a section or a plugin that is neither a name nor a mapping.
    """
    made: Tree = {}
    fields = {one.name: (one, kind) for one, kind in parts(root)}
    for name, value in tree.items():
        one, kind = fields.get(name, (None, object))
        if one is None or kind is not None or "grids" in one.metadata:
            made[name] = value
            continue
        if "layers" in one.metadata:
            made[name] = written_out(name, value)
            continue
        head = one.metadata.get("head")
        if head and isinstance(value, str):
            value = {head: value}
        value = _mapping(name, value)
        if "plugin" in one.metadata:
            value = _with_path(name, one.metadata["plugin"], value)
        if "each" in one.metadata:
            value = {k: _mapping(f"{name}.{k}", v) for k, v in value.items()}
        if "section" in one.metadata:
            value = getattr(one.metadata["section"], "implied", dict)(value) | value
        made[name] = value
    return made


def _with_path(field: str, kind: str, tree: Tree) -> Tree:
    """`name: file:PATH` as `name: file` with its `path`, of a plugin that takes one.

    Raises:
        InputError: two paths.
    """
    name, colon, path = str(tree.get("name")).partition(":")
    known = colon and name in registry.names(kind)
    if not known or not getattr(registry.load(kind, name), "takes_path", False):
        return tree
    if "path" in tree:
        raise InputError(
            f"{opt(f'{field}.name', tree['name'])} and {opt(f'{field}.path', tree['path'])} are "
            "two paths"
        )
    return {**tree, "name": name, "path": path}


def merge(
    root: type, lower: Mapping[str, Any], upper: Mapping[str, Any], runs: Callable[[Tree], Any]
) -> Tree:
    """`upper` over `lower`, section by section; both as `normal` gives them.

    Options in `lower` of a plugin that `upper` replaces by another are dropped, and so are those
    of attacks that no longer run.

    Args:
        runs: names of the attacks that a tree runs.
    """
    merged = dict(lower)
    fields = {one.name: one for one, _ in parts(root)}
    forms = {name: one.metadata for name, one in fields.items()}
    for name, value in upper.items():
        below = merged.get(name)
        if "layers" in forms.get(name, {}):
            merged[name] = overlaid(name, below, value)
        elif "grids" in forms.get(name, {}) and isinstance(below, list):
            merged[name] = [{**_mapping(name, one), **more} for one in below for more in value]
        elif not isinstance(value, dict) or not isinstance(below, dict):
            merged[name] = value
        elif "each" in forms.get(name, {}):
            merged[name] = {k: {**below.get(k, {}), **value.get(k, {})} for k in {**below, **value}}
        else:
            merged[name] = _over(fields.get(name), _kept(root, name, below, value), value)
    for name, form in forms.items():
        other = form.get("source")
        if other and name in lower and other in upper:
            before, after = str(lower.get(other)), str(upper[other])
            if before.partition(":")[0] != after.partition(":")[0]:
                merged[name] = upper.get(name, {})
    if "attack" in lower and ("attacks" in upper or "attacker" in upper):
        run, above = runs(merged), upper.get("attack", {})
        merged["attack"] = {k: v for k, v in merged["attack"].items() if k in run or k in above}
    return merged


def _kept(root: type, name: str, below: Tree, above: Tree) -> Tree:
    """The lower section's values that still mean something under the upper one's choice."""
    if name not in open_heads(root) or "name" not in above:
        return below
    paths = {path for path, _, _ in option_paths(root)} - {f"{name}.name"}
    # Another file of the same source keeps the source's options: parquet:A, parquet:B.
    colon = ":" if any(p.startswith(f"{name}.") for p in paths) else "\n"
    before, after = (str(tree.get("name")).partition(colon)[0] for tree in (below, above))
    return below if before == after else {k: v for k, v in below.items() if f"{name}.{k}" in paths}


def _over(one: Field | None, below: Tree, above: Tree) -> Tree:
    """`above` over `below`, with the lower options of the plugins within that `above` leaves."""
    made = {**below, **above}
    for inner in [] if one is None else plugin_options(one):
        chosen = inner.metadata["options_of"]
        if chosen not in above and inner.name in below:
            made[inner.name] = {**below[inner.name], **above.get(inner.name, {})}
        elif above.get(chosen) != below.get(chosen) and inner.name not in above:
            made.pop(inner.name, None)
    return made


def _form(one: Field, value: Tree, tree: Tree) -> Any:
    """The value of a field that is no plain option (`fedmia.config.forms`)."""
    form, name = one.metadata, one.name
    if {"grids", "lists"} & form.keys():
        return value
    if "section" in form:
        return _section(form["section"], name, value)
    if "plugin" in form:
        return _plugin(one, value)
    if "layers" in form:
        return _layers(one, value)
    if "each" in form:
        kind = form["each"]
        return {n: _of_plugin(kind, n, f"{name}.{n}", own) for n, own in value.items()}
    if "given" in form:
        return _given(one, value)
    if not isinstance(source := tree.get(form["source"]), str):
        raise needs(f"{name}.{next(iter(value), 'OPTION')}", form["source"], "DATASET")
    return _of_plugin("dataset", dataset_and_path(source)[0], name, value)


def _section(cls: type, path: str, tree: Tree) -> Any:
    others = [f for f in dataclasses.fields(cls) if "rest" in f.metadata]
    own = {f.name for f, _ in option_fields(cls)}
    if not others:
        return cls(**_typed(cls, path, tree))
    made = _typed(cls, path, {k: v for k, v in tree.items() if k in own})
    left = {k: v for k, v in tree.items() if k not in own}
    kind = others[0].metadata["rest"]
    name = dataset_and_path(str(made.get("name", getattr(cls, "name", ""))))[0]
    return cls(**made, **{others[0].name: _of_plugin(kind, name, path, left)})


def _given(one: Field, tree: Tree) -> Tree:
    """Options of the classes of `one` that were given, and of the plugins that they name."""
    path, form = one.name, one.metadata
    kinds = {f.name: (f, kind) for cls in form["given"] for f, kind in option_fields(cls)}
    kinds = {name: found for name, found in kinds.items() if name not in form["without"]}
    gone = {name: why for cls in form["given"] for name, why in getattr(cls, "gone", {}).items()}
    inner = {f.name: f.metadata for f in plugin_options(one)}
    made = _converted(kinds, gone, path, {k: v for k, v in tree.items() if k not in inner})
    for key in inner.keys() & tree.keys():
        kind, chosen = inner[key]["kind"], inner[key]["options_of"]
        name = made.get(chosen, kinds[chosen][0].default)
        options = _mapping(f"{path}.{key}", tree[key])
        made[key] = _of_plugin(kind, name, f"{path}.{key}", options)
    return made


def _plugin(one: Field, tree: Tree) -> Chosen:
    path, kind = one.name, one.metadata["plugin"]
    own = {k: v for k, v in tree.items() if k != "name"}
    name = tree.get("name", one.metadata["name"])
    check_type(opt(f"{path}.name"), name, str)
    return Chosen(str(name), _of_plugin(kind, str(name), path, own))


def _layers(one: Field, value: Layers | Tree) -> tuple[Layer, ...]:
    path, kind = one.name, one.metadata["layers"]
    if isinstance(value, Mapping):
        if not value:
            return ()
        key, own = next(iter(value.items()))
        key = f"{key}.{next(iter(own), 'OPTION')}" if isinstance(own, Mapping) else key
        raise InputError(f"{opt(f'{path}.{key}')} needs {opt(f'{path}.name', 'NAME')}")
    found = []
    for layer in value:
        name, clients = str(layer["name"]), layer.get("clients")
        where = path if len(value) == 1 else f"{path}.{name}"
        own = {k: v for k, v in layer.items() if k not in ("name", "clients")}
        if clients is not None:
            ids = convert(opt(f"{where}.clients"), clients, tuple[int, ...])
            clients = (ids,) if isinstance(ids, int) else ids
            check_type(opt(f"{where}.clients"), clients, tuple[int, ...])
        found.append(Layer(name, _of_plugin(kind, name, where, own), clients))
    return tuple(found)


def _of_plugin(kind: str, name: str, path: str, tree: Tree) -> Tree:
    """Options of plugin `name`, converted and checked."""
    known = {f.name for f, _ in option_fields(registry.load(kind, name))}
    for key in tree:
        others = [] if key in known else [n for n in registry.names(kind) if _has(kind, n, key)]
        if others:
            raise InputError(
                f"{opt(f'{path}.{key}')} is no option of {kind} '{name}', "
                f"but of {', '.join(others)}"
            )
        if key not in known:
            raise unknown(f"option {opt(f'{path}.{key}')}: {kind} '{name}' has no", key, known)
    return _typed(registry.load(kind, name), path, tree)


def _has(kind: str, name: str, key: str) -> bool:
    return any(f.name == key for f, _ in option_fields(registry.load(kind, name)))


def _typed(cls: Any, path: str, tree: Tree) -> Tree:
    """Options of `cls` by name, converted and checked."""
    kinds = {f.name: (f, kind) for f, kind in option_fields(cls)}
    return _converted(kinds, getattr(cls, "gone", {}), path, tree)


def _converted(
    kinds: Mapping[str, tuple[Field, Any]], gone: Mapping[str, str], path: str, tree: Tree
) -> Tree:
    """Values of the options `kinds`, by name their field and type, converted and checked."""
    for key in tree:
        if key in gone:
            raise InputError(f"{opt(f'{path}.{key}')} is no more: {gone[key]}")
        if key not in kinds:
            raise _unknown(f"{path}.{key}", kinds)
    return {k: _option(*kinds[k], f"{path}.{k}", v) for k, v in tree.items()}


def _option(one: Field, kind: Any, path: str, value: Any) -> Any:
    """A value converted and checked under its path."""
    value = convert(opt(path), value, kind)
    check_type(opt(path), value, kind)
    check_limits(opt(path), value, one.metadata)
    return value


def _mapping(path: str, value: Any) -> Tree:
    if not isinstance(value, Mapping):
        raise InputError(f"{opt(path)} must be a mapping of options, got {value!r}")
    return {str(key): own for key, own in value.items()}


def _unknown(path: str, known: Any) -> InputError:
    return InputError(f"unknown option {opt(path)}{nearest(path.rpartition('.')[2], known)}")
