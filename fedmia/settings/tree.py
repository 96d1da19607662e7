"""The experiment as a tree and as YAML: strict both ways, and the round trip is exact.

A section is a mapping; a plugin is its name, or a mapping with `name` and the options. `_run`
(where and with what a finished run took place) is written beside the experiment and not read.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Hashable, Mapping
from pathlib import Path
from typing import Any

import yaml

from fedmia import registry
from fedmia.errors import InputError, nearest, unknown
from fedmia.settings.experiment import Chosen, Data, Experiment, dataset_and_path
from fedmia.settings.option import check_limits, check_type, option_fields, type_name
from fedmia.settings.values import convert, plain

Tree = dict[str, Any]
# A path such as `federation.clients` -> how the user wrote it: a flag, or the key of a file.
Where = Callable[[str], str]
RUN_KEY = "_run"
# Sections that may be written as one value, and the option that it stands for.
HEADS: Mapping[str, str] = {"data": "name", "pretrain": "mode"}


def to_dict(experiment: Experiment) -> Tree:
    """The complete experiment in plain mappings, lists and scalars."""
    tree: Tree = {}
    for one in dataclasses.fields(experiment):
        value = getattr(experiment, one.name)
        if isinstance(value, Chosen):
            value = {"name": value.name, **value.options}
        elif isinstance(value, Data):
            own = {f.name: getattr(value, f.name) for f, _ in option_fields(Data)}
            value = {**own, **value.options}
        elif dataclasses.is_dataclass(value) and not isinstance(value, type):
            value = {f.name: getattr(value, f.name) for f, _ in option_fields(type(value))}
        tree[one.name] = plain(value)
    return tree


def from_dict(tree: Mapping[str, Any], where: Where = str) -> Experiment:
    """The experiment that `tree` tells, defaults for what it leaves out.

    Args:
        tree: nested mappings as `to_dict` gives them; shorter forms of plugins are understood.
        where: names a path in messages; default the path itself.

    Raises:
        InputError: an unknown key (with the nearest), a wrong type, a value out of range.
    """
    tree = normal(tree, where)
    kinds = dict((f.name, kind) for f, kind in option_fields(Experiment))
    fields = {f.name: f for f in dataclasses.fields(Experiment)}
    made: Tree = {}
    for name, value in tree.items():
        if name not in fields:
            raise _unknown_key(where(name), name, fields)
        one = fields[name]
        if name == "attack":
            made[name] = {n: _attack(n, v, where) for n, v in value.items()}
        elif "plugin" in one.metadata:
            made[name] = _plugin(one, value, where)
        elif name == "data":
            made[name] = _data(value, where)
        elif "section" in one.metadata:
            made[name] = _section(one.metadata["section"], name, value, where)
        else:
            made[name] = _option(one, kinds[name], name, value, where)
    return Experiment(**made)


def normal(tree: Mapping[str, Any], where: Where = str) -> Tree:
    """`tree` with every short form written out: `partition: iid` as `partition: {name: iid}`.

    Raises:
        InputError: a section or a plugin that is neither a name nor a mapping.
    """
    made: Tree = {}
    fields = {f.name: f for f in dataclasses.fields(Experiment)}
    for name, value in tree.items():
        metadata = fields[name].metadata if name in fields else {}
        head = "name" if "plugin" in metadata else HEADS.get(name)
        if head and isinstance(value, str):
            value = {head: value}
        elif name == "defense" and value is None:
            value = {head: "none"}
        elif name == "attack" or "section" in metadata or "plugin" in metadata:
            value = _mapping(where(name), value)
        if name == "attack":
            value = {k: _mapping(where(f"attack.{k}"), v) for k, v in value.items()}
        if name == "pretrain" and value.get("mode") == "none":
            value = {"rounds": 0, **value}
        made[name] = value
    return made


def dump(experiment: Experiment, run: Mapping[str, Any] | None = None) -> str:
    """YAML of the complete experiment; `run` is kept beside it, under `_run`, for the reader."""
    tree = to_dict(experiment)
    if run is not None:
        tree[RUN_KEY] = plain(dict(run))
    # All but ASCII is escaped: PyYAML reads some line breaks that it writes as they are otherwise.
    return yaml.safe_dump(tree, sort_keys=False, width=96)


def load(path: Path) -> Tree:
    """The tree of a YAML file, short forms written out, without its `_run`.

    Raises:
        InputError: missing, unreadable, not YAML, not a mapping, or a key written twice.
    """
    try:
        found = yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise InputError(f"cannot read config file '{path}': {reason}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InputError(f"{path} is not valid YAML: {_yaml_reason(error)}") from None
    if not isinstance(found, dict):
        held = "nothing" if found is None else type_name(type(found))
        raise InputError(f"{path} must hold a mapping of options, holds {held}")
    return normal({k: v for k, v in found.items() if k != RUN_KEY}, lambda p: f"{p} in {path}")


class _Loader(yaml.SafeLoader):
    """YAML's safe loader with `1e-3` a number, keys that are text, and no key twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key_node, _ in node.value:
            key = key_node.value
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            if not isinstance(key, str) or key_node.tag != "tag:yaml.org,2002:str":
                raise yaml.MarkedYAMLError(
                    problem=f"key {key!r} is not a name", problem_mark=key_node.start_mark
                )
            if key in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"key '{key}' is written twice", problem_mark=key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep)


# PyYAML follows YAML 1.1, in which 1e-3 is text.
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)[eE][-+]?[0-9]+\Z"),
    list("-+.0123456789"),
)


def _yaml_reason(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error) or "nested too deeply"
    return f"{problem} (line {mark.line + 1})" if mark else problem


def _mapping(label: str, value: Any) -> Tree:
    if not isinstance(value, dict):
        raise InputError(f"{label} must be a mapping of options, got {value!r}")
    return value


def _option(one: dataclasses.Field[Any], kind: Any, path: str, value: Any, where: Where) -> Any:
    """A value converted and checked under the user's own name for it."""
    label = where(path)
    value = convert(label, value, kind)
    check_type(label, value, kind)
    check_limits(label, value, one.metadata)
    return value


def _unknown_key(label: str, key: str, known: Any) -> InputError:
    return InputError(f"unknown option {label}{nearest(key, known)}")


def _section(cls: type, path: str, tree: Tree, where: Where) -> Any:
    kinds = {f.name: (f, kind) for f, kind in option_fields(cls)}
    for key in tree:
        if key not in kinds:
            raise _unknown_key(where(f"{path}.{key}"), key, kinds)
    return cls(**{k: _option(*kinds[k], f"{path}.{k}", v, where) for k, v in tree.items()})


def _options(kind: str, name: str, path: str, tree: Tree, where: Where) -> Tree:
    """Options of plugin `name`, converted and checked."""
    kinds = {f.name: (f, type_) for f, type_ in option_fields(registry.load(kind, name))}
    for key in tree:
        if key not in kinds:
            others = [n for n in registry.names(kind) if _has(kind, n, key)]
            if others:
                raise InputError(
                    f"{where(f'{path}.{key}')} is no option of {kind} '{name}', "
                    f"but of {', '.join(others)}"
                )
            label = where(f"{path}.{key}")
            raise unknown(f"option {label}: {kind} '{name}' has no", key, kinds)
    return {k: _option(*kinds[k], f"{path}.{k}", v, where) for k, v in tree.items()}


def _has(kind: str, name: str, key: str) -> bool:
    return any(f.name == key for f, _ in option_fields(registry.load(kind, name)))


def _plugin(one: dataclasses.Field[Any], tree: Tree, where: Where) -> Chosen | None:
    path, kind = one.name, one.metadata["plugin"]
    rest = {k: v for k, v in tree.items() if k != "name"}
    name = tree.get("name", one.metadata["name"])
    if path == "defense" and name in (None, "none"):
        if rest:
            raise InputError(
                f"{where(f'{path}.{next(iter(rest))}')} needs a defence: --defense NAME"
            )
        return None
    check_type(where(f"{path}.name"), name, str)
    return Chosen(str(name), _options(kind, str(name), path, rest, where))


def _attack(name: str, tree: Tree, where: Where) -> Tree:
    return _options("attack", name, f"attack.{name}", tree, where)


def _data(tree: Tree, where: Where) -> Data:
    own = {f.name: (f, kind) for f, kind in option_fields(Data)}
    made = {k: _option(*own[k], f"data.{k}", v, where) for k, v in tree.items() if k in own}
    name = dataset_and_path(made.get("name", Data.name))[0]
    rest = {k: v for k, v in tree.items() if k not in own}
    return Data(**made, options=_options("dataset", name, "data", rest, where))
