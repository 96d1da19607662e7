"""Which rounds are scored and kept, and what a run notes of each, on stand-ins of known numbers."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from fedmia.cli.command import parse
from fedmia.cli.commands import SIMULATE
from fedmia.config.experiment import Experiment
from fedmia.federation.checkpoint import BranchState
from fedmia.federation.ledger import Ledger, size
from fedmia.federation.rounds import FederatedRun, RunInterrupted
from fedmia.federation.run import _indispensable
from fedmia.federation.schedule import Schedule
from fedmia.options.seeding import rng
from fedmia.runtime.stopwatch import Stopwatch
from fedmia.storage.snapshot import ClientState, MemoryStore, Snapshot, SnapshotStore, Update
from strategies.base import Round, RoundRange
from strategies.fedavg import FedAvg

ACTIVE = "--clients 5 --rounds 10 --attacker active --attack-rounds 3 "


def settings(flags: str) -> Experiment:
    parsed_settings: Experiment = parse(SIMULATE, shlex.split(flags)).settings
    return parsed_settings


@pytest.mark.parametrize(
    ("flags", "clean", "evaluated", "kept"),
    [
        (ACTIVE + "--federation.snapshots 2", 7, [0, 5, 7, 10], set()),
        (ACTIVE + "--federation.snapshots 4", 7, [0, 2, 5, 7, 8, 10], set()),
        ("--rounds 9 --federation.snapshots 1", 9, [0, 9], set()),
        ("--rounds 10 --federation.keep_updates 3", 10, None, {3, 7, 10}),
        ("--rounds 2 --federation.keep_updates 1", 2, None, {2}),
        ("--rounds 8 --federation.snapshots 2 --attacker server", 8, [0, 4, 8], {4, 8}),
        (
            "--rounds 8 --attacker server --attacks similarity --federation.keep_updates 0",
            8,
            None,
            set(),
        ),
    ],
)
def test_schedule__rounds_that_are_scored_and_those_whose_updates_stay(
    flags: str, clean: int, evaluated: list[int] | None, kept: set[int]
) -> None:
    schedule = Schedule(settings(flags))
    assert schedule.clean == clean and schedule.updates_kept() == kept
    assert evaluated is None or schedule.evaluated() == evaluated


def test_schedule__a_course_is_of_the_whole_run_whatever_stretch_it_is() -> None:
    """And a client takes part where it is drawn by the run's seed, first and last round too."""
    schedule = Schedule(settings(ACTIVE + "--federation.participation 0.4 --seed 3"))
    course = schedule.course("zero", 7, 9, craft=True)
    assert (course.branch, course.first, course.last, course.craft) == ("zero", 7, 9, True)
    assert (course.participation, course.seed, course.total) == (0.4, 3, 10)
    for round in range(1, 11):
        expected = rng(3, "cohort", round).choice(5, 2, replace=False)
        assert [c for c in range(5) if schedule.takes_part(c, round)] == sorted(expected)


@pytest.mark.parametrize(
    ("branch", "round", "behind"),
    [("main", 3, 3), ("main", 10, 10), ("zero", 7, 10), ("zero", 9, 12),
     ("placebo", 0, 13), ("placebo", 4, 17)],
)  # fmt: skip
def test_behind__rounds_of_all_branches(branch: str, round: int, behind: int) -> None:
    run = SimpleNamespace(
        head=BranchState(branch, round, {}, FedAvg()),
        branches=lambda: ["main", "zero", "placebo"],
        schedule=SimpleNamespace(last=10, clean=7),
    )  # fmt: skip
    assert FederatedRun._finished_rounds(run) == behind  # type: ignore[arg-type]


class Told(FedAvg):
    """Rounds of a number each, and the course that they were asked for."""

    asked: RoundRange

    def rounds(
        self, grid: Any, course: RoundRange, state: Any, failure_policy: Any, seen: Any = None
    ) -> Any:
        self.asked = course
        for round in range(course.first + 1, course.last + 1):
            seen(Update(0, round, {}, 1, {}))
            yield Round(round, {"w": torch.tensor(float(round))}, {}, 0.0)


def stretched(branch: str, clean: int, active: bool) -> tuple[SimpleNamespace, list[Any], Told]:
    """Rounds 3 to 6 of a branch, in an attacked stretch."""
    notes, strategy = list[Any](), Told()
    head = BranchState(branch, 2, {"w": torch.tensor(2.0)}, strategy)
    run = SimpleNamespace(
        schedule=Schedule(settings(ACTIVE)), _root=77, failure_policy=None, aggregation="none",
        active=active,
        _note_update=lambda course, state, update: notes.append(("seen", update.round,
        float(state["w"]))),
        _record=lambda course, state, done: notes.append(("done", done.number, float(state["w"]))),
        _describe_aggregation=lambda of: f"after {head.round + 1}",
        _begin_control=lambda at: notes.append(("beside", at.round, float(at.state["w"]))),
        _checkpoint=lambda: notes.append(("kept", head.round)),
        _prepare_fork=lambda course, at: notes.append(("fork", at.round, float(at.state["w"]))),
    )  # fmt: skip
    FederatedRun._run_rounds(run, None, head, 6, craft=True)  # type: ignore[arg-type]
    FederatedRun._run_rounds(run, None, head, 6, craft=True)  # type: ignore[arg-type]  # nothing is left
    return run, notes, strategy


@pytest.mark.parametrize("branch", ["main", "zero", "placebo"])
def test_stretch__notes_each_round_with_what_its_clients_received(branch: str) -> None:
    """And what the server did is said of `main` alone: a control's is no report's."""
    run, notes, strategy = stretched(branch, 4, True)
    assert notes == [("fork", 2, 2.0)] + [
        note for r in (3, 4, 5, 6)
        for note in (
            ("seen", r, r - 1.0), ("done", r, r - 1.0), ("kept", r), ("fork", r, float(r)),
        )
    ]  # fmt: skip
    assert run.aggregation == ("after 6" if branch == "main" else "none")
    asked = strategy.asked
    assert (asked.branch, asked.first, asked.last, asked.craft) == (branch, 2, 6, True)
    assert (asked.seed, asked.total) == (77, 10)


@pytest.mark.parametrize(("branch", "active"), [("main", True), ("main", False), ("zero", True)])
def test_stretch__controls_begin_at_the_last_clean_round_of_main(branch: str, active: bool) -> None:
    notes, strategy = list[Any](), Told()
    head = BranchState(branch, 6, {"w": torch.tensor(6.0)}, strategy)
    run = SimpleNamespace(
        schedule=Schedule(settings(ACTIVE)), _root=1, failure_policy=None, aggregation=None,
        active=active,
        _note_update=lambda *_: None, _record=lambda *_: None,
        _describe_aggregation=lambda of: None,
        _begin_control=lambda at: notes.append((at.round, float(at.state["w"]))),
        _checkpoint=lambda: None, _prepare_fork=lambda *_: None,
    )  # fmt: skip
    FederatedRun._run_rounds(run, None, head, 8, craft=False)  # type: ignore[arg-type]
    assert notes == ([(7, 7.0)] if active and branch == "main" else [])
    assert (head.round, float(head.state["w"])) == (8, 8.0)


def recorded(stopped: bool = False, craft: bool = True, crafted: Any = None) -> list[Any]:
    """What is noted of round 10, the last, of clients whose losses are 1, 3, and malicious 100."""
    notes = list[Any]()
    run = SimpleNamespace(
        watch=Stopwatch(0.0), client_context=SimpleNamespace(is_stopped=lambda: stopped),
        _crafted=crafted,
        snapshots=SimpleNamespace(drop_updates=lambda *of: notes.append(("drop", *of))),
        round_recorder=SimpleNamespace(sent=lambda *of: notes.append(("sent", *of))),
        experiment=settings(ACTIVE), schedule=SimpleNamespace(last=10),
        _snapshot=lambda branch, round, state: state,
        _read=lambda branch, round, state: notes.append(("read", branch, round, state)),
        _note=lambda *of: notes.append(("note", *of)),
        _replay=lambda round_recorder, round: notes.append(("over", round)),
        display=SimpleNamespace(round=lambda *of: notes.append(("shown", *of))),
    )  # fmt: skip
    run.watch.move = lambda *_: None  # type: ignore[method-assign]
    metrics = {0: {"loss": 1.0}, 1: {"loss": 3.0}, 2: {}, 5: {"loss": 100.0}}
    malicious = run.experiment.malicious_clients
    metrics[malicious[0]] = metrics.pop(5)
    done = Round(10, {"new": torch.ones(1)}, metrics, 2.5)
    course = RoundRange("main", 7, 10, craft, 1.0, 0)
    FederatedRun._record(run, course, {"old": torch.ones(1)}, done)  # type: ignore[arg-type]
    assert run._crafted is None
    return notes


def test_record__the_loss_is_of_honest_clients() -> None:
    notes = {n[0]: n[1:] for n in recorded(craft=False)}
    assert notes["note"] == ("main", 10, False, 2.0, {"new": torch.ones(1)})
    assert notes["shown"] == ("main", 10, 2.0, None, 2.5)
    assert set(notes) == {"note", "shown"}


def test_record__the_attacker_reads_what_it_received_sent_and_the_last_model() -> None:
    sent = {"sent": torch.ones(1)}
    notes = recorded(crafted=sent)
    read = [n for n in notes if n[0] in ("read", "sent", "over")]
    assert [n if n[0] == "over" else (n[0], *n[1:3], *n[3]) for n in read] == [
        ("read", "main", 10, "old"), ("sent", "main", 10, "sent"), ("over", 10),
        ("read", "main", 11, "new"),
    ]  # fmt: skip
    with pytest.raises(RunInterrupted):
        recorded(stopped=True)


def test_note__a_round_that_is_scored_or_held_for_an_interruption() -> None:
    """Rounds of `main` alone are rows; an evaluated one is probed and kept, and only held else."""
    rows = list[Any]()
    kept = list[Any]()
    run = SimpleNamespace(
        schedule=SimpleNamespace(evaluated=lambda: [0, 2]), rounds=rows, _unsaved="before",
        keep=lambda branch, round, state: kept.append((branch, round)),
        _snapshot=lambda branch, round, state: (branch, round),
        watch=Stopwatch(0.0), probe=lambda state: 0.75,
    )  # fmt: skip
    note = lambda *of: FederatedRun._note(run, *of)  # type: ignore[arg-type]  # noqa: E731
    assert note("zero", 1, True, 1.0, {}) is None and run._unsaved == "before"
    assert note("main", 1, False, 1.5, {}) is None and run._unsaved == ("main", 1)
    assert note("main", 2, True, None, {}) == 0.75 and run._unsaved is None
    assert note("placebo", 2, False, 9.0, {}) is None
    assert kept == [("main", 2), ("placebo", 2)]
    assert [(r.round, r.under_attack, r.loss, r.knn) for r in rows] == [
        (1, False, 1.5, None), (2, True, None, 0.75),
    ]  # fmt: skip


def test_seen__updates_of_kept_rounds_and_what_they_started_from(tmp_path: Path) -> None:
    """Of `main` and `placebo`; the holder's alone is what an attacker crafted."""
    store = SnapshotStore(tmp_path)
    run = SimpleNamespace(
        schedule=SimpleNamespace(updates_kept=lambda: {2}), snapshots=store, holder=1,
        _crafted=None, _fork=None, _trained=[0, 0],
    )  # fmt: skip
    for branch, round in (("main", 1), ("main", 2), ("zero", 2), ("placebo", 2)):
        for client in (0, 1):
            course = RoundRange(branch, 0, 3, branch == "zero", 1.0, 0)
            update = Update(client, round, {"w": torch.tensor(10.0 * client + round)}, 1, {})
            received = {"w": torch.tensor(-float(round))}
            FederatedRun._note_update(run, course, received, update)  # type: ignore[arg-type]
        assert (run._crafted is None) == (branch == "main")
    assert run._crafted is not None and float(run._crafted["w"]) == 12.0
    assert run._trained == [2, 2]  # rounds of `main` alone
    for branch, rounds in (("main", [2]), ("zero", []), ("placebo", [2])):
        assert list(store.before(branch)) == rounds
        assert {c: float(s["w"]) for c, s in store.updates(branch, 2).items()} == (
            {0: 2.0, 1: 12.0} if rounds else {}
        )
    assert float(store.before("main")[2]["w"]) == -2.0


@pytest.mark.parametrize("error", [RunInterrupted, KeyError])
def test_run__leaves_no_update_of_a_round_to_be_replayed(
    error: type[Exception], tmp_path: Path
) -> None:
    store = SnapshotStore(tmp_path)

    def ends(grid: Any, branch: str) -> None:
        store.save_update("forks", 3, 0, {"w": torch.ones(1)})
        store.save_update("main", 3, 0, {"w": torch.ones(1)})
        raise error

    run = SimpleNamespace(
        branches=lambda: ["main"], _run_branch=ends, checkpoint=None, snapshots=store, _unsaved=None
    )
    with contextlib.suppress(KeyError):
        FederatedRun.run(run, None)  # type: ignore[arg-type]
    assert [p.name for p in tmp_path.iterdir()] == ["main"]


def test_keep_only__what_a_resumed_run_goes_on_with(tmp_path: Path) -> None:
    """The updates of the last finished round stay, those of the next, half a round, go."""
    store = SnapshotStore(tmp_path)
    for round in range(5):
        tensors = {"global.w": torch.tensor(float(round))}
        store.save_before("main", round + 1, tensors)
        store.save_update("main", round + 1, 0, tensors)
        store.save("main", Snapshot(round, {"w": torch.tensor(float(round))}, {}))
    store.keep_only("main", {0, 2}, 3)
    assert store.rounds("main") == [0, 2] and list(store.before("main")) == [1, 2, 3]
    assert {r: float(s["w"]) for r, s in store.received("main", 2).items()} == {0: 0.0, 2: 2.0}
    assert list(store.received("main", 1)) == [0]
    store.drop_updates("main", 3)
    assert list(store.before("main")) == [1, 2]


def test_snapshot__holds_the_holders_bank_and_not_its_key_encoder() -> None:
    store, one = MemoryStore(), torch.ones(1)
    tensors = {"local.queue": one, "local.key.w": one, "optimizer.0": one, "strategy.w": one}
    store.save("main", 2, ClientState(tensors, {}))
    for holder, want in ((2, {"queue"}), (1, set()), (None, set())):
        run = SimpleNamespace(store=store, holder=holder)
        found = FederatedRun._snapshot(run, "main", 4, {"w": one})  # type: ignore[arg-type]
        assert found.round == 4 and set(found.state) == {"w"} and set(found.holder) == want


def test_indispensable__two_known_and_two_scored_members() -> None:
    def why(known: int, scored: int, gone: tuple[int, ...] = (1,), members: int = 9) -> Any:
        left = SimpleNamespace(known_members=np.arange(known), scored_members=np.arange(scored))
        split = SimpleNamespace(without_clients=lambda gone: left, members=np.arange(members))
        return _indispensable(split, frozenset({4}), frozenset(gone))  # type: ignore[arg-type]

    assert why(2, 2) is None and why(0, 0, members=0) is None
    assert "1 known and 5 other" in why(1, 5) and "5 known and 1 other" in why(5, 1)
    assert why(9, 9, (1, 4)) == "the attacker's client cannot be dropped"


def test_ledger__counts_its_bytes_and_forks_what_is_where_it_is(tmp_path: Path) -> None:
    """Of a state that is replaced, forked or put on disk; what stays is the last that was saved."""

    def state(number: float) -> ClientState:
        return ClientState({"w": torch.full((4,), float(number))}, {"n": number})

    room = 3 * size(state(0))
    store = Ledger(tmp_path, room)
    for number in (0, 1, 2, 0, 2):
        store.save("main", number, state(10 + number))
    assert store._bytes == room == 3 * 16 and not list(tmp_path.glob("*"))
    store.save("main", 3, state(13))  # 1 is the one that was saved longest ago
    assert [f.name[:9] for f in tmp_path.glob("*")] == ["main-0001"]
    store.fork("main", "zero", 4)
    store.save("main", 1, state(21))
    store.save("zero", 2, state(32))

    def numbers(of: Ledger, branch: str) -> Iterator[float]:
        for client in range(4):
            client_state = of.load(branch, client)
            assert (
                client_state is not None
                and float(client_state.tensors["w"][3]) == client_state.memory["n"]
            )
            yield client_state.memory["n"]

    want = {"main": [10, 21, 12, 13], "zero": [10, 11, 32, 13]}
    index = store.index()
    store.flush()
    again = Ledger(tmp_path)
    again.restore(index)
    for branch, values in want.items():
        assert list(numbers(store, branch)) == values == list(numbers(again, branch))
