"""JSON Schema (draft 2020-12) of a command's YAML file, from the metadata of its options.

It says names, types, ranges and choices, and of each plugin which options it has; what suits what
is asked when the settings are built.
"""

from __future__ import annotations

import dataclasses
import re
import typing
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from fedmia.records.json_schema import DRAFT, TYPES, Schema
from fedmia.settings import registry
from fedmia.settings.fields import Classes, ListsForm, PluginForm, SectionForm, fields_of
from fedmia.settings.layout import layout
from fedmia.settings.options import LIMITS, option_fields, union_members
from fedmia.settings.values import plain
from fedmia.settings.yamlfile import RUN_KEY

KEYWORDS = {"gt": "exclusiveMinimum", "ge": "minimum", "lt": "exclusiveMaximum", "le": "maximum"}
OUTSIDE = r"^[\w.]+:\w+"  # package.module:Class


def settings_schema(root: type, title: str, more: Iterable[str] = ()) -> Schema:
    """The JSON Schema of a command's settings.

    Args:
        root: dataclass of the settings.
        title: the command.
        more: keys that its file may have beside the settings.

    Returns:
        A schema of draft 2020-12.
    """
    defs: Schema = {}
    beside: Schema = {RUN_KEY: True, **dict.fromkeys(more, {"type": "string"})}
    properties = _properties((root,), (), defs)
    for name, path in layout(cast(Any, root)).short.items():
        if "." not in name and name not in properties:
            properties[name] = _at(properties, path)
    return {
        "$schema": DRAFT,
        "title": title,
        **_object({**properties, **beside}),
        "$defs": defs,
    }


def _at(properties: Schema, path: str) -> Schema:
    """The schema of an option in those of its sections."""
    head, _, rest = path.partition(".")
    schema: Schema = properties[head]
    return _at(schema["anyOf"][0]["properties"], rest) if rest else schema


def _properties(classes: Classes, without: Sequence[str], defs: Schema) -> Schema:
    """The schema of each field of some dataclasses, by its name."""
    own: Schema = {}
    for one, kind, form in fields_of(classes, tuple(without)):
        match form:
            case SectionForm(beside=True):
                more = _properties(form.classes, (*without, *form.without), defs)
                own |= {name: _unite(own.get(name), schema) for name, schema in more.items()}
            case PluginForm(named_by=of, several=False, flat=False) if of:
                own[of] = {"anyOf": [own[of], *_plugins(form.kind, {}, defs)]}
            case PluginForm(flat=True):
                pass  # among the options of its section
            case None:
                own[one.name] = option_schema(one, kind)
            case _:
                below = [w.removeprefix(f"{one.name}.") for w in without if f"{one.name}." in w]
                own[one.name] = _unite(own.get(one.name), _form_schema(form, defs, below))
    return own


def _unite(before: Schema | None, schema: Schema) -> Schema:
    """The schema of a section that two classes have: it takes the options of both."""
    if before is None or not {"anyOf"} <= before.keys() & schema.keys():
        return schema
    shared = before["anyOf"][0].get("properties", {})
    objects = [
        {**one, "properties": {**shared, **one["properties"]}} if "properties" in one else one
        for one in schema["anyOf"]
    ]
    return {**schema, "anyOf": objects}


def _form_schema(form: Any, defs: Schema, without: Sequence[str]) -> Schema:
    match form:
        case SectionForm():
            own = _properties(form.classes, (*form.without, *without), defs)
            flat = [f.kind for *_, f in fields_of(form.classes) if getattr(f, "flat", False)]
            objects = _plugins(flat[0], own, defs) if flat else [_object(own)]
            return {"anyOf": [*objects, *([{"type": "string"}] if form.head else [])]}
        case PluginForm(named_by="", several=False):
            objects = _plugins(form.kind, {}, defs)
            return {"description": form.about, "anyOf": [_names(form.kind), *objects]}
        case PluginForm(named_by=""):
            clients = {"clients": {"type": ["array", "string"]}}
            layers = _plugins(form.kind, clients, defs)
            by_name = _named_options_schema(form.kind, defs)
            several = [
                {"type": ["string", "null"]},
                {"type": "array", "items": {"anyOf": [_names(form.kind), *layers]}},
                _object({"name": {"type": "string"}, **by_name}),
            ]
            return {"description": form.about, "anyOf": [*layers, *several]}
        case ListsForm():
            one = {"type": "object", "additionalProperties": {"type": "array"}}
            grids = [one, {"type": "array", "items": one}] if form.several else [one]
            return {"description": form.about, "anyOf": grids}
    outside = {"patternProperties": {OUTSIDE: {"type": "object"}}}
    return _object(_named_options_schema(form.kind, defs)) | outside


def option_schema(one: dataclasses.Field[Any], kind: Any) -> Schema:
    """The JSON Schema of an option: its help, default, type, range and choices.

    Args:
        one: the dataclass field.
        kind: its type.

    Returns:
        A schema.
    """
    return {
        "description": one.metadata["help"],
        "default": plain(one.default),
        **_type_schema(kind, one.metadata),
    }


def _type_schema(kind: Any, limits: Mapping[str, Any]) -> Schema:
    """The schema of values of a type, as YAML says them: `none` is null, and a text a list."""
    schema: Schema = {KEYWORDS[k]: limits[k] for k, _, _ in LIMITS if limits[k] is not None}
    kinds = union_members(kind)
    words = [w for k in kinds if typing.get_origin(k) is typing.Literal for w in typing.get_args(k)]
    types = [TYPES[k] for k in kinds if k in TYPES]
    words += ["none"] if "null" in types else []
    for one in kinds:
        if typing.get_origin(one) is tuple:
            schema = {"items": _type_schema(typing.get_args(one)[0], limits)}
            types += ["array", "string"]
    if limits["choices"] and "array" not in types:
        return _choices(limits["choices"], [None, *words] if "null" in types else [])
    if words and "string" not in types:
        schema["pattern"] = f"^({'|'.join(map(re.escape, words))})$"
        types.append("string")
    return {"type": types[0] if len(types) == 1 else types, **schema}


def _choices(choices: Iterable[str], more: Iterable[Any]) -> Schema:
    enum: Schema = {"enum": [*choices, *more]}
    # Choices that are plugins: one may come from outside.
    return {"anyOf": [enum, {"pattern": OUTSIDE}]} if "a:b" in choices else enum  # type: ignore[operator]


def _plugins(kind: str, own: Schema, defs: Schema) -> list[Schema]:
    """A mapping of `name` and options for each plugin of `kind`, and for one from outside."""
    objects = []
    for name in registry.names(kind):
        path = "(:.*)?" if getattr(registry.load(kind, name), "takes_path", False) else ""
        with_name = {**own, "name": {"pattern": f"^{re.escape(name)}{path}$"}}
        objects.append(_close_schema({**_options(kind, name, defs), "properties": with_name}))
    outside = {"properties": {**own, "name": {"pattern": OUTSIDE}}, "required": ["name"]}
    return [*objects, {"type": "object", **outside}]


def _names(kind: str) -> Schema:
    """A plugin by its name alone: built in, with its path, or from outside."""
    return {"anyOf": [{"enum": registry.names(kind)}, {"type": "string", "pattern": "^[^:]+:."}]}


def _options(kind: str, name: str, defs: Schema) -> Schema:
    """A reference to the options of a plugin, which `defs` then hold."""
    key = f"{kind}.{name}"
    if key not in defs:
        cls = registry.load(kind, name)
        own = {one.name: option_schema(one, of_type) for one, of_type in option_fields(cls)}
        defs[key] = {"description": registry.summary(cls), "type": "object", "properties": own}
    return {"$ref": f"#/$defs/{key}"}


def _named_options_schema(kind: str, defs: Schema) -> Schema:
    return {name: _close_schema(_options(kind, name, defs)) for name in registry.names(kind)}


def _close_schema(schema: Schema) -> Schema:
    return {**schema, "unevaluatedProperties": False}


def _object(properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, "additionalProperties": False}
