"""The Flower app on nodes of this process: inline's numbers, and what leaves a private node."""

from __future__ import annotations

import copy
import json
import logging
import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Context, Error, Message, RecordDict

from fedmia.config.tree import to_tree
from fedmia.federation.inline import InlineGrid
from fedmia.federation.run import prepare
from fedmia.flower import client, server
from fedmia.flower.private import prepare_own
from fedmia.flower.store import NodeStore, ask
from fedmia.options.errors import InputError, opt
from fedmia.runtime.stopwatch import Stopwatch
from fedmia.simulate import main
from fedmia.storage.outfolder import OutFolder
from fedmia.storage.snapshot import ClientState, MemoryStore, SnapshotStore
from strategies.base import call_roll
from strategies.failure_policy import FederationError

TINY = (
    "--clients 2 --rounds 2 --train.local_epochs 1 --model.width 4 --split.members 24 --device cpu "
    "--split.nonmembers 40 --split.known 6 --split.test 20 --federation.snapshots 1 "
    "--attack.similarity.views 4 "
)


class Seen(InlineGrid):
    """Keeps what nodes answered, by the type of what was asked."""

    def __init__(self, clients: int) -> None:
        super().__init__(lambda kept, halt: client.app, clients, 1, 1, MemoryStore(), None)
        self.answers: dict[str, list[RecordDict]] = {}
        self.kept = {node: super(Seen, self).context(node) for node in self.get_node_ids()}

    def context(self, node: int) -> Context:
        return copy.copy(self.kept[node])

    def give(self, client: int, **config: Any) -> None:
        list(self.kept.values())[client].node_config.update(config)

    def pull_messages(self, message_ids: Any) -> Any:
        replies: list[Message] = list(super().pull_messages(message_ids))
        for reply in replies:
            if reply.has_content():
                kind = reply.metadata.message_type
                self.answers.setdefault(kind, []).append(reply.content)
        return replies


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The nodes' disk; no figures are drawn."""
    monkeypatch.setenv("FLWR_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("fedmia.report.figures.draw.draw_all", lambda run, report: {})
    return tmp_path / "home" / "fedmia"


@contextmanager
def nodes(clients: int = 2) -> Iterator[Seen]:
    grid = Seen(clients)
    try:
        yield grid
    finally:
        grid.close()


def run(work: Any, grid: Seen, flags: str, out: Path) -> None:
    place, watch = OutFolder(out, "another run"), Stopwatch(time.perf_counter())
    work(grid, server.invocation(flags), place, watch)


def report(folder: Path) -> dict[str, Any]:
    report_json: dict[str, Any] = json.loads((folder / "report.json").read_text())
    return {k: v for k, v in report_json.items() if k != "timing"}


def own_images(flags: str, folder: Path) -> list[dict[str, str]]:
    """The clients' images of an inline run, and its non-members dealt to them, as files."""
    prepared = prepare(server.invocation(flags).settings)
    data, split = prepared.data, prepared.split
    outside = np.concatenate([split.known_nonmembers, split.scored_nonmembers])
    halves = np.array_split(outside, len(split.parts))
    given = []
    for number, sides in enumerate(zip(split.parts, halves, strict=True)):
        given.append({})
        for side, indices in zip(("members", "nonmembers"), sides, strict=True):
            file = folder / f"{side}-{number}.npz"
            np.savez(file, x=data.images[indices][:, 0], y=np.zeros(len(indices), np.int64))
            given[-1][side] = f"npz:{file}"
    return given


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (
            FederationError("round 2: client 1 failed"),
            "fedmia: the run failed: round 2: client 1 failed",
        ),
        (InputError(f"{opt('rounds', 0)} is too low"), "fedmia: error: rounds=0 is too low"),
        (KeyError("x"), "ServerApp raised an exception"),  # a bug shows where it is
    ],
)
def test_errors__flower_logs_one_line_of_what_says_all(error: Exception, line: str) -> None:
    """The record that Flower makes of an app that raised."""
    info = (type(error), error, None)
    record = logging.makeLogRecord(
        {"msg": "%s raised an exception", "args": ("ServerApp",), "exc_info": info}
    )
    assert server.OneLineErrors().filter(record) and record.getMessage() == line
    assert (record.exc_info is None) == line.startswith("fedmia")


def test_node_store__a_save_that_dies_leaves_the_old_state_whole(tmp_path: Path) -> None:
    assert NodeStore(tmp_path, 1).load("main", 3) is None
    NodeStore(tmp_path, 1).save("main", 3, ClientState({"a": torch.arange(3)}, {"round": 1}))
    with pytest.raises(TypeError):
        broken = ClientState({"a": torch.zeros(3)}, {"round": object()})
        NodeStore(tmp_path, 2).save("main", 3, broken)
    (tmp_path / "main" / "client-0003" / "round-000002.partial").write_bytes(b"cut sh")
    client_state = NodeStore(tmp_path).load("main", 3)
    assert client_state is not None and client_state.memory == {"round": 1}
    assert torch.equal(client_state.tensors["a"], torch.arange(3))


def test_node_store__a_round_ordered_again_starts_where_it_began(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        state = ClientState({"a": torch.full((2,), float(number))}, {"round": number})
        NodeStore(tmp_path, number).save("main", 0, state)
    states = [NodeStore(tmp_path, r).load("main", 0) for r in (3, 4, None)]
    assert [f and f.memory["round"] for f in states] == [2, 3, 3]
    NodeStore(tmp_path).fork_one("main", "zero", 0)
    NodeStore(tmp_path, 4).save("main", 0, ClientState({}, {"round": 4}))
    forked = NodeStore(tmp_path, 4).load("zero", 0)
    assert forked is not None and forked.memory == {"round": 3}
    assert len([*tmp_path.rglob("main/**/*.safetensors")]) == 2  # as many as can be asked for


@pytest.mark.slow
@pytest.mark.parametrize(
    "more",
    ["--attacks similarity --defense laplace --train.optimizer_state keep", "--attacker active"],
)
def test_rehearsal__reports_as_inline(home: Path, tmp_path: Path, more: str) -> None:
    assert main(["--quiet", "--out", str(tmp_path / "inline"), *shlex.split(TINY + more)]) == 0
    with nodes() as grid:
        run(server.rehearse, grid, TINY + more, tmp_path / "nodes")
    assert report(tmp_path / "nodes") == report(tmp_path / "inline")
    assert grid.answers["query.kept"]
    assert not [*home.iterdir()]  # nothing of a finished run stays


@pytest.mark.slow
def test_rehearsal__a_round_whose_reply_is_lost_is_done_again_to_the_same_end(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its node had kept the new state by then."""
    lost, work = [], client.client_app

    def losing(client_context: Any, store: Any) -> Any:
        def answer(message: Message, context: Any) -> Message:
            reply = work(client_context, store)(message, context)
            if store.round == 2 and context.node_config["partition-id"] == 1 and not lost:
                lost.append(reply)
                return Message(Error(code=0, reason="the line broke"), reply_to=message)
            return reply

        return answer

    flags = TINY + "--attacks similarity --train.optimizer_state keep --on-failure "
    with nodes() as grid:
        run(server.rehearse, grid, flags + "stop", tmp_path / "whole")
    monkeypatch.setattr("fedmia.flower.client.client_app", losing)
    with nodes() as grid:
        run(server.rehearse, grid, flags + "retry", tmp_path / "again")
    ends = [SnapshotStore(tmp_path / n / "snapshots").load("main", 2) for n in ("whole", "again")]
    assert lost
    for name, tensor in ends[0].state.items():
        assert torch.equal(tensor, ends[1].state[name]), name
    assert report(tmp_path / "again")["attacks"] == report(tmp_path / "whole")["attacks"]


@pytest.mark.slow
def test_rehearsal__refuses_a_node_that_reads_other_data(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedmia.flower.node.fingerprint", lambda prepared: "of others")
    with nodes() as grid, pytest.raises(FederationError, match="client 0: fingerprint of others"):
        run(server.rehearse, grid, TINY, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_private__trains_as_inline_and_scores_alone_leave(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As inline, that is, once the system's entropy is put to the seed."""
    monkeypatch.setattr("fedmia.options.seeding.secrets.randbits", lambda bits: 0)
    flags = TINY + "--attacks similarity"
    assert main(["--quiet", "--out", str(tmp_path / "inline"), *shlex.split(flags)]) == 0
    with nodes() as grid:
        for number, sides in enumerate(own_images(flags, tmp_path)):
            grid.give(number, **sides)
        run(server.gather, grid, flags, tmp_path / "nodes")
    ends = [SnapshotStore(tmp_path / n / "snapshots").load("main", 2) for n in ("inline", "nodes")]
    for name, tensor in ends[0].state.items():
        assert torch.equal(tensor, ends[1].state[name]), name
    told = grid.answers["query.score"]
    arrays = [a.numpy() for content in told for a in content.array_records["scores"].values()]
    # A node scores 12 members and 20 non-members, of which 6 are known a side: nothing beside.
    assert {(a.ndim, len(a)) for a in arrays} == {(1, 6), (1, 14)}
    assert {kind for content in told for kind in content} == {"told", "scores"}
    for number in range(2):
        found = report(tmp_path / "nodes" / f"client-{number:04d}")
        (attack,) = found["attacks"]
        assert (attack["n_members"], attack["n_nonmembers"]) == (6, 14)
        assert found["clients"][0]["size"] == 12


@pytest.mark.slow
def test_private__what_a_node_keeps_stays(home: Path, tmp_path: Path) -> None:
    sources = {"members": "npz:a.npz", "nonmembers": "npz:b.npz"}
    with nodes() as grid:
        grid.give(0, **sources)
        there = call_roll(grid, 2)
        for action, order in {
            "kept": {"branch": "main"},
            "fork": {"source": "main", "target": "zero"},
        }.items():
            with pytest.raises(FederationError, match="client 0 has images of its own"):
                ask(grid, there, action, {0: order})
        with pytest.raises(FederationError, match="for private runs alone"):
            run(server.rehearse, grid, TINY, tmp_path / "out")
        with pytest.raises(FederationError, match="client 0: members: npz: no such file: a.npz"):
            run(server.gather, grid, TINY, tmp_path / "out")
    with nodes() as grid:
        grid.give(0, members="npz:a.npz")
        with pytest.raises(FederationError, match="client 0 is given members alone"):
            run(server.gather, grid, TINY, tmp_path / "out")


def test_private__an_image_has_one_role_however_often_the_node_has_it(tmp_path: Path) -> None:
    """Copies play none: one that is known to the attacker is not scored. On both sides: refused."""
    draw, sides = np.random.default_rng(0), {}
    for side, count in (("members", 14), ("nonmembers", 12)):
        images = draw.integers(0, 256, (count, 8, 8), dtype=np.uint8)
        sides[side] = np.concatenate([images, images[:9], images[3:5]])
    settings = json.dumps(to_tree(server.invocation(TINY).settings))

    def dealt() -> Any:
        for side, images in sides.items():
            np.savez(tmp_path / f"{side}.npz", x=images, y=np.zeros(len(images), np.int64))
        prepare_own.cache_clear()
        return prepare_own(settings, 0, tuple(f"npz:{tmp_path / side}.npz" for side in sides))[0]

    prepared = dealt()
    split, names = prepared.split, prepared.data.digests()
    roles = (split.known_members, split.scored_members, split.known_nonmembers,
             split.scored_nonmembers)  # fmt: skip
    assert [len(role) for role in roles] == [6, 8, 6, 6]
    held = [names[i] for role in roles for i in role]
    assert len(set(held)) == len(held) == split.distinct and split.duplicates_removed == 22
    assert sorted(split.parts[0]) == sorted(split.members)  # it trains on each once
    sides["nonmembers"][-1] = sides["members"][20]
    with pytest.raises(InputError, match="members and nonmembers share 1 byte-equal images"):
        dealt()


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("--out somewhere", "its folder is the app's 'out'"),
        ("--help", "its folder is the app's 'out'"),
        ("--backend ray", "the clients of a Flower app are its nodes"),
        ("--rounds 0", "rounds"),
    ],
)
def test_arguments__that_are_not_a_run_s(flags: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        server.invocation(flags)


def test_arguments__to_go_on_with_a_run(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("seed: 3\n")
    with pytest.raises(InputError, match="nodes keep nothing of a run that has ended"):
        server.invocation(f"--resume {tmp_path}")


@pytest.mark.parametrize(
    "flags",
    ["--attacker active", "--pretrain pooled --pretrain.epochs 1", "--federation.placebo true"],
)
def test_private__refuses_what_needs_shared_images(flags: str, home: Path, tmp_path: Path) -> None:
    with nodes() as grid, pytest.raises(InputError):
        run(server.gather, grid, TINY + flags, tmp_path / "out")
    assert not grid.answers and not (tmp_path / "out").exists()
