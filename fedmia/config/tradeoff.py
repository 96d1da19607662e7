"""The options of a trade-off: defences, several strengths of each, and the seeds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedmia.config import compatibility, experiment
from fedmia.config.experiment import Experiment
from fedmia.config.fields import mapping, settings_tree
from fedmia.config.sweep import Grid, RepeatedRuns, Sweep, format_grid_value, parse_values
from fedmia.config.tree import from_tree, merge, normalize
from fedmia.options import registry
from fedmia.options.errors import (
    InputError,
    opt,
    prefix_errors,
    suggest_nearest,
    unknown_name,
)
from fedmia.options.option import check_limits, check_type, option, option_fields
from fedmia.options.values import convert, plain
from fedmia.options.yamlfile import Tree

NONE = "none"  # the undefended federation, which every other is compared with
# Defaults of every run: without an active step there is only one branch to train.
MILD: Tree = {"attacker": "passive", "federation": {"snapshots": 1}}


@dataclass(frozen=True)
class DefensePoint:
    """One defence at one strength: a point of the trade-off.

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
            return "no defence"
        return (
            f"{self.defense} {self.option}={format_grid_value(self.strength)}"
            if self.option
            else self.defense
        )

    def grid(self, with_clients: bool) -> Grid:
        """The grid of a sweep that has this point alone.

        Args:
            with_clients: whether the experiment names clients that defend themselves.
        """
        grid: dict[str, Sequence[Any]] = {self.kind: (self.defense,)}
        if self.option:
            grid[f"{self.kind}.{self.option}"] = (self.strength,)
        if with_clients and (self.defense == NONE or self.kind != "defense"):
            grid["defended_clients"] = (None,)  # here no client does
        return grid


@dataclass(frozen=True)
class Tradeoff(RepeatedRuns):
    """One trade-off between privacy and utility, as the sweep that it is.

    Attributes:
        strengths: defence, or defence and option -> the values that are compared.
        base: tree of the experiment that every run starts from.
        trades: the points, the undefended one first.
        sweep: its cells of one seed are the trades, in their order.

    Raises:
        InputError: on construction, for an unknown defence or one named twice, a strength out of
            range, or an experiment that defends itself.
    """

    seeds: int = option(5, "federations of each strength, with seeds SEED, SEED+1, ..", ge=1)
    defenses: tuple[str, ...] = option(
        (NONE,),
        "what is compared: defences of --list defense, strategies of --list strategy; none, the "
        "undefended federation, is always run",
    )
    strengths: Mapping[str, Sequence[Any]] = mapping(
        about="strengths of a defence, once for each or with ; between; NAME alone is its own "
        "measure of strength, NAME.OPTION another option"
    )
    base: Tree = settings_tree(Experiment)
    trades: tuple[DefensePoint, ...] = field(init=False, compare=False, repr=False)
    sweep: Sweep = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        base = from_tree(Experiment, self.base)
        if base.defense:
            name = opt("defense", base.defense[0].name)
            raise InputError(f"{name}: {opt('defenses')} says what is compared")
        whole = merge(Experiment, MILD, normalize(Experiment, self.base), experiment.attack_names)
        trades = (
            DefensePoint(),
            *(t for name in self._defense_names() for t in self._trades(name)),
        )
        object.__setattr__(self, "trades", trades)
        object.__setattr__(self, "sweep", self._sweep(whole))

    def _sweep(self, whole: Tree) -> Sweep:
        own = {name: getattr(self, name) for name in ("seeds", "jobs", "keep_snapshots")}
        with_clients = whole.get("defended_clients") is not None
        grids = [trade.grid(with_clients) for trade in self.trades]
        return Sweep(grid=grids, base=whole, **own)

    def _defense_names(self) -> list[str]:
        """The defences but `none`, each once."""
        for name in self.defenses:
            if self.defenses.count(name) > 1:
                raise InputError(f"{opt('defenses')}: '{name}' is named twice")
        return [name for name in self.defenses if name != NONE]

    def _trades(self, name: str) -> Iterator[DefensePoint]:
        """A defence at each of its strengths."""
        kind = defender_kind(name)
        cls = registry.load(kind, name)
        strength_options = [
            (k, o) for k in self.strengths if (o := _strength_option(k, name)) is not None
        ]
        if len(strength_options) > 1:
            both = " and ".join(opt(f"strengths.{key}") for key, _ in strength_options)
            raise InputError(f"{both} are two strengths of one defence")
        key, measure = strength_options[0] if strength_options else ("", "")
        measure = measure or cls.strength
        if key and not measure:
            raise InputError(
                f"{opt(f'strengths.{key}')}: {kind} '{name}' has no measure of strength; name an "
                f"option of it, {name}.OPTION"
            )
        values = self._values(cls, key, measure) if key else cls.strengths
        if not values:
            yield DefensePoint(name, kind=kind)
        for value in values:
            yield DefensePoint(name, measure, value, kind)

    def _values(self, cls: type, key: str, measure: str) -> Sequence[Any]:
        """The strengths under `key`, converted to the type of their option."""
        kinds = {one.name: (one, kind) for one, kind in option_fields(cls)}
        if measure not in kinds:
            raise InputError(
                f"{opt(f'strengths.{key}')}: no such option{suggest_nearest(measure, kinds)} "
                f"(known: {', '.join(sorted(kinds))})"
            )
        strengths, values = self.strengths[key], list[Any]()
        if not isinstance(strengths, list | tuple) or not strengths:
            raise InputError(
                f"{opt(f'strengths.{key}')} needs a list of values, got {plain(strengths)!r}"
            )
        one, kind = kinds[measure]
        for value in strengths:
            where = f"{opt('strengths', f'{key}={value}')}: {measure}"
            value = convert(where, value, kind)
            check_type(where, value, kind)
            check_limits(where, value, one.metadata)
            if value in values:
                raise InputError(f"{where} is given twice")
            values.append(value)
        return values

    def tree(self) -> Tree:
        """The trade-off as its YAML file says it; reads back the same."""
        own = {f.name: plain(getattr(self, f.name)) for f, _ in option_fields(type(self))}
        strengths = {"strengths": parse_values(self.strengths)} if self.strengths else {}
        return {**parse_values(self.base), **own, **strengths}


def check(tradeoff: Tradeoff) -> None:
    """Refuse a trade-off that compares nothing, and one with a point whose options do not suit one
    another.

    Raises:
        InputError: one line that names the point, the value and the reason.
    """
    _check_attacks(tradeoff.sweep.cells[0].first)
    _check_compared(tradeoff)
    for trade, cell in zip(tradeoff.trades, tradeoff.sweep.cells, strict=False):
        with prefix_errors("" if trade.defense == NONE else opt("defenses", trade.label)):
            compatibility.check_experiment(cell.first)


def attack_names(tree: Mapping[str, Any]) -> tuple[str, ...]:
    """Names of the attacks that the base of a trade-off runs."""
    return experiment.attack_names({"attacker": MILD["attacker"], **tree})


def defender_kind(name: str) -> str:
    """Whether a name is that of a defence or of a strategy.

    Raises:
        InputError: neither does.
    """
    if ":" in name:  # code outside the repository: its class tells
        return "strategy" if _is_strategy(name) else "defense"
    known = {kind: registry.names(kind) for kind in ("defense", "strategy")}
    kind_of_name = next((kind for kind, names in known.items() if name in names), None)
    if kind_of_name is None:
        raise unknown_name("defence", name, [NONE, *known["defense"], *known["strategy"]])
    return kind_of_name


def _is_strategy(name: str) -> bool:
    try:
        registry.load("strategy", name)
    except InputError:
        return False
    return True


def _strength_option(key: str, name: str) -> str | None:
    """The option of defence `name` that a key of the strengths means; empty: its own measure; None:
    the key is of another defence."""
    if key == name:
        return ""
    return key.removeprefix(f"{name}.") if key.startswith(f"{name}.") else None


def _check_attacks(undefended: Experiment) -> None:
    """Refuse an experiment that measures no leakage."""
    if not undefended.attacks:
        got = f"{opt('attacker', undefended.attacker)} {opt('attacks', undefended.attacks)}"
        raise InputError(f"{got}: no attack is run, so nothing tells what leaks")


def _check_compared(tradeoff: Tradeoff) -> None:
    """Refuse strengths of a defence that is not compared, and a trade-off without defences."""
    defenses = [name for name in tradeoff.defenses if name != NONE]
    if not defenses:
        raise InputError(f"{opt('defenses')} names no defence, so nothing is compared")
    for key in tradeoff.strengths:
        if not any(_strength_option(key, name) is not None for name in defenses):
            raise InputError(
                f"{opt(f'strengths.{key}')}: no such defence is compared"
                f"{suggest_nearest(key, defenses)} ({opt('defenses', tradeoff.defenses)})"
            )
