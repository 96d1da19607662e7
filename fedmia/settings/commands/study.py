"""The options of a study: an experiment or encoders, what varies between its runs, the seeds."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

from fedmia.recording.format import HEADER
from fedmia.settings.commands import compatibility
from fedmia.settings.commands.audit import Audit
from fedmia.settings.commands.defense_points import UNDEFENDED, Point, defense_points
from fedmia.settings.commands.effects import OF_STUDIES
from fedmia.settings.commands.experiment import Experiment
from fedmia.settings.effects import build_effective
from fedmia.settings.errors import InputError, format_value, opt, prefix_errors, suggest_nearest
from fedmia.settings.fields import Settings, given_options, lists
from fedmia.settings.layout import Flat, layout
from fedmia.settings.options import option, option_fields
from fedmia.settings.tree import flatten, from_tree, merge, to_tree
from fedmia.settings.values import Text, disk_path, from_text, plain
from fedmia.settings.yamlfile import Tree
from fedmia.storage.runfolder import RunFolder

Grid = Mapping[str, Sequence[Any]]
# Defaults where defences are compared: without an active step there is only one branch to train.
MILD: Flat = {"attacker": "passive", "federation.snapshots": 1}

# View -> the option without which it shows nothing.
VIEWS_OF = {"tradeoff": "defenses", "baseline": "baseline", "encoders": "encoders"}

# Options of an audit that a study says for each of its encoders: `encoders`.
OF_ENCODERS = ("encoder.name", "federation.recording")


@dataclass(frozen=True)
class Cell:
    """One run of a study: a simulation, or an audit.

    Attributes:
        point: of the study, in words: `partition.alpha=0.1`, `gaussian scale=0.1`, `run@10`.
        grid: path of each option that the study varies -> its value here.
        first: complete settings of the run of the first seed.
        nth: how many seeds after it this one is.
        files: digest of what it reads that its settings only name.
    """

    point: str
    grid: Mapping[str, Any]
    first: Experiment | Audit
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
        if isinstance(one, Audit):
            return one.machine.threads
        return one.machine.threads_per_client


Built = tuple[Cell, Mapping[str, InputError]]  # a run, and options that have no effect on it


@dataclass(frozen=True)
class Study(Settings):
    """One study. Every run of it is built, so a wrong one is refused before any begins.

    Attributes:
        over: one or more grids: path of an option -> its values.
        strengths: defence, or defence and option -> the values that are compared.
        base: options that every run starts from, of an experiment or of an audit, by path.
        cells: the runs, all of the first seed before those of the second.
        idle_everywhere: path of each option that has no effect on any run -> the error for it.

    Raises:
        InputError: on construction, for a path that no option has, a value that its option does
            not take, two runs that are the same, or a varied option that has no effect.
    """

    needs: ClassVar[Mapping[str, Any]] = OF_STUDIES

    over: Sequence[Grid] = lists("option with several values; once for each option", several=True)
    defenses: tuple[str, ...] = option(
        (),
        "compare defences with the undefended federation: those of --list defense, strategies of "
        "--list strategy",
    )
    strengths: Mapping[str, Sequence[Any]] = lists(
        "strengths of a defence, once for each or with ; between; NAME alone is its own "
        "measure of strength, NAME.OPTION another option"
    )
    encoders: tuple[str, ...] = option(
        (),
        "audit encoders in place of federations: RUN@0,10,20 (stored rounds of a run), "
        "RUN/recording (its federation), A.pth,B.pth, or any other that fedmia audit takes",
    )
    baseline: str | None = option(
        None, "attack that every other is compared with, at equal seeds and images, by point"
    )
    view: tuple[str, ...] = option(
        (),
        "views of the page: sweep, baseline, tradeoff, encoders or package.module:Class (none: "
        "those that the options above ask for)",
    )
    seeds: int | None = option(
        None,
        "runs of each point, with seeds SEED, SEED+1, .. (none: 5 with defences, else 1)",
        ge=1,
    )
    jobs: int | None = option(
        None,
        "runs side by side (none: as many as the cores allow, one where they need a GPU)",
        ge=1,
    )
    keep_snapshots: bool = option(False, "keep the models of every run by round")
    base: Flat = given_options(Audit, Experiment, without=OF_ENCODERS, beside=True)
    cells: tuple[Cell, ...] = field(default=(), kw_only=True, compare=False, repr=False)
    idle_everywhere: Mapping[str, InputError] = field(
        default_factory=dict, kw_only=True, compare=False, repr=False
    )

    @classmethod
    def attack_names(cls, flat: Mapping[str, Any]) -> tuple[str, ...]:
        """Names of the attacks that flat settings run."""
        if flat.get("encoders"):
            return Audit.attack_names(flat)
        return Experiment.attack_names({**(MILD if flat.get("defenses") else {}), **flat})

    @classmethod
    def complete(cls, **values: Any) -> Self:
        """Build the study that given values ask for, with every run of it."""
        incomplete = super().complete(**values)
        seeds = incomplete.seeds or (5 if incomplete.defenses else 1)
        study = replace(incomplete, over=tuple(map(_read_grid, incomplete.over)), seeds=seeds)
        first, idle = zip(*(study._audits() if study.encoders else study._runs()), strict=True)
        everywhere = {
            path: why for path, why in idle[0].items() if all(path in one for one in idle)
        }
        study = replace(study, idle_everywhere=everywhere)
        study._check_points(first)
        cells = tuple(replace(c, nth=i) for i in range(seeds) for c in first)
        study = replace(study, cells=cells)
        study._check_baseline()
        for name, needed in VIEWS_OF.items():
            if name in study.view and not getattr(study, needed):
                raise InputError(f"{opt('view', name)} is of {opt(needed)}, which is not given")
        return study

    @property
    def views(self) -> tuple[str, ...]:
        """Names of the views of the page; the first says its sentence."""
        if self.encoders:
            return self.view or ("encoders",)
        names = ["tradeoff"] if self.defenses else []
        names += [] if self.baseline is None else ["baseline"]
        return self.view or (*names, "sweep")

    @property
    def points(self) -> tuple[Cell, ...]:
        """The runs of the first seed, one a point."""
        return tuple(cell for cell in self.cells if cell.nth == 0)

    def address(self, point: str) -> str:
        """The option that makes a point what it is, for errors; empty where none does."""
        if point in ("", UNDEFENDED):
            return ""
        return opt("defenses" if self.defenses else "over", point)

    @property
    def idle(self) -> Mapping[str, InputError]:
        return self.idle_everywhere

    def _runs(self) -> list[Built]:
        """The federations, one a point, and what has no effect on each."""
        base = self.base
        for path in _foreign(Experiment, base):
            raise InputError(f"{opt(path)} is an option of audits: {opt('encoders')} names none")
        points: list[Point]
        if self.defenses or self.strengths:
            base = merge(Experiment, MILD, base)
            points = self._defense_points(from_tree(Experiment, base))
        else:
            from_tree(Experiment, base)
            points = [(label(one), one) for grid in self.over for one in _grid_points(grid)]
        return [self._run(base, name, point) for name, point in points]

    def _check_points(self, cells: Sequence[Cell]) -> None:
        """Refuse an option that varies and has no effect, and two runs that are the same."""
        for path in self.idle:
            if any(path in cell.grid for cell in cells):
                raise self.idle[path]
        names: dict[str, str] = {}
        for cell in cells:
            name = cell.point or "the experiment"
            if (twin := names.setdefault(cell.key, name)) is not name:
                what = "defenses" if self.defenses else "over"
                raise InputError(f"{opt(what)}: {twin} and {name} are the same run")

    def _defense_points(self, base: Experiment) -> list[Point]:
        """Name and point of each defence at each strength, the undefended federation first."""
        if base.defense:
            name = opt("defense", base.defense[0].name)
            raise InputError(f"{name}: {opt('defenses')} says what is compared")
        if any(self.over):
            raise InputError(f"{opt('over')} and {opt('defenses')} both say what is compared")
        with_clients = base.defended_clients is not None
        return defense_points(self.defenses, self.strengths, with_clients)

    def _run(self, base: Flat, name: str, point: Mapping[str, Any]) -> Built:
        with prefix_errors(self.address(name)):
            whole = merge(Experiment, base, flatten(Experiment, point))
            built, idle = build_effective(Experiment, whole)
        complete = flatten(Experiment, to_tree(built))
        values = {path: _final_value(complete, path, value) for path, value in point.items()}
        return Cell(name if self.defenses else label(values), values, built), idle

    def _audits(self) -> list[Built]:
        """The audits, one an encoder, and what has no effect on each."""
        for name in ("over", "defenses", "strengths"):
            if any(getattr(self, name)):
                raise InputError(f"{opt(name)} varies a federation, and {opt('encoders')} audits")
        for path in _foreign(Audit, self.base):
            raise InputError(f"{opt(path)} is no option of audits, and {opt('encoders')} audits")
        specs, built = split_encoders(",".join(self.encoders)), list[Built]()
        for spec, name in zip(specs, short_names(specs), strict=True):
            tree = {**self.base, **_audited(spec)}
            audit, idle = build_effective(Audit, tree, self.trust_plugins)
            built.append((Cell(name, {"encoder": name}, audit), idle))
        return built

    def _check_baseline(self) -> None:
        """Refuse a baseline that does not run, or that has no other attack beside it."""
        names = dict.fromkeys(name for cell in self.points for name in cell.first.attacks)
        if self.baseline is None:
            return
        if self.baseline not in names:
            known = ", ".join(names) or "none"
            raise InputError(
                f"{opt('baseline', self.baseline)}: no attack of that name runs in this study"
                f"{suggest_nearest(self.baseline, names)} (attacks: {known})"
            )
        if len(names) == 1:
            raise InputError(f"{opt('baseline', self.baseline)}: no other attack runs beside it")

    def tree(self) -> Tree:
        """The study as its YAML file says it; reads back the same."""
        own = {f.name: plain(getattr(self, f.name)) for f, _ in option_fields(type(self))}
        varied: Tree = {"over": [dict(one) for one in self.over]} if any(self.over) else {}
        varied |= {"strengths": dict(self.strengths)} if self.strengths else {}
        return {**plain(dict(self.base)), **own, **parse_values(varied)}


def _foreign(root: type, base: Flat) -> list[str]:
    """Paths of options that the settings `root` do not have."""
    shape = layout(root)
    heads = {*shape.options, *shape.plugins, *shape.by_name}
    return [path for path in base if shape.field_of(path, heads) is None]


def _final_value(complete: Flat, path: str, value: Any) -> Any:
    """The value of an option in a run's settings; a list or a plugin stays as the user gave it."""
    whole = isinstance(value, Mapping) or path.startswith("defense.")
    if whole or isinstance(complete.get(path), list):
        return plain(parse_values(value))
    return complete.get(path)


def check_study(study: Study) -> None:
    """Refuse a study of which some run has options that do not suit one another.

    Raises:
        InputError: one line that names the point, the value and the reason.
    """
    if study.defenses and not (run := study.cells[0].first).attacks:
        got = f"{opt('attacker', getattr(run, 'attacker', ''))} {opt('attacks', run.attacks)}"
        raise InputError(f"{got}: no attack is run, so nothing tells what leaks")
    for cell in study.points:
        with prefix_errors(study.address(cell.point)):
            if isinstance(cell.first, Experiment):
                compatibility.check_experiment(cell.first)


def check_one_encoder(settings: Audit) -> None:
    """Refuse several encoders where one is audited.

    Raises:
        InputError: one line that names the command that audits several.
    """
    name = settings.encoder.name
    if name and len(split_encoders(name)) > 1:
        raise InputError(
            f"{opt('encoder.name', name)} names several: fedmia study --encoders {name} audits each"
        )


def label(point: Mapping[str, Any]) -> str:
    """`strategy=fedavg, partition.alpha=0.1`."""
    return ", ".join(f"{path}={format_grid_value(value)}" for path, value in point.items())


def format_grid_value(value: Any) -> str:
    """A value as a user types it; a plugin with options as `dirichlet alpha=0.1`."""
    if isinstance(value, Mapping):
        options = (f"{k}={format_grid_value(v)}" for k, v in value.items() if k != "name")
        return " ".join((str(value.get("name")), *options))
    return format_value(tuple(value) if isinstance(value, list) else value)


def tree_key(tree: Mapping[str, Any]) -> str:
    """Text that two trees of settings share only if they are equal."""
    return json.dumps(plain(dict(tree)), sort_keys=True)


def split_encoders(text: str) -> tuple[str, ...]:
    """`RUN@0,10` -> ("RUN@0", "RUN@10"); `A.pth,B.pth` is both files. What exists as a path is one
    encoder, whatever its name.

    Raises:
        InputError: an encoder that is named twice, a number that follows no RUN@ROUND.
    """
    specs, text = list[str](), disk_path(text)
    for part in [text] if Path(text).exists() else [p.strip() for p in text.split(",")]:
        run, at, _ = specs[-1].rpartition("@") if specs else ("", "", "")
        if part.isdigit() and not at:
            raise InputError(f"{opt('encoders', text)}: {part} follows no RUN@ROUND")
        spec = f"{run}@{int(part)}" if part.isdigit() else disk_path(part)
        if not spec or spec in specs:
            why = f"{spec} is named twice" if spec else "a name lacks"
            raise InputError(f"{opt('encoders', text)}: {why}")
        specs.append(spec)
    return tuple(specs)


def _audited(spec: str) -> Tree:
    """The options of the audit of an entry; of `RUN/recording` they are those of a federation.

    Raises:
        InputError: a recording of no run, whose network only `fedmia audit` can be told.
    """
    folder = Path(spec)
    if not (folder / HEADER).is_file():
        return {"encoder.name": spec}
    if not RunFolder(folder.parent).has_settings():
        raise InputError(
            f"{opt('encoders', spec)} is a recording of no run of fedmia: fedmia audit "
            f"--federation {spec} audits it"
        )
    return {"encoder.name": str(folder.parent), "federation.recording": spec}


def short_names(specs: Sequence[str]) -> list[str]:
    """Names of encoders: the end of each path, or the whole path where ends are equal."""
    short = [Path(spec).name for spec in specs]
    return short if len(set(short)) == len(short) else list(specs)


def split_round(spec: str) -> tuple[str, int | None]:
    """Split `RUN@ROUND` into run and round; the round is None for any other encoder."""
    run, at, turn = spec.rpartition("@")
    return (run, int(turn)) if at and turn.isdigit() and not Path(spec).exists() else (spec, None)


def parse_values(value: Any) -> Any:
    """Convert values of flags, which are text, to the type that they look like."""
    if isinstance(value, Mapping):
        return {key: parse_values(own) for key, own in value.items()}
    if isinstance(value, list | tuple):
        return [parse_values(own) for own in value]
    if not isinstance(value, Text):
        return value
    return from_text("", str(value), int | float | bool | str) if value else ""


def _grid_points(grid: Grid) -> Iterator[dict[str, Any]]:
    """Every combination of the grid's values, the last option's changing fastest."""
    for values in itertools.product(*grid.values()):
        yield dict(zip(grid, values, strict=True))


def _read_grid(grid: Mapping[str, Any]) -> dict[str, Sequence[Any]]:
    """Paths as errors and points show them (`strategy` for `strategy.name`), with their values."""
    shape, values_by_path = layout(Experiment), dict[str, Sequence[Any]]()
    for name, values in grid.items():
        path = shape.flags().find(shape.canonical(str(name)))
        if path is None:
            known = suggest_nearest(str(name), [*shape.short, *shape.options])
            raise InputError(f"{opt(f'over.{name}')}: no such option{known}")
        if path == "seed":
            raise InputError(f"{opt('over', 'seed')}: {opt('seeds', 'N')} says how many seeds")
        if path in values_by_path:
            raise InputError(f"{opt('over', path)} is given twice")
        if not isinstance(values, list | tuple) or not values:
            raise InputError(f"over.{path}: {values!r}, needs a list of values")
        values_by_path[path] = tuple(values)
    return values_by_path
