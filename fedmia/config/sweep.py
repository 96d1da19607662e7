"""The options of a sweep: an experiment, several values of some options, and the seeds."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Generic, TypeVar

from fedmia.config import compatibility, experiment
from fedmia.config.audit import Audit
from fedmia.config.experiment import Experiment
from fedmia.config.fields import mapping, settings_tree
from fedmia.config.flag_layout import flag_layout
from fedmia.config.forms import Settings, field_forms
from fedmia.config.tree import from_tree, merge, normalize, to_tree
from fedmia.options.errors import InputError, format_value, opt, prefix_errors, suggest_nearest
from fedmia.options.option import option, option_fields
from fedmia.options.values import Text, from_text, plain
from fedmia.options.yamlfile import Tree

Grid = Mapping[str, Sequence[Any]]
SettingsOfCell = TypeVar("SettingsOfCell", Experiment, Audit)


@dataclass(frozen=True)
class Cell(Generic[SettingsOfCell]):
    """One run of a sweep, or one audit of several.

    Attributes:
        grid: path of each option of the grid -> its value here.
        first: the run of the first seed, complete.
        nth: how many seeds after it this one is.
        files: digest of what it reads that its settings only name.
    """

    grid: Mapping[str, Any]
    first: SettingsOfCell
    nth: int = 0
    files: str = ""

    @property
    def seed(self) -> int:
        """Root of its randomness."""
        return self.first.seed + self.nth

    @cached_property
    def tree(self) -> Tree:
        """The complete settings of the run."""
        return {**to_tree(self.first), "seed": self.seed}

    @cached_property
    def key(self) -> str:
        """What identifies the run: its complete settings, and its files."""
        return tree_key(self.tree) + self.files

    @property
    def threads(self) -> int:
        """CPU threads of its process; 0: one a core."""
        one = self.first
        return one.threads if isinstance(one, Audit) else one.threads_per_client


@dataclass(frozen=True)
class RunBatch:
    """Runs to be done side by side.

    Attributes:
        cells: the runs in order.
        jobs: how many at once; None: as many as the cores allow, one where they need a GPU.
        keep_snapshots: keep the models of every run by round.
    """

    cells: Sequence[Cell[Any]]
    jobs: int | None
    keep_snapshots: bool = False


@dataclass(frozen=True)
class RepeatedRuns(Settings):
    """Options of every command of many runs: how many seeds, and how many runs side by side."""

    seeds: int = option(1, "runs of each point of the grid, with seeds SEED, SEED+1, ..", ge=1)
    jobs: int | None = option(
        None, "runs side by side (none: as many as the cores allow, one where they need a GPU)",
        ge=1,
    )  # fmt: skip
    keep_snapshots: bool = option(False, "keep the models of every run by round")


@dataclass(frozen=True)
class Sweep(RepeatedRuns):
    """One sweep. Every cell of it is built, so a wrong cell is refused before any cell runs.

    Attributes:
        grid: one or more grids: path of an option -> its values.
        base: tree of the experiment that every cell starts from.
        cells: the runs, all of the first seed before those of the second.

    Raises:
        InputError: on construction, for a path that no option has, a value that its option does
            not take, or two cells that are the same.
    """

    grid: Sequence[Grid] = mapping(
        about="option with several values; once for each option", several=True
    )
    baseline: str | None = option(
        None, "attack that every other is compared with, at equal seeds and images, by point"
    )
    views: tuple[str, ...] = option(
        (), "further sections of the page: package.module:Class, a fedmia.study.view.View"
    )
    base: Tree = settings_tree(Experiment)
    cells: tuple[Cell[Experiment], ...] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        from_tree(Experiment, self.base)
        object.__setattr__(self, "grid", tuple(_grid(one) for one in _as_grids(self.grid)))
        object.__setattr__(self, "cells", self._cells())
        self._check_baseline()

    def _check_baseline(self) -> None:
        """Refuse a baseline that does not run, or that has no other attack beside it."""
        names = dict.fromkeys(name for cell in self.cells for name in cell.first.attacks)
        if self.baseline is None:
            return
        if self.baseline not in names:
            known = ", ".join(names) or "none"
            raise InputError(
                f"{opt('baseline', self.baseline)}: no attack of that name runs in this sweep"
                f"{suggest_nearest(self.baseline, names)} (attacks: {known})"
            )
        if len(names) == 1:
            raise InputError(
                f"{opt('baseline', self.baseline)}: no other attack runs in this sweep"
            )

    @property
    def runs(self) -> RunBatch:
        """Its cells, with how many of them run at once."""
        return RunBatch(self.cells, self.jobs, self.keep_snapshots)

    def _cells(self) -> tuple[Cell[Experiment], ...]:
        first = [self._cell(point) for grid in self.grid for point in grid_points(grid)]
        first_by_key: dict[str, str] = {}
        for cell in first:
            name = label(cell.grid) or "the experiment"
            if (twin := first_by_key.setdefault(cell.key, name)) is not name:
                raise InputError(f"{opt('grid')}: {twin} and {name} are the same run")
        return tuple(replace(cell, nth=i) for i in range(self.seeds) for cell in first)

    def _cell(self, point: Mapping[str, Any]) -> Cell[Experiment]:
        tree: Tree = {}
        for path, value in point.items():
            branch, where = tree, _find_place(path)
            for part in where[:-1]:
                branch = branch.setdefault(part, {})
            branch[where[-1]] = value
        lower, upper = (normalize(Experiment, t) for t in (self.base, tree))
        with prefix_errors(_label_point(point)):
            whole = merge(Experiment, lower, upper, experiment.attack_names)
            built = from_tree(Experiment, whole)
        complete_tree = to_tree(built)
        return Cell(
            {path: _read_value(complete_tree, _find_place(path), v) for path, v in point.items()},
            built,
        )

    def tree(self) -> Tree:
        """The sweep as its YAML file says it; reads back the same."""
        own = {f.name: plain(getattr(self, f.name)) for f, _ in option_fields(type(self))}
        return {
            **parse_values(self.base),
            **own,
            "grid": [parse_values(dict(one)) for one in self.grid],
        }


def check_sweep(sweep: Sweep) -> None:
    """Refuse a sweep with a cell whose options do not suit one another.

    Raises:
        InputError: one line that names the cell, the value and the reason.
    """
    for cell in sweep.cells[: len(sweep.cells) // sweep.seeds]:
        with prefix_errors(_label_point(cell.grid)):
            compatibility.check_experiment(cell.first)


def grid_points(grid: Grid) -> Iterator[dict[str, Any]]:
    """Every combination of the grid's values, the last option's changing fastest."""
    for values in itertools.product(*grid.values()):
        yield dict(zip(grid, values, strict=True))


def label(point: Mapping[str, Any]) -> str:
    """`strategy=fedavg, partition.alpha=0.1`."""
    return ", ".join(f"{path}={format_grid_value(value)}" for path, value in point.items())


def format_grid_value(value: Any) -> str:
    """A value of the grid as a user types it."""
    return format_value(tuple(value) if isinstance(value, list) else value)


def tree_key(tree: Mapping[str, Any]) -> str:
    """Text that two trees of settings share only if they are equal."""
    return json.dumps(plain(dict(tree)), sort_keys=True)


def _label_point(point: Mapping[str, Any]) -> str:
    return opt("grid", label(point)) if point else ""


def _as_grids(grid: Any) -> Sequence[Any]:
    """A list of grids; a file may give a single grid without the list."""
    if isinstance(grid, Mapping):
        return (grid,)
    if not isinstance(grid, list | tuple) or not grid:
        raise InputError(f"{opt('grid')} must be a grid or a list of them, got {grid!r}")
    return grid


def _grid(grid: Any) -> dict[str, Sequence[Any]]:
    """Paths as files write them (`strategy` for `strategy.name`), each with its values."""
    if not isinstance(grid, Mapping):
        raise InputError(f"{opt('grid')} must map options to values, got {grid!r}")
    heads = {f"{path}.{head}": path for path, head in _heads().items()}
    values_by_path: dict[str, Sequence[Any]] = {}
    for name, values in grid.items():
        path = ".".join(_find_place(str(name)))
        path = heads.get(path, path)
        if path == "seed":
            raise InputError(f"{opt('grid', 'seed')}: {opt('seeds', 'N')} says how many seeds")
        if path in values_by_path:
            raise InputError(f"{opt('grid', path)} is given twice")
        if not isinstance(values, list | tuple) or not values:
            raise InputError(f"{opt(f'grid.{path}')} needs a list of values, got {values!r}")
        values_by_path[path] = tuple(values)
    return values_by_path


def _heads() -> dict[str, str]:
    """Fields that one value alone may stand for -> the option that it is."""
    return {name: form.head for name, form in field_forms(Experiment).items() if form.head}


def _find_place(path: str) -> tuple[str, ...]:
    shape, heads = flag_layout(Experiment), _heads()
    place = shape.place(f"{path}.{heads[path]}" if path in heads else path)
    if place is None:
        known = [*heads, *shape.options]
        raise InputError(f"{opt(f'grid.{path}')}: no such option{suggest_nearest(path, known)}")
    return place


def _read_value(tree: Any, where: tuple[str, ...], value: Any) -> Any:
    """The value of an option in a complete tree; a list stays as the user gave it."""
    for part in where:
        tree = tree.get(part) if isinstance(tree, Mapping) else tree
    return plain(parse_values(value)) if isinstance(tree, list) else tree


def parse_values(value: Any) -> Any:
    """Convert values of flags, which are text, to the type that they look like."""
    if isinstance(value, Mapping):
        return {key: parse_values(own) for key, own in value.items()}
    if isinstance(value, list | tuple):
        return [parse_values(own) for own in value]
    if not isinstance(value, Text):
        return value
    return from_text("", str(value), int | float | bool | str) if value else ""
