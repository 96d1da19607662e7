"""What a table asks for: `tables/PAPER.yaml` read into cells, each a number and the jobs behind it.

A file holds what all its entries share (`encoder`, `audit`, `head`, `federation`, `scales`) and its
`entries`. A cell is laid over, lowest first: the `preset` of the paper that the highest of them
names, file, level, entry, row, the row's level, column, and over each of file, entry, row and
column its own of the scale. Lists and names replace, mappings merge.

What the paper itself varies stands under `varies`, what is otherwise than in the preset under
`open`, with the reason: both by the path of the setting, which begins with the kind of the job and
may have a `*`. Other keys of `open`, without a dot, are what the paper does not say.
"""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fedmia.settings.errors import InputError, opt, prefix_errors, suggest_nearest
from fedmia.settings.yamlfile import Tree
from research.papers.jobs import AUDIT, ENCODER, FEDERATION, HEAD, OTHERS, PAPER, TableJob
from research.papers.layers import Layers, lay
from research.papers.listing import SMOKE, read_files, read_sources

PARTS = (ENCODER, AUDIT, HEAD, FEDERATION)
LAYER = {*PARTS, "data", "kind", "read", "epoch", "targets", "seed"}  # what a row may lay over
SMOKE_SOURCE = {"name": "synthetic", "pixels": 16, "images": 400}
SMOKE_SHADOWS = {"name": "synthetic", "pixels": 16, "images": 200, "classes": 7}
MADE_UP_SET = "made-up images"  # in place of the name of a data set


@dataclass(frozen=True)
class TableCell:
    """One number of a table.

    Attributes:
        row, column, level: its place; `level` is empty where a scale has one level of leak.
        read: path of the number in what its job wrote (`research.papers.cells`).
        jobs: one for each target, in the order of its seed; empty where the cell is not run.
        theirs: the paper's number, None where it prints none.
        theirs_sd: the paper's deviation over targets, None where it gives none.
        reason: why the cell is not run; empty where it is.
        file: of its images in the folder of data sets; empty where they are made up.
    """

    row: str
    column: str
    level: str
    read: str
    jobs: tuple[TableJob, ...]
    theirs: float | None
    theirs_sd: float | None
    reason: str = ""
    file: str = ""


@dataclass(frozen=True)
class Entry:
    """A table or a figure of a paper.

    Attributes:
        name: as the command takes it: `encodermi-table-2`.
        paper: name of its file, and of the paper in `--list`.
        place: where it stands in the paper.
        title: what it shows.
        figure: how its numbers are drawn: `lines`, `bars` or nothing.
        open: choice that the paper leaves open, or setting that is not the preset's -> what is
            chosen here, and why.
        claims: what the paper says of it, as `research.papers.claims.over_targets` reads them.
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

    def shown_at(self, scale: str) -> Entry:
        """The entry as its table at a scale shows it.

        Args:
            scale: as of `cells`.

        Returns:
            The entry; at `smoke` without data sets' names, the paper's claims and its open choices,
            none of which is about made-up images.
        """
        if scale != SMOKE:
            return self
        title, place = _without_sets(self.title), _without_sets(self.place)
        return replace(self, title=title, place=place, open={}, claims=())

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
        return [_if_images(cell, data_dir) for cell in self.plan(scale, targets)]

    def plan(self, scale: str, targets: int | None = None) -> list[TableCell]:
        """The cells as if all data sets were there.

        Args:
            scale: as of `cells`.
            targets: likewise.

        Returns:
            The cells.
        """
        file, own = self.layers["file"], self.layers["entry"]
        (_, at), (_, here) = _scaled(scale, file), _scaled(scale, own)
        levels = here.get("levels", at.get("levels", {"": {}})) if scale != SMOKE else {"": {}}
        rows = list(enumerate(own["rows"]))
        if scale == SMOKE:  # every row takes the same path
            labels = here.get("rows", [own["rows"][-1]["label"]])
            rows = [(i, row) for i, row in rows if row["label"] in labels]
        cells: list[TableCell] = []
        for level, laid in levels.items():
            for i, row in rows:
                of_row = (*_scaled(scale, row), row.get("levels", {}).get(level, {}))
                for j, column in enumerate(own["columns"]):
                    theirs, sd = (_printed(own.get(name), i, j) for name in ("theirs", "theirs_sd"))
                    bare = TableCell(row["label"], column["label"], level, "", (), theirs, sd)
                    trees = (file, at, laid, own, here, *of_row, *_scaled(scale, column))
                    with prefix_errors(f"{self.paper}.yaml, {self.name}, {bare.row}"):
                        cells.append(_plan(bare, trees, here, scale, targets))
        return [*map(_of_made_up, cells)] if scale == SMOKE else cells


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
            open=dict(ChainMap(*(t.get("open", {}) for t in (own, *own["rows"], file)))),
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


def _without_sets(text: str) -> str:
    """A title or a label that names no data set."""
    titles = {source["title"] for source in read_sources().values()}
    longest_first = sorted(titles, key=len, reverse=True)  # CIFAR-100 holds CIFAR-10
    return re.sub("|".join(map(re.escape, longest_first)), MADE_UP_SET, text)


def _of_made_up(cell: TableCell) -> TableCell:
    """The cell with labels that name no data set."""
    return replace(cell, row=_without_sets(cell.row), column=_without_sets(cell.column))


def _scaled(scale: str, tree: Mapping[str, Any]) -> Layers:
    """A tree, and its own of a scale."""
    return tree, tree.get("scales", {}).get(scale, {})


def _printed(numbers: Sequence[Sequence[Any]] | None, i: int, j: int) -> float | None:
    number: Any = numbers[i][j] if numbers else None
    if isinstance(number, list):  # accuracy, precision, recall; or the three highest confidences
        number = number[0]
    return None if number is None else float(number)


def _plan(
    bare: TableCell, trees: Layers, here: Mapping[str, Any], scale: str, targets: int | None
) -> TableCell:
    """`bare` with what is read and its jobs, or with the reason why it has none."""
    *_, column, _ = trees
    plain: dict[str, Any] = {}
    for tree in trees:
        plain |= {key: tree[key] for key in LAYER - set(PARTS) if key in tree}
    attack = column.get("attack", "")
    place = {"row": bare.row, "column": bare.column, "at": column.get("at", "")}
    read = str(plain["read"]).format(attack=attack, **place)
    reason = next((tree["not_run"] for tree in trees if "not_run" in tree), "")
    for axis, label in (("rows", bare.row), ("columns", bare.column)):
        if axis in here and label not in here[axis]:
            reason = reason or here["reason"]
    if reason:
        return replace(bare, read=read, reason=reason)
    first = plain.get("seed", 0)
    seeds = range(first, first + (targets or plain.get("targets", 1)))
    jobs = tuple(_job(plain, trees, seed, scale) for seed in seeds)
    file = "" if scale == SMOKE else read_sources()[plain["data"]]["file"]
    return replace(bare, read=read, jobs=jobs, file=file)


def _images(name: str, scale: str, smoke: Mapping[str, Any] = SMOKE_SOURCE) -> Tree:
    """The data section of a set by its name in `sources.yaml`; at `smoke` of made-up images."""
    source = smoke if scale == SMOKE else read_sources()[name]
    return {key: value for key, value in source.items() if key not in ("file", "title")}


def _if_images(cell: TableCell, data_dir: Path | None) -> TableCell:
    """The cell, without jobs where the file of its images is not there."""
    if not cell.file or (data_dir and (data_dir / cell.file).exists()):
        return cell
    no_folder = "its images are needed: --data-dir names their folder"
    no_file = f"no {cell.file} in the folder of --data-dir"
    return replace(cell, jobs=(), reason=no_file if data_dir else no_folder)


def _job(plain: Tree, trees: Layers, seed: int, scale: str) -> TableJob:
    """The last job of a cell, for the target of one seed."""
    kind = plain.get("kind", AUDIT)
    source = {"data": _images(plain["data"], scale), "seed": seed}
    if kind in (FEDERATION, PAPER):
        run = _make(FEDERATION, trees, source)
        return run if kind == FEDERATION else TableJob(PAPER, {}, run)
    encoder = _make(ENCODER, trees, source)
    if kind == ENCODER:
        return encoder
    key = "data" if kind == HEAD else "shadow_data"
    names = [tree[kind][key] for tree in trees if key in tree.get(kind, {})]
    own: Tree = {}
    if kind == HEAD:  # at the paper's size it takes more images than its encoder leaves
        own = {key: _images([plain["data"], *names][-1], scale) if scale == "paper" else OTHERS}
    elif names:
        own = {key: _images(names[-1], scale, SMOKE_SHADOWS)}
    job = _make(kind, trees, own)
    # No head of a target has the seed of another target's, with whom it would share its noise.
    tree = {**job.tree, "seed": seed * job.tree.get("seeds", 1)}
    return replace(job, tree=tree, needs=encoder, epoch=plain.get("epoch"))


def _make(kind: str, trees: Layers, own: Tree) -> TableJob:
    """A job of a kind, `own` over all trees."""
    tree, preset = lay(kind, [*(tree.get(kind, {}) for tree in trees), own])
    return TableJob(kind, tree, preset=preset)


def jobs_of(cells: Sequence[TableCell]) -> Iterator[TableJob]:
    """Every job of some cells, each once."""
    yield from {job.key: job for cell in cells for job in cell.jobs}.values()
