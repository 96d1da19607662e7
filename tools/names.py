"""Say which names break the rules of docs/architecture.md: python tools/names.py.

The packages and the code that builds the site are read.

- A name says what a thing is, not what befell it: none of PARTICIPLES names a variable, an
  argument, a function or a class. Names in files, options and keys of records are not read here.
- No two public classes have one name.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("fedmia", "clients", "strategies", "research/papers", "docs")
PARTICIPLES = frozenset(
    ("asked", "dealt", "found", "given", "held", "judged", "kept", "made", "named", "put", "said")
    + ("seen", "shown", "taken", "told", "understood", "wanted")
)
# By file: keys of files, and `held`, which stands for what an attacker holds: images, a queue.
PUBLIC = {
    "clients/client_setup.py": {"held"},
    "fedmia/api.py": {"held"},
    "fedmia/attacks/base.py": {"held"},
    "fedmia/recording/format.py": {"held"},
    "fedmia/recording/reader.py": {"held"},
    "fedmia/recording/writer.py": {"held"},
    "fedmia/records/__init__.py": {"judged"},
    "fedmia/testing/material.py": {"held"},
    "fedmia/threat/blackbox.py": {"held"},
    "fedmia/threat/whitebox.py": {"held"},
    "strategies/krum.py": {"taken"},
}


DECLARED = {"option", "number", "fact", "nested", "interval"}  # calls that declare a field


def is_key(field: ast.AnnAssign) -> bool:
    """Say whether users write or read a field by its name.

    Args:
        field: declaration of the field.

    Returns:
        True for an option of settings and for a field of a row.
    """
    return getattr(getattr(field.value, "func", None), "id", "") in DECLARED


def bound_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Find every name that a module binds, but for options and keys of records.

    Args:
        tree: of the module.

    Yields:
        Line and name of each variable, argument, function and class.
    """
    keys = {
        id(field.target)
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for field in node.body
        if isinstance(field, ast.AnnAssign) and is_key(field)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and id(node) not in keys:
            yield node.lineno, node.id
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.lineno, node.name


def main() -> int:
    """Print one line for each fault; 1 where there are any."""
    faults = []
    classes: dict[str, str] = {}
    for path in sorted(path for name in FOLDERS for path in (ROOT / name).rglob("*.py")):
        place = path.relative_to(ROOT).as_posix()
        tree = ast.parse(path.read_text())
        for line, name in bound_names(tree):
            if name.strip("_").lower() in PARTICIPLES and name not in PUBLIC.get(place, ()):
                faults.append(f"{place}:{line}: {name} says what befell a thing, not what it is")
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                place_of_other = classes.setdefault(node.name, place)
                if place_of_other != place:
                    faults.append(f"{place}:{node.lineno}: {place_of_other} has a {node.name}, too")
    print("\n".join([*faults, f"{len(faults)} names to mend"]))
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
