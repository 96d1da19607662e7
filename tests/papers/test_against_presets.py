"""Tables at scale `paper`, and the primary questions, are the presets of their paper, but for what
`varies` and `open` name.

`python -m tests.papers.test_against_presets` prints how each table stands to them.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from copy import deepcopy
from fnmatch import fnmatch
from typing import Any

import numpy as np
import pytest

from fedmia.attacks.sd_mi import choose_anchors
from fedmia.settings import registry
from fedmia.settings.options import option_fields
from fedmia.settings.tree import flatten
from fedmia.settings.values import plain
from papers.entries import Entry, TableCell, jobs_of, read_entries
from papers.jobs import AUDIT, ENCODER, FEDERATION, HEAD, TableJob
from papers.layers import lay, root_of
from papers.listing import read_files

PAPERS = ("encodermi", "federated", "logistic", "lpla", "partcrop", "primaries")
IN_SMALL = {"overfit-cifar10": "papers/federated-contrastive-cifar10"}  # whose paper has another
ENTRIES = [name for name, entry in read_entries().items() if entry.paper in PAPERS]
KINDS = {AUDIT, ENCODER, FEDERATION, HEAD}
Flat = dict[str, Any]


def every_value(kind: str, tree: Mapping[str, Any], attacks: list[str]) -> Flat:
    """A job's settings, flat, with every option of these attacks: a tree holds those given."""
    flat = flatten(root_of(kind), {name: v for name, v in tree.items() if name != "attack"})
    for name in attacks:
        own = tree.get("attack", {}).get(name, {})
        for one, _ in option_fields(registry.load("attack", name)):
            flat[f"attack.{name}.{one.name}"] = own.get(one.name, plain(one.default))
    return flat


@functools.cache
def preset_values(kind: str, preset: str, attacks: tuple[str, ...]) -> Flat:
    return every_value(kind, lay(kind, [{"preset": preset}])[0], list(attacks))


def differences(job: TableJob) -> Flat:
    """The settings of a job that are not those of its preset; its seed is that of a target.

    Their paths begin with the kind of the job. Options of attacks that the preset does not name
    are compared with their defaults.
    """
    preset = IN_SMALL.get(job.preset, job.preset)
    if not preset:
        return {f"{job.kind}.preset": None} if job.tree else {}
    attacks = job.tree.get("attacks") or []
    ours = every_value(job.kind, job.tree, attacks)
    theirs = preset_values(job.kind, preset, tuple(attacks))
    paths = [p for p in theirs | ours if p != "seed" and ours.get(p) != theirs.get(p)]
    return {f"{job.kind}.{path}": ours.get(path) for path in paths}


def differing(*cells: TableCell) -> set[str]:
    """Every setting in which a job of these cells is not its preset, whatever the table says."""
    jobs = {job.key: job for cell in cells for job in cell.jobs[0].chain()}
    return {path for job in jobs.values() for path in differences(job)}


def run_cells(entry: Entry) -> list[TableCell]:
    """Those of scale `paper`; the primary questions are asked at `small` alone."""
    scale = "small" if entry.paper == "primaries" else "paper"
    return [cell for cell in entry.plan(scale, 1) if cell.jobs]


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


def against_presets() -> Iterator[tuple[str, str, int, int, dict[str, str]]]:
    """Of each entry: paper, name, cells that are run, those that are the preset, and the settings
    of the others that are not, with the reasons. What the paper varies counts as the preset's."""
    for entry in read_entries().values():
        every = [apart(entry, cell) for cell in run_cells(entry)]
        reasons = {path: why for one in every for path, why in one.items()}
        yield entry.paper, entry.name, len(every), every.count({}), reasons


@pytest.mark.parametrize("name", ENTRIES)
def test_entry__is_its_presets_or_says_why_not(name: str) -> None:
    """Each key of `open` with a dot, and of `varies`, names a setting that is not the preset's."""
    entry = read_entries()[name]
    assert without_reason(entry) == []
    assert idle_in(entry) == []


@pytest.mark.parametrize("paper", PAPERS)
def test_file__says_nothing_of_settings_that_are_the_presets(paper: str) -> None:
    cells = [c for e in read_entries().values() if e.paper == paper for c in run_cells(e)]
    assert [*idle(read_files()[paper], differing(*cells))] == []


def changed(name: str, **own: Any) -> Entry:
    """An entry of which some keys are otherwise."""
    entry = read_entries()[name]
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
    # An option of an attack that its preset leaves at fedmia's default, and a plugin in its place.
    tails = ("audit.attack.encodermi-v.operations", "encoder.model", "encoder.model.width")
    for path, own in zip(
        tails,
        ({"audit": {"attack": {"encodermi-v": {"operations": ["crop"]}}}},
         {"encoder": {"model": {"name": "resnet50", "stem": "cifar", "norm": "split"}}},
         {"encoder": {"model": {"width": 32}}}), strict=True,
    ):  # fmt: skip
        assert {line.partition(": ")[2] for line in without_reason(changed(name, **own))} == {path}
    own = {"encoder": {"model": "resnet18"}}  # alone: stem and norm are still the preset's
    assert without_reason(changed(name, **own)) == []
    own = {"encoder": {"model": "resnet50"}}  # they go with the network that has them
    assert "cosine, V: encoder.model.norm" in without_reason(changed(name, **own))


def test_job_without_a_preset__is_a_difference() -> None:
    (entry,) = [e for e in read_entries().values() if e.name == "encodermi-table-3"]
    layers = {"file": {**entry.layers["file"], "audit": {}}, "entry": entry.layers["entry"]}
    bare = Entry(entry.name, entry.paper, entry.place, entry.title, layers=layers)
    assert "cosine, V: audit.preset" in without_reason(bare)


def test_preset_of_a_run__in_the_settings_of_an_encoder() -> None:
    tree, preset = lay(ENCODER, [{"preset": "papers/lpla"}, {"preset": "papers/encodermi"}])
    assert preset == "papers/encodermi"
    assert (tree["epochs"], tree["keep"]) == (1600, [400, 800, 1200])
    assert (tree["members"], tree["nonmembers"]) == (10_000, 39_400)
    assert tree["model"]["norm"] == "split" and tree["ssl"]["queue_limit"] == "none"
    assert tree["train"]["schedule"] == "steps" and "device" not in tree


def test_against_presets__a_row_an_entry() -> None:
    rows = {name: row for _, name, *row in against_presets() if name in ENTRIES}
    assert rows["encodermi-table-2"] == [24, 24, {}]
    assert rows["encodermi-fig-2"][:2] == [9, 0]
    assert [*rows["lpla-fig-6"][2]] == ["audit.attack.sd-mi.anchors"]
    assert all(all(reasons.values()) for *_, reasons in rows.values())


@pytest.mark.parametrize("name", [n for n in ENTRIES if n.startswith("lpla")])
def test_sd_mi__has_known_images_beside_its_anchors(name: str) -> None:
    """At every scale; in the tables at scale `paper` 2,000 anchors and the paper's 4,000."""
    for scale in ("smoke", "small", "paper"):
        for job in jobs_of(read_entries()[name].plan(scale, 1)):
            own = job.tree["attack"].get("sd-mi") if job.kind == AUDIT else None
            if own is None or "sd-mi" not in job.tree["attacks"]:
                continue
            known = np.repeat([1, 0], job.tree["split"]["known"])
            chosen = choose_anchors(known, own["anchors"], np.random.default_rng(0))
            if scale == "paper" and job.tree["attacks"] == ["sd-mi"]:
                assert (chosen.sum(), (~chosen).sum()) == (2000, 4000)


if __name__ == "__main__":
    print("| paper | entry | cells | as the preset | open |")
    print("|---|---|---|---|---|")
    for *row, reasons in against_presets():
        why = "; ".join(f"`{path}`: {reason or 'NO REASON'}" for path, reason in reasons.items())
        print("|", *row, why, sep=" | ", end=" |\n")
