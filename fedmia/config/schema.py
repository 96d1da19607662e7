"""JSON Schema (draft 2020-12) of a command's YAML file, from the metadata of its options.

It says names, types, ranges and choices, and of each plugin which options it has; what suits what
is asked when the settings are built.
"""

from __future__ import annotations

import dataclasses
import re
import typing
from collections.abc import Iterable, Mapping
from typing import Any

from fedmia.config.forms import (
    Form,
    MappingForm,
    PluginForm,
    ScalarForm,
    SectionForm,
    field_forms,
    find_flat_field,
)
from fedmia.options import registry
from fedmia.options.option import LIMITS, union_members
from fedmia.options.values import plain
from fedmia.options.yamlfile import RUN_KEY

Schema = dict[str, Any]
TYPES: Mapping[Any, str] = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    type(None): "null",
}
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
    own = {name: _form_schema(form, defs) for name, form in field_forms(root).items()}
    beside: Schema = {RUN_KEY: True, **dict.fromkeys(more, {"type": "string"})}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
        **_object({**own, **beside}),
        "$defs": defs,
    }


def _form_schema(form: Form, defs: Schema) -> Schema:
    match form:
        case ScalarForm():
            return option_schema(form.field, form.kind)
        case SectionForm():
            return _section_schema(form, defs)
        case PluginForm(several=False):
            objects = _plugin_objects(form.kind, form.default, {}, defs)
            return {"description": form.about, "anyOf": [_names(form.kind), *objects]}
        case PluginForm():
            clients = {"clients": {"type": ["array", "string", "integer"]}}
            layers = [_names(form.kind), *_plugin_objects(form.kind, None, clients, defs)]
            by_name = _named_options_schema(form.kind, defs)
            several = [
                {"type": ["string", "null"]},
                {"type": "array", "items": {"anyOf": layers}},
                _object({"name": {"type": "string"}, **by_name}),
            ]
            return {"description": form.about, "anyOf": [*layers[1:], *several]}
        case MappingForm(about=str(about)) if about:
            one = {"type": "object", "additionalProperties": {"type": "array"}}
            return {
                "description": about,
                "anyOf": [one, {"type": "array", "items": one}] if form.several else [one],
            }
        case MappingForm(classes=classes) if classes:
            inner = {name: one for cls in classes for name, one in field_forms(cls).items()}
            properties = {name: one for name, one in inner.items() if name not in form.without}
            return _object({name: _form_schema(one, defs) for name, one in properties.items()})
    assert isinstance(form, MappingForm)
    by_name = _named_options_schema(form.kind, defs)
    if form.of:
        return {"anyOf": list(by_name.values())}
    return _object(by_name) | {"patternProperties": {OUTSIDE: {"type": "object"}}}


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


def _section_schema(form: SectionForm, defs: Schema) -> Schema:
    fields = field_forms(form.cls)
    own = {
        name: _form_schema(one, defs)
        for name, one in fields.items()
        if name != find_flat_field(fields)
    }
    flat = fields.get(str(find_flat_field(fields)))
    objects = [_object(own)]
    if isinstance(flat, MappingForm):
        objects = _plugin_objects(flat.kind, flat.default, own, defs)
    return {"anyOf": [*objects, *([{"type": "string"}] if form.head else [])]}


def _plugin_objects(kind: str, default: str | None, own: Schema, defs: Schema) -> list[Schema]:
    """A mapping of `name` and options for each plugin of `kind`, and for one from outside."""
    objects = []
    for name in registry.names(kind):
        path = "(:.*)?" if getattr(registry.load(kind, name), "takes_path", False) else ""
        with_name = {**own, "name": {"pattern": f"^{re.escape(name)}{path}$"}}
        needed = {} if name == default else {"required": ["name"]}
        options = {**_options(kind, name, defs), "properties": with_name}
        objects.append({**_close_schema(options), **needed})
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
        own = {n: _form_schema(one, defs) for n, one in field_forms(cls).items()}
        defs[key] = {"description": registry.summary(cls), "type": "object", "properties": own}
    return {"$ref": f"#/$defs/{key}"}


def _named_options_schema(kind: str, defs: Schema) -> Schema:
    return {name: _close_schema(_options(kind, name, defs)) for name in registry.names(kind)}


def _close_schema(schema: Schema) -> Schema:
    return {**schema, "unevaluatedProperties": False}


def _object(properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, "additionalProperties": False}
