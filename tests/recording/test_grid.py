"""Any Flower app is recorded at its grid, and does not notice."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp.strategy import (
    DifferentialPrivacyServerSideFixedClipping,
    FedAdam,
    FedAvg,
    FedMedian,
    FedTrimmedAvg,
    Krum,
)

from fedmia.flower.record import record, roster
from fedmia.options.errors import InputError
from fedmia.recording import Recording
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
    line = recording.rounds["main"][2]
    assert (
        line.cohort == [0, 1, 2, 3, 4] and line.examples[4] == 50 and line.metrics[0]["loss"] == 0.5
    )


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
    assert list(recording.models()) == [0, 1, 2] and list(recording.rounds["main"]) == [0, 1, 2, 3]


def test_roster__says_which_partition_a_node_holds(tmp_path: Path) -> None:
    """Without it nodes are numbered in the order in which the server sends to them."""
    for mods in ((), (roster,)):
        folder = tmp_path / f"REC{len(mods)}"
        with record(PlainGrid(make_app(*mods)), folder) as grid:
            start(grid, "FedAvg", rounds=1)
        recording = Recording(folder)
        examples = recording.rounds["main"][1].examples
        assert sorted(examples.values()) == [10, 20, 30, 40, 50]
        assert ([examples[c] for c in range(5)] == [10, 20, 30, 40, 50]) is bool(mods)
        assert recording.named_by == ("roster" if mods else "nodes")


def loop(grid: Any, rounds: int = 2, model: Any = None) -> None:
    """A server loop of somebody's own: no strategy, no word of the round."""
    for round in range(1, rounds + 1):
        content = {"arrays": arrays(round), "config": ConfigRecord({"server-round": 1})}
        orders = [
            Message(RecordDict(dict(content)), message_type="train", dst_node_id=n) for n in NODES
        ]
        names = list(grid.push_messages(orders))
        while names:
            names = names[len(list(grid.pull_messages(names[:2]))) :]


def test_record__of_a_loop_that_pushes_and_pulls(tmp_path: Path) -> None:
    def unnumbered(message: Message, context: Any, call_next: Any) -> Message:
        return call_next(message, context)

    with record(PlainGrid(make_app(unnumbered)), tmp_path / "REC", updates=1) as grid:
        loop(grid)
    recording = Recording(tmp_path / "REC")
    assert len(recording.rounds["main"][1].cohort) == 5


def test_record__refuses_a_relative_folder_and_wrong_options(tmp_path: Path) -> None:
    grid = PlainGrid(make_app())
    with pytest.raises(InputError, match="REC"):
        record(grid, "REC")
    for options in ({"every": 0}, {"updates": "some"}, {"updates": 0}):
        with pytest.raises(InputError), record(grid, tmp_path / "REC", **options):
            pass


def test_record__refuses_a_model_of_each_client(tmp_path: Path) -> None:
    with record(PlainGrid(make_app()), tmp_path / "REC") as grid:
        orders = [
            Message(RecordDict({"arrays": arrays(n)}), message_type="train", dst_node_id=n)
            for n in NODES
        ]
        with pytest.raises(InputError, match="model of its own"):
            grid.push_messages(orders)


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
