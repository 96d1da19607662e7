"""The command line as tokens: which flag stands for which option, and its text. No values yet."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedmia.errors import InputError, nearest
from fedmia.settings.experiment import Experiment
from fedmia.settings.option import option_fields
from fedmia.settings.values import Text

# Names that users' scripts hold -> path of the option. All other flags are the path itself.
SHORT: Mapping[str, str] = {
    "clients": "federation.clients",
    "rounds": "federation.rounds",
    "dataset": "data.name",
    "data_dir": "data.dir",
    "size": "data.size",
    "mean": "data.mean",
    "std": "data.std",
    "partition": "partition.name",
    "model": "model.name",
    "ssl": "ssl.name",
    "strategy": "strategy.name",
    "pretrain": "pretrain.mode",
    "pretrain_rounds": "pretrain.rounds",
    "defense": "defense.name",
}
# Of the command, not of the experiment: flag -> placeholder of its value and help.
COMMAND: Mapping[str, tuple[str, str]] = {
    "out": ("FOLDER", "folder of the run's results; must not hold another run"),
    "config": ("FILE", "YAML file, a finished run's config.yaml, or the name of a preset"),
    "seeds": ("INT", "runs, with seeds SEED, SEED+1, .., for the spread between models"),
}
SWITCHES: Mapping[str, str] = {
    "quiet": "print no progress",
    "json": "print report.json in place of the table",
    "help": "show this page",
    "version": "show the version",
}


@dataclass
class Flags:
    """What the command line said.

    Attributes:
        tree: the experiment's options, each value a `Text`.
        typed: path of each of them -> the flag as it was typed.
        command: values of `COMMAND` and `SWITCHES` (the latter empty), and of `list`.
    """

    tree: dict[str, Any] = field(default_factory=dict)
    typed: dict[str, str] = field(default_factory=dict)
    command: dict[str, str] = field(default_factory=dict)


def option_paths() -> Iterator[tuple[str, dataclasses.Field[Any], Any]]:
    """(path, field, type) of every option that does not depend on a plugin, in order."""
    kinds = dict((f.name, kind) for f, kind in option_fields(Experiment))
    for one in dataclasses.fields(Experiment):
        if one.name in kinds:
            yield one.name, one, kinds[one.name]
        elif "plugin" in one.metadata:
            yield f"{one.name}.name", one, str
        elif "section" in one.metadata:
            for inner, kind in option_fields(one.metadata["section"]):
                yield f"{one.name}.{inner.name}", inner, kind


def flag_of(path: str) -> str:
    """The shortest flag of an option: `--clients` of `federation.clients`."""
    short = {v: k for k, v in SHORT.items()}.get(path, path)
    return "--" + (short if "." in short else short.replace("_", "-"))


def read(arguments: Sequence[str]) -> Flags:
    """Split the command line into options of the experiment and of the command.

    Raises:
        InputError: an unknown flag (with the nearest), one given twice, a value missing or too
            many.
    """
    found = Flags()
    waiting = list(arguments)
    while waiting:
        token = waiting.pop(0)
        if token == "-h":
            token = "--help"
        if not token.startswith("--") or token == "--":
            raise InputError(f"unexpected argument '{token}' (options begin with --; see --help)")
        name, equals, text = token[2:].partition("=")
        key = name.replace("-", "_")
        if key == "list":
            given = not equals and waiting and not waiting[0].startswith("-")
            text = waiting.pop(0) if given else text
        elif key in SWITCHES:
            if equals:
                raise InputError(f"--{name} takes no value, got '{text}'")
        elif not equals:
            _path(name)  # an unknown flag is named before the value that it seems to lack
            if not waiting or waiting[0].startswith("--"):
                raise InputError(f"--{name} needs a value")
            text = waiting.pop(0)
        _put(found, name, text)
    return found


def _put(found: Flags, name: str, text: str) -> None:
    path = _path(name)
    if len(path) == 1 and (path[0] in COMMAND or path[0] in SWITCHES or path[0] == "list"):
        if path[0] in found.command:
            raise InputError(f"--{name} is given twice")
        found.command[path[0]] = text
        return
    dotted = ".".join(path)
    if dotted in found.typed:
        before = found.typed[dotted]
        raise InputError(
            f"--{name} is given twice" if before == f"--{name}" else
            f"{before} and --{name} are the same option"
        )  # fmt: skip
    found.typed[dotted] = f"--{name}"
    branch = found.tree
    for part in path[:-1]:
        branch = branch.setdefault(part, {})
    branch[path[-1]] = Text(text)


def _path(name: str) -> tuple[str, ...]:
    """Where a flag's value goes: `partition.alpha` -> ("partition", "alpha")."""
    key = name.replace("-", "_")
    if key in COMMAND or key in SWITCHES or key == "list":
        return (key,)
    if name.startswith("attack.") and name.count(".") > 1:
        # The plugin's name keeps its dashes, and may hold dots: package.module:Class.
        plugin, _, last = name.removeprefix("attack.").rpartition(".")
        return ("attack", plugin, last.replace("-", "_"))
    path = SHORT.get(key, key)
    fixed = {p for p, _, _ in option_paths()}
    if path in fixed:
        return tuple(path.split("."))
    head, _, rest = path.partition(".")
    open_ended = {f.name for f in dataclasses.fields(Experiment) if "plugin" in f.metadata}
    if rest and "." not in rest and head in open_ended | {"data"}:
        return (head, rest)
    known = [flag_of(p) for p in fixed] + [f"--{k}" for k in (*COMMAND, *SWITCHES, "list")]
    hint = nearest(f"--{name}", [*known, *(f"--{p}" for p in fixed)])
    raise InputError(f"unknown flag '--{name}'{hint} (--help shows them all)")
