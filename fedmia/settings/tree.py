"""A command's settings as trees of plain values, and back: strict, and the round trip is exact.

A tree is what YAML holds: a section is a mapping; a plugin is its name, or a mapping with `name`
and the options. To be read and merged it becomes one flat mapping, from the path of each option
to its value. A tree may be flat itself, in whole or in part: `federation.clients: 4`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, TypeVar, cast

from fedmia.settings import registry
from fedmia.settings.choices import Layer, PluginChoice
from fedmia.settings.errors import (
    InputError,
    format_value,
    opt,
    prefix_errors,
    unknown_value,
    wrong_value,
)
from fedmia.settings.fields import Classes, ListsForm, PluginForm, SectionForm, fields_of
from fedmia.settings.layout import Flat, Layout, Leaf, layer_names, layout
from fedmia.settings.options import check_limits, check_type, option_fields
from fedmia.settings.values import convert, plain
from fedmia.settings.yamlfile import Tree

Root = TypeVar("Root")
WHICH_ATTACKS = {"attacks", "attacker"}  # paths of the options that say which attacks run


def to_tree(settings: Any) -> Tree:
    """The complete settings in plain mappings, lists and scalars; without empty mappings of options
    that are given, and options that are `omitted` at their defaults."""
    return _plain_fields((type(settings),), vars(settings))


def _plain_fields(classes: Classes, values: Mapping[str, Any]) -> Tree:
    tree: Tree = {}
    for one, _, form in fields_of(classes):
        if one.name not in values:
            continue
        value = values[one.name]
        match form:
            case SectionForm(beside=True):
                for path, own in plain(value).items():
                    _set_at(tree, path, own)
            case SectionForm():
                own = _plain_fields(form.classes, vars(value) if form.built else value)
                tree |= {one.name: own} if own else {}
            case PluginForm(named_by="", several=True):
                tree[one.name] = [_plain_layer(layer) for layer in value] or None
            case PluginForm(named_by=""):
                tree[one.name] = plain({"name": value.name, **value.options})
            case PluginForm(several=True):
                own = {name: getattr(own, "options", own) for name, own in value.items()}
                tree |= {one.name: plain(own)} if own else {}
            case PluginForm(flat=True):
                tree |= plain(value)
            case PluginForm(named_by=of) if value:
                tree[of] = {**({"name": tree[of]} if of in tree else {}), **plain(value)}
            case None:
                if not one.metadata["omitted"] or value != one.default:
                    tree[one.name] = plain(value)
    return tree


def _set_at(tree: Tree, path: str, value: Any) -> None:
    """Put a value at its path, below what is there."""
    head, dot, rest = path.partition(".")
    if not dot or not isinstance(tree.setdefault(head, {}), dict):
        tree[path] = value
    else:
        _set_at(tree[head], rest, value)


def _plain_layer(layer: Layer) -> Tree:
    clients = {} if layer.clients is None else {"clients": layer.clients}
    whole: Tree = plain({"name": layer.name, **clients, **layer.options})
    return whole


def from_tree(root: type[Root], tree: Mapping[str, Any], **more: Any) -> Root:
    """Build settings from a tree; what the tree leaves out has its default.

    Args:
        root: the dataclass of a command's settings.
        tree: as `to_tree` gives it, with shorter forms of plugins, or flat.
        more: fields of `root` that no user gives.

    Returns:
        The settings, every value checked.

    Raises:
        InputError: an unknown key (with the nearest one), a wrong type, a value out of range.
    """
    built: Root = cast(Any, root).complete(**more, **build_fields((root,), read_values(root, tree)))
    return built


def read_values(root: type[Any], tree: Mapping[str, Any]) -> Flat:
    """The values of a tree, each checked by itself.

    Args:
        root: the dataclass of a command's settings.
        tree: as for `from_tree`.

    Returns:
        Values by path.

    Raises:
        InputError: an unknown key (with the nearest one), a wrong type, a value out of range.
    """
    shape, flat, values = layout(cast(Any, root)), flatten(root, tree), Flat()
    for path, value in flat.items():
        field = shape.field_of(path, shape.lists)
        if field is not None and (field != path or shape.lists[field].several):
            values[path] = value
        else:
            values[path] = read_value(_error_path(shape, path, flat), value, shape.leaf(path, flat))
    return values


def read_value(path: str, value: Any, leaf: Leaf) -> Any:
    """A value as an option takes it.

    Args:
        path: of the option, as an error shows it.
        value: from a file or a flag.
        leaf: the option's field and type.

    Returns:
        The value, converted.

    Raises:
        InputError: a wrong type, or out of range.
    """
    (one, kind), where = leaf, opt(path)
    value, choices = convert(where, value, kind), one.metadata["choices"]
    if choices and kind is str and not isinstance(value, str):  # YAML reads 3, null, true
        raise unknown_value(where, "null" if value is None else format_value(value), choices)
    check_type(where, value, kind)
    check_limits(where, value, one.metadata)
    return value


def build_fields(classes: Classes, values: Flat, above: str = "") -> dict[str, Any]:
    """The fields of dataclasses that converted values give.

    Args:
        classes: the dataclasses.
        values: path -> value.
        above: beginning of the paths of the fields.

    Returns:
        Field -> value, of the fields that have one; sections and plugins are built.

    Raises:
        InputError: an unknown plugin, or values of a section that contradict each other.
    """
    fields: dict[str, Any] = {}
    own_names = {inner.name for inner, *_ in fields_of(classes)}
    for one, _, form in fields_of(classes):
        path = above + one.name
        below = _below(f"{path}.", values)
        match form:
            case SectionForm(beside=True):
                fields[one.name] = _apart(above, own_names, values)
            case SectionForm():
                own = build_fields(form.classes, values, f"{path}.")
                with prefix_errors("", path):
                    fields[one.name] = form.classes[0].complete(**own) if form.built else own
            case PluginForm(named_by="", several=True):
                names = values.get(path) or ()
                fields[one.name] = tuple(_layer(name, _below(f"{name}.", below)) for name in names)
            case PluginForm(named_by=""):
                fields[one.name] = PluginChoice(str(values.get(path, form.default)), below)
            case PluginForm(several=True):
                options: dict[str, dict[str, Any]] = {}
                for name, value in below.items():
                    plugin, _, key = name.rpartition(".")
                    options.setdefault(plugin, {})[key] = value
                fields[one.name] = options
            case PluginForm(flat=True):
                fields |= {one.name: own} if (own := _apart(above, own_names, values)) else {}
            case PluginForm():
                own = _below(f"{above}{form.named_by}.", values)
                fields |= {one.name: own} if own else {}
            case ListsForm(several=True):
                every = values.get(path, [{}])
                is_list = isinstance(every, list | tuple)
                if not is_list or not all(isinstance(grid, Mapping) for grid in every):
                    raise wrong_value(opt(path), every, "a grid or a list of them")
                fields[one.name] = [{**grid, **below} for grid in every] if below else every
            case ListsForm():
                fields[one.name] = below
            case None:
                fields |= {one.name: values[path]} if path in values else {}
    return fields


def _apart(above: str, names: Collection[str], values: Flat) -> Flat:
    """The values whose paths begin with `above` and belong to none of the fields `names` there."""
    below = _below(above, values)
    return {path: value for path, value in below.items() if path.partition(".")[0] not in names}


def _below(above: str, values: Flat) -> Flat:
    """The values whose paths begin with `above`, by the rest of the path."""
    return {p.removeprefix(above): v for p, v in values.items() if p.startswith(above)}


def _layer(name: str, own: Flat) -> Layer:
    clients = own.pop("clients", None)
    return Layer(name.partition("#")[0], own, clients)


def flatten(root: type, tree: Mapping[str, Any]) -> Flat:
    """A tree as one mapping: the path of each option that it gives -> its value.

    Args:
        root: the dataclass of a command's settings.
        tree: nested mappings as a file holds them, or flat in whole or in part.

    Returns:
        The flat mapping. Of plugins in order, each option stands under its plugin's name.

    Raises:
        InputError: an option that is given twice, or a list that is none.
    """
    shape, flat = layout(root), Flat()
    for path, value in _leaves(shape, tree):
        path = shape.canonical(path)
        if path in flat:
            raise InputError(f"{opt(path)} is given twice")
        flat[path] = value
    for head, (kind, of) in shape.plugins.items():
        name, colon, file = str(flat.get(of)).partition(":")
        own = option_fields(registry.load(kind, name)) if name in registry.names(kind) else ()
        if colon and "path" in {one.name for one, _ in own}:  # `partition: file:PATH`
            if (path := f"{head}.path") in flat:
                raise InputError(f"{opt(of, flat[of])} and {opt(path, flat[path])} are two paths")
            flat |= {of: name, path: file}
    return _place_layers(shape, flat, flat)


def _leaves(shape: Layout, tree: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Path and value of each option in a mapping, whose paths begin with `above`."""
    for key, value in tree.items():
        path = f"{above}{key}"
        path = path if path in shape.sections else shape.canonical(path)
        if isinstance(value, Mapping) and (path in shape.sections or above[:-1] in shape.by_name):
            yield from _leaves(shape, value, f"{path}.")
        elif path in shape.layers and not (value is None or isinstance(value, str)):
            yield from _layers(shape, path, value)
        else:
            yield path, value


def _layers(shape: Layout, path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Path and value of each option in a list of plugins, and the list of their names."""
    if not isinstance(value, list | tuple):
        raise wrong_value(opt(path), value, "names or a list of layers")
    names: list[str] = []
    for one in value:
        layer = {"name": one} if isinstance(one, str) else one
        if not isinstance(layer, Mapping) or not isinstance(layer.get("name"), str):
            raise InputError(f"{opt(path)}: each of the list is a name or has one, got {one!r}")
        again = names.count(layer["name"])
        names.append(f"{layer['name']}#{again + 1}" if again else layer["name"])
        own = {key: inner for key, inner in layer.items() if key != "name"}
        yield from _leaves(shape, own, f"{path}.{names[-1]}.")
    yield path, names


def _place_layers(shape: Layout, flat: Flat, lower: Flat) -> Flat:
    """The mapping with each option of a single plugin, `defense.epsilon`, under its name, which the
    mapping or the one below it tells."""
    placed = Flat()
    for path, value in flat.items():
        field, _, key = path.rpartition(".")
        is_of_one = field in shape.layers
        names = layer_names(flat.get(field, lower.get(field))) if is_of_one else []
        if len(names) > 1:
            raise InputError(f"{opt(path)}: of which one? {opt(f'{field}.{names[0]}.{key}')}")
        path = f"{field}.{names[0]}.{key}" if names else path
        if path in placed:
            raise InputError(f"{path} is given twice")
        placed[path] = value
    return placed


def _error_path(shape: Layout, path: str, flat: Flat) -> str:
    """An option's path as an error shows it: of a single plugin of a list without the name."""
    field = shape.field_of(path, shape.layers)
    single = field is not None and field != path and len(layer_names(flat.get(field))) == 1
    return f"{field}.{path.rpartition('.')[2]}" if single else path


def merge(root: Any, lower: Flat, upper: Flat) -> Flat:
    """Lay one flat mapping over another.

    Options in `lower` of a plugin that `upper` replaces by another are dropped, and so are those
    of attacks that do not run by what `upper` says.

    Args:
        root: the dataclass of a command's settings.
        lower: as of `flatten`.
        upper: likewise; its values win.

    Returns:
        The merged mapping.
    """
    shape = layout(root)
    upper = _place_layers(shape, upper, lower)
    merged = {p: v for p, v in lower.items() if not _is_replaced(shape, p, lower, upper)} | upper
    prefixes = {f"{field}." for field in shape.by_name if field not in shape.layers}
    below = {
        p: p.partition(".")[2].rpartition(".")[0] for p in lower if p.startswith(tuple(prefixes))
    }
    if below and WHICH_ATTACKS & upper.keys():
        run = {*root.attack_names(merged)}
        merged = {p: v for p, v in merged.items() if p in upper or below.get(p, "") in {"", *run}}
    return merged


def _is_replaced(shape: Layout, path: str, lower: Flat, upper: Flat) -> bool:
    """Whether an option in `lower` is of what `upper` replaces."""
    head = path.rpartition(".")[0]
    field = shape.field_of(path, shape.layers)
    if field is not None and field not in (path, head):
        others = layer_names(upper.get(field))
        return field in upper and head.removeprefix(f"{field}.") not in others
    if (field := shape.field_of(path, shape.lists)) is not None:
        return field in upper
    kind, of = shape.plugins.get(head, ("", shape.deciding.get(head, "")))
    if of not in upper or (kind and path in shape.options):
        return False
    before = lower.get(of, shape.options[of][0].default)
    return _called(kind, before) != _called(kind, upper[of])


def _called(kind: str, value: Any) -> str:
    """A plugin's name: of one that comes with fedmia without the path, as another file of one data
    source is the same."""
    name = str(value).partition(":")[0]
    return name if kind and name in registry.names(kind) else str(value)
