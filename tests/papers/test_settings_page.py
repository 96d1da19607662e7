"""docs/papers/settings.md: tables at scale `paper`, and the primary questions, are the presets of
their paper, but for what `varies` and `open` name.

`python -m tests.papers.test_settings_page` writes the page.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping
from copy import deepcopy
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml

from fedmia.settings import registry
from research.papers.entries import Entry, TableCell
from tests.papers.plans import ENTRIES, FILES, plan

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "papers" / "settings.md"
SOURCES = yaml.safe_load((ROOT / "research/papers/tables/sources.yaml").read_text("utf-8"))
FOLDERS = {"head": ROOT / "research/papers/heads/presets"}  # those of the others are fedmia's
IN_SMALL = {"overfit-cifar10": "papers/federated-contrastive-cifar10"}  # whose paper has another
PAPERS = ("encodermi", "federated", "logistic", "lpla", "partcrop", "primaries")
KINDS = ("audit", "encoder", "federation", "head")
Flat = dict[str, Any]
DIFFERING = dict[str, set[str]]()  # by the key of a job
HEAD = """# Settings of the papers' tables

Most cells of the tables have their paper's settings. Those that do not stand here with the reason,
and so do the primary questions. A paper's settings are its presets, whose values name their source
in the paper or in its official code. The tables are those of `python -m research.papers` at
`--scale paper`; the primary questions are asked at `--scale small`. A cell *equals* its preset
where every setting of its jobs does, but for what the table itself varies.
"""


# -- a job beside its preset -----------------------------------------------------------------------


def flat(tree: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Settings by path; a plugin's name by the path of the plugin."""
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{above}{name}.")
        else:
            yield above[:-1] if name == "name" and above != "data." else f"{above}{name}", value


def every_value(tree: Mapping[str, Any], attacks: tuple[str, ...]) -> Flat:
    """A job's settings with every option of these attacks: a tree holds those given."""
    values = dict(flat({name: v for name, v in tree.items() if name != "attack"}))
    for name in attacks:
        own = tree.get("attack", {}).get(name, {})
        for one in dataclasses.fields(registry.load("attack", name)):
            if one.init and "help" in one.metadata:
                usual = [*one.default] if isinstance(one.default, tuple) else one.default
                values[f"attack.{name}.{one.name}"] = own.get(one.name, usual)
    return values


@functools.cache
def preset_values(kind: str, preset: str, attacks: tuple[str, ...]) -> Flat:
    """Those of a job of which nothing is said but its preset, on the preset's own images."""
    file: dict[str, Any] = {kind: {"preset": preset}, "kind": kind, "read": "", "data": "cifar10"}
    if kind != "audit":
        file["data"] = source_of(FOLDERS.get(kind, ROOT / "configs"), preset)
    if kind in ("audit", "head"):
        file["encoder"] = {"preset": "papers/lpla"}
    label = [{"label": ""}]
    layers = {"file": file, "entry": {"rows": label, "columns": label}}
    (cell,) = Entry("preset", "p", "", "", layers=layers).plan("paper", 1)
    return every_value(cell.jobs[0].tree, attacks)


def source_of(folder: Path, preset: str) -> str:
    """The images of a preset, by their name among the sources of the tables."""
    tree = yaml.safe_load((folder / f"{preset}.yaml").read_text("utf-8"))
    if "data" not in tree:
        return source_of(folder, tree["base"])
    own = tree["data"] if isinstance(tree["data"], Mapping) else {"name": tree["data"]}
    keys = ("name", "subset")
    found = (
        source
        for source, images in SOURCES.items()
        if [images.get(key) for key in keys] == [own.get(key) for key in keys]
    )
    return next(found)


def differences(job: Any) -> Flat:
    """The settings of a job that are not those of its preset; its seed is that of a target.

    Their paths begin with the kind of the job. Options of attacks that the preset does not name
    are compared with their defaults.
    """
    preset = IN_SMALL.get(job.preset, job.preset)
    if not preset:
        return {f"{job.kind}.preset": None} if job.tree else {}
    attacks = tuple(job.tree.get("attacks") or ())
    ours, theirs = every_value(job.tree, attacks), preset_values(job.kind, preset, attacks)
    paths = [p for p in theirs | ours if p != "seed" and ours.get(p) != theirs.get(p)]
    return {f"{job.kind}.{path}": ours.get(path) for path in paths}


def differing(*cells: TableCell) -> set[str]:
    """Every setting in which a job of these cells is not its preset, whatever the table says."""
    jobs = [job for cell in cells for job in cell.jobs[0].chain()]
    for job in jobs:
        if job.key not in DIFFERING:  # tables share jobs
            DIFFERING[job.key] = {*differences(job)}
    return {path for job in jobs for path in DIFFERING[job.key]}


def run_cells(entry: Entry) -> list[TableCell]:
    """Those of scale `paper`; the primary questions are asked at `small` alone."""
    scale = "small" if entry.paper == "primaries" else "paper"
    known = ENTRIES.get(entry.name) is entry
    cells = plan(entry.name, scale) if known else entry.plan(scale, 1)
    return [cell for cell in cells if cell.jobs]


def trees_of(entry: Entry, cell: TableCell) -> list[Mapping[str, Any]]:
    """What may say `varies` and `open` of a cell."""
    file, own = entry.layers["file"], entry.layers["entry"]
    axes = (("rows", cell.row), ("columns", cell.column))
    return [file, own, *(o for axis, label in axes for o in own[axis] if o["label"] == label)]


def apart(entry: Entry, cell: TableCell) -> dict[str, str]:
    """Settings that are not the preset's and that the paper does not vary -> the reason, or ''.

    Options of attacks beside the one whose number the cell holds decide nothing of it.
    """
    trees, read = trees_of(entry, cell), cell.read.split("/")
    varies = [key for tree in trees for key in tree.get("varies", ())]
    reasons = {key: why for tree in trees for key, why in tree.get("open", {}).items()}
    return {
        path: next((why for key, why in reversed(reasons.items()) if fnmatch(path, key)), "")
        for path in sorted(differing(cell))
        if not any(fnmatch(path, key) for key in varies)
        and (not path.startswith("audit.attack.") or path.split(".")[2] in read)
    }


def without_reason(entry: Entry) -> list[str]:
    return [
        f"{cell.row}, {cell.column}: {path}"
        for cell in run_cells(entry)
        for path, why in apart(entry, cell).items()
        if not why
    ]


def idle(tree: Mapping[str, Any], paths: set[str]) -> Iterator[str]:
    """What a file, an entry, a row or a column says of settings that are as in the preset."""
    for key in [*tree.get("varies", ()), *(k for k in tree.get("open", {}) if "." in k)]:
        if key.partition(".")[0] not in KINDS or not any(fnmatch(path, key) for path in paths):
            yield key


def idle_in(entry: Entry) -> list[str]:
    own, cells = entry.layers["entry"], run_cells(entry)
    keys = [*idle(own, differing(*cells))]
    for axis, name in (("rows", "row"), ("columns", "column")):
        for one in own[axis]:
            mine = [cell for cell in cells if getattr(cell, name) == one["label"]]
            keys += idle(one, differing(*mine)) if mine else ()
    return keys


# -- the page --------------------------------------------------------------------------------------


@functools.cache  # they take some seconds
def rows() -> list[Any]:
    """Of each table that its paper has: paper, name, cells, those that are the preset, and the
    settings of the others that are not, with the reasons. What the paper varies counts as the
    preset's."""
    found = []
    for entry in ENTRIES.values():
        if every := [apart(entry, cell) for cell in run_cells(entry)]:
            reasons = {path: why for one in every for path, why in one.items()}
            found.append((entry.paper, entry.name, len(every), every.count({}), reasons))
    return found


def cell(text: object) -> str:
    return str(text).replace("|", "\\|")


def table(head: str, rows: list[list[object]]) -> str:
    lines = [f"| {' | '.join(map(cell, row))} |" for row in rows]
    return "\n".join([head, "|" + "---|" * (head.count("|") - 1), *lines]) + "\n"


def page() -> str:
    papers = {row[0]: [one for one in rows() if one[0] == row[0]] for row in rows()}
    counts: list[list[object]] = [
        [
            paper,
            len(its),
            cells := sum(r[2] for r in its),
            equal := sum(r[3] for r in its),
            cells - equal,
        ]
        for paper, its in papers.items()
    ]
    parts = [HEAD, table("| Paper | Tables | Cells | Equal | Otherwise |", counts)]
    for paper, its in papers.items():
        reasons = ["; ".join(f"`{path}`: {why}" for path, why in r[4].items()) for r in its]
        lines: list[list[object]] = [
            [f"`{r[1]}`", *r[2:4], why] for r, why in zip(its, reasons, strict=True)
        ]
        parts += [f"## {FILES[paper]['title']}\n"]
        parts += [table("| Table | Cells | Equal | Otherwise, and why |", lines)]
        entries = [entry for entry in ENTRIES.values() if entry.paper == paper]
        choices = {k: why for e in entries for k, why in e.open.items() if "." not in k}
        if choices and paper != "primaries":  # which argues for each of its questions
            parts += ["What the paper leaves open, or what is done in another way:\n"]
            parts += ["".join(f"- *{key}*: {why}\n" for key, why in choices.items())]
    return "\n".join(parts)


@pytest.mark.slow(seconds=5)
def test_page__is_that_of_the_tables_and_each_difference_has_a_reason() -> None:
    """Where it is not, the module writes it. Each key of `open` with a dot, and of `varies`, names
    a setting that is not the preset's."""
    assert sum(row[3] for row in rows()) > 1000
    assert not [(row[1], path) for row in rows() for path, why in row[4].items() if not why]
    assert PAGE.read_text(encoding="utf-8") == page()
    idle_keys = {name: idle_in(e) for name, e in ENTRIES.items() if e.paper in PAPERS}
    for paper in PAPERS:
        cells = [c for e in ENTRIES.values() if e.paper == paper for c in run_cells(e)]
        idle_keys[paper] = [*idle(FILES[paper], differing(*cells))]
    assert not {name: keys for name, keys in idle_keys.items() if keys}


def changed(name: str, **own: Any) -> Entry:
    """An entry of which some keys are otherwise."""
    entry = ENTRIES[name]
    layers = deepcopy(dict(entry.layers))
    layers["entry"] |= own
    return Entry(entry.name, entry.paper, entry.place, entry.title, layers=layers)


def test_differences__see_a_planted_value_and_a_wrong_reason() -> None:
    name, why = "encodermi-table-3", {"encoder.train.lr": "planted"}
    planted = {"encoder": {"train": {"lr": 0.3}}}
    assert len(without_reason(changed(name, **planted))) == 9
    beside = {"audit": {"attack": {"encodermi-t": {"views": 3}}}}
    assert len(without_reason(changed(name, **beside))) == 3  # of nine cells, those of this attack
    assert without_reason(changed(name, **planted, open=why)) == []
    assert idle_in(changed(name, **planted, open=why)) == []
    assert idle_in(changed(name, open=why)) == ["encoder.train.lr"]
    assert idle_in(changed(name, open={"batch": "no path"})) == []
    bare = changed(name)
    bare.layers["file"]["audit"] = {}
    assert "cosine, V: audit.preset" in without_reason(bare)


@pytest.mark.parametrize(
    ("own", "paths"),
    [
        # An option of an attack that its preset leaves at fedmia's default.
        ({"audit": {"attack": {"encodermi-v": {"operations": ["crop"]}}}},
         {"audit.attack.encodermi-v.operations"}),
        ({"encoder": {"model": {"name": "resnet50", "stem": "cifar", "norm": "split"}}},
         {"encoder.model"}),
        ({"encoder": {"model": {"width": 32}}}, {"encoder.model.width"}),
        ({"encoder": {"model": "resnet18"}}, set()),  # alone: stem and norm are the preset's
        # They go with the network that has them.
        ({"encoder": {"model": "resnet50"}},
         {"encoder.model", "encoder.model.norm", "encoder.model.stem"}),
    ],
)  # fmt: skip
def test_differences__are_told_by_their_paths(own: Any, paths: set[str]) -> None:
    found = without_reason(changed("encodermi-table-3", **own))
    assert {line.partition(": ")[2] for line in found} == paths


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
