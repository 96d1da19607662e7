"""Say which public docstrings are incomplete: python tools/docstrings.py [FILE_OR_FOLDER ..].

A module, class or function is public where no part of its path begins with an underscore; of
private ones nothing is asked. A public module and class has a docstring; a class names the
arguments of its constructor (``Args:``), a record its fields (``Attributes:``). A public function
whose body takes more than three lines has a docstring. Where it takes more than one argument, it
names them under ``Args:`` and says what it returns (``Returns:`` or ``Yields:``) and raises
(``Raises:``); of one argument its sentence speaks, and one that bears the name of its class
(``audit: Audit``) needs no more. A method that a base class of the project documents need not
repeat it. An option documents itself by its help.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("fedmia", "clients", "strategies", "research/papers")
LONG = 3  # lines of a body, above which a docstring has Args, Returns, Raises
Function = ast.FunctionDef | ast.AsyncFunctionDef
# Decorators whose functions take no arguments of their own, or are documented elsewhere.
EXEMPT = {"property", "cached_property", "overload", "setter"}
# Calls that declare a field and say in words what it is.
DECLARED = {
    "option", "section", "plugin", "count", "value", "number", "fact", "nested", "interval",
}  # fmt: skip


@dataclass
class Source:
    """One file of the packages: its place and its syntax tree."""

    path: Path
    tree: ast.Module = field(repr=False)

    @property
    def public(self) -> bool:
        """Whether no part of the path is private."""
        parts = self.path.relative_to(ROOT).with_suffix("").parts
        return not any(part.startswith("_") and part != "__init__" for part in parts)


def read_sources() -> list[Source]:
    """Parse every Python file of the packages."""
    paths = sorted(path for name in PACKAGES for path in (ROOT / name).rglob("*.py"))
    return [Source(path, ast.parse(path.read_text())) for path in paths]


def last_name(node: ast.expr) -> str:
    """The last part of a dotted name, of a call or of a subscript: ``a.b[c]`` is ``b``."""
    if isinstance(node, ast.Call):
        return last_name(node.func)
    if isinstance(node, ast.Subscript):
        return last_name(node.value)
    return getattr(node, "attr", getattr(node, "id", ""))


def find_bases(sources: list[Source]) -> dict[str, list[ast.ClassDef]]:
    """Every class of the packages by its name."""
    classes: dict[str, list[ast.ClassDef]] = {}
    for source in sources:
        for node in ast.walk(source.tree):
            if isinstance(node, ast.ClassDef):
                classes.setdefault(node.name, []).append(node)
    return classes


def overrides(name: str, node: ast.ClassDef, classes: dict[str, list[ast.ClassDef]]) -> bool:
    """Whether a base class of the project documents the method ``name`` of ``node``."""
    for base in node.bases:
        for parent in classes.get(last_name(base), []):
            if parent is node:
                continue
            documented = any(
                isinstance(item, Function) and item.name == name and ast.get_docstring(item)
                for item in parent.body
            )
            if documented or overrides(name, parent, classes):
                return True
    return False


def entries(docstring: str, *titles: str) -> set[str] | None:
    """The names under a section of a Google docstring; None where there is no such section."""
    names: set[str] | None = None
    inside = False
    for line in docstring.splitlines():
        if re.fullmatch(r"[A-Z][a-z]+:", line):
            inside = line[:-1] in titles
            if inside and names is None:
                names = set()
        elif inside and names is not None and (match := re.match(r" {4}(\S[^:]*):(\s|$)", line)):
            names |= set(re.findall(r"\w+", re.sub(r"\(.*?\)", "", match[1])))
    return names


def named_by_types(node: Function) -> set[str]:
    """Arguments that bear the names of their classes: `audit: Audit` needs no more."""
    spec = node.args
    every = (*spec.posonlyargs, *spec.args, *spec.kwonlyargs)
    return {
        one.arg
        for one in every
        if one.annotation is not None
        and last_name(one.annotation).lower() == one.arg.replace("_", "").lower()
    }


def arguments(node: Function, method: bool) -> list[str]:
    """The names of a function's arguments, but for ``self`` and ``cls``."""
    spec = node.args
    static = any(last_name(item) == "staticmethod" for item in node.decorator_list)
    names = [item.arg for item in [*spec.posonlyargs, *spec.args]]
    names = names[1:] if method and not static else names
    names += [item.arg for item in spec.kwonlyargs]
    return names + [item.arg for item in (spec.vararg, spec.kwarg) if item is not None]


def own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function's body, but for those of functions inside it."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (*Function.__args__, ast.ClassDef, ast.Lambda)):
            continue
        yield child
        yield from own_nodes(child)


def returned(node: Function) -> str:
    """The section that says what a function gives back; empty where it gives nothing."""
    if any(isinstance(item, (ast.Yield, ast.YieldFrom)) for item in own_nodes(node)):
        return "Yields"
    hint = node.returns
    nothing = hint is None or (isinstance(hint, ast.Constant) and hint.value is None)
    return "" if nothing or last_name(hint) in {"NoReturn", "Never"} else "Returns"


def raises(node: Function) -> bool:
    """Whether a function's own body raises an error by name."""
    errors = (item.exc for item in own_nodes(node) if isinstance(item, ast.Raise))
    return any(
        error is not None and last_name(error) not in {"", "NotImplementedError"}
        for error in errors
    )


def check_function(node: Function, method: bool) -> Iterator[str]:
    """What the docstring of one function lacks."""
    docstring = ast.get_docstring(node) or ""
    first = node.body[bool(docstring) and len(node.body) > 1]
    if node.body[-1].end_lineno - first.lineno < LONG:
        return
    if not docstring:
        yield "has no docstring"
        return
    names = arguments(node, method)
    if len(names) < 2:
        return
    plain, documented = named_by_types(node), entries(docstring, "Args") or set()
    if missing := [name for name in names if name not in documented | plain]:
        yield f"Args without {', '.join(missing)}"
    elif extra := documented - set(names):
        yield f"Args names {', '.join(sorted(extra))}, which it does not take"
    if (section := returned(node)) and not re.search(rf"^{section}:$", docstring, re.M):
        yield f"has no {section}"
    if raises(node) and not re.search(r"^Raises:$", docstring, re.M):
        yield "has no Raises"


def record_fields(node: ast.ClassDef) -> list[str]:
    """The fields of a dataclass, named tuple or typed dictionary that no help text describes."""
    record = any(last_name(item) == "dataclass" for item in node.decorator_list)
    record |= any(last_name(base) in {"NamedTuple", "TypedDict"} for base in node.bases)
    names = []
    for item in node.body if record else []:
        if not isinstance(item, ast.AnnAssign) or not isinstance(item.target, ast.Name):
            continue
        declared = isinstance(item.value, ast.Call) and last_name(item.value) in DECLARED
        annotated = isinstance(item.annotation, ast.Subscript) and (
            last_name(item.annotation) in {"Annotated", "ClassVar", "InitVar"}
        )
        if not declared and not annotated and not item.target.id.startswith("_"):
            names.append(item.target.id)
    return names


def check_class(node: ast.ClassDef) -> Iterator[str]:
    """What the docstring of one class lacks, its constructor's arguments among it."""
    docstring = ast.get_docstring(node)
    if not docstring:
        yield "has no docstring"
        return
    names = record_fields(node)
    for item in node.body:
        if isinstance(item, Function) and item.name == "__init__":
            names = arguments(item, method=True)
            docstring += "\n\n" + (ast.get_docstring(item) or "")
    if len(names) < 2:
        return
    documented = entries(docstring, "Args", "Attributes")
    if documented is None:
        yield f"has no Args or Attributes: {', '.join(names)}"
    elif missing := [name for name in names if name not in documented]:
        yield f"Args without {', '.join(missing)}"


def check_body(
    body: list[ast.stmt],
    classes: dict[str, list[ast.ClassDef]],
    owner: ast.ClassDef | None = None,
) -> Iterator[tuple[int, str, str]]:
    """Line, name and fault of each public docstring of a module's or a class's body."""
    for node in body:
        if not isinstance(node, (*Function.__args__, ast.ClassDef)) or node.name.startswith("_"):
            continue
        name = f"{owner.name}.{node.name}" if owner else node.name
        if isinstance(node, ast.ClassDef):
            yield from ((node.lineno, name, fault) for fault in check_class(node))
            yield from check_body(node.body, classes, node)
            continue
        exempt = any(last_name(item) in EXEMPT for item in node.decorator_list)
        if exempt or (owner is not None and overrides(node.name, owner, classes)):
            continue
        for fault in check_function(node, method=owner is not None):
            yield node.lineno, name, fault


def check(source: Source, classes: dict[str, list[ast.ClassDef]]) -> Iterator[str]:
    """One line for each fault of a file."""
    place = source.path.relative_to(ROOT)
    docstring = ast.get_docstring(source.tree) or ""
    if not docstring:
        yield f"{place}:1: the module has no docstring"
    for line, name, fault in check_body(source.tree.body, classes):
        yield f"{place}:{line}: {name} {fault}"


def main(arguments: list[str]) -> int:
    """Print the faults of the files asked for, all by default; 1 where there are any."""
    chosen = [Path(argument).resolve() for argument in arguments] or [ROOT]
    sources = read_sources()
    classes = find_bases(sources)
    faults = [
        fault
        for source in sources
        if source.public and any(source.path.is_relative_to(path) for path in chosen)
        for fault in check(source, classes)
    ]
    print("\n".join([*faults, f"{len(faults)} incomplete docstrings"]))
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
