"""The power is cut at any moment of a run: what is on the disk then goes on to the same report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from safetensors import safe_open

from fedmia.federation import checkpoint
from fedmia.storage.archive import unpack
from tests.small_runs import (
    BRANCHES,
    SMALL,
    WATCHED,
    not_repeated,
    read,
    resume,
    simulate,
    ticking,
)
from tests.storage.disk import DELETED, KEPT, LOST, Disk, Tree, recorded, restore
from tests.watched import watch

INDEX = f"checkpoint/{checkpoint.INDEX}"
LINES = "recording/rounds.jsonl"
FATES = (LOST, KEPT, DELETED)
SHORT = BRANCHES.replace("--rounds 4 --attack-rounds 2", "--rounds 2 --attack-rounds 1")
SHORT += "--checkpoint-every 0 "
SIX = (
    SMALL.replace("snapshots 1", "snapshots 6") + f"{WATCHED}--attacks none --clients 2 --rounds 6 "
)


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Disk:
    """The disk under a short run with all branches that nothing befell."""
    folder = tmp_path_factory.mktemp("disk")
    with pytest.MonkeyPatch.context() as patch, recorded(folder, patch) as found:
        assert simulate(SHORT, folder / "RUN") == 0
    return found


@pytest.fixture(scope="module")
def minutes(tmp_path_factory: pytest.TempPathFactory) -> Disk:
    """The disk under six rounds of 25 seconds, with a checkpoint a minute: at 0, 3 and 6."""
    folder = tmp_path_factory.mktemp("minutes")
    with pytest.MonkeyPatch.context() as patch, recorded(folder, patch) as found:
        watch()
        ticking(patch, 25)
        assert simulate(SIX, folder / "RUN") == 0
    return found


def run_of(tree: Tree) -> Tree:
    """The run's folder alone."""
    return {n.removeprefix("RUN/"): content for n, content in tree.items() if n[:4] == "RUN/"}


def generation(tree: Tree) -> int:
    """How many checkpoints were written by then."""
    return int(json.loads(run_of(tree).get(INDEX) or b'{"generation": 0}')["generation"])


def missing(run: Tree, scratch: Path, sound: set[bytes | None]) -> list[str]:
    """What a run's index or report counts on and the disk does not have whole; `sound` is read."""
    names = list[str]()
    if run.get(INDEX):
        index = json.loads(run[INDEX] or b"")
        names += [f"checkpoint/{name}" for name in index["files"].values()]
        names += [f"checkpoint/clients/{name}" for *_, name in index["clients"]["files"]]
        rounds = [row.round for row in unpack(index["rounds"], {})]
        names += [f"recording/models/main/{round:04d}.safetensors" for round in (0, *rounds)]
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


def test_index__counts_on_nothing_that_is_not_on_the_disk(disk: Disk, tmp_path: Path) -> None:
    """After every call that decides what is there, whatever becomes of names that were not forced.

    Every round is evaluated, so a snapshot of each round that an index knows is among them.
    """
    sound = set[bytes | None]()
    for fate in FATES:
        generations = {number for tree in disk.states[fate] if (number := generation(tree))}
        assert len(generations) == (2 + 1) + (1 + 1) + (2 + 1)  # rounds, beginnings, of branches
        states = map(run_of, disk.states[fate])
        lost = [names for state in states if (names := missing(state, tmp_path / "x", sound))]
        assert lost == [], fate


def test_finished_run__is_on_the_disk_before_its_checkpoint_goes(disk: Disk) -> None:
    out = disk.root / "RUN"
    files = {p.relative_to(out).as_posix(): p.read_bytes() for p in out.rglob("*") if p.is_file()}
    without_lines = {name: content for name, content in files.items() if name != LINES}
    for fate in FATES:
        began = False
        for state in map(run_of, disk.states[fate]):
            began |= bool(state.get(INDEX))
            if began and not state.get(INDEX):
                lines = (state.get(LINES) or b"").splitlines()  # with those of controls for a while
                assert set(files[LINES].splitlines()) <= set(lines)
                assert {n: state.get(n) for n in files.keys() - {LINES}} == without_lines
    assert "report.json" in files and "recording/models/main/0002.safetensors" in files


def resumes(tree: Tree, folder: Path, disk: Disk, flags: str = SHORT) -> None:
    """A run goes on from what a cut left, or begins anew where that is no run yet."""
    out = restore(tree, folder) / "RUN"
    assert (resume(out) if run_of(tree).get("config.yaml") else simulate(flags, out)) == 0
    assert read(out) == read(disk.root / "RUN")
    assert not [p for p in out.rglob("*") if "checkpoint" in str(p) or "partial" in p.name]


def test_cut__goes_on_to_the_same_report(disk: Disk, tmp_path: Path) -> None:
    states = disk.states[LOST]
    resumes(states[int(0.55 * len(states))], tmp_path / "cut", disk)


@pytest.mark.parametrize("fate", FATES)
def test_cut_within_an_interval__costs_the_rounds_since_its_checkpoint(
    fate: str, minutes: Disk, tmp_path: Path
) -> None:
    """The last moment before the third checkpoint: of rounds 4 to 6 nothing is counted on."""
    sound = set[bytes | None]()
    states = minutes.states[fate]
    assert {generation(tree) for tree in states} == {0, 1, 2, 3}
    assert not [lost for tree in states if (lost := missing(run_of(tree), tmp_path / "x", sound))]
    watch()
    resumes([tree for tree in states if generation(tree) == 2][-1], tmp_path / "y", minutes, SIX)
    assert not_repeated() == [3]


def test_interval__is_what_is_forced_and_not_each_round(minutes: Disk) -> None:
    """Six rounds, two clients, three checkpoints: of each the index, one part, and two states."""
    forced = [path for call, path in minutes.calls if call == "fsync" and "checkpoint/" in path]
    kinds = [sum(kind in path for path in forced) for kind in ("index", "head-", "clients/main-")]
    assert kinds == [3, 3, 2 * 2], forced  # before the first round no client keeps anything


@pytest.mark.slow(seconds=30)
@pytest.mark.parametrize("fate", FATES)
def test_cut_at_any_call_of_a_round__goes_on_to_the_same_report(
    fate: str, disk: Disk, tmp_path: Path
) -> None:
    """At five calls of the second round of the main branch, then now and then until the end."""
    states = disk.states[fate]
    inside = [tree for tree in states if generation(tree) == 2]
    assert len(inside) >= 4
    later = [states[int(share * len(states))] for share in (0.02, 0.7, 0.95)]
    for number, tree in enumerate([*inside[:: len(inside) // 4], *later]):
        resumes(tree, tmp_path / str(number), disk)
