"""Measures of how the project is built: `python tools/structure.py [ROOT] [--most FILE]`.

- **Commits that add something**: files of PRODUCT that nine in ten of them touch at most, and how
  many touch ten or more. These are the last WINDOW commits, merges left out, that add at least
  GROWTH more lines to PRODUCT than they remove. It needs the whole history: not in a shallow clone.
- **carriers**: dataclasses (by decorator), TypedDicts and NamedTuples (by base) of PRODUCT that
  declare no `option(..)` of their own.
- **private imports**: statements in PACKAGES that import a module of ours with a part `_name` from
  outside of the very package in which `_name` lies; its subpackages are outside.
- **modules under test**: modules of PACKAGES that are no LEAVES and that an import statement in
  `tests` names, in a function or not; `__init__` is one where a name is taken from the package.
- **lines of code** hold a token that is neither a comment nor part of a docstring.

With `--most` it fails where a measure is greater than FILE allows. FILE also lists the types that
hold one AUC, or one image, in turn: a reader has to name them, as their fields do not tell. Their
number is printed and not held; a name that is no class of PRODUCT fails.
"""

from __future__ import annotations

import argparse
import ast
import io
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

import yaml

PRODUCT = ("fedmia", "clients", "strategies")
PACKAGES = (*PRODUCT, "research/papers")
LEAVES = frozenset(
    ("attacks", "ssl", "nets", "data", "partitions", "defenses", "statistics", "threat", "shadows")
    + ("lowerbounds", "probes", "observers", "encoders", "strategies", "clients", "protocols")
)
WINDOW, GROWTH = 100, 10  # commits; lines
SILENT = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
    tokenize.ENCODING, tokenize.ENDMARKER,
}  # fmt: skip
Trees = dict[Path, ast.Module]  # by the path below the root


def read_trees(root: Path, *folders: str) -> Trees:
    """The syntax tree of every Python file in `folders` of `root`."""
    return {
        path.relative_to(root): ast.parse(path.read_bytes())
        for folder in folders
        for path in sorted((root / folder).rglob("*.py"))
    }


def touched(log: str) -> list[int]:
    """Files that each of the last WINDOW commits touches that add something, the newest first.

    Args:
        log: of `git log --format=tformat:@ --numstat`.
    """
    commits = [
        [line.split("\t") for line in commit.splitlines() if line] for commit in log.split("@\n")
    ]
    return [
        len(files)
        for files in commits
        if sum(int(plus) - int(minus) for plus, minus, _ in files if plus != "-") >= GROWTH
    ][:WINDOW]


def read_log(root: Path) -> str:
    """What `touched` reads; empty outside of a whole clone."""
    git = ["git", "-C", str(root)]
    try:
        shallow = [*git, "rev-parse", "--is-shallow-repository"]
        if subprocess.run(shallow, capture_output=True, text=True).stdout.strip() != "false":
            return ""
    except FileNotFoundError:  # no git
        return ""
    log = [*git, "log", "--no-merges", "--format=tformat:@", "--numstat", "--", *PRODUCT]
    return subprocess.check_output(log, text=True)


def last_name(node: ast.expr) -> str:
    """`dataclass` of `dataclasses.dataclass(frozen=True)`."""
    node = node.func if isinstance(node, ast.Call) else node
    return getattr(node, "attr", getattr(node, "id", ""))


def is_carrier(node: ast.AST) -> bool:
    """Whether a node declares a class that carries values, and none of them an option."""
    if not isinstance(node, ast.ClassDef):
        return False
    if not (
        "dataclass" in map(last_name, node.decorator_list)
        or {"TypedDict", "NamedTuple"} & set(map(last_name, node.bases))
    ):
        return False
    fields = (field.value for field in node.body if isinstance(field, ast.AnnAssign))
    return not any(isinstance(field, ast.Call) and last_name(field) == "option" for field in fields)


def class_names(trees: Trees) -> set[str]:
    """The classes of all modules, as `fedmia.table.Row`."""
    return {
        f"{module}.{node.name}"
        for module, path in module_names(trees).items()
        for node in trees[path].body
        if isinstance(node, ast.ClassDef)
    }


def module_names(trees: Trees) -> dict[str, Path]:
    """The path of each module by its dotted name."""
    return {".".join(path.with_suffix("").parts).removesuffix(".__init__"): path for path in trees}


def imported(tree: ast.Module, names: dict[str, Path]) -> Iterator[set[str]]:
    """Modules among `names` that each import statement of `tree` names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield {alias.name for alias in node.names} & names.keys()
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            full = {f"{base}.{alias.name}" for alias in node.names}
            yield {name if name in names else base for name in full} & names.keys()


def is_foreign(path: Path, name: str) -> bool:
    """Whether module `name` is private to a package in which `path` does not lie."""
    parts = name.split(".")
    private = [i for i, part in enumerate(parts) if part[:1] == "_" and part[:2] != "__"]
    if not private:
        return False
    home, here = tuple(parts[: private[0]]), path.parent.parts
    inside = here[: len(home)] == home and here[len(home) :][:1] == (parts[private[0]],)
    return here != home and not inside


def is_leaf(path: Path) -> bool:
    """Whether a file lies in one of LEAVES."""
    return not LEAVES.isdisjoint(path.parts[1:-1][:1] if path.parts[0] == "fedmia" else path.parts)


def code_lines(source: str) -> int:
    """How many lines of Python hold code."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in SILENT:
            lines.update(range(token.start[0], token.end[0] + 1))
    owners = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, owners) and ast.get_docstring(node, clean=False) is not None:
            lines.difference_update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return len(lines)


def measure(ours: Trees, tests: Trees) -> dict[str, int]:
    """The measures of a tree that FILE may hold.

    Args:
        ours: files of PACKAGES.
        tests: those of `tests`.
    """
    names = module_names(ours)
    product = [tree for path, tree in ours.items() if path.parts[0] in PRODUCT]
    reached = set().union(*(name for tree in tests.values() for name in imported(tree, names)))
    return {
        "carriers": sum(is_carrier(node) for tree in product for node in ast.walk(tree)),
        "private imports": sum(
            any(is_foreign(path, name) for name in statement)
            for path, tree in ours.items()
            for statement in imported(tree, names)
        ),
        "modules under test": sum(not is_leaf(names[name]) for name in reached),
    }


def main() -> int:
    """Print a line a measure; 1 where one is over its most."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("root", nargs="?", type=Path, default=Path(__file__).resolve().parents[1])
    parser.add_argument("--most", type=Path, help="YAML file of the greatest numbers")
    arguments = parser.parse_args()
    root = arguments.root
    if counts := sorted(touched(read_log(root))):
        most, wide = counts[-(-9 * len(counts) // 10) - 1], sum(count >= 10 for count in counts)
        print(f"of {len(counts)} commits that add something: ", end="")
        print(f"nine in ten touch {most} files at most; {wide / len(counts):.0%} touch ten or more")
    else:
        print("no whole clone: what commits touch is not measured")
    ours = read_trees(root, *PACKAGES)
    values = measure(ours, read_trees(root, "tests"))
    inner = sum(not is_leaf(path) for path in ours)
    for name, value in values.items():
        of = f" of {inner}, {len(ours)} with the leaves" if name == "modules under test" else ""
        print(f"{name}: {value}{of}")
    for folders in (PRODUCT, ("research/papers",), ("tests",)):
        files = (path for folder in folders for path in (root / folder).rglob("*.py"))
        lines = sum(code_lines(path.read_text(encoding="utf-8")) for path in files)
        print(f"lines of code, {', '.join(folders)}: {lines}")
    if arguments.most is None:
        return 0
    limits = yaml.safe_load(arguments.most.read_text(encoding="utf-8"))
    wrong = [
        f"{name}: {value}, at most {limits[name]}"
        for name, value in values.items()
        if value > limits[name]
    ]
    product = class_names({path: tree for path, tree in ours.items() if path.parts[0] in PRODUCT})
    for name, types in limits.get("types", {}).items():
        print(f"types that hold {name}: {len(types)}")
        wrong += [f"{name}: no class {one}" for one in types if one not in product]
    for line in wrong:
        print(f"{arguments.most}: {line}")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
