"""The power is cut at any moment of a run: what is on the disk then goes on to the same report."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from safetensors import safe_open

from fedmia.federation import checkpoint
from fedmia.report.figures import draw
from fedmia.simulate import main as simulate
from fedmia.storage.archive import unpack
from tests.federation.test_resume import TINY, read
from tests.storage.disk import DELETED, KEPT, LOST, Disk, Tree, recorded, restore

Patch = pytest.MonkeyPatch
INDEX = f"checkpoint/{checkpoint.INDEX}"
FATES = (LOST, KEPT, DELETED)
SHORT = TINY.replace("--rounds 4", "--rounds 2").replace("--attack-rounds 2", "--attack-rounds 1")


def whole(folder: Path, flags: str, patch: Patch) -> Disk:
    """The disk under a run that nothing befell."""
    patch.setattr(draw, "draw_all", lambda scores, report: {})
    with recorded(folder, patch) as disk:
        assert simulate([*shlex.split(flags), "--out", str(folder / "RUN")]) == 0
    return disk


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Disk:
    """The disk under a short run with all branches."""
    with pytest.MonkeyPatch.context() as patch:
        return whole(tmp_path_factory.mktemp("disk"), SHORT, patch)


def run_of(tree: Tree) -> Tree:
    """The run's folder alone."""
    return {n.removeprefix("RUN/"): content for n, content in tree.items() if n[:4] == "RUN/"}


def missing(run: Tree, scratch: Path, sound: set[bytes | None]) -> list[str]:
    """What a run's index or report counts on and the disk does not have whole; `sound` is read."""
    names = list[str]()
    if run.get(INDEX):
        index = json.loads(run[INDEX] or b"")
        names += [f"checkpoint/{name}" for name in index["files"].values()]
        names += [f"checkpoint/clients/{name}" for *_, name in index["clients"]["files"]]
        rounds = [row.round for row in unpack(index["rounds"], {})]
        names += [f"snapshots/main/round-{round:04d}.safetensors" for round in (0, *rounds)]
    elif INDEX in run:
        return [INDEX]
    if run.get("report.json"):
        json.loads(run["report.json"] or b"")
    lacking = [name for name in names if not run.get(name)]
    for name in names:
        if name in lacking or run[name] in sound:
            continue
        sound.add(run[name])
        scratch.write_bytes(run[name] or b"")
        with safe_open(scratch, framework="pt") as file:
            assert file.keys() is not None
    return lacking + ["config.yaml"] * (bool(names) and not run.get("config.yaml"))


@pytest.mark.slow
def test_index__counts_on_nothing_that_is_not_on_the_disk(disk: Disk, tmp_path: Path) -> None:
    """After every call that decides what is there, whatever becomes of names that were not forced.

    Every round is evaluated, so a snapshot of each round that an index knows is among them.
    """
    sound = set[bytes | None]()
    for fate in FATES:
        states = [run_of(tree) for tree in disk.states[fate]]
        generations = {json.loads(s[INDEX] or b"0")["generation"] for s in states if s.get(INDEX)}
        assert len(generations) == (2 + 1) + (1 + 1) + (2 + 1)  # rounds, beginnings, of branches
        lost = [names for state in states if (names := missing(state, tmp_path / "x", sound))]
        assert lost == [], fate


def test_finished_run__is_on_the_disk_before_its_checkpoint_goes(disk: Disk) -> None:
    out = disk.root / "RUN"
    files = {p.relative_to(out).as_posix(): p.read_bytes() for p in out.rglob("*") if p.is_file()}
    for fate in FATES:
        began = False
        for state in map(run_of, disk.states[fate]):
            began |= bool(state.get(INDEX))
            if began and not state.get(INDEX):
                assert {name: state.get(name) for name in files} == files
    assert "report.json" in files and "snapshots/main/round-0002.safetensors" in files


def resumes(tree: Tree, folder: Path, report: dict[str, Any], flags: str) -> None:
    """A run goes on from what a cut left, or begins anew where that is no run yet."""
    out = restore(tree, folder) / "RUN"
    begun = bool(run_of(tree).get("config.yaml"))
    begin = [*shlex.split(flags), "--out", str(out)]
    assert simulate(["--resume", str(out), "--quiet"] if begun else begin) == 0
    assert read(out) == report
    assert not [p for p in out.rglob("*") if "checkpoint" in str(p) or "partial" in p.name]


def picked(disk: Disk, fate: str, shares: list[float]) -> list[Tree]:
    states = disk.states[fate]
    return [states[int(share * (len(states) - 1))] for share in shares]


@pytest.mark.parametrize("fate", [LOST])
def test_cut__goes_on_to_the_same_report(
    fate: str, disk: Disk, tmp_path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(draw, "draw_all", lambda scores, report: {})
    for number, tree in enumerate(picked(disk, fate, [0.55])):
        resumes(tree, tmp_path / str(number), read(disk.root / "RUN"), SHORT)


@pytest.mark.slow(seconds=60)
@pytest.mark.parametrize("fate", FATES)
def test_cut_at_any_call_of_a_round__goes_on_to_the_same_report(
    fate: str, tmp_path: Path, monkeypatch: Patch
) -> None:
    """At every point of the second round of the main branch, then now and then until the end."""
    disk = whole(tmp_path / "disk", SHORT, monkeypatch)
    report = read(disk.root / "RUN")
    states = disk.states[fate]
    at = [json.loads(run_of(t).get(INDEX) or b'{"generation": 0}')["generation"] for t in states]
    inside = [tree for tree, generation in zip(states, at, strict=True) if generation == 2]
    assert len(inside) >= 4
    for number, tree in enumerate([*inside, *picked(disk, fate, [0, 0.02, 0.7, 0.9, 1])]):
        resumes(tree, tmp_path / str(number), report, SHORT)
