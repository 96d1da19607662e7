"""Plant random mutants and say which the tests find: python scripts/mutants.py [--only NAME].

tests/mutants.json holds eighty lines of the packages, drawn once at random, with one change each.
Every commit plants the same ones where their line still stands once, in its file or in the one that
it moved to; the others are counted as gone.

A mutant meets the default tests that import its module, the nearest first: a test that imports the
module itself, then one that imports a module that imports it, then one that imports anything of its
package. scripts/plant.py runs them.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

from plant import ROOT, Bug, parse_arguments, plant_bugs, read_bugs

MUTANTS = ROOT / "tests" / "mutants.json"
OWN = ("fedmia", "clients", "strategies", "papers")  # what product code may move to, too
MOST_FILES = 8  # of tests for one mutant
SEARCHED = ("*.py", ":!tests", ":!docs")  # where a line may have moved to
LIMIT = 120.0  # seconds for one mutant


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
    """Plant the mutants whose line still stands."""
    arguments = parse_arguments(__doc__.splitlines()[0], LIMIT)
    mutants = read_bugs(MUTANTS)
    places = {bug.name: place_mutant(bug, arguments.at) for bug in mutants}
    gone = [name for name, place in places.items() if place is None]
    print(f"{len(gone)} of {len(mutants)} lines are gone: {', '.join(gone) or 'none'}", flush=True)
    return plant_bugs([place for place in places.values() if place is not None], arguments)


if __name__ == "__main__":
    sys.exit(main())
