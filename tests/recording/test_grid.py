"""Any Flower app is recorded at its grid, and does not notice."""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import (
    DifferentialPrivacyServerSideFixedClipping,
    FedAdam,
    FedAvg,
    FedMedian,
    FedTrimmedAvg,
    Krum,
)

from fedmia.flower import record, roster
from fedmia.recording import Recording
from fedmia.settings.errors import InputError
from tests.pages.reading import block
from tests.recording import legacy
from tests.recording.plain import NODES, PlainGrid, arrays, make_app

STRATEGIES: dict[str, Any] = {
    "FedAvg": lambda **more: FedAvg(**more),
    "FedAdam": lambda **more: FedAdam(**more),
    "FedMedian": lambda **more: FedMedian(**more),
    "FedTrimmedAvg": lambda **more: FedTrimmedAvg(**more),
    "Krum": lambda **more: Krum(num_malicious_nodes=1, **more),
    "DP": lambda **more: DifferentialPrivacyServerSideFixedClipping(
        FedAvg(**more), noise_multiplier=0.1, clipping_norm=1.0, num_sampled_clients=5
    ),
}
QUIET = {"fraction_evaluate": 0.0, "min_train_nodes": 5, "min_available_nodes": 5}


def start(grid: Any, name: str, rounds: int = 3, **more: Any) -> Any:
    np.random.seed(0)
    random.seed(0)  # Flower draws the order of the nodes
    strategy = STRATEGIES[name](**{**QUIET, **more})
    return strategy.start(grid, initial_arrays=arrays(1.0), num_rounds=rounds)


@pytest.mark.parametrize("name", STRATEGIES)
def test_record__changes_nothing_and_keeps_every_model_and_update(
    name: str, tmp_path: Path
) -> None:
    want = start(PlainGrid(make_app()), name).arrays
    with record(PlainGrid(make_app(roster)), tmp_path / "REC", updates="all") as grid:
        got = start(grid, name).arrays
        grid.final(got)
    for tensor in want:
        np.testing.assert_array_equal(got[tensor].numpy(), want[tensor].numpy())
    recording = Recording(tmp_path / "REC")
    models, updates = recording.models(), recording.updates()
    assert list(models) == [0, 1, 2, 3] and list(updates) == [1, 2, 3]
    np.testing.assert_array_equal(models[3]["weight"].numpy(), want["weight"].numpy())
    for round, sent in updates.items():
        before = models[round - 1]["weight"].numpy()
        for client in range(5):
            np.testing.assert_array_equal(
                sent[client]["weight"].numpy(), before + (client + 1) / round
            )
    line = recording.records["main"][2]
    assert (
        line.cohort == [0, 1, 2, 3, 4] and line.examples[4] == 50 and line.metrics[0]["loss"] == 0.5
    )


@pytest.mark.parametrize("every", [1, 2])
def test_record__of_two_phases_counts_on(every: int, tmp_path: Path) -> None:
    """A strategy that starts twice under one record goes on with rounds 3 and 4, though its
    messages say 1 and 2 again; of the last three rounds the updates are kept."""
    with record(PlainGrid(make_app(roster)), tmp_path / "REC", updates=3, every=every) as grid:
        middle = start(grid, "FedAvg", rounds=2).arrays
        strategy = STRATEGIES["FedAvg"](**QUIET)
        grid.final(strategy.start(grid, initial_arrays=middle, num_rounds=2).arrays)
    recording = Recording(tmp_path / "REC")
    # Client i adds (i + 1) / r in the round r that it is told, its share of the images 1 to 5.
    adds = np.arange(1, 6) @ np.arange(1, 6) / 15 / np.array([1, 2, 1, 2])
    values = 1 + np.append(0, np.cumsum(adds))
    models = {r: float(m["weight"][0, 0]) for r, m in recording.models().items()}
    assert models == pytest.approx({r: values[r] for r in range(0, 5, every)})
    lines = recording.records["main"]
    assert [*lines] == [0, 1, 2, 3, 4] and recording.named_by == "roster"
    for line in [*lines.values()][1:]:
        assert line.cohort == [*range(5)] and {*line.metrics} == {*range(5)}
        assert line.examples == {c: 10 * (c + 1) for c in range(5)}
        assert line.metrics[0] == {"num-examples": 10, "loss": 0.5} and (line.seconds or 0) >= 0
    sent = recording.updates()
    assert [*sent] == [2, 3, 4]
    for round, told in ((2, 2), (3, 1), (4, 2)):
        got = {c: float(state["weight"][0, 0]) for c, state in sent[round].items()}
        assert got == pytest.approx({c: values[round - 1] + (c + 1) / told for c in range(5)})


def test_record__of_evaluated_models_needs_no_final(tmp_path: Path) -> None:
    with record(PlainGrid(make_app()), tmp_path / "REC") as grid:
        result = start(grid, "FedAvg", fraction_evaluate=1.0, min_evaluate_nodes=5)
    models = Recording(tmp_path / "REC").models()
    assert list(models) == [0, 1, 2, 3]
    np.testing.assert_array_equal(models[3]["weight"].numpy(), result.arrays["weight"].numpy())


def test_record__without_final_lacks_the_last_aggregate(tmp_path: Path) -> None:
    with record(PlainGrid(make_app()), tmp_path / "REC") as grid:
        start(grid, "FedAvg")
    recording = Recording(tmp_path / "REC")
    assert list(recording.models()) == [0, 1, 2] and list(recording.records["main"]) == [0, 1, 2, 3]


def test_roster__says_which_partition_a_node_holds(tmp_path: Path) -> None:
    """Without it nodes are numbered in the order in which the server sends to them."""
    for mods in ((), (roster,)):
        folder = tmp_path / f"REC{len(mods)}"
        with record(PlainGrid(make_app(*mods)), folder) as grid:
            start(grid, "FedAvg", rounds=1)
        recording = Recording(folder)
        examples = recording.records["main"][1].examples
        assert sorted(examples.values()) == [10, 20, 30, 40, 50]
        assert ([examples[c] for c in range(5)] == [10, 20, 30, 40, 50]) is bool(mods)
        assert recording.named_by == ("roster" if mods else "nodes")


def orders(models: Any, round: int | None = None, kind: str = "train") -> list[Message]:
    """An order for each node: `models` is a record for all, or one for each."""
    each = models if isinstance(models, list) else [models] * len(NODES)
    config = ConfigRecord({} if round is None else {"server-round": round})
    return [
        Message(RecordDict({"arrays": m, "config": config}), message_type=kind, dst_node_id=n)
        for n, m in zip(NODES, each, strict=True)
    ]


def answer(message: Message, context: Any) -> Message:
    """A node that says nothing of rounds sends what it received."""
    metrics = MetricRecord({"num-examples": 1})
    content = RecordDict({"arrays": message.content["arrays"], "metrics": metrics})
    return Message(content, reply_to=message)


@pytest.mark.parametrize("says", ["nothing", "rounds from 0", "rounds from 1", "groups"])
def test_record__of_a_loop_that_pushes_and_pulls(tmp_path: Path, says: str) -> None:
    """Rounds are 1, 2, .. whatever its messages say; a model is that before its round."""
    with record(PlainGrid(answer), tmp_path / "REC", updates="all") as grid:
        for round in range(3):
            said = {"rounds from 0": round, "rounds from 1": round + 1}.get(says)
            messages = orders(arrays(round), said)
            if says == "groups":
                for message in messages:
                    message.metadata.group_id = str(round)
            names = list(grid.push_messages(messages))
            while names:
                names = names[len(list(grid.pull_messages(names[:2]))) :]
    recording = Recording(tmp_path / "REC")
    assert {r: model["weight"][0, 0] for r, model in recording.models().items()} == {
        0: 0,
        1: 1,
        2: 2,
    }
    assert {r: len(line.cohort) for r, line in recording.records["main"].items()} == {
        0: 0, 1: 5, 2: 5, 3: 5,
    }  # fmt: skip
    assert {r: sent[4]["weight"][0, 0] for r, sent in recording.updates().items()} == {
        1: 0, 2: 1, 3: 2,
    }  # fmt: skip


def test_record__of_a_model_that_is_evaluated_first_and_stays_as_it_is(tmp_path: Path) -> None:
    with record(PlainGrid(answer), tmp_path / "REC") as grid:
        for round in (1, 2):
            grid.send_and_receive(orders(arrays(7), round, "evaluate"))
            grid.send_and_receive(orders(arrays(7), round))
        grid.send_and_receive(orders(arrays(8), 2, "evaluate"))
        grid.send_and_receive(orders(arrays(8), 3))
    models = Recording(tmp_path / "REC").models()
    assert {r: model["weight"][0, 0] for r, model in models.items()} == {0: 7, 1: 7, 2: 8}


def test_record__of_bare_lists_of_arrays(tmp_path: Path) -> None:
    model = ArrayRecord([np.ones(n + 1, np.int64 if n % 3 else np.float32) for n in range(12)])
    with record(PlainGrid(answer), tmp_path / "REC", updates="all") as grid:
        grid.send_and_receive(orders(model, 1))
    recording = Recording(tmp_path / "REC")
    assert not recording.header.names
    for state in (recording.models()[0], recording.updates()[1][0]):
        assert list(state) == [str(n) for n in range(12)]
        assert [tuple(tensor.shape) for tensor in state.values()] == [(n + 1,) for n in range(12)]
    with record(PlainGrid(answer), tmp_path / "NAMED") as grid:
        grid.send_and_receive(orders(arrays(1), 1))
    assert Recording(tmp_path / "NAMED").header.names


SENT: dict[str, tuple[str, Any]] = {
    "partial": ("is partial", {"weight": np.ones((3, 2))}),
    "masked": ("see 'weight'", {"weight": np.ones((3, 2), np.int64), "bias": np.zeros(2)}),
    "of another shape": ("see 'bias'", {"weight": np.ones((3, 2)), "bias": np.zeros(3)}),
    "a change": ("is a change", {"weight": np.full((3, 2), 0.2), "bias": np.zeros(2)}),
    "secret": ("holds 0 records", None),
    "damaged": ("cannot be read", {"weight": b"no array", "bias": np.zeros(2)}),
    "said by two": ("came twice", "roster"),
}


@pytest.mark.parametrize("name", SENT)
def test_update__that_is_none_is_named_once_and_not_kept(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)
    caplog.set_level(logging.INFO, "flwr")
    why, sent = SENT[name]

    def node(message: Message, context: Any) -> Message:
        reply = answer(message, context)
        if sent == "roster":
            reply.content["fedmia.roster"] = ConfigRecord({"partition": 0})
            return reply
        del reply.content["arrays"]
        if sent is not None:
            each = {n: Array(v) for n, v in sent.items() if not isinstance(v, bytes)}
            if len(each) < len(sent) > 1:
                each["weight"] = Array("float64", (3, 2), "numpy.ndarray", sent["weight"])
            reply.content["arrays"] = ArrayRecord(each)
        return reply

    with record(PlainGrid(node), tmp_path / "REC", updates="all") as grid:
        for round in (1, 2):
            grid.send_and_receive(orders(arrays(float(round)), round))
    said = [line for line in caplog.messages if why in line]
    assert len(said) == 1 and "client" in said[0] and "round 1" in said[0]
    recording = Recording(tmp_path / "REC")
    assert list(recording.models()) == [0, 1]
    kept = [c for sent in recording.updates().values() for c in sent]
    assert kept == ([0, 0] if sent == "roster" else [])


@pytest.mark.parametrize("factor", [0.0, 0.2, -1.0])
def test_update__with_little_of_the_model_is_kept_where_others_send_weights(
    factor: float, tmp_path: Path
) -> None:
    """Else an attacker leaves the ranking of suspects by what it sends."""

    def node(message: Message, context: Any) -> Message:
        reply = answer(message, context)
        if message.metadata.dst_node_id == NODES[-1]:
            (received,) = message.content.array_records.values()
            turned = {n: Array(np.asarray(factor * a.numpy())) for n, a in received.items()}
            reply.content["arrays"] = ArrayRecord(turned)
        return reply

    with record(PlainGrid(node), tmp_path / "REC", updates="all") as grid:
        for round in (1, 2):
            grid.send_and_receive(orders(arrays(float(round)), round))
    kept = Recording(tmp_path / "REC").updates()
    assert [len(sent) for sent in kept.values()] == [len(NODES)] * 2
    least = min(float(state["weight"].mean()) for state in kept[2].values())
    assert least == pytest.approx(2 * factor)


def test_reply__that_comes_after_its_round_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)
    caplog.set_level(logging.INFO, "flwr")
    with record(PlainGrid(make_app(roster)), tmp_path / "REC", updates="all") as grid:
        early = list(grid.push_messages(orders(arrays(1), 1)))
        grid.pull_messages(early[1:])
        grid.send_and_receive(orders(arrays(2), 2))
        (late,) = grid.pull_messages(early[:1])
    assert "fedmia.roster" not in late.content
    assert "the update of client 4 in round 1 came after its round" in caplog.text
    assert [len(line.cohort) for line in Recording(tmp_path / "REC").records["main"].values()] == [
        0, 4, 5,
    ]  # fmt: skip


@pytest.mark.parametrize("kind", ["a model each", "two a round", "another form"])
def test_model__that_cannot_be_recorded_later_ends_the_recording_alone(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)
    caplog.set_level(logging.INFO, "flwr")
    second = {
        "a model each": lambda: orders([arrays(n) for n in NODES], 2),
        "two a round": lambda: orders(arrays(9), 1),
        "another form": lambda: orders(ArrayRecord([np.ones(3)]), 2),
    }[kind]()
    with record(PlainGrid(answer), tmp_path / "REC", updates="all") as grid:
        grid.send_and_receive(orders(arrays(1), 1))
        for _ in range(2):
            assert len(list(grid.send_and_receive(second))) == 5
        grid.final(arrays(3))  # nothing more is said
    assert sum("ended: " in line for line in caplog.messages) == 1
    recording = Recording(tmp_path / "REC")
    assert list(recording.models()) == [0] and len(recording.updates()[1]) == 5


def wait_for(done: Callable[[], bool]) -> None:
    """Until another thread has done it, however late."""
    assert any(done() or Event().wait(0.01) for _ in range(10_000))


def full(*_: object) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("kind", ["full", "gone", "a file in its place"])
def test_disk__that_fails_stops_no_federation(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the second round on; the first one stays, where its folder does."""
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)
    caplog.set_level(logging.INFO, "flwr")
    folder = tmp_path / "REC"
    with record(PlainGrid(answer), folder, updates="all") as grid:
        for round in (1, 2, 3, 4):
            assert len(list(grid.send_and_receive(orders(arrays(float(round)), round)))) == 5
            if round == 1:
                wait_for(lambda: 0 in Recording(folder).models())
                if kind == "full":
                    monkeypatch.setattr(os, "fsync", full)
                else:
                    folder.rename(tmp_path / "away")
                    if kind != "gone":
                        folder.write_text("")
        grid.final(arrays(5.0))
    (ended,) = [line for line in caplog.messages if "MB a model" not in line]
    assert str(folder) in ended and "goes on" in ended
    (size,) = [line for line in caplog.messages if "MB a model" in line]
    assert "each client's update" in size
    if kind == "full":
        assert "No space left on device" in ended and [*Recording(folder).models()] == [0]
        monkeypatch.undo()
    with pytest.raises(InputError, match="not empty" if kind == "full" else "cannot be made"):
        if kind == "gone":
            (tmp_path / "REC").write_text("")
        with record(PlainGrid(answer), folder / ("" if kind == "full" else "REC")):
            pass


def test_disk__that_takes_its_time_holds_up_a_later_round_and_not_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What waits for it is one model, however many there will be."""
    go, force, trained = Event(), os.fsync, list[int]()
    monkeypatch.setattr(os, "fsync", lambda handle: force(handle))

    def node(message: Message, context: Any) -> Message:
        trained.append(int(message.content["config"]["server-round"]))
        return answer(message, context)

    def federate() -> None:
        with record(PlainGrid(node), tmp_path / "REC", updates="all") as grid:
            monkeypatch.setattr(os, "fsync", lambda handle: go.wait(99) and force(handle))
            for round in range(1, 9):
                grid.send_and_receive(orders(arrays(float(round)), round))

    loop = Thread(target=federate)
    loop.start()
    wait_for(lambda: len(trained) >= 5)
    loop.join(0.2)
    assert loop.is_alive() and 1 <= max(trained) <= 2
    assert not Recording(tmp_path / "REC").records
    go.set()
    loop.join()
    assert [*Recording(tmp_path / "REC").models()] == [*range(8)] and len(trained) == 40


def test_record__of_an_app_whose_grid_the_user_never_holds(tmp_path: Path) -> None:
    app = record(legacy.make_server(5), tmp_path / "REC", updates="all")
    assert isinstance(app, ServerApp)
    app(PlainGrid(legacy.make_client()), Context(1, 1, {}, RecordDict(), {}))
    legacy.check(tmp_path / "REC", 5)


def test_record__refuses_a_relative_folder_and_wrong_options(tmp_path: Path) -> None:
    grid = PlainGrid(make_app())
    with pytest.raises(InputError, match="REC"):
        record(grid, "REC")
    for options in ({"every": 0}, {"updates": "some"}, {"updates": 0}):
        with pytest.raises(InputError), record(grid, tmp_path / "REC", **options):
            pass


def test_record__refuses_a_model_of_each_client(tmp_path: Path) -> None:
    with (
        record(PlainGrid(make_app()), tmp_path / "REC") as grid,
        pytest.raises(InputError, match="model of its own"),
    ):
        grid.push_messages(orders([arrays(n) for n in NODES]))


def test_record__asks_which_of_several_records(tmp_path: Path) -> None:
    content = RecordDict({"model": arrays(1), "control": arrays(2)})
    order = Message(content, message_type="train", dst_node_id=NODES[0])
    with (
        record(PlainGrid(make_app()), tmp_path / "A") as grid,
        pytest.raises(InputError, match="control"),
    ):
        grid.push_messages([order])
    with record(
        PlainGrid(lambda m, c: Message(content, reply_to=m)), tmp_path / "B", arrays="model"
    ) as grid:
        grid.send_and_receive([order])
    assert Recording(tmp_path / "B").models()[0]["weight"][0, 0] == 1


def test_page__its_three_lines_record(tmp_path: Path) -> None:
    page, names = "docs/howto/own_flower_app.md", dict[str, Any]()
    exec(block(page, "mods=["), names)
    names["app"].train()(lambda message, context: answer(message, context))
    client = names["app"]
    names |= {"app": ServerApp(), "Grid": object, "Context": Context, "first": arrays(1.0),
              "strategy": FedAvg(fraction_evaluate=0.0)}  # fmt: skip
    exec(block(page, "grid.final(").replace("/data", str(tmp_path)), names)
    names["app"](PlainGrid(client), Context(1, 1, {}, RecordDict(), {}))
    recording = Recording(tmp_path / "RECORDING")
    assert list(recording.models()) == [*range(11)] and recording.named_by == "roster"
    assert len(recording.updates()[10]) == 5
