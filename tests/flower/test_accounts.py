"""Privacy accounts of a deployment: what was sent is in them, or no epsilon is stated."""

from __future__ import annotations

import time
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest

from fedmia.defenses.accounting import epsilon_at
from fedmia.defenses.dpsgd import DPSGD
from fedmia.evaluation.run import client_rows, score_run
from fedmia.federation.ledger import Ledger
from fedmia.federation.plan import make_plan
from fedmia.federation.result import TrainedRounds
from fedmia.federation.train import train
from fedmia.flower import gather, server
from fedmia.flower.private import gives_guarantee, plan_server
from fedmia.recording.writer import RecordingWriter
from fedmia.records import Evaluation
from fedmia.records.defence_rows import AggregationRow
from fedmia.runtime.progress import Display
from fedmia.runtime.stopwatch import Stopwatch
from fedmia.settings.errors import InputError
from fedmia.storage.snapshot import ClientState
from strategies.replies import RejectedReply
from tests.flower import on_nodes
from tests.flower.on_nodes import nodes, own_images
from tests.flower.private_node import CLIP, GAUSSIAN, SCALE, TINY, Private, scored

SMALL = "--model.width 4 "
RUN = on_nodes.TINY.replace(SMALL, "")
# Flags of a case, and whether scores leave the nodes.
CASES = {
    "mae": (
        "--model vit-tiny --model.depth 4 --ssl mae --defense dpsgd --defense.epsilon 8", False,
    ),
    "moco": (
        SMALL + "--ssl.queue_source public --split.public 16 --defense dpsgd "
        "--defense.noise_multiplier 1", True,
    ),
    "gaussian": (SMALL + "--defense gaussian --defense.epsilon 4", True),
    "logit-dp": (SMALL + "--ssl simclr --defense logit-dp --defense.noise_multiplier 2", False),
    "dp-fedavg": (SMALL + "--strategy dp-fedavg --strategy.epsilon 4", True),
}  # fmt: skip


def statements(scores: Evaluation) -> list[tuple[float | None, float, int, str]]:
    """Value, delta, rounds and unit of each client's statement and of the server's."""
    stated = [c.defence and c.defence.epsilon for c in scores.clients]
    stated += [scores.aggregation.epsilon] if scores.aggregation else []
    return [(e.value, e.delta, e.rounds, e.unit) for e in stated if e]


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_deployed_epsilon__is_the_simulated_one(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    more, scores = CASES[case]
    flags = RUN + more
    plan = make_plan(server.invocation(flags).settings)
    public = plan.cast.data.images[plan.cast.ids("public")][:, 0]
    watch = Stopwatch(time.perf_counter())
    trained = train(plan, tmp_path, None, Event(), watch, Display(2, True))
    simulated = score_run(trained, watch)
    published, publish = list[Evaluation](), gather.publish

    def noted(one: Evaluation, *more: Any) -> Any:
        published.append(one)
        return publish(one, *more)

    monkeypatch.setattr(gather, "publish", noted)
    with nodes() as grid:
        for number, sides in enumerate(own_images(flags, tmp_path)):
            if len(public):
                np.savez(tmp_path / "public.npz", x=public, y=np.zeros(len(public), np.int64))
                sides["public"] = f"npz:{tmp_path / 'public.npz'}"
            grid.give(number, **sides, scores=scores)
        on_nodes.run(gather.gather, grid, flags, tmp_path / "out")
    assert len(published) == 2
    for one in published:
        (client,) = one.clients
        deployed, want = statements(one), statements(simulated)
        want = want if case == "dp-fedavg" else [want[client.id]]
        assert len(deployed) == len(want) == 1 and deployed[0][0]
        assert deployed[0][0] == pytest.approx(want[0][0], rel=0, abs=1e-9)
        assert deployed[0][1:] == want[0][1:] and deployed[0][2] == 2
        epsilon = one.aggregation.epsilon if case == "dp-fedavg" and one.aggregation else None
        epsilon = epsilon or (client.defence and client.defence.epsilon)
        assert epsilon and epsilon.standing == ("of the weights alone" if scores else "guaranteed")


@pytest.mark.parametrize(
    ("flags", "leave"),
    [
        ("", True), ("--defense weight-decay", True), (GAUSSIAN, False),
        ("--strategy dp-fedavg", False),
        ("--defense dpsgd --ssl.queue_source public --split.public 4", False),
    ],
)  # fmt: skip
def test_scores__leave_by_default_where_nothing_is_guaranteed(flags: str, leave: bool) -> None:
    assert gives_guarantee(server.invocation(TINY + flags).settings) is not leave


@pytest.mark.parametrize("scores", [True, False])
def test_account__has_what_was_sent_whatever_leaves_beside_it(scores: bool, tmp_path: Path) -> None:
    _, info, _ = scored(Private(tmp_path, GAUSSIAN, scores=scores))
    assert info.defence is not None and (epsilon := info.defence.epsilon) is not None
    assert epsilon.value == pytest.approx(epsilon_at(2 * CLIP / SCALE, 1e-5), rel=1e-9)
    assert epsilon.rounds == 1


def test_account__that_lacks_rounds_is_no_statement(tmp_path: Path) -> None:
    """A node whose disk was emptied after its first round, and one that sent nothing at all."""
    node = Private(tmp_path, GAUSSIAN)
    node.train()
    (file,) = tmp_path.rglob("main-*")
    file.unlink()
    content, _, _ = scored(node)
    plan = plan_server(server.invocation(TINY + GAUSSIAN).settings, 1, 8)
    for trained, code in ((2, "its account has 1 rounds, but 2 were trained and sent"), (1, None)):
        done = TrainedRounds(
            plan, node.client_setup, Ledger(), RecordingWriter(tmp_path), [], True,
            aggregation=AggregationRow(name="fedavg"), trained=(trained, 2),
        )  # fmt: skip
        if code is None:
            assert gather.report_node(0, content, done, None, Stopwatch(0.0)).clients
            continue
        with pytest.raises(RejectedReply, match=f"client 0 .* gaussian: {code}"):
            gather.report_node(0, content, done, None, Stopwatch(0.0))


def test_client_rows__never_state_an_epsilon_of_an_empty_account(tmp_path: Path) -> None:
    """Of a client that kept a state, so trained, and whose defence counted nothing."""
    node = Private(tmp_path, GAUSSIAN)
    plan, client_setup = node.node.prepared()
    for memory, rounds in (({"gaussian": {}}, None), (None, 0)):
        store = Ledger()
        if memory is not None:
            store.save("main", 0, ClientState({}, {"defense": memory}))
        run = TrainedRounds(plan, client_setup, store, RecordingWriter(tmp_path), [], True)
        if rounds is None:
            with pytest.raises(InputError, match="gaussian: its account has 0 rounds, but 1 were"):
                client_rows(run, plan.cast.data.labels, 1)
        else:  # it never trained: nothing was spent
            first = client_rows(run, plan.cast.data.labels, 1)[0]
            assert first.defence and first.defence.epsilon
            assert (first.defence.epsilon.value, first.defence.epsilon.rounds) == (0.0, 0)


def test_dpsgd__an_account_of_rounds_without_steps_is_an_error() -> None:
    with pytest.raises(InputError, match="account of 3 rounds has no step"):
        DPSGD().privacy({"rounds": 3})


def test_public_images__come_from_a_source_of_the_nodes_own(tmp_path: Path) -> None:
    """A queue of public images would else be one of private ones, and its epsilon no guarantee."""
    flags = "--ssl.queue_source public --split.public 5 --defense dpsgd "
    with pytest.raises(InputError, match="5 images that no client holds are asked for"):
        Private(tmp_path / "none", flags)
    images = np.random.default_rng(1).integers(0, 256, (6, 8, 8), np.uint8)
    np.savez(tmp_path / "public.npz", x=images, y=np.zeros(6, np.int64))
    node = Private(tmp_path / "own", flags, public=f"npz:{tmp_path / 'public.npz'}")
    public = node.client_setup.public_images
    assert public is not None and np.array_equal(public[:, 0], images[:5])
    _, info, _ = scored(node)
    assert info.defence is not None and info.defence.epsilon is not None
    assert info.defence.epsilon.standing == "guaranteed"
    with pytest.raises(InputError, match="members and public share 5 byte-equal images"):
        Private(tmp_path / "twice", flags, public=f"npz:{tmp_path / 'twice' / 'members.npz'}")


def test_begin__refuses_what_no_noise_keeps_before_any_round(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="client 0: .*a client of 8 images: epsilon 0.001 is too"):
        flags = "--ssl byol --ssl.head_norm none --defense dpsgd --defense.epsilon 1e-3"
        Private(tmp_path, flags + " --defense.accountant rdp --defense.delta 1e-12")
