"""Classes of a Python session, which settings name by their name and the hash of their source.

A class of a notebook lies in no file that another process could import. It is called
`python:NAME@HASH` in settings, and whoever builds the settings again must have the same class:
this session, a Ray worker that received it, or a run of a study, which reads it from a file.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

MODULE = "python"  # stands where `package.module` stands in the name of a plugin from outside
VARIABLE = "FEDMIA_SESSION"  # environment variable of a study's runs: the file of its classes

# Like `sys.modules`: what a process can name belongs to the process, not to a run of it.
_CLASSES: dict[str, type] = {}


def register_class(cls: type, source: str | None = None) -> str:
    """Give a class a name for settings.

    Args:
        cls: a class of the session.
        source: text that identifies what it does; None: its source code.

    Returns:
        `python:NAME@HASH`; equal for the same name and source.
    """
    text = source_of(cls) if source is None else source
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    attribute = f"{cls.__name__}@{digest}"
    _CLASSES[attribute] = cls
    return f"{MODULE}:{attribute}"


def register_values(base: type, name: str, source: str, **values: Any) -> str:
    """Give objects of the session a name for settings, as a class that holds them.

    Args:
        base: plugin that says what is done with them.
        name: of the class.
        source: text that identifies the objects.
        values: class attributes by name.

    Returns:
        As of `register_class`.
    """
    # As of `__main__`, it travels whole and not by its name.
    body = {"__module__": "__main__", "__doc__": base.__doc__, "__annotations__": {}, **values}
    return register_class(dataclass(frozen=True)(type(name, (base,), body)), source)


def source_of(cls: type) -> str:
    """The source code of a class, with the plain values that it reads from outside.

    Args:
        cls: of any module, or of a notebook.

    Returns:
        Text that changes when the class does.
    """
    functions = [inspect.unwrap(v) for v in vars(cls).values() if callable(v)]
    parts = [cls.__name__, *(f"{base.__module__}.{base.__qualname__}" for base in cls.__bases__)]
    try:
        parts.append(inspect.getsource(cls))
    except (OSError, TypeError):  # Python finds no file for a class of a notebook before 3.13
        parts += [source_of_function(f) for f in functions if inspect.isfunction(f)]
    own = {n: v for n, v in vars(cls).items() if n[0] != "_" and not _is_own_name(n, v)}
    parts += [f"{n} = {v!r}" for n, v in sorted(own.items()) if _is_plain(v)]
    parts += [_outer_values(f) for f in functions if inspect.isfunction(f)]
    return "\n".join(parts)


def source_of_function(function: Callable[..., Any]) -> str:
    """The source code of a function, with the plain values that it reads from outside.

    Args:
        function: of Python, or any other callable.

    Returns:
        Text that changes when the function does.
    """
    if inspect.isclass(function):
        return source_of(function)
    if not inspect.isfunction(function):
        return repr(type(function))
    code = function.__code__
    try:
        text = inspect.getsource(function)
    except (OSError, TypeError):
        text = f"{code.co_name} {code.co_code.hex()} {code.co_consts!r} {code.co_names!r}"
    return text + _outer_values(function)


def _outer_values(function: Callable[..., Any]) -> str:
    """Plain values of enclosing functions and of the module that a function reads."""
    outer = inspect.getclosurevars(function)
    values = {**outer.globals, **outer.nonlocals}
    return "".join(f"\n{name} = {v!r}" for name, v in sorted(values.items()) if _is_plain(v))


def _is_own_name(attribute: str, value: Any) -> bool:
    """Whether an attribute holds the name that the class was given here, or its default one."""
    return attribute == "name" and isinstance(value, str) and ":" in value


def _is_plain(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, str | int | float)


def is_session_name(name: str) -> bool:
    """Whether a plugin's name is of a class of a Python session."""
    return name.startswith(f"{MODULE}:")


def short_name(name: str) -> str:
    """`MyAttack` of `python:MyAttack@3f2a`; any other name as it is."""
    return name.partition(":")[2].partition("@")[0] if is_session_name(name) else name


def has_class(name: str) -> bool:
    """Whether this process has the class of a name."""
    return name.partition(":")[2] in classes()


def classes() -> Mapping[str, type]:
    """Every class that this process can name, by NAME@HASH.

    In a run of a study these are the study's, too. One of both is the process's own.
    """
    path = os.environ.get(VARIABLE)
    return {**(_classes_of_file(path) if path else {}), **_CLASSES}


@lru_cache(maxsize=1)
def _classes_of_file(path: str) -> Mapping[str, type]:
    """The classes that the study which started this process wrote for it; read once."""
    classes_by_name: dict[str, type] = pickle.loads(Path(path).read_bytes())
    return classes_by_name


def receive(more: Mapping[str, type]) -> None:
    """Take over the classes of the process that sent an order."""
    _CLASSES.update(more)


def write(path: Path) -> None:
    """Write the classes for the runs of a study. Only they read the file."""
    import cloudpickle  # type: ignore[import-untyped]

    path.write_bytes(cloudpickle.dumps(dict(classes())))
