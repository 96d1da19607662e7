"""What a table asks for: `tables/PAPER.yaml` read into cells, each a number and the jobs behind it.

A file holds what all its entries share (`encoder`, `audit`, `head`, `federation`, `scales`) and its
`entries`. A cell is laid over, lowest first: file, the file's scale, level, entry, the entry's
scale, row, the row's level, column. Lists and names replace, mappings merge.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fedmia.cli.presets import PRESETS
from fedmia.config.audit import Audit
from fedmia.config.layout import Flat
from fedmia.config.tree import flatten, from_tree, merge, to_tree
from fedmia.options.errors import InputError, opt, prefix_errors, suggest_nearest
from fedmia.options.yamlfile import Tree, load
from papers.central_settings import Central
from papers.heads.settings import Head
from papers.jobs import AUDIT, ENCODER, FEDERATION, HEAD, PAPER, TableJob
from papers.listing import read_files, read_sources

PARTS = (ENCODER, AUDIT, HEAD, FEDERATION)
LAYER = {*PARTS, "data", "kind", "read", "epoch", "targets", "seed"}  # what a row may lay over
SMOKE_SOURCE = {"name": "synthetic", "pixels": 16, "images": 400}
SMOKE_SHADOWS = {"name": "synthetic", "pixels": 16, "images": 200, "classes": 7}
Layers = Sequence[Mapping[str, Any]]  # trees that are laid over each other, the lowest first
READ_ONLY = ("encoder", "members", "nonmembers", "cache", "device", "threads", "out", "jobs")


@dataclass(frozen=True)
class TableCell:
    """One number of a table.

    Attributes:
        row, column, level: its place; `level` is empty where a scale has one level of leak.
        read: path of the number in what its job wrote (`papers.cells`).
        jobs: one for each target, in the order of its seed; empty where the cell is not run.
        theirs: the paper's number, None where it prints none.
        theirs_sd: the paper's deviation over targets, None where it gives none.
        reason: why the cell is not run; empty where it is.
    """

    row: str
    column: str
    level: str
    read: str
    jobs: tuple[TableJob, ...]
    theirs: float | None
    theirs_sd: float | None
    reason: str = ""


@dataclass(frozen=True)
class Entry:
    """A table or a figure of a paper.

    Attributes:
        name: as the command takes it: `encodermi-table-2`.
        paper: name of its file, and of the paper in `--list`.
        place: where it stands in the paper.
        title: what it shows.
        figure: how its numbers are drawn: `lines`, `bars` or nothing.
        open: choice that the paper leaves open -> what is chosen here.
        claims: what the paper says of it, as `papers.claims.over_targets` reads them.
        layers: the trees of the file, and of the entry, that cells are made of.
    """

    name: str
    paper: str
    place: str
    title: str
    figure: str = ""
    open: Mapping[str, str] = field(default_factory=dict)
    claims: Sequence[Mapping[str, Any]] = ()
    layers: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def cells(
        self, scale: str, data_dir: Path | None, targets: int | None = None
    ) -> list[TableCell]:
        """The cells of the entry at a scale, each with its jobs.

        Args:
            scale: `smoke`, `small` or `paper`.
            data_dir: folder of the data sets' files; None: only `smoke` has images.
            targets: encoders of a cell; None: as the entry says.

        Returns:
            The cells, level by level, row by row; those that are not run say why.

        Raises:
            InputError: an option of the file that its command refuses.
        """
        file, own = self.layers["file"], self.layers["entry"]
        at, here = file.get("scales", {}).get(scale, {}), own.get("scales", {}).get(scale, {})
        levels = here.get("levels", at.get("levels", {"": {}})) if scale != "smoke" else {"": {}}
        rows = list(enumerate(own["rows"]))
        if scale == "smoke" and "rows" not in here:  # every row takes the same path
            rows = rows[-1:]
        cells: list[TableCell] = []
        for level, laid in levels.items():
            for i, row in rows:
                row_level = row.get("levels", {}).get(level, {})
                for j, column in enumerate(own["columns"]):
                    theirs, sd = (_printed(own.get(name), i, j) for name in ("theirs", "theirs_sd"))
                    bare = TableCell(row["label"], column["label"], level, "", (), theirs, sd)
                    trees = (file, at, laid, own, here, row, row_level, column)
                    with prefix_errors(f"{self.paper}.yaml, {self.name}, {bare.row}"):
                        cells.append(_plan(bare, trees, scale, data_dir, targets))
        return cells


def read_entries() -> dict[str, Entry]:
    """Every entry of every paper, by name.

    Returns:
        In the order of the files and of what stands in them.
    """
    return {
        name: Entry(
            name=name,
            paper=paper,
            place=own["place"],
            title=own["title"],
            figure=own.get("figure", ""),
            open={**file.get("open", {}), **own.get("open", {})},
            claims=own.get("claims", ()),
            layers={"file": file, "entry": own},
        )
        for paper, file in read_files().items()
        for name, own in file["entries"].items()
    }


def select(names: Sequence[str]) -> list[Entry]:
    """The entries that a command names.

    Args:
        names: of entries, of papers, or `all`.

    Returns:
        The entries in the order of `read_entries`.

    Raises:
        InputError: no name, or an unknown one.
    """
    entries = read_entries()
    papers = {entry.paper for entry in entries.values()}
    known = ["all", *sorted(papers), *entries]
    if not names:
        raise InputError(f"{opt('tables')} is missing: an entry of --list, a paper or all")
    for name in names:
        if name not in known:
            raise InputError(f"unknown table '{name}'{suggest_nearest(name, known)} (see --list)")
    chosen = set(names)
    return [e for e in entries.values() if chosen & {"all", e.paper, e.name}]


def _printed(numbers: Sequence[Sequence[Any]] | None, i: int, j: int) -> float | None:
    number: Any = numbers[i][j] if numbers else None
    if isinstance(number, list):  # accuracy, precision, recall; or the three highest confidences
        number = number[0]
    return None if number is None else float(number)


def _plan(
    bare: TableCell, trees: Layers, scale: str, data_dir: Path | None, targets: int | None
) -> TableCell:
    """`bare` with what is read and its jobs, or with the reason why it has none."""
    *_, here, _, _, column = trees
    plain: dict[str, Any] = {}
    for tree in trees:
        plain |= {key: tree[key] for key in LAYER - set(PARTS) if key in tree}
    read = str(plain["read"]).format(attack=column.get("attack", ""), column=bare.column)
    reason = here.get("not_run", "")
    for axis, label in (("rows", bare.row), ("columns", bare.column)):
        if axis in here and label not in here[axis]:
            reason = reason or here["reason"]
    source, lacking = _source(scale, plain.get("data", ""), data_dir)
    if reason := reason or lacking:
        return replace(bare, read=read, reason=reason)
    first = plain.get("seed", 0)
    seeds = range(first, first + (targets or plain.get("targets", 1)))
    jobs = tuple(_job(plain, trees, source, seed, scale) for seed in seeds)
    return replace(bare, read=read, jobs=jobs)


def _source(scale: str, name: str, data_dir: Path | None) -> tuple[Tree, str]:
    """The data section of a set by its name in `sources.yaml`, and why it cannot be had."""
    if scale == "smoke":
        return dict(SMOKE_SOURCE), ""
    source = dict(read_sources()[name])
    file = source.pop("file", "")
    if data_dir is None:
        return source, "its images are needed: --data-dir names their folder"
    if not (data_dir / file).exists():
        return source, f"no {file} in the folder of --data-dir"
    return source, ""


def _job(plain: Tree, trees: Layers, source: Tree, seed: int, scale: str) -> TableJob:
    """The last job of a cell, for the target of one seed."""
    kind = plain.get("kind", AUDIT)
    if kind in (FEDERATION, PAPER):
        run = TableJob(FEDERATION, _federation(trees, source, seed))
        return run if kind == FEDERATION else TableJob(PAPER, {}, run)
    own = {"data": source, "seed": seed}
    laid = _laid(Central, [*(tree.get(ENCODER, {}) for tree in trees), own])
    training = _complete(Central, laid)
    encoder = TableJob(ENCODER, _without(training, ("device", "threads")))
    if kind == ENCODER:
        return encoder
    epoch = plain.get("epoch")
    root = Audit if kind == AUDIT else Head
    laid = _laid(root, [tree.get(kind, {}) for tree in trees])
    if "shadow_data" in laid:
        images = SMOKE_SHADOWS if scale == "smoke" else _shadow_data(laid["shadow_data"])
        laid = _laid(root, [laid, {"shadow_data": images}])
    fill = {"members": "m", "nonmembers": "n"} if kind == AUDIT else {}
    # No head of a target has the seed of another target's, with whom it would share its noise.
    own = _complete(root, {**laid, **fill, "encoder": "e", "seed": seed * laid.get("seeds", 1)})
    return TableJob(kind, _without(own, READ_ONLY), encoder, epoch)


def _shadow_data(name: str) -> Tree:
    """The images of the shadows, of a set by its name in `sources.yaml`."""
    source = dict(read_sources()[name])
    source.pop("file", None)
    return source


def _federation(trees: Layers, source: Tree, seed: int) -> Tree:
    """The settings of a federated run, its preset below all."""
    from fedmia.config.experiment import Experiment

    parts = [dict(tree.get(FEDERATION, {})) for tree in trees]
    presets = [part.pop("preset") for part in parts if "preset" in part]
    base = [load(PRESETS / f"{preset}.yaml") for preset in presets[-1:]]
    laid = _laid(Experiment, [*base, *parts, {"data": source, "seed": seed}])
    return _without(_complete(Experiment, laid), ("device", "ray_address"))


def _laid(root: type, parts: Layers) -> Flat:
    """Trees of one command laid over each other, the first one lowest."""
    merged: Flat = {}
    for part in parts:
        merged = merge(root, merged, flatten(root, part))
    return merged


def _complete(root: type, tree: Flat) -> Tree:
    """The settings with every default written out, checked as a file of the command is."""
    return to_tree(from_tree(root, tree))


def _without(tree: Tree, names: Sequence[str]) -> Tree:
    return {name: value for name, value in tree.items() if name not in names}


def jobs_of(cells: Sequence[TableCell]) -> Iterator[TableJob]:
    """Every job of some cells, each once."""
    yield from {job.key: job for cell in cells for job in cell.jobs}.values()
