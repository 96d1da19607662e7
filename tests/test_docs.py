"""Docstrings name what is there; tools/docstrings.py says what each must have."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.pages.reading import script

CHECK = script("docstrings")


def words_of(node: ast.AST, classes: dict[str, list[ast.ClassDef]]) -> set[str]:
    """Every name that a list of arguments, or a class and its bases in the project, has."""
    words = {name for one in ast.walk(node) for name in
             (getattr(one, key, None) for key in ("id", "attr", "arg", "name"))}  # fmt: skip
    for base in getattr(node, "bases", ()):
        for parent in classes.get(CHECK.last_name(base), []):
            words |= words_of(parent, classes) if parent is not node else set()
    return words


def wrong_entries(tree: ast.Module, classes: dict[str, list[ast.ClassDef]]) -> Iterator[Any]:
    """(name, entries of its docstring that name nothing) of the functions and classes of a file."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.ClassDef | ast.FunctionDef):
            continue
        is_class = isinstance(node, ast.ClassDef)
        titles = ("Args", "Attributes") if is_class else ("Args",)
        if listed := CHECK.entries(ast.get_docstring(node) or "", *titles):
            known = words_of(node if is_class else node.args, classes)
            if extra := listed - known:
                yield node.name, extra


def test_docstrings__name_what_is_there() -> None:
    sources = CHECK.read_sources()
    classes = CHECK.find_bases(sources)
    assert len(sources) > 400
    assert not [(str(one.path), *e) for one in sources for e in wrong_entries(one.tree, classes)]


def test_wrong_entries__are_seen() -> None:
    doc = '"""D.\n\n    Args:\n        {}: one.\n        gone: no.\n    """\n'
    f, a, b = (doc.format(names) for names in ("a, b", "x", "x"))
    tree = ast.parse(f"def f(a, *b):\n    {f}class A:\n    {a}    x: int\nclass B(A):\n    {b}")
    classes = CHECK.find_bases([CHECK.Source(Path("f.py"), tree)])
    assert list(wrong_entries(tree, classes)) == [(name, {"gone"}) for name in "fAB"]
