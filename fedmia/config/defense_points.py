"""The points of a study of defences: each at each of its strengths, and the undefended one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedmia.options import registry
from fedmia.options.errors import InputError, format_value, opt, suggest_nearest, unknown_name
from fedmia.options.option import check_limits, check_type, option_fields
from fedmia.options.values import convert, plain

NONE = "none"  # the undefended federation, which every other is compared with
UNDEFENDED = "no defence"


@dataclass(frozen=True)
class DefensePoint:
    """One defence at one strength.

    Attributes:
        defense: `none`, a defence of clients, or a strategy.
        option: its option that says how strong it is; empty where it has none.
        strength: value of that option.
        kind: `defense` or `strategy`: the part of an experiment that it is.
    """

    defense: str = NONE
    option: str = ""
    strength: Any = None
    kind: str = "defense"

    @property
    def label(self) -> str:
        """`gaussian scale=0.1`; `no defence`."""
        if self.defense == NONE:
            return UNDEFENDED
        strength = f" {self.option}={format_value(self.strength)}" if self.option else ""
        return f"{self.defense}{strength}"

    def grid(self, with_clients: bool) -> dict[str, Any]:
        """Path of each option of an experiment -> its value here.

        Args:
            with_clients: whether the experiment names clients that defend themselves.
        """
        grid: dict[str, Any] = {self.kind: self.defense}
        if self.option:
            grid[f"{self.kind}.{self.option}"] = self.strength
        if with_clients and (self.defense == NONE or self.kind != "defense"):
            grid["defended_clients"] = None  # here no client does
        return grid


def defense_points(
    defenses: Sequence[str], strengths: Mapping[str, Sequence[Any]]
) -> list[DefensePoint]:
    """Each defence at each strength, the undefended federation first.

    Args:
        defenses: names of defences and strategies; `none` may be among them.
        strengths: defence, or defence and option -> values; those of a defence without any are
            its defaults.

    Returns:
        The points.

    Raises:
        InputError: an unknown defence or one named twice, a strength out of range, strengths of a
            defence that is not compared, or no defence at all.
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
    for name in defenses:
        if defenses.count(name) > 1:
            raise InputError(f"{opt('defenses')}: '{name}' is named twice")
    return [DefensePoint(), *(one for name in names for one in _points(name, strengths))]


def _points(name: str, strengths: Mapping[str, Sequence[Any]]) -> Iterator[DefensePoint]:
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
    values = _values(cls, key, measure, strengths[key]) if key else cls.strengths
    if not values:
        yield DefensePoint(name, kind=kind)
    for value in values:
        yield DefensePoint(name, measure, value, kind)


def _values(cls: type, key: str, measure: str, strengths: Any) -> list[Any]:
    """The strengths under `key`, converted to the type of their option."""
    kinds = {one.name: (one, kind) for one, kind in option_fields(cls)}
    if measure not in kinds:
        raise InputError(
            f"{opt(f'strengths.{key}')}: no such option{suggest_nearest(measure, kinds)} "
            f"(known: {', '.join(sorted(kinds))})"
        )
    if not isinstance(strengths, list | tuple) or not strengths:
        raise InputError(f"strengths.{key}: {plain(strengths)!r}, needs a list of values")
    (one, kind), values = kinds[measure], list[Any]()
    for value in strengths:
        where = f"{opt('strengths', f'{key}={value}')}: {measure}"
        value = convert(where, value, kind)
        check_type(where, value, kind)
        check_limits(where, value, one.metadata)
        if value in values:
            raise InputError(f"{where} is given twice")
        values.append(value)
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
