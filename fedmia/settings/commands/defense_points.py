"""The points of a study of defences: each at each of its strengths, and the undefended one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fedmia.settings import registry
from fedmia.settings.errors import (
    InputError,
    format_value,
    opt,
    prefix_errors,
    suggest_nearest,
    unknown_name,
)
from fedmia.settings.layout import Leaf, plugin_option
from fedmia.settings.tree import read_value
from fedmia.settings.values import plain

NONE = "none"  # the undefended federation, which every other is compared with
UNDEFENDED = "no defence"
Point = tuple[str, dict[str, Any]]  # its name, and the path of each option -> its value there


def defense_points(
    defenses: Sequence[str], strengths: Mapping[str, Sequence[Any]], with_clients: bool
) -> list[Point]:
    """Each defence at each strength, the undefended federation first.

    Args:
        defenses: names of defences and strategies; `none` may be among them.
        strengths: defence, or defence and option -> values; those of a defence without any are
            its defaults.
        with_clients: whether the experiment names clients that defend themselves.

    Returns:
        The points, called `no defence`, `gaussian scale=0.1` and so on.

    Raises:
        InputError: an unknown defence, a strength out of range, strengths of a defence that is not
            compared, or no defence at all.
    """
    names = [name for name in defenses if name != NONE]
    if not names:
        raise InputError(f"{opt('defenses')} names no defence, so nothing is compared")
    for key in strengths:
        if not any(_strength_option(key, name) is not None for name in names):
            raise InputError(
                f"{opt(f'strengths.{key}')}: no such defence is compared"
                f"{suggest_nearest(key, names)} ({opt('defenses', defenses)})"
            )
    points: list[Point] = [(UNDEFENDED, {"defense": NONE})]
    points += [one for name in names for one in _points(name, strengths)]
    for _, grid in points:
        if with_clients and grid.get("defense", NONE) == NONE:
            grid["defended_clients"] = None  # here no client defends itself
    return points


def _points(name: str, strengths: Mapping[str, Sequence[Any]]) -> Iterator[Point]:
    """A defence at each of its strengths."""
    kind = _kind_of(name)
    cls = registry.load(kind, name)
    options = [(k, o) for k in strengths if (o := _strength_option(k, name)) is not None]
    if len(options) > 1:
        both = " and ".join(opt(f"strengths.{key}") for key, _ in options)
        raise InputError(f"{both} are two strengths of one defence")
    key, measure = options[0] if options else ("", "")
    measure = measure or cls.strength
    if key and not measure:
        raise InputError(
            f"{opt(f'strengths.{key}')}: {kind} '{name}' has no measure of strength; name an "
            f"option of it, {name}.OPTION"
        )
    values, path = cls.strengths, f"{kind}.{measure}"
    if key:
        with prefix_errors(opt(f"strengths.{key}")):
            leaf = plugin_option(kind, name, path)
        values = _values(path, leaf, key, strengths[key])
    if not values:
        yield name, {kind: name}
    for value in values:
        yield f"{name} {measure}={format_value(value)}", {kind: name, path: value}


def _values(path: str, leaf: Leaf, key: str, strengths: Any) -> list[Any]:
    """The strengths under `key`, as the option of a path takes them."""
    if not isinstance(strengths, list | tuple) or not strengths:
        raise InputError(f"strengths.{key}: {plain(strengths)!r}, needs a list of values")
    values = []
    for value in strengths:
        with prefix_errors(opt("strengths", f"{key}={value}")):
            values.append(read_value(path, value, leaf))
    return values


def _kind_of(name: str) -> str:
    """Whether a name is that of a defence or of a strategy.

    Raises:
        InputError: neither does.
    """
    if ":" in name:  # code outside the repository: its class tells
        try:
            registry.load("strategy", name)
        except InputError:
            return "defense"
        return "strategy"
    known = {kind: registry.names(kind) for kind in ("defense", "strategy")}
    kind_of_name = next((kind for kind, names in known.items() if name in names), None)
    if kind_of_name is None:
        raise unknown_name("defence", name, [NONE, *known["defense"], *known["strategy"]])
    return kind_of_name


def _strength_option(key: str, name: str) -> str | None:
    """The option of defence `name` that a key of the strengths means; empty: its own measure; None:
    the key is of another defence."""
    if key == name:
        return ""
    return key.removeprefix(f"{name}.") if key.startswith(f"{name}.") else None
