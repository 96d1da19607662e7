"""Classes and instances as the names and options that settings have."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from typing import Any

from fedmia.settings import registry, session
from fedmia.settings.errors import InputError
from fedmia.settings.options import option_fields


def name_plugin(kind: str, value: Any) -> dict[str, Any]:
    """A plugin as settings write it.

    Args:
        kind: of the plugin, one of `fedmia.settings.registry.KINDS`.
        value: a name, a mapping with `name` and options, a class, or an instance with its options;
            of a model also a function that returns a torch module.

    Returns:
        `name`, and the options that differ from their defaults.

    Raises:
        InputError: an object of another kind.
    """
    if isinstance(value, str):
        return {"name": value}
    if isinstance(value, Mapping):
        name = value.get("name")
        return {**value, **(name_plugin(kind, name) if name is not None else {})}
    base = registry.base(kind)
    if inspect.isclass(value) and issubclass(value, base):
        return {"name": name_class(kind, value)}
    if isinstance(value, base):
        options = {
            f.name: getattr(value, f.name)
            for f, _ in option_fields(type(value))
            if getattr(value, f.name) != f.default
        }
        return {"name": name_class(kind, type(value)), **options}
    if kind == "model" and callable(value):
        from fedmia.door.networks import name_network

        return {"name": name_network(value)}
    raise InputError(
        f"{kind} must be a name, a class or an instance of {base.__name__}, got {value!r}"
    )


def name_class(kind: str, cls: type) -> str:
    """The name of a class in settings.

    Args:
        kind: of the plugin.
        cls: the class.

    Returns:
        Its built-in name; `package.module:Class` where another process can import it; else
        `python:NAME@HASH`.
    """
    if cls.__module__.startswith(registry.KINDS[kind][0] + "."):
        for name in registry.names(kind):
            if registry.load(kind, name) is cls:
                return name
    importable = cls.__module__ != "__main__" and "." not in cls.__qualname__
    if importable and getattr(sys.modules.get(cls.__module__), cls.__name__, None) is cls:
        return f"{cls.__module__}:{cls.__name__}"
    name = session.register_class(cls)
    if str(getattr(cls, "name", "")) in ("", f"{cls.__module__}:{cls.__qualname__}"):
        cls.name = name  # type: ignore[attr-defined]  # as the settings call it
    return name
