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
from collections.abc import Mapping
from pathlib import Path

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


def source_of(cls: type) -> str:
    """The source code of a class; of a class typed into a prompt, of its functions.

    Args:
        cls: a class.

    Returns:
        Text that changes when the class does.
    """
    try:
        return inspect.getsource(cls)
    except (OSError, TypeError):  # Python finds no file for a class of a notebook before 3.13
        pass
    parts = [cls.__name__, *map(repr, cls.__bases__)]
    for name, value in sorted(vars(cls).items()):
        function = inspect.unwrap(value) if callable(value) else None
        if inspect.isfunction(function):
            try:
                parts.append(inspect.getsource(function))
            except (OSError, TypeError):
                parts.append(f"{name} {function.__code__.co_code.hex()}")
                parts.append(repr(function.__code__.co_consts))
        elif not name.startswith("__") and isinstance(value, str | int | float | tuple | bool):
            parts.append(f"{name} = {value!r}")
    return "\n".join(parts)


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
    """Every class that this process can name, by NAME@HASH; in a run of a study, the study's."""
    path = os.environ.get(VARIABLE)
    if path and not _CLASSES:
        # The study that started this process wrote the file for it.
        _CLASSES.update(pickle.loads(Path(path).read_bytes()))
    return _CLASSES


def receive(more: Mapping[str, type]) -> None:
    """Take over the classes of the process that sent an order."""
    _CLASSES.update(more)


def write(path: Path) -> None:
    """Write the classes for the runs of a study. Only they read the file.

    Args:
        path: of the file.
    """
    import cloudpickle  # type: ignore[import-untyped]

    path.write_bytes(cloudpickle.dumps(dict(classes())))
