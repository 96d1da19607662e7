"""What was planned to be asked of the ascent (plans/ascent.yaml), and sweeps held against it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedmia.cli.command import parse
from fedmia.cli.commands import STUDY
from fedmia.settings.commands.study import Study, tree_key
from fedmia.settings.errors import InputError
from fedmia.settings.tree import from_tree
from fedmia.settings.yamlfile import load
from fedmia.storage.json_rows import to_json
from fedmia.storage.runfolder import RunFolder

PLAN = Path(__file__).parent / "plans" / "ascent.yaml"
FINISHED = "finished"
# Where a run takes place, and on how much of it: no result is meant to depend on these.
PLACE = (
    "seed", "machine.backend", "machine.device", "machine.threads_per_client",
    "machine.cpus_per_client", "machine.gpus_per_client", "machine.checkpoint_every",
    "machine.ray_address",
)  # fmt: skip


@dataclass(frozen=True)
class Planned:
    """A sweep of the plan.

    Attributes:
        config: preset of `python -m fedmia.study`, or a file.
        data, regime: what it is of.
        primary: whether primary questions are asked of it.
        seeds: of each point of its grid.
        grids: each point of its grid, as `key_of` tells it.
        points: settings of each, path of an option -> value, without PLACE.
    """

    config: str
    data: str
    regime: str
    primary: bool
    seeds: Sequence[int]
    grids: Sequence[str] = field(repr=False)
    points: Sequence[Mapping[str, Any]] = field(repr=False)


@dataclass(frozen=True)
class Swept:
    """A planned sweep as far as it was made.

    Attributes:
        cells: finished runs by point of the grid, then seed; `path` is that of the run's folder.
        short: runs that are planned and not finished.
    """

    planned: Planned
    cells: Sequence[Mapping[str, Any]]
    short: int


def sweeps(plan: Mapping[str, Any]) -> list[Planned]:
    """The sweeps that the plan names.

    Raises:
        InputError: a preset that is none.
    """
    return [_planned(plan, row) for row in plan["sweeps"]]


def _planned(plan: Mapping[str, Any], row: Mapping[str, Any]) -> Planned:
    study: Study = parse(STUDY, ["--config", row["config"]]).settings
    primary = row.get("primary", False)
    first = plan["seeds"]["primary" if primary else "exploratory"]
    count = plan["federations"] if primary else study.seeds or 1
    seeds = range(first, first + count)
    grids = [tree_key(cell.grid) for cell in study.points]
    return Planned(
        row["config"], row["data"], row["regime"], primary, seeds, grids, settings(study)
    )


def settings(study: Study) -> list[dict[str, Any]]:
    """Settings of each point of a sweep: path of an option -> value, without PLACE and folders."""
    trees = [dict(_flat(cell.tree)) for cell in study.points]
    for one in trees:
        kind, _, file = str(one["data.name"]).partition(":")
        one["data.name"] = f"{kind}:{Path(file).name}"
        one["data.dir"] = None
    return trees


def _flat(tree: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{above}{key}.")
        elif f"{above}{key}" not in PLACE:
            yield f"{above}{key}", value


def read(plan: Mapping[str, Any], specs: Sequence[str], short: bool = False) -> list[Swept]:
    """The sweeps `NAME=REGIME=FOLDER` against the plan; several folders of one sweep count as one.

    Args:
        short: take fewer runs than are planned.

    Raises:
        SystemExit: one line that says which sweep is not planned, and why.
    """
    try:
        known = sweeps(plan)
    except InputError as error:
        raise SystemExit(f"the plan names a sweep that is none: {error}") from None
    cells: dict[str, list[Any]] = {one.config: [] for one in known}
    for text in specs:
        planned, finished = _one(plan, known, text)
        cells[planned.config] += finished
    sweeps_read = [_together(one, cells[one.config]) for one in known]
    for one in sweeps_read:
        planned_runs = len(one.planned.points) * len(one.planned.seeds)
        if one.short and not short and (one.cells or one.planned.primary):
            raise SystemExit(
                f"{one.planned.config}: {len(one.cells)} of {planned_runs} planned runs are "
                "finished; --short answers with fewer, and says so"
            )
    return sweeps_read


def _one(
    plan: Mapping[str, Any], known: Sequence[Planned], text: str
) -> tuple[Planned, list[dict[str, Any]]]:
    """The planned sweep that a folder is of, and its finished runs."""
    name, regime, path = _parts(text)
    try:
        about = json.loads((Path(path) / "study.json").read_text(encoding="utf-8"))
        seeds, points = about["seeds"], settings(from_tree(Study, about["settings"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SystemExit(f"{text}: no study.json that can be read: {error}") from None
    except InputError as error:
        raise SystemExit(f"{text}: its settings are not planned: {error}") from None
    spent = [s for s in seeds if any(low <= s <= high for low, high in plan["used_up"])]
    if spent:
        raise SystemExit(f"{text}: seeds that are used up: {', '.join(map(str, spent))}")
    alike = [one for one in known if (one.data, one.regime) == (name, regime)]
    if not alike:
        pairs = ", ".join(dict.fromkeys(f"{one.data}={one.regime}" for one in known))
        raise SystemExit(f"{text}: {name}={regime} is not planned ({pairs})")
    apart = {one.config: list_differences(one.points, points) for one in alike}
    planned = next((one for one in alike if not apart[one.config]), None)
    if planned is None:
        config, why = min(apart.items(), key=lambda item: len(item[1]))
        raise SystemExit(f"{text}: its settings are not planned: {why[0]} in {config}")
    if others := [s for s in seeds if s not in planned.seeds]:
        first, last = planned.seeds[0], planned.seeds[-1]
        raise SystemExit(f"{text}: seed {others[0]} is not planned ({first} to {last})")
    folders = [(cell, Path(path) / str(cell["path"])) for cell in about["cells"]
               if cell["state"] == FINISHED]  # fmt: skip
    return planned, [{**cell, "path": run, "results": _results(run)} for cell, run in folders]


def _results(run: Path) -> dict[str, Any]:
    """What the answer rests on of a run's report."""
    report = RunFolder(run).report()
    return {
        "verdict_code": report.verdict_code,
        "attacks": to_json(report.attacks, exact=True),
        "pairs": to_json(report.paired, exact=True),
        "sets": to_json(report.sets, exact=True),
        "knn": report.utility.knn,
        "commit": report.versions.get("commit"),
    }


def _parts(text: str) -> tuple[str, str, str]:
    parts = text.split("=", 2)
    if len(parts) < 3:
        raise SystemExit(f"{text}: give NAME=REGIME=FOLDER")
    return parts[0], parts[1], parts[2]


def list_differences(
    planned: Sequence[Mapping[str, Any]], points: Sequence[Mapping[str, Any]]
) -> list[str]:
    """What differs between two sweeps, a text each."""
    texts = [
        f"{path} is {own.get(path)}, but {ours.get(path)}"
        for ours, own in zip(planned, points, strict=False)
        for path in {**ours, **own}
        if ours.get(path) != own.get(path)
    ]
    if len(planned) != len(points):
        texts.insert(0, f"the grid has {len(points)} points, but {len(planned)}")
    return texts


def _together(planned: Planned, cells: Sequence[dict[str, Any]]) -> Swept:
    """The runs of one sweep from all of its files, in order."""
    runs: dict[tuple[str, int], dict[str, Any]] = {}
    for cell in cells:
        place = tree_key(cell["grid"]), cell["seed"]
        if place in runs:
            raise SystemExit(f"{planned.config}: run {cell['name']} is given twice")
        runs[place] = cell
    cells_in_order = [
        runs[place] for place in sorted(runs, key=lambda p: (planned.grids.index(p[0]), p[1]))
    ]
    return Swept(
        planned, cells_in_order, len(planned.points) * len(planned.seeds) - len(cells_in_order)
    )


def load_plan(path: Path = PLAN) -> dict[str, Any]:
    """The plan as its file says it.

    Raises:
        SystemExit: it cannot be read.
    """
    try:
        return load(path)
    except InputError as error:
        raise SystemExit(str(error)) from None
