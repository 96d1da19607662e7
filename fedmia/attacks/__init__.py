"""Membership attacks, one class a file: `from fedmia.attacks import LpLA, Known`.

A class is imported when it is asked for, from the file that bears its name (`EncoderMIV` is in
`encodermi_v.py`). A file added to the package is found without a list to extend. To use attacks on
a torch module and on images in memory, see `fedmia.library`.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

_CONTRACT = ("ActiveAttack", "Attack", "Known", "NotFitted")  # of base.py


def __getattr__(name: str) -> Any:
    if name == "__all__":
        # Kept, for tools that look a listed name up in the module's dictionary.
        base = importlib.import_module(f"{__name__}.base")
        globals().update({n: getattr(base, n) for n in _CONTRACT} | _classes())
        return sorted([*_CONTRACT, *_classes()])
    files = _files()
    # Modules and what Python itself asks for; importing every attack would not help either.
    if name.startswith("_") or name in (*files, "base"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in _CONTRACT:
        return getattr(importlib.import_module(f"{__name__}.base"), name)
    for file in files:
        if file.replace("_", "") == name.lower():
            found = _plugin(file)
            if found is not None and found.__name__ == name:
                return found
    classes = _classes()
    if name in classes:
        return classes[name]
    from fedmia.errors import nearest

    hint = nearest(name, [*_CONTRACT, *classes])
    raise AttributeError(f"module {__name__!r} has no attack {name!r}{hint}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__getattr__("__all__")})


def _files() -> list[str]:
    """Names of the modules that may hold an attack."""
    found = [m.name for m in pkgutil.iter_modules(__path__)]
    return [name for name in found if not name.startswith("_") and name != "base"]


def _plugin(file: str) -> type[Any] | None:
    """The one public attack that a module defines, if it does."""
    module = importlib.import_module(f"{__name__}.{file}")
    base = importlib.import_module(f"{__name__}.base").Attack
    for name, value in vars(module).items():
        own = isinstance(value, type) and value.__module__ == module.__name__
        if own and issubclass(value, base) and not name.startswith("_"):
            return value
    return None


def _classes() -> dict[str, type]:
    """Every attack by the name of its class."""
    found = [_plugin(file) for file in _files()]
    return {cls.__name__: cls for cls in found if cls is not None}
