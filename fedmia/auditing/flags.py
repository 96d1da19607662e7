"""The audit's command line, and the YAML of a finished audit, as its options."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from fedmia import registry
from fedmia.errors import InputError, nearest, unknown
from fedmia.settings.audit import Audit
from fedmia.settings.experiment import dataset_and_path
from fedmia.settings.option import option_fields
from fedmia.settings.values import Text, convert
from fedmia.shadows.plan import Plan
from fedmia.ssl.augment import Augment

# Open-ended groups of options: prefix of the flag -> key of the tree.
GROUPS: Mapping[str, str] = {
    "attack": "attack",
    "members": "members_options",
    "nonmembers": "nonmembers_options",
    "shadow_data": "shadow_data_options",
    "shadow": "shadow",
    "augment": "augment",
}
SWITCHES = {
    "quiet": "print no progress",
    "json": "print report.json in place of the table",
    "list": "show the attacks with their options",
    "help": "show this page",
    "version": "show the version",
}


@dataclass(frozen=True)
class Asked:
    """What the command line asked for: an audit, or only a page."""

    audit: Audit | None
    out: Path | None = None
    quiet: bool = False
    json: bool = False
    page: str | None = None


def parse(argv: Sequence[str]) -> Asked:
    """What the arguments (without the program's name) ask for.

    Raises:
        InputError: anything wrong in them, or in the file of `--config`.
    """
    tree: dict[str, Any] = {}
    command: dict[str, str] = {}
    for path, text in _tokens(list(argv)):
        if path[0] in SWITCHES or path[0] in ("out", "config"):
            if path[0] in command:
                raise InputError(f"--{path[0]} is given twice")
            command[path[0]] = text
            continue
        where = tree
        for part in path[:-1]:
            where = where.setdefault(part, {})
        if path[-1] in where:
            raise InputError(f"--{'.'.join(path)} is given twice")
        where[path[-1]] = Text(text)
    for page in ("help", "list", "version"):
        if page in command:
            return Asked(None, page=page)
    if "config" in command:
        tree = _over(_read(command["config"]), tree)
    out = command.get("out")
    if out == "":
        raise InputError("--out needs a folder, got ''")
    return Asked(
        from_tree(tree), None if out is None else Path(out), "quiet" in command, "json" in command
    )


def from_tree(tree: Mapping[str, Any]) -> Audit:
    """The audit that a tree of flags or YAML tells.

    Raises:
        InputError: an unknown key (with the nearest), a wrong type, a value out of range.
    """
    kinds = {f.name: kind for f, kind in option_fields(Audit)}
    values: dict[str, Any] = {}
    groups: dict[str, Any] = {}
    for key, value in tree.items():
        if key in GROUPS.values():
            groups[key] = _group(key, _mapping(key, value), tree)
        elif key in kinds:
            values[key] = convert(f"--{key.replace('_', '-')}", value, kinds[key])
        else:
            raise unknown("option of an audit", str(key), kinds)
    return _built("--", Audit, values | {"options": groups})


def _group(key: str, values: Mapping[str, Any], tree: Mapping[str, Any]) -> dict[str, Any]:
    if key == "attack":
        return {
            name: _typed(
                f"attack.{name}", registry.load("attack", name), _mapping(f"attack.{name}", own)
            )
            for name, own in values.items()
        }
    if key == "shadow":
        return _typed("shadow", Plan, values)
    if key == "augment":
        return _typed("augment", Augment, values)
    flag = key.removesuffix("_options")
    spec = tree.get(flag)
    if spec is None:
        raise InputError(f"--{flag}.OPTION needs --{flag} DATASET")
    return _typed(flag, registry.load("dataset", dataset_and_path(str(spec))[0]), values)


def _mapping(where: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise InputError(f"{where} must be a mapping of options, got {value!r}")
    return {str(name): own for name, own in value.items()}


def _typed(where: str, cls: type, values: Mapping[str, Any]) -> dict[str, Any]:
    kinds = {f.name: kind for f, kind in option_fields(cls)}
    for name in values:
        if name not in kinds:
            raise unknown(f"option --{where}.{name}", name, kinds)
    found = {n: convert(f"--{where}.{n}", v, kinds[n]) for n, v in values.items()}
    _built(f"--{where}.", cls, found)
    return found


def _built(flags: str, cls: type, values: Mapping[str, Any]) -> Any:
    """An instance of `cls`; what it refuses is called by its flag."""
    try:
        return cls(**values)
    except InputError as error:
        before, dot, rest = str(error).partition(f"{cls.__name__}.")
        if not dot:
            raise
        option, space, after = rest.partition(" ")
        flag = option.replace("_", "-") if cls is Audit else option
        raise InputError(f"{before}{flags}{flag}{space}{after}") from None


def _tokens(waiting: list[str]) -> Iterator[tuple[tuple[str, ...], str]]:
    """(path, text) of every flag."""
    fixed = {f.name for f, _ in option_fields(Audit)} | {"out", "config"}
    while waiting:
        token = waiting.pop(0)
        token = "--help" if token == "-h" else token
        if not token.startswith("--") or token == "--":
            raise InputError(f"unexpected argument '{token}' (options begin with --; see --help)")
        name, equals, text = token[2:].partition("=")
        key = name.replace("-", "_")
        head, dot, rest = name.partition(".")
        head = head.replace("-", "_")
        if key in SWITCHES:
            if equals:
                raise InputError(f"--{name} takes no value, got '{text}'")
            yield (key,), ""
            continue
        if key in fixed:
            path: tuple[str, ...] = (key,)
        elif dot and head == "attack" and "." in rest:
            plugin, _, last = rest.rpartition(".")
            path = ("attack", plugin, last.replace("-", "_"))
        elif dot and rest and head in GROUPS and head != "attack":
            path = (GROUPS[head], rest.replace("-", "_"))
        else:
            known = [f"--{k.replace('_', '-')}" for k in (*fixed, *SWITCHES)]
            hint = nearest(f"--{name}", known)
            raise InputError(f"unknown flag '--{name}'{hint} (--help shows them all)")
        if not equals:
            if not waiting or waiting[0].startswith("--"):
                raise InputError(f"--{name} needs a value")
            text = waiting.pop(0)
        yield path, text


def _read(name: str) -> dict[str, Any]:
    try:
        tree = yaml.safe_load(Path(name).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"--config '{name}' cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        first = " ".join(str(error).split())
        raise InputError(f"--config '{name}' is no YAML: {first}") from None
    if not isinstance(tree, dict):
        raise InputError(f"--config '{name}' holds no mapping of options")
    return {k: v for k, v in tree.items() if k != "_run"}


def _over(lower: dict[str, Any], upper: dict[str, Any]) -> dict[str, Any]:
    merged = dict(lower)
    for key, value in upper.items():
        below = merged.get(key)
        both = isinstance(value, dict) and isinstance(below, dict)
        merged[key] = _over(below, value) if both else value  # type: ignore[arg-type]
    return merged
