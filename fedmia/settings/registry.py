"""Find plugins by file name: `load("attack", "partcrop")` is the one in `attacks/partcrop.py`.

File name = YAML name = command-line name; a `-` in the name is `_` in the file name. A file holds
one public class derived from its kind's base, or a family of them: `nets/resnet.py` those of
`resnet18` and `resnet50`, each of which declares its `name`, which begins with the file's. No
decorators, no tables: adding a file adds the plugin. `package.module:Class` names code outside the
repository.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import os
import pkgutil
import sys
from collections.abc import Mapping
from typing import Any

from fedmia.settings import session
from fedmia.settings.errors import InputError, prefix_errors, unknown_name
from fedmia.settings.options import option_fields

# kind -> (package, module of the base class, name of the base class)
KINDS: Mapping[str, tuple[str, str, str]] = {
    "dataset": ("fedmia.data", "fedmia.data.base", "Dataset"),
    "partition": ("fedmia.partitions", "fedmia.partitions.base", "Partition"),
    "model": ("fedmia.nets", "fedmia.nets.base", "Net"),
    "ssl": ("fedmia.ssl", "fedmia.ssl.base", "SSL"),
    "strategy": ("strategies", "strategies.base", "FederatedStrategy"),
    "role": ("clients", "clients.base", "Role"),
    "attack": ("fedmia.attacks", "fedmia.attacks.base", "Attack"),
    "defense": ("fedmia.defenses", "fedmia.defenses.base", "Defense"),
    "observer": ("fedmia.observers", "fedmia.observers.base", "RunObserver"),
    "view": ("fedmia.study.views", "fedmia.study.view", "StudyView"),
    "encoder": ("fedmia.encoders", "fedmia.encoders.base", "EncoderForm"),
}


def base(kind: str) -> type:
    """The abstract class that every plugin of `kind` derives from."""
    _, module, name = KINDS[kind]
    cls: type = getattr(importlib.import_module(module), name)
    return cls


def names(kind: str) -> list[str]:
    """Sorted names of the built-in plugins of `kind`."""
    return [*_names(kind)]


def load(kind: str, name: str) -> type[Any]:
    """The class of a plugin.

    Args:
        kind: of the plugin, one of KINDS.
        name: a built-in plugin or `package.module:Class`.

    Returns:
        The class.

    Raises:
        InputError: no such plugin (the message lists the known ones and the nearest), or the
            class that `package.module:Class` names cannot be imported or is of another kind.
    """
    if ":" in name:
        return _outside(kind, name)
    if (cls := _built_in(kind, name)) is None:
        raise unknown_name(kind, name, names(kind))
    return cls


def build(kind: str, name: str, options: Mapping[str, Any], path: str = "") -> Any:
    """Build a plugin.

    Args:
        kind: of the plugin, one of KINDS.
        name: a built-in plugin or `package.module:Class`.
        options: keyword arguments of the plugin's class.
        path: of the options in the settings, for errors; empty: that in the settings of a run.

    Returns:
        An instance of the plugin.

    Raises:
        InputError: unknown plugin or option, or a value out of range.
    """
    cls = load(kind, name)
    known = {f.name for f, _ in option_fields(cls)}
    for key in options:
        if key not in known:
            raise unknown_name(f"option of {kind} '{name}'", key, known)
    with prefix_errors(f"{kind} '{name}'", path or _path_in_run(kind, name)):
        return cls(**options)


def _path_in_run(kind: str, name: str) -> str:
    """Where the settings of a run have a plugin's options: `ssl`, `attack.lpla`."""
    if kind in ("attack", "defense"):
        return f"{kind}.{session.short_name(name)}"
    return "data" if kind == "dataset" else kind


def summary(cls: type) -> str:
    """First line of a plugin's docstring; empty where it has none, as all under `python -OO`."""
    first = (inspect.getdoc(cls) or "").split("\n", 1)[0]
    signatures = tuple(f"{one.__name__}(" for one in cls.__mro__)  # in the place of a dataclass's
    return "" if first.startswith(signatures) else first


def paper(cls: type) -> str:
    """Where the plugin's method was published, or the empty string."""
    return str(getattr(cls, "paper", ""))


# Files do not come and go while a process runs.
@functools.cache
def _names(kind: str) -> tuple[str, ...]:
    return tuple(sorted(name for file in _files(kind) for name in _plugins(kind, file)))


@functools.cache
def _built_in(kind: str, name: str) -> type[Any] | None:
    # The file of that name, then the families that it may be of.
    for file in sorted(_files(kind), key=len, reverse=True):
        if name.startswith(_name_of_file(file)) and (cls := _plugins(kind, file).get(name)):
            return cls
    return None


@functools.cache
def _files(kind: str) -> tuple[str, ...]:
    """Files that may hold a plugin of `kind`."""
    package = importlib.import_module(KINDS[kind][0])
    files = [m.name for m in pkgutil.iter_modules(package.__path__)]
    return tuple(f for f in files if not f.startswith("_") and f != "base")


@functools.cache
def _plugins(kind: str, file: str) -> dict[str, type[Any]]:
    """The public plugins of a file, by name."""
    module, parent = importlib.import_module(f"{KINDS[kind][0]}.{file}"), base(kind)
    classes = [
        c
        for n, c in vars(module).items()
        if inspect.isclass(c)
        and not n.startswith("_")
        and c.__module__ == module.__name__
        and issubclass(c, parent)
        and dataclasses.is_dataclass(c)
    ]
    plugins = {str(vars(c).get("name", _name_of_file(file))): c for c in classes}
    if len(plugins) < len(classes) or not all(
        name.startswith(_name_of_file(file)) for name in plugins
    ):
        raise InputError(
            f"{module.__name__} holds {len(classes)} public plugins, called {', '.join(plugins)}: "
            f"each declares a name of its own that begins with {_name_of_file(file)}"
        )
    return plugins


def _name_of_file(file: str) -> str:
    """The plugin's name for a file: dashes in place of underscores."""
    return file.replace("_", "-")


def search_working_folder() -> None:
    """Let Python also find modules in the working folder, as `python -m` does and a console script
    does not.

    It comes last, and after our own packages: no folder in it takes the place of any of them.
    """
    for package in {package.partition(".")[0] for package, *_ in KINDS.values()}:
        importlib.import_module(package)
    if not {"", here := os.getcwd()} & {*sys.path}:
        sys.path.append(here)


def load_outside(kind: str, name: str) -> Any:
    """Import what a user names from outside fedmia.

    Args:
        kind: what the name should be, for the error.
        name: `package.module:NAME`.

    Returns:
        The object of that name.

    Raises:
        InputError: it cannot be imported.
    """
    module_name, _, attribute = name.partition(":")
    if session.is_session_name(name):
        known = session.classes()
        if attribute not in known:
            raise InputError(
                f"{kind} '{name}' is a class of a Python session, which this process does not "
                f"have; pass {session.short_name(name)} as an object again (in Python)"
            )
        return known[attribute]
    search_working_folder()
    try:
        return getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError, SyntaxError, ValueError) as error:
        raise InputError(f"cannot load {kind} '{name}': {error}") from None


def _outside(kind: str, name: str) -> type[Any]:
    cls = load_outside(kind, name)
    if not (inspect.isclass(cls) and issubclass(cls, base(kind))):
        raise InputError(f"{kind} '{name}' is not a {base(kind).__name__}")
    return cls
