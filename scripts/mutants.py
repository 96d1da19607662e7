"""Plant random mutants and say which the tests find: python scripts/mutants.py [--only NAME].

`--draw` writes tests/mutants.json: COUNT lines of the packages, drawn by SEED, with one change
each. Every later commit plants the same ones where their line still stands once, in its file or in
the one that it moved to; the others are counted as gone.

A mutant meets the default tests that import its module, the nearest first: a test that imports the
module itself, then one that imports a module that imports it, then one that imports anything of its
package. scripts/plant.py runs them.
"""

from __future__ import annotations

import ast
import json
import random
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

from plant import ROOT, Bug, parse_arguments, plant_bugs, read_bugs

MUTANTS = ROOT / "tests" / "mutants.json"
PACKAGES = ("fedmia", "clients", "strategies")
OWN = (*PACKAGES, "papers")  # what product code may move to, too
SEED, COUNT = 42, 80
MOST_FILES = 8  # of tests for one mutant
SEARCHED = ("*.py", ":!tests", ":!docs")  # where a line may have moved to
LIMIT = 120.0  # seconds for one mutant

# What an operator becomes, by the text of it that stands in the source.
FLIPPED = {
    "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "is": "is not",
    "is not": "is", "in": "not in", "not in": "in", "and": "or", "or": "and", "+": "-", "-": "+",
    "*": "/", "/": "*", "//": "*", "%": "*", "**": "*", "&": "|",
}  # fmt: skip
# Calls whose arguments are messages.
SPEAKING = {"print", "warn", "warning", "info", "write"}
Edit = tuple[str, int, int, int, str]  # what, line, first column, last column, new text


def name_of(node: ast.AST) -> str:
    """Name of a function as it is called: `b` of `a.b`."""
    return getattr(node, "attr", "") or getattr(node, "id", "")


def list_children(node: ast.AST) -> Iterator[ast.AST]:
    """List the parts of a node that may be mutated: no import, annotation, text or message."""
    speaks = isinstance(node, ast.Call) and (
        name_of(node.func) in SPEAKING or name_of(node.func).endswith(("Error", "Warning"))
    )
    if speaks or isinstance(node, ast.Import | ast.ImportFrom | ast.JoinedStr):
        return
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "msg"):
            continue
        children = value if isinstance(value, list) else [value]
        yield from (child for child in children if isinstance(child, ast.AST))


def gap(lines: list[bytes], before: ast.AST, after: ast.AST, what: str) -> Iterator[Edit]:
    """Flip the operator that stands between two nodes of one line."""
    if before.end_lineno != after.lineno:
        return
    text = lines[after.lineno - 1][before.end_col_offset : after.col_offset].decode()
    sign = text.strip(" ()")
    if sign in FLIPPED:
        start = before.end_col_offset + text.index(sign)
        yield what, after.lineno, start, start + len(sign), FLIPPED[sign]


def mutate_node(node: ast.AST, lines: list[bytes]) -> Iterator[Edit]:
    """List the changes of one node, without those of its children."""
    line, start = getattr(node, "lineno", 0), getattr(node, "col_offset", 0)
    end = getattr(node, "end_col_offset", 0)
    match node:
        case ast.Compare():
            for before, after in zip(
                [node.left, *node.comparators], node.comparators, strict=False
            ):
                yield from gap(lines, before, after, "comparison")
        case ast.BoolOp():
            yield from gap(lines, *node.values[:2], "and/or")
        case ast.BinOp() if not any(is_text(side) for side in (node.left, node.right)):
            yield from gap(lines, node.left, node.right, "arithmetic")
        case ast.Constant(value=bool()):
            yield "constant", line, start, end, str(not node.value)
        case ast.Constant(value=int() | float()):
            yield "constant", line, start, end, repr(node.value + 1)
        case ast.UnaryOp(op=ast.Not()):
            yield "no not", line, start, node.operand.col_offset, ""
        case ast.Call() if node.end_lineno == line:
            parts = [*node.args, *node.keywords]
            if len(node.args) > 1 and may_swap(node):
                first, second = node.args[:2]
                text = lines[line - 1].decode()
                old = text[first.col_offset : first.end_col_offset]
                between = text[first.end_col_offset : second.col_offset]
                new = text[second.col_offset : second.end_col_offset] + between + old
                yield "swapped arguments", line, first.col_offset, second.end_col_offset, new
            for before, keyword in zip(parts, parts[1:], strict=False):
                if isinstance(keyword, ast.keyword) and keyword.arg:
                    last = keyword.end_col_offset
                    yield "dropped keyword", line, before.end_col_offset, last, ""


def may_swap(call: ast.Call) -> bool:
    """Whether a call with swapped arguments is another one, and not broken for certain."""
    simple = (ast.Constant, ast.Starred, ast.Lambda)
    known = name_of(call.func) in (
        "isinstance",
        "issubclass",
        "min",
        "max",
        "map",
        "filter",
        "killpg",
    )
    return not known and not any(isinstance(one, simple) for one in call.args[:2])


def is_text(node: ast.AST) -> bool:
    """Whether a node is a literal text, or a sum with one."""
    inner = (node.left, node.right) if isinstance(node, ast.BinOp) else ()
    literal = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return literal or isinstance(node, ast.JoinedStr) or any(map(is_text, inner))


def is_alias(node: ast.AST) -> bool:
    """Whether a statement names a type: `Spelling = Callable[[str], str]`, `A = B | None`."""
    value = node.value if isinstance(node, ast.Assign) else None
    return isinstance(value, ast.Subscript | ast.BinOp) and name_of(node.targets[0])[:1].isupper()


def list_edits(node: ast.AST, lines: list[bytes]) -> Iterator[Edit]:
    """List the changes of a node and all that is in it."""
    yield from mutate_node(node, lines)
    for child in list_children(node):
        if not is_alias(child):
            yield from list_edits(child, lines)


def mutate_line(source: str, number: int, edits: list[Edit], draw: random.Random) -> list[str]:
    """Change one line of a source by one of the edits that leave it another program.

    Args:
        source: Of the whole file.
        number: Of the line.
        edits: Its possible changes.
        draw: Chooses among them.

    Returns:
        What was changed, the line, the mutated line; empty where no edit will do.
    """
    lines = source.split("\n")
    line = lines[number - 1]
    if source.count(line) != 1:  # a later version could not say which of them it was
        return []
    for what, _, start, end, new in draw.sample(edits, len(edits)):
        lines[number - 1] = (line.encode()[:start] + new.encode() + line.encode()[end:]).decode()
        try:
            if ast.dump(ast.parse("\n".join(lines))) != ast.dump(ast.parse(source)):
                compile("\n".join(lines), "mutant", "exec")
                return [what, line, lines[number - 1]]
        except SyntaxError:
            continue
    return []


def draw_mutants() -> list[dict[str, str]]:
    """Draw the lines, and one change of each."""
    draw, places = random.Random(SEED), dict[tuple[str, int], list[Edit]]()
    for file in sorted(file for package in PACKAGES for file in (ROOT / package).rglob("*.py")):
        source = file.read_text(encoding="utf-8")
        for edit in list_edits(ast.parse(source), source.encode().split(b"\n")):
            places.setdefault((file.relative_to(ROOT).as_posix(), edit[1]), []).append(edit)
    mutants = []
    for file, number in draw.sample(sorted(places), len(places)):
        source = (ROOT / file).read_text(encoding="utf-8")
        if change := mutate_line(source, number, places[file, number], draw):
            what, line, planted = change
            name = f"{file}:{number} {what}"
            mutants.append({"name": name, "file": file, "line": line, "planted": planted})
        if len(mutants) == COUNT:
            break
    return mutants


@cache
def imported_modules(file: Path) -> frozenset[str]:
    """Names of what a file imports from the packages, modules and names in them alike."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return frozenset(name for name in names if name.partition(".")[0] in OWN)


def module_of(file: Path) -> str:
    """Dotted name of a module, `a.b` of a/b/__init__.py."""
    return ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def find_tests(mutated: str) -> str:
    """Paths of the tests that import a file of the packages, the nearest first."""
    module = module_of(ROOT / mutated)
    package = module.rpartition(".")[0] or module
    users = {
        module_of(file)
        for folder in OWN
        for file in (ROOT / folder).rglob("*.py")
        if module in imported_modules(file)
    }
    ranked = []
    for test in sorted((ROOT / "tests").rglob("test_*.py")):
        names = imported_modules(test)
        of_package = any(f"{name}.".startswith(f"{package}.") for name in names)
        ways = (module in names, bool(users & names), of_package)
        if any(ways):
            alike = module.rpartition(".")[2].strip("_") in test.stem
            ranked.append((ways.index(True), not alike, len(names), test.relative_to(ROOT)))
    return " ".join(test.as_posix() for *_, test in sorted(ranked)[:MOST_FILES])


def place_mutant(bug: Bug, commit: str) -> Bug | None:
    """Find the line of a mutant in its file, else in the one file that it moved to.

    Args:
        bug: Mutant as it was drawn.
        commit: In which it is sought.

    Returns:
        The mutant where it may be planted, with its tests; None where its line is gone.
    """
    git = ["git", "-C", str(ROOT), "grep", "-c", "-F", "-e", bug.line, commit, "--", *SEARCHED]
    printed = subprocess.run(git, capture_output=True, text=True).stdout
    counts = dict(row.removeprefix(f"{commit}:").rsplit(":", 1) for row in printed.splitlines())
    file = bug.file if bug.file in counts else next(iter(counts), "")
    if counts.get(file) != "1" or (file != bug.file and len(counts) > 1):
        return None
    tests = find_tests(file)
    return replace(bug, file=file, tests=(tests,) if tests else (), golden=not tests)


def main() -> int:
    """Draw the mutants, or plant those whose line still stands."""
    if sys.argv[1:] == ["--draw"]:
        MUTANTS.write_text(json.dumps(draw_mutants(), indent=1) + "\n", encoding="utf-8")
        return 0
    arguments = parse_arguments(__doc__.splitlines()[0], LIMIT)
    mutants = read_bugs(MUTANTS)
    places = {bug.name: place_mutant(bug, arguments.at) for bug in mutants}
    gone = [name for name, place in places.items() if place is None]
    print(f"{len(gone)} of {len(mutants)} lines are gone: {', '.join(gone) or 'none'}", flush=True)
    return plant_bugs([place for place in places.values() if place is not None], arguments)


if __name__ == "__main__":
    sys.exit(main())
