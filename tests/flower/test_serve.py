"""A federation is watched on images that stay on their nodes."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg

import fedmia.flower
from fedmia.flower import Watch, record
from fedmia.recording import Recording
from fedmia.settings.errors import InputError
from tests.clock import Clock
from tests.evaluation.memory import Net
from tests.flower import watched_app
from tests.flower.deployed import Deployment
from tests.flower.leaking import IMAGES, QUIET, ROUNDS, App, first, images_of, orders
from tests.recording.plain import NODES, PlainGrid


def by_flower(grid: Any) -> None:
    FedAvg(**QUIET).start(grid, first(), ROUNDS)


@pytest.fixture(autouse=True)
def lines(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)
    caplog.set_level(logging.INFO, "flwr")
    return caplog


def test_serve__goes_on_without_a_node_that_fails_later(tmp_path: Path, lines: Any) -> None:
    partitions = list[int]()

    def images(context: Context) -> tuple[Any, Any]:
        partitions.append(partition := int(context.node_config["partition-id"]))
        if partition == 3 and partitions.count(3) > 1:
            raise InputError("members: no disk")
        return images_of(context)

    with record(
        PlainGrid(App(images=images)), tmp_path / "REC", watch=Watch(every=4, stop_above=0.6)
    ) as grid:
        by_flower(grid)
    assert grid.stopped
    assert any(
        "watch: round 4: without node 11: watch: members: no disk" in m for m in lines.messages
    )


def test_serve__that_no_node_has_is_said_before_anything_is_trained(tmp_path: Path) -> None:
    app = App()
    with (
        record(PlainGrid(app), tmp_path / "REC", watch=Watch()) as grid,
        pytest.raises(InputError, match=r"watch: node \d+: .*fedmia_leakage.*5 of 5 nodes failed"),
    ):
        by_flower(grid)
    assert app.orders == []
    with pytest.raises(InputError, match="watch: members is given without net"):
        Watch(members=IMAGES)
    with pytest.raises(InputError, match="serve: "):
        fedmia.flower.serve(ClientApp(client_fn=lambda context: None), Net, images_of)  # type: ignore[arg-type, return-value]


def test_serve__counts_a_node_that_comes_later_and_names_one_that_serves_nothing(
    tmp_path: Path, lines: Any
) -> None:
    """Three nodes at first; then one more that answers, and one that runs another app."""
    serving, plain, asked = App(images=images_of), App(), list[int]()

    def node(message: Message, context: Context) -> Message:
        if "fedmia_leakage" in message.metadata.message_type:
            asked.append(context.node_id)
        return (plain if context.node_id == NODES[4] else serving)(message, context)

    class Growing(PlainGrid):
        def get_node_ids(self) -> Any:
            return NODES if asked else NODES[:3]

    with record(Growing(node), tmp_path / "REC", watch=(guard := Watch(every=1))) as grid:
        for round in (1, 2):
            grid.send_and_receive(orders(first(), round))
    assert asked == [*NODES[:3], *NODES] and [*guard.looks] == [0, 1]
    (without,) = [line for line in lines.messages if "watch: round 1: without" in line]
    assert f"without node {NODES[4]}: " in without and ";" not in without


def test_serve__asks_a_node_again_that_began_anew(tmp_path: Path, clock: Clock) -> None:
    """Killed with the question in its hands, and back before Flower missed it."""
    asked = list[int]()

    class Restarting(PlainGrid):
        def get_nodes(self) -> Any:
            began = {NODES[1]: str(bool(asked))}
            return [
                SimpleNamespace(node_id=n, last_activated_at=began.get(n, "")) for n in self._nodes
            ]

        def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
            messages = list(messages)
            asked.extend(m.metadata.dst_node_id for m in messages)
            return super().push_messages(messages)

        def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
            lost = asked.count(NODES[1]) == 1
            names = [n for n in message_ids if not (lost and n.startswith(f"{NODES[1]}-"))]
            return super().pull_messages(names)

    grid = Restarting(App(images=images_of))
    with (watch := Watch()).looking(tmp_path, grid) as look:
        assert look(0, first().to_torch_state_dict())
    assert asked == [*NODES, NODES[1]] and 0 <= watch.looks[0].value <= 1


def judge(folder: Path) -> None:
    """The second model leaks and is looked at: it is neither evaluated nor trained further, and
    the nodes sent weights, metrics of the app's, and five numbers for each look."""
    looks, limits = json.loads((folder / "looks.json").read_text())
    assert [*looks] == ["0", "1", "2"] and looks["2"] > 0.9
    assert [*limits] == ["1", "2"] and limits["1"] < 0.6 < limits["2"]
    one, query = {"num-examples": "<class 'int'>"}, "query.fedmia_leakage"
    roster = {"fedmia.roster": {"partition": "<class 'int'>"}}
    numbers = {n: "<class 'float'>" for n in ("freedom", "smaller", "value", "variance")}
    leakage = {"leakage": {**numbers, "members": "<class 'int'>"}}
    for node in range(watched_app.NODES):
        notes = [json.loads(line) for line in (folder / f"node{node}.jsonl").open()]
        assert [kind for kind, _ in notes] == [query, "train", query, "evaluate", "train", query]
        for kind, values in notes:
            arrays = values.pop("arrays", None)
            assert (arrays is not None) == (kind == "train")
            assert values == {**(leakage if kind == query else {"metrics": one}), **roster}
    recording = Recording(folder / "REC")
    assert [*recording.models()] == [0, 1, 2]
    assert {r: len(line.cohort) for r, line in recording.records["main"].items()} == {
        0: 0, 1: 2, 2: 2,
    }  # fmt: skip


def test_watched_app__on_nodes_of_this_process(tmp_path: Path) -> None:
    config = {"folder": str(tmp_path)}
    grid = PlainGrid(watched_app.client, watched_app.NODES, **config)
    watched_app.server(grid, Context(1, 1, {}, RecordDict(), config))
    judge(tmp_path)


@pytest.mark.slow(seconds=80)
def test_watched_app__on_a_superlink_with_supernodes(tmp_path: Path) -> None:
    """As a run that Flower lists as completed."""
    (app := tmp_path / "app").mkdir()
    (app / "pyproject.toml").write_text(watched_app.PYPROJECT)
    code = "from tests.flower import watched_app\n\nclient = watched_app.client\n"
    (app / "app.py").write_text(code + "server = watched_app.server\n")
    with Deployment(tmp_path) as flower:
        flower.deploy()
        flower.run(f"""flwr run {app} deploy --stream -c "folder='{tmp_path}'" """, "deploy")
    judge(tmp_path)
