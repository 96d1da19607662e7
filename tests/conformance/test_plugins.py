"""Every plugin of every kind: built with defaults, documented, bounded, picklable, well named."""

from __future__ import annotations

import dataclasses
import inspect
import math
import pickle
import re
from typing import Any

import pytest

from fedmia.settings import registry
from fedmia.settings.errors import InputError
from tests.options import option_fields

PLUGINS = [(kind, name) for kind in registry.KINDS for name in registry.names(kind)]
every_plugin = pytest.mark.parametrize(("kind", "name"), PLUGINS)
LIMITS = ("gt", "ge", "lt", "le")


def test_registry__finds_the_plugins_that_users_scripts_name() -> None:
    expected = {
        ("attack", "similarity"), ("attack", "internal"), ("attack", "combined"),
        ("attack", "ascent-static"), ("attack", "ascent"), ("model", "smallnet"),
        ("ssl", "moco"), ("ssl", "mocov2"), ("strategy", "fedavg"), ("strategy", "fedprox"),
        ("strategy", "fedavgm"), ("strategy", "fedema"), ("dataset", "digits"),
    }  # fmt: skip
    assert expected <= set(PLUGINS)
    assert len(PLUGINS) == len(set(PLUGINS))


@every_plugin
def test_name__is_its_files_with_dashes_or_begins_with_it(kind: str, name: str) -> None:
    assert re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name)
    cls = registry.load(kind, name)
    package, _, file = cls.__module__.rpartition(".")
    assert package == registry.KINDS[kind][0]
    named = file.replace("_", "-")
    assert name == named or (name.startswith(named) and vars(cls)["name"] == name)
    if "-" in name:
        with pytest.raises(InputError, match=f"did you mean '{name}'"):
            registry.load(kind, name.replace("-", "_"))


@every_plugin
def test_build__with_defaults(kind: str, name: str) -> None:
    plugin = registry.build(kind, name, {})
    assert isinstance(plugin, registry.base(kind))
    assert not inspect.isabstract(type(plugin))


@every_plugin
def test_pickle__keeps_every_option(kind: str, name: str) -> None:
    plugin = registry.build(kind, name, {})
    back = pickle.loads(pickle.dumps(plugin))
    assert type(back) is type(plugin)
    for field, _ in option_fields(type(plugin)):
        assert getattr(back, field.name) == getattr(plugin, field.name)


@every_plugin
def test_summary__is_one_line_written_for_it(kind: str, name: str) -> None:
    cls = registry.load(kind, name)
    line = registry.summary(cls)
    assert 10 <= len(line) <= 100
    assert line.endswith((".", ":", ";")) or ". " in line
    assert line != registry.summary(registry.base(kind))
    assert not line.startswith(f"{cls.__name__}(")  # the signature that a dataclass writes itself


@every_plugin
def test_paper__is_one_line(kind: str, name: str) -> None:
    paper = registry.paper(registry.load(kind, name))
    assert "\n" not in paper and len(paper) <= 120
    if kind in ("attack", "ssl", "strategy"):
        assert paper


@every_plugin
def test_instances__share_nothing_mutable(kind: str, name: str) -> None:
    one, two = registry.build(kind, name, {}), registry.build(kind, name, {})
    for field in dataclasses.fields(one):
        a, b = getattr(one, field.name), getattr(two, field.name)
        assert a is not b or not isinstance(a, dict | list | set)


@every_plugin
def test_unknown_option__is_named_with_the_nearest(kind: str, name: str) -> None:
    with pytest.raises(InputError, match=f"option of {kind} '{name}' 'no_such_option'"):
        registry.build(kind, name, {"no_such_option": 1})


@every_plugin
def test_options__are_documented_and_bounded(kind: str, name: str) -> None:
    """A number has a range, a word has choices: what is out of range is refused, not tried."""
    for field, type_ in option_fields(registry.load(kind, name)):
        help_text = field.metadata["help"]
        assert isinstance(help_text, str) and "\n" not in help_text, field.name
        assert 3 <= len(help_text) <= 200, field.name
        assert re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", field.name)
        assert field.default is not dataclasses.MISSING, field.name
        if type_ in (int, float):
            assert any(field.metadata[limit] is not None for limit in LIMITS), field.name
        if type_ is str:
            assert field.metadata["choices"], field.name


def outside(field: Any, type_: Any) -> list[Any]:
    """Values that an option must refuse."""
    wrong: list[Any] = [object()]
    if field.metadata["choices"]:
        wrong.append("no such choice")
    if type_ in (int, float):
        wrong += ["1", True]
        wrong += [math.nan, math.inf] if type_ is float else [1.5]
        step = 1 if type_ is int else 1e-6
        beyond = {"gt": 0, "ge": -step, "lt": 0, "le": step}
        wrong += [
            field.metadata[limit] + by
            for limit, by in beyond.items()
            if field.metadata[limit] is not None
        ]
    return wrong


@every_plugin
def test_options__refuse_what_is_outside(kind: str, name: str) -> None:
    cls = registry.load(kind, name)
    for field, type_ in option_fields(cls):
        for value in outside(field, type_):
            where = f"{cls.__name__}: option {field.name}"
            try:
                cls(**{field.name: value})
            except InputError as error:
                assert where in str(error), f"{where} = {value!r}: {error}"
            else:
                pytest.fail(f"{where} takes {value!r}")
