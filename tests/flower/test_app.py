"""The Flower app on nodes of this process: inline's numbers, and what leaves a private node."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from flwr.app import Error, Message

from fedmia.flower import server
from fedmia.flower.node_store import NodeStore
from fedmia.flower.private import plan_own
from fedmia.flower.store import ask
from fedmia.settings.errors import InputError, opt
from fedmia.settings.tree import to_tree
from strategies.base import call_roll, wait_for_nodes
from strategies.failure_policy import FederationError
from tests.equivalence.conftest import same
from tests.flower.on_nodes import ROUNDS, TINY, last_weights, nodes, own_images, run
from tests.observers.test_observing import HEARD, RECORDER
from tests.small_runs import read

Patch = pytest.MonkeyPatch
Inline = Callable[[str], Path]


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (FederationError("round 2: client 1"), "fedmia: the run failed: round 2: client 1"),
        (InputError(f"{opt('rounds', 0)} is too low"), "fedmia: error: rounds 0 is too low"),
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


@pytest.mark.slow
def test_rehearsal__reports_as_inline(home: Path, tmp_path: Path, inline: Inline) -> None:
    flags = ROUNDS + (
        "--attacker active --attacks similarity,ascent --attack.similarity.views 4 "
        "--attack.ascent.pairs 1 --defense laplace --train.optimizer_state keep"
    )
    HEARD.clear()
    with nodes() as grid:
        run(server.rehearse, grid, f"{flags} --observe {RECORDER}", tmp_path / "nodes")
    report = read(tmp_path / "nodes")
    assert report == read(inline(flags))
    kinds = [kind for kind, _, _ in HEARD]
    assert kinds[0] == "begin" and kinds[-2:] == ["report", "end"] and kinds.count("report") == 1
    rounds = [step for _, values, step in HEARD[1:-2] if "main/seconds" in values]
    assert rounds == [row["round"] for row in report["rounds"]] == [1, 2]
    assert grid.answers["query.kept"]
    assert not [*home.iterdir()]  # nothing of a finished run stays


@pytest.mark.slow
def test_rehearsal__a_round_whose_reply_is_lost_is_done_again_to_the_same_end(
    tmp_path: Path, monkeypatch: Patch, inline: Inline
) -> None:
    """Its node had kept the new state by then."""
    lost, plain = [], NodeStore.answer

    def losing(self: NodeStore, branch: str, client: int, message: Message, work: Any) -> Message:
        reply, order = plain(self, branch, client, message, work), message.content
        round: Any = order.config_records["config"]["server-round"]
        if (round, client) == (2, 1) and not lost:
            lost.append(reply)
            return Message(Error(code=0, reason="the line broke"), reply_to=message)
        return reply

    flags = TINY + "--train.optimizer_state keep "
    monkeypatch.setattr(NodeStore, "answer", losing)
    with nodes() as grid:
        run(server.rehearse, grid, flags + "--on-failure retry", tmp_path / "again")
    assert lost and same(last_weights(tmp_path / "again"), last_weights(inline(flags)))
    assert read(tmp_path / "again")["attacks"] == read(inline(flags))["attacks"]


@pytest.mark.slow
def test_rehearsal__refuses_a_node_that_reads_other_data(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.setattr("fedmia.flower.node.fingerprint", lambda plan: "of others")
    with nodes() as grid, pytest.raises(FederationError, match="client 0: fingerprint of others"):
        run(server.rehearse, grid, TINY, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_private__trains_as_inline_and_scores_alone_leave(
    tmp_path: Path, monkeypatch: Patch, inline: Inline
) -> None:
    """As inline, that is, once the system's entropy is put to the seed."""
    flags = TINY + "--partition iid"
    monkeypatch.setattr("fedmia.seeding.secrets.randbits", lambda bits: 0)
    with nodes() as grid:
        for number, sides in enumerate(own_images(flags, tmp_path)):
            grid.give(number, **sides)
        HEARD.clear()
        run(server.gather, grid, f"{flags} --observe {RECORDER}", tmp_path / "nodes")
    kinds = [kind for kind, _, _ in HEARD if kind != "scalars"]
    assert kinds[0] == "begin" and kinds[-1] == "end"
    assert {*kinds[1:-1]} == {f"client-{number:04d}/report" for number in range(2)}
    values = {name for kind, told, _ in HEARD if kind == "scalars" for name in told}
    assert {"main/seconds", "client-0000/auc/similarity", "client-0001/auc/similarity"} <= values
    assert same(last_weights(tmp_path / "nodes"), last_weights(inline(flags)))
    assert not [*(tmp_path / "nodes").rglob("cast.safetensors")]  # no row of an image
    told = grid.answers["query.score"]
    arrays = [a.numpy() for content in told for a in content.array_records["scores"].values()]
    # A node scores 16 members and 30 non-members, of which 8 are known a side. A control has no
    # threshold, so none of its scores is of a known image.
    assert {(a.ndim, len(a)) for a in arrays} == {(1, 8), (1, 22), (1, 0)}
    assert {kind for content in told for kind in content} == {"told", "scores"}
    for number in range(2):
        found = read(tmp_path / "nodes" / f"client-{number:04d}")
        (attack,) = found["attacks"]
        assert (attack["n_members"], attack["n_nonmembers"]) == (8, 22)
        assert found["clients"][0]["size"] == 16


@pytest.mark.slow
def test_private__what_a_node_keeps_stays(tmp_path: Path) -> None:
    with nodes() as grid:
        grid.give(0, members="npz:a.npz", nonmembers="npz:b.npz")
        there = call_roll(grid, 2)
        for action, order in {
            "kept": {"branch": "main"},
            "fork": {"source": "main", "target": "zero"},
        }.items():
            with pytest.raises(FederationError, match="client 0 has images of its own"):
                ask(grid, there, action, {0: order})
        for work, words in (
            (server.rehearse, "for private runs alone"),
            (server.gather, "client 0: members: npz: no such file: a.npz"),
        ):
            with pytest.raises(FederationError, match=words):
                run(work, grid, TINY, tmp_path / "out")
    with nodes() as grid:
        grid.give(0, members="npz:a.npz")
        with pytest.raises(FederationError, match="client 0 is given members alone"):
            run(server.gather, grid, TINY, tmp_path / "out")


def test_private__an_image_has_one_role_however_often_the_node_has_it(tmp_path: Path) -> None:
    """Copies play none: one that is known to the attacker is not scored. On both sides: refused."""
    draw, sides = np.random.default_rng(0), {}
    for side, count in (("members", 14), ("nonmembers", 10)):
        images = draw.integers(0, 256, (count, 8, 8), dtype=np.uint8)
        sides[side] = np.concatenate([images, images[:9], images[3:5]])
    settings = json.dumps(to_tree(server.invocation(TINY).settings))

    def dealt() -> Any:
        for side, images in sides.items():
            np.savez(tmp_path / f"{side}.npz", x=images, y=np.zeros(len(images), np.int64))
        plan_own.cache_clear()
        return plan_own(settings, 1, tuple(f"npz:{tmp_path / side}.npz" for side in sides))[0]

    plan = dealt()
    split, names = plan.cast, plan.cast.data.digests()
    roles = (split.ids("known_members"), split.ids("scored_members"), split.ids("known_nonmembers"),
             split.ids("scored_nonmembers"))  # fmt: skip
    assert [len(role) for role in roles] == [8, 6, 8, 2]  # as few as there must be to score
    held = [names[i] for role in roles for i in role]
    assert len(set(held)) == len(held) == split.distinct and split.duplicates_removed == 22
    assert {*roles[0], *roles[1]} == {*range(14)} and {*roles[2], *roles[3]} == {*range(25, 35)}
    # It trains on each of its members once.
    assert [len(part) for part in split.parts] == [0, 14] and split.malicious == 0
    assert split.parts[1].tolist() == split.members.tolist() == [*range(14)]
    assert split.owners[:14].tolist() == [1] * 14
    others = sides["nonmembers"]
    sides["nonmembers"] = others[:9]
    with pytest.raises(InputError, match="9 distinct nonmembers are too few"):
        dealt()
    sides["nonmembers"] = np.concatenate([others, sides["members"][20:21]])
    with pytest.raises(InputError, match="members and nonmembers share 1 byte-equal images"):
        dealt()


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ("--out somewhere", "its folder is the app's 'out'"),
        ("--help", "its folder is the app's 'out'"),
        ("--backend ray", "the clients of a Flower app are its nodes"),
        ("--rounds 0", "rounds"),
        ("--resume RUN", "nodes keep nothing of a run that has ended"),
        ("--fail-on leaks", "sets an exit code"),
    ],
)
def test_arguments__that_are_not_a_run_s(
    flags: str, words: str, tmp_path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "RUN").mkdir()
    (tmp_path / "RUN" / "config.yaml").write_text("seed: 3\n")
    with pytest.raises(InputError, match=words):
        server.invocation(flags)


@pytest.mark.parametrize(
    "flags",
    [
        "--attacker active", "--pretrain pooled --pretrain.epochs 1", "--federation.placebo true",
        "--ssl mae",  # which suits no images of the network
        "--observe tensorbord",
    ],
)  # fmt: skip
def test_private__refuses_what_cannot_be_before_a_node_is_asked(flags: str, tmp_path: Path) -> None:
    with nodes() as grid, pytest.raises(InputError):
        run(server.gather, grid, ROUNDS + flags, tmp_path / "out")
    assert not grid.answers and not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("flags", "counts", "clients"),
    [("", [0, 0, 1, 3, 3], 3), ("--clients 4", [2], 4), ("--federation.clients=4", [2], 4)],
)
def test_clients__all_nodes_that_came_or_as_the_arguments_say(
    flags: str, counts: list[int], clients: int, monkeypatch: Patch
) -> None:
    monkeypatch.setattr("strategies.base.SETTLE", 0.001)
    grid: Any = SimpleNamespace(get_node_ids=lambda: range(counts.pop(0)))
    arguments = server.with_clients(f"--config smoke {flags}", grid)
    assert server.invocation(arguments).settings.federation.clients == clients
    nobody: Any = SimpleNamespace(get_node_ids=lambda: [])
    with pytest.raises(FederationError, match="0 of at least 1 clients connected"):
        wait_for_nodes(nobody, patience=0.01)
