"""Read and write YAML files of settings; what is written reads back the same."""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml
from yaml.composer import Composer
from yaml.constructor import SafeConstructor
from yaml.resolver import Resolver

from fedmia.settings.errors import InputError, prefix_errors
from fedmia.settings.options import type_name
from fedmia.settings.values import plain

Tree = dict[str, Any]
MOST = 1 << 20  # bytes of a file of settings: PyYAML takes seconds for more
DEPTH = 50  # of values in one another
NODES = 100_000  # values in it, where each alias counts as what it stands for
RUN_KEY = "_run"  # where and with what a finished run took place; written for the reader only


def load(path: Path) -> Tree:
    """The mapping that a YAML file holds, without its `_run`.

    Raises:
        InputError: as `load_all`.
    """
    return {k: v for k, v in load_all(path).items() if k != RUN_KEY}


def load_all(path: Path) -> Tree:
    """The mapping that a YAML file holds, with its `_run`.

    Raises:
        InputError: missing, unreadable, not YAML, not a mapping, a key written twice, or larger
            than settings are.
    """
    with prefix_errors(str(path)):
        try:
            if (size := path.stat().st_size) > MOST:
                raise InputError(f"holds {size:,} bytes; settings have at most {MOST:,}")
            tree = _parse(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
            raise InputError(f"cannot read the file: {reason}") from None
        except InputError:
            raise
        except (yaml.YAMLError, ValueError, RecursionError, LookupError, AttributeError) as error:
            raise InputError(f"not valid YAML: {_reason(error)}") from None
        if not isinstance(tree, dict):
            holds = "nothing" if tree is None else type_name(type(tree))
            raise InputError(f"must hold a mapping of options, holds {holds}")
        return tree


def dump(tree: Mapping[str, Any], run: Mapping[str, Any] | None = None) -> str:
    """Write a tree as YAML.

    Args:
        tree: nested mappings, lists and scalars.
        run: facts about the run, kept under `_run`; None: none.

    Returns:
        The text of the file.
    """
    whole = dict(tree) if run is None else {**tree, RUN_KEY: plain(dict(run))}
    # All but ASCII is escaped: PyYAML reads some line breaks that it writes as they are otherwise.
    return yaml.safe_dump(whole, sort_keys=False, width=96)


def _parse(text: str) -> Any:
    """What YAML says. libyaml takes a fifth of the time, and PyYAML names what is wrong better."""
    if yaml.__with_libyaml__:
        with suppress(yaml.YAMLError):
            return yaml.load(text, Loader=_FastLoader)
    return yaml.load(text, Loader=_Loader)


class _Checks(Composer, SafeConstructor, Resolver):
    """Of a safe loader: `1e-3` is a number, keys are text, and no key stands twice."""

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """A value and all in it; refused at `DEPTH`, as PyYAML's time is the square of it."""
        self.depth += 1
        if self.depth > DEPTH:
            raise yaml.MarkedYAMLError(
                problem=f"nested more than {DEPTH} deep", problem_mark=self.peek_event().start_mark
            )
        node: yaml.Node | None = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def get_single_node(self) -> yaml.Node | None:
        """The document, where aliases do not make it larger than `NODES`, or part of itself."""
        node: yaml.Node | None = super().get_single_node()
        sizes: dict[int, int] = {}

        def size(one: yaml.Node) -> int:
            if id(one) not in sizes:
                sizes[id(one)] = NODES  # what it is as long as it is being counted
                inner = one.value if isinstance(one, yaml.CollectionNode) else ()
                parts = [p for pair in inner for p in (pair if isinstance(pair, tuple) else [pair])]
                sizes[id(one)] = 1 + sum(map(size, parts))
            if sizes[id(one)] >= NODES:
                problem = f"more than {NODES:,} values, as aliases repeat them"
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=one.start_mark)
            return sizes[id(one)]

        if node is not None:
            size(node)
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        keys: set[str] = set()
        for key_node, _ in node.value:
            key = key_node.value
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            if not isinstance(key, str) or key_node.tag != "tag:yaml.org,2002:str":
                raise yaml.MarkedYAMLError(
                    problem=f"key {key!r} is not a name", problem_mark=key_node.start_mark
                )
            if key in keys:
                raise yaml.MarkedYAMLError(
                    problem=f"key '{key}' is written twice", problem_mark=key_node.start_mark
                )
            keys.add(key)
        return super().construct_mapping(node, deep)


# PyYAML follows YAML 1.1, in which 1e-3 is text.
_Checks.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)[eE][-+]?[0-9]+\Z"),
    list("-+.0123456789"),
)


class _Loader(_Checks, yaml.SafeLoader):
    pass


if yaml.__with_libyaml__:

    class _FastLoader(_Checks, yaml.CSafeLoader):
        def __init__(self, stream: str) -> None:
            yaml.CSafeLoader.__init__(self, stream)
            Composer.__init__(self)


def _reason(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error) or "nested too deeply"
    if "'\\t'" in problem:
        problem = "a tab, where YAML takes spaces alone"
    return f"{problem} (line {mark.line + 1})" if mark else problem
