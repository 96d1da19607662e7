"""JSON Schema (draft 2020-12) of values by their types, of rows with what they declare."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from fedmia.records.fields import fields_of

Schema = dict[str, Any]
DRAFT = "https://json-schema.org/draft/2020-12/schema"
TYPES: Mapping[Any, str] = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    dict: "object",
    type(None): "null",
}


def schema(row: Any, title: str) -> Schema:
    """The JSON Schema of a file that holds a row; `fedmia.storage.json_rows` reads what it allows.

    Args:
        row: class of the row, such as `Report`.
        title: name of the file.

    Returns:
        A schema, with one of each class of rows in `$defs`.
    """
    defs: Schema = {}
    return {"$schema": DRAFT, "title": title, **type_schema(row, defs), "$defs": defs}


def type_schema(kind: Any, defs: Schema) -> Schema:
    """The schema of values of a type.

    Args:
        kind: a type that JSON can hold, or a class of rows.
        defs: class of rows -> its schema; those that the type holds are added.

    Returns:
        Its schema; keys of a mapping by number are digits.
    """
    origin, inside = get_origin(kind), get_args(kind)
    if kind is Any:
        return {}
    if origin in (Union, UnionType):
        kinds = [type_schema(one, defs) for one in inside]
        bare = all(one.keys() == {"type"} for one in kinds)
        return {"type": [one["type"] for one in kinds]} if bare else {"anyOf": kinds}
    if origin in (list, Sequence):
        return {"type": "array", "items": type_schema(inside[0], defs)}
    if origin in (dict, Mapping):
        digits = {"propertyNames": {"pattern": "^[0-9]+$"}} if inside[0] is int else {}
        return {"type": "object", "additionalProperties": type_schema(inside[1], defs), **digits}
    if not isinstance(kind, type) or not is_dataclass(kind):
        return {"type": TYPES[kind]}
    name = kind.__name__
    if name not in defs:
        defs[name] = {}  # a row may hold rows of its own class
        defs[name] |= _row_schema(kind, defs)
    return {"$ref": f"#/$defs/{name}"}


def _row_schema(kind: Any, defs: Schema) -> Schema:
    hints = get_type_hints(kind)
    properties = {
        name: {
            "description": f"{field.help}; {field.unit}".rstrip("; "),
            **type_schema(hints[name], defs),
        }
        for name, field in fields_of(kind).items()
    }
    about = {"description": " ".join((inspect.getdoc(kind) or "").split()), "type": "object"}
    required = [name for name, field in fields_of(kind).items() if not field.omitted]
    return {
        **about, "required": required, "properties": properties, "additionalProperties": False
    }  # fmt: skip
