"""What an audit is asked: options, as flags and as the YAML of a finished audit."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from fedmia import registry
from fedmia.attacks.base import ActiveAttack
from fedmia.config import dataset_and_path
from fedmia.errors import InputError, nearest, unknown
from fedmia.options import Options, option, option_fields
from fedmia.shadows.plan import Plan
from fedmia.ssl.augment import Augment
from fedmia.values import Text, convert, plain

Values = Mapping[str, Any]
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
class Audit(Options):
    """One audit. `options` holds the open-ended groups, by the values of GROUPS: name -> value
    (for `attack`: attack -> name -> value).

    Raises:
        InputError: on construction, for an unknown attack or option or a value out of range.
    """

    encoder: str = option(
        "", "RUN[@round], FILE.pt2, FILE.onnx, timm:NAME, torchvision:NAME or pkg.mod:factory"
    )
    checkpoint: str | None = option(None, "weights for timm:, torchvision: or a factory")
    members: str | None = option(
        None, "dataset of images that the encoder was trained on (none: a fedmia run's own)"
    )
    nonmembers: str | None = option(
        None, "dataset of images that it was not trained on (none: a fedmia run's own)"
    )
    data_dir: str | None = option(None, "folder of the data sources' files")
    known: int | None = option(
        None, "members, and as many non-members, that the attacker knows (none: a quarter, to 500)",
        ge=2,
    )  # fmt: skip
    limit: int | None = option(None, "most images scored a side (none: all that remain)", ge=2)
    size: int | None = option(None, "pixels a side to resize to (none: the encoder's)", ge=2)
    mean: tuple[float, ...] | None = option(
        None, "mean of each channel, in [0, 1] (none: the encoder's)", ge=0, le=1
    )
    std: tuple[float, ...] | None = option(
        None, "standard deviation of each channel (none: the encoder's)", gt=0
    )
    attacks: tuple[str, ...] = option(("all",), "attacks to run, or all")
    query_budget: int | None = option(
        None, "most images that one attack may embed; it knows fewer images to keep it", ge=1
    )
    sweep: str | None = option(
        None, "known=25,50,.. or query_budget=1000,2000,..: every attack at each value"
    )
    shadows: int = option(0, "shadow encoders that the attacker trains", ge=0)
    shadow_data: str | None = option(
        None, "dataset of the shadows' images (none: half of the non-members that remain)"
    )
    shadow_encoders: str | None = option(None, "folder of shadow encoders trained before")
    cache: str | None = option(None, "folder that keeps trained shadows (none: OUT/shadows)")
    seed: int = option(0, "root of all randomness", ge=0)
    device: str = option("auto", "auto, cpu, cuda or cuda:N")
    threads: int = option(0, "CPU threads (0: all cores); sums depend on it", ge=0)
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not re.fullmatch(r"auto|cpu|cuda(:[0-9]+)?", self.device):
            raise InputError(f"--device must be auto, cpu, cuda or cuda:N, got '{self.device}'")
        if not self.encoder:
            raise InputError("--encoder is missing: " + self._help("encoder"))
        if (self.members is None) != (self.nonmembers is None):
            given, other = ("members", "nonmembers")[:: 1 if self.members else -1]
            raise InputError(f"--{given} is given without --{other}; an audit needs both")
        if self.shadows and self.shadow_encoders:
            raise InputError("--shadows trains encoders, --shadow-encoders reads them: give one")
        names = expand(self.attacks)
        for name in self.options.get("attack", {}):
            if name not in names:
                raise InputError(f"options for attack '{name}', which is not run")
        object.__setattr__(self, "attacks", names)
        for name in names:
            registry.build("attack", name, self.options.get("attack", {}).get(name, {}))
        self.plan()

    def _help(self, name: str) -> str:
        return next(f.metadata["help"] for f, _ in option_fields(type(self)) if f.name == name)

    def plan(self) -> Plan:
        """How the shadows are trained."""
        given = dict(self.options.get("shadow", {}))
        return Plan(**{"count": max(self.shadows, 1), "seed": self.seed, **given})

    def group(self, name: str) -> dict[str, Any]:
        """Options of one open-ended group."""
        return dict(self.options.get(name, {}))

    def tree(self) -> dict[str, Any]:
        """All of it as plain YAML; without `out`, which is where and not what."""
        own = {f.name: plain(getattr(self, f.name)) for f, _ in option_fields(type(self))}
        return own | {k: plain(dict(v)) for k, v in self.options.items() if v}


@dataclass(frozen=True)
class Asked:
    """What the command line asked for: an audit, or only a page."""

    audit: Audit | None
    out: Path | None = None
    quiet: bool = False
    json: bool = False
    page: str | None = None


def expand(names: tuple[str, ...]) -> tuple[str, ...]:
    """Names of attacks: `("all",)` is every one of the registry, those that cannot run included,
    so that the report says why they did not.

    Raises:
        InputError: an unknown attack, or one named twice.
    """
    if names == ("all",):
        return tuple(registry.names("attack"))
    for name in names:
        registry.load("attack", name)
        if names.count(name) > 1:
            raise InputError(f"attack '{name}' is named twice")
    return names


def outside_reason(name: str) -> str | None:
    """Why an attack has no place in an audit of a released encoder, or None if it has one."""
    cls = registry.load("attack", name)
    if issubclass(cls, ActiveAttack):
        return "takes part in the training: python -m fedmia.simulate --attacker active runs it"
    if cls.needs.vantage != "outsider":
        return f"needs the vantage of a {cls.needs.vantage}: python -m fedmia.simulate runs it"
    return None


def parse(argv: Sequence[str]) -> Asked:
    """What the arguments (without the program's name) ask for.

    Raises:
        InputError: anything wrong in them, or in the file of `--config`.
    """
    tree: dict[str, Any] = {}
    command: dict[str, str] = {}
    for path, text in _tokens(list(argv)):
        if path[0] in SWITCHES or path[0] in ("out", "config"):
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
        if key in GROUPS.values() and isinstance(value, Mapping):
            groups[key] = _group(key, value, tree)
        elif key in kinds:
            values[key] = convert(f"--{key.replace('_', '-')}", value, kinds[key])
        else:
            raise unknown("option of an audit", key, kinds)
    return Audit(**values, options=groups)


def _group(key: str, values: Mapping[str, Any], tree: Mapping[str, Any]) -> dict[str, Any]:
    if key == "attack":
        return {
            name: _typed(f"attack.{name}", registry.load("attack", name), own)
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


def _typed(where: str, cls: type, values: Mapping[str, Any]) -> dict[str, Any]:
    kinds = {f.name: kind for f, kind in option_fields(cls)}
    for name in values:
        if name not in kinds:
            raise unknown(f"option --{where}.{name}", name, kinds)
    return {n: convert(f"--{where}.{n}", v, kinds[n]) for n, v in values.items()}


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
    except yaml.YAMLError as error:
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


def fields() -> list[tuple[dataclasses.Field[Any], Any]]:
    """Every fixed option of an audit with its type, for the help page."""
    return option_fields(Audit)
