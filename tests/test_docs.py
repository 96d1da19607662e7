"""The API pages are made of docstrings: everything public has one, and names what is there."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import clients
import fedmia
import strategies

ROOT = Path(__file__).resolve().parents[1]
# What a user of the library calls.
DOCUMENTED = (
    "attacks",
    "data",
    "encoders",
    "library",
    "nets",
    "shadows",
    "ssl",
    "testing",
    "threat",
)


def public_modules(package: ModuleType) -> Iterator[str]:
    """Names of a package and of all modules below it without a leading underscore."""
    yield package.__name__
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if not any(part.startswith("_") for part in found.name.split(".")):
            yield found.name


MODULES = [name for package in (fedmia, strategies, clients) for name in public_modules(package)]
OF_THE_LIBRARY = [n for n in MODULES if n.startswith(tuple(f"fedmia.{p}" for p in DOCUMENTED))]


def members(module: ModuleType) -> Iterator[tuple[str, Any, type | None]]:
    """(name, object, its class) of what is public and defined in a module, methods included."""
    for name, found in vars(module).items():
        if name.startswith("_") or getattr(found, "__module__", None) != module.__name__:
            continue
        if inspect.isclass(found):
            yield name, found, None
            for inner, method in vars(found).items():
                if not inner.startswith("_") and callable_or_property(method):
                    yield f"{name}.{inner}", getattr(found, inner), found
        elif inspect.isfunction(found):
            yield name, found, None


def callable_or_property(found: Any) -> bool:
    if inspect.isfunction(found):
        return found.__name__ != "<lambda>"
    return isinstance(found, property | classmethod | staticmethod)


def told(name: str, found: Any, owner: type | None) -> str:
    """A docstring, that of the method overridden included."""
    if owner is not None and isinstance(found, property):
        inner = name.rpartition(".")[2]
        docs = (getattr(vars(c).get(inner), "__doc__", None) for c in owner.__mro__)
        return next((doc for doc in docs if doc), "")
    return inspect.getdoc(found) or ""


def listed(doc: str) -> list[str]:
    """Names that the sections `Args:` and `Attributes:` speak of; several may share an entry, and
    a line may hold several entries."""
    names = []
    for section in re.findall(r"^(?:Args|Attributes):\n((?: {4}.*\n?|\n)*)", doc, re.MULTILINE):
        for line in re.findall(r"^ {4}(\S.*)", section, re.MULTILINE):
            for entry in re.findall(r"(?:^|(?<=\. ))(\*{0,2}\w+(?:, \*{0,2}\w+)*): ", line):
                names += [name.lstrip("*") for name in entry.split(", ")]
    return names


def has(found: Any, name: str) -> bool:
    """Whether a function takes an argument, or a class takes it or has such an attribute."""
    if name in getattr(found, "__annotations__", {}) and isinstance(found, type):
        return True  # of a TypedDict too, which has no signature
    signature = inspect.signature(found)
    if name in signature.parameters:
        return True
    if not inspect.isclass(found):
        return False
    if any(name in getattr(c, "__annotations__", {}) or hasattr(c, name) for c in found.__mro__):
        return True
    return f"self.{name} = " in inspect.getsource(found)


def test_listed__reads_every_form() -> None:
    doc = (
        "What it does.\n\nArgs:\n    a, b: two. c: a third.\n        note: no entry.\n"
        "    *rest: all.\n"
        "\nRaises:\n    ValueError: no.\n"
    )
    assert listed(doc) == ["a", "b", "c", "rest"]
    assert has(listed, "doc") and not has(listed, "text")
    assert has(subprocess.CompletedProcess, "stdout") and not has(Path, "no_such")


def test_modules__import_and_say_what_they_are() -> None:
    assert len(OF_THE_LIBRARY) > 50
    assert {f"fedmia.{name}" for name in DOCUMENTED} <= set(MODULES)
    assert not [n for n in MODULES if not (importlib.import_module(n).__doc__ or "").strip()]


def test_library__is_documented() -> None:
    assert not [
        (module, name)
        for module in OF_THE_LIBRARY
        for name, found, owner in members(importlib.import_module(module))
        if not told(name, found, owner).strip()
    ]


def test_docstrings__name_what_is_there() -> None:
    assert not [
        (module, name, argument)
        for module in MODULES
        for name, found, _ in members(importlib.import_module(module))
        if not isinstance(found, property) and "__doc__" in dir(found)
        for argument in listed(inspect.cleandoc(found.__doc__ or ""))
        if not has(found, argument)
    ]


def python_blocks(title: str) -> list[str]:
    """The README's blocks of Python in one section."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    section = text.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]
    return re.findall(r"```python\n(.*?)```", section, flags=re.DOTALL)


def test_readme__example_of_an_attack_passes_its_own_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attack, check = python_blocks("Add an attack")
    (tmp_path / "norm_attack.py").write_text(attack)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "norm_attack", raising=False)
    exec(compile(check, "README.md", "exec"), {})  # raises AssertionError where it does not
    norm = importlib.import_module("norm_attack").Norm
    assert norm().name == "norm_attack:Norm" and not norm().learns
    monkeypatch.setattr(norm, "score", lambda self, view, images: torch.zeros(len(images)))
    with pytest.raises(AssertionError, match="^Norm"):
        exec(compile(check, "README.md", "exec"), {})


def test_script__is_bash() -> None:
    done = subprocess.run(["bash", "-n", ROOT / "scripts" / "docs.sh"], capture_output=True)
    assert done.returncode == 0, done.stderr
