"""What the server of private images makes of nodes of which some are gone, silent or broken."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from flwr.app import ConfigRecord, Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp

from fedmia import __version__
from fedmia.federation.inline import InlineGrid
from fedmia.federation.ledger import Ledger
from fedmia.federation.plan import make_client_setup
from fedmia.federation.result import TrainedRounds
from fedmia.flower import gather, nodes, server, store
from fedmia.flower.private import plan_server
from fedmia.recording.writer import RecordingWriter
from fedmia.records.defence_rows import AggregationRow
from fedmia.records.rows import RoundRow
from fedmia.runtime.stopwatch import Stopwatch
from fedmia.storage.outfolder import OutFolder
from strategies.failure_policy import FederationError
from tests.flower_clients import answering
from tests.observers.test_observing import HEARD, RECORDER

FLAGS = "--clients 2 --rounds 5 --model.width 2 --attacks similarity --device cpu "


class Answering(InlineGrid):
    """Nodes that answer without work, and note what they were asked for; some break."""

    def __init__(self, broken: dict[int, int]) -> None:
        self.asked, self.broken = list[tuple[str, int]](), dict(broken)
        app = ClientApp()

        @app.query("begin")
        def begin(message: Message, context: Context) -> Message:
            client = int(context.node_config["partition-id"])
            self.asked.append(("begin", client))
            found = {"client": client, "fedmia": __version__, "channels": 1, "size": 8}
            return Message(RecordDict({"found": ConfigRecord(found)}), reply_to=message)

        @app.query("score")
        def score(message: Message, context: Context) -> Message:
            client = int(context.node_config["partition-id"])
            self.asked.append(("score", client))
            if self.broken.get(client, 0) > 0:
                self.broken[client] -= 1
                raise ValueError("no more memory")
            told = ConfigRecord({"json": '{"size": 8, "defence": null}'})
            return Message(RecordDict({"told": told}), reply_to=message)

        @app.query("end")
        def end(message: Message, context: Context) -> Message:
            return Message(RecordDict(), reply_to=message)

        super().__init__(answering(app), 2, 1, 1)


@pytest.fixture
def gathered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """`gathered(policy, broken, **done)`: the grid, the error or None, and reports by client."""
    grids = []

    def make(policy: str, broken: Any = (), **more: Any) -> tuple[Answering, Any, dict[int, Any]]:
        def rounds(
            experiment: Any, shape: Any, nodes: Any, place: Any, watch: Any, observing: Any
        ) -> Any:
            observing.round("main", 3, 0.5, None, 0.1)
            plan = plan_server(experiment, **shape)
            context = make_client_setup(plan, tmp_path, None)  # type: ignore[arg-type]
            kept, state = (
                RecordingWriter(place.folder / "s"),
                context.method(-1, None).shared_state(),
            )
            for round in (0, 3):
                kept.save("main", round, state)
            done = [RoundRow(round=n, under_attack=False, loss=None) for n in (1, 2, 3)]
            ruled = AggregationRow(name="fedavg")
            values = {"complete": True, "aggregation": ruled, "trained": (3, 3)} | more
            return TrainedRounds(plan, context, Ledger(), kept, done, **values)

        monkeypatch.setattr(gather, "run_rounds", rounds)
        grids.append(Answering(broken))
        place, error = OutFolder(tmp_path / "out", "a run"), None
        invoked = server.invocation(f"{FLAGS} --on-failure {policy}")
        try:
            gather.gather(grids[0], invoked, place, Stopwatch(0.0))
        except FederationError as raised:
            error = str(raised)
        files = (tmp_path / "out").glob("client-*/report.json")
        reports = {int(f.parent.name[-4:]): json.loads(f.read_text()) for f in files}
        return grids[0], error, reports

    yield make
    for grid in grids:
        grid.close()


def test_dropped_clients__are_not_asked_and_the_others_hear_of_an_interruption(
    gathered: Any,
) -> None:
    grid, error, reports = gathered("drop", gone=frozenset({1}), complete=False)
    assert [c for kind, c in grid.asked if kind == "score"] == [0] == sorted(reports)
    assert error is None and reports[0]["interrupted"] == 3
    assert "; the run was interrupted after round 3" in reports[0]["verdict"]


def test_observers__are_told_the_rounds_and_the_report_of_each_node(
    gathered: Any, tmp_path: Path
) -> None:
    HEARD.clear()
    _, error, reports = gathered(f"stop --observe {RECORDER}", {1: 1})
    assert error is not None and [*reports] == [0]  # client 1 could not score
    begin, of_round, *_, of_node, end = HEARD
    assert begin == ("begin", "moco", tmp_path / "out") and end == ("end", True, None)
    assert of_round == ("scalars", {"main/loss": 0.5, "main/seconds": 0.1}, 3)
    assert of_node == ("client-0000/report", reports[0]["verdict"], {})
    names = {name for kind, values, _ in HEARD[2:-2] for name in values}
    assert all(name.startswith("client-0000/") for name in names)


def test_observers__of_a_run_that_nodes_refuse_are_not_called(
    gathered: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    HEARD.clear()
    monkeypatch.setitem(globals(), "__version__", "0")
    _, error, reports = gathered(f"stop --observe {RECORDER}")
    assert "client 0: fedmia 0" in error and not reports and not HEARD


@pytest.mark.parametrize(
    ("policy", "times", "asked", "reported", "failed"),
    [
        ("stop", 1, 1, [0], True),
        ("drop", 1, 1, [0], False),
        ("retry", 1, 2, [0, 1], False),
        ("retry", 9, 3, [0], True),
    ],
)
def test_node__that_cannot_score_costs_its_own_report_alone(
    policy: str, times: int, asked: int, reported: list[int], failed: bool, gathered: Any,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    grid, error, reports = gathered(policy, {1: times})
    assert grid.asked.count(("score", 1)) == asked and sorted(reports) == reported
    assert reports[0]["interrupted"] is None
    assert (error is not None and "score: client 1 failed: " in error) == failed
    assert "score: client 1 failed: " in capsys.readouterr().out


@pytest.mark.parametrize(("policy", "waits"), [("stop", (1, 0.0)), ("retry", (3, 600.0))])
def test_scoring__waits_for_a_node_that_left_under_retry_alone(
    policy: str, waits: tuple[int, float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = list[Any]()

    def ask_each(*_: Any, **options: Any) -> Any:
        seen.append((options["tries"], options["comeback"]))
        return iter(())

    monkeypatch.setattr(gather, "ask_each", ask_each)
    kept = RecordingWriter(tmp_path)
    kept.save("main", 0, {})
    assert not [*gather.collect_scores(SimpleNamespace(), {0: 7}, kept, policy)]  # type: ignore[arg-type]
    assert seen == [waits]


def test_log__names_the_nodes_that_have_not_answered(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And nobody is waited for once the patience is over."""
    monkeypatch.setattr(store, "SAY", 0.05)
    silent = SimpleNamespace(
        get_nodes=lambda: [], get_node_ids=lambda: [7, 8], push_messages=lambda m: [str(id(m))],
        pull_messages=lambda names: [],
    )  # fmt: skip
    each = store.ask_each(silent, {0: 7, 1: 8}, "score", {0: {}, 1: {}}, patience=0.3)  # type: ignore[arg-type]
    assert [(c, str(e)) for c, e in each] == [
        (0, "score: no answer from client 0"), (1, "score: no answer from client 1"),
    ]  # fmt: skip
    assert "fedmia: score: waiting for clients [0, 1]" in capsys.readouterr().out


def test_log__before_the_roll_call_names_clients_and_no_numbers_of_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One of three answers, one fails, one is silent; then all are told of the end."""
    far = [10**18 + i for i in range(3)]
    monkeypatch.setattr(store, "SAY", 0.05)
    monkeypatch.setattr(nodes, "wait_for_nodes", lambda *_: far)
    monkeypatch.setattr(nodes, "FAREWELL", 0.0)
    monkeypatch.setattr(store, "PATIENCE", 0.3)
    monkeypatch.setattr(store.ask_each, "__defaults__", (None, store.name_clients, 0.3, 0.0, 1))
    sent = list[Message]()

    def push(messages: list[Message]) -> list[str]:
        sent.extend(messages)
        return [str(len(sent))]

    def pull(names: list[str]) -> list[Message]:
        kinds = {"1": RecordDict({"found": ConfigRecord({"client": 2})}), "2": Error(0, "no disk")}
        return [Message(kinds[n], reply_to=sent[int(n) - 1]) for n in names if n in kinds]

    grid = SimpleNamespace(
        get_nodes=lambda: [], get_node_ids=lambda: far, push_messages=push, pull_messages=pull
    )
    settings = server.invocation("--config smoke --clients 3").settings
    with (
        pytest.raises(FederationError) as error,
        OutFolder(tmp_path / "out", "a run") as place,
        nodes.open_nodes(grid, settings, place, False),  # type: ignore[arg-type]
    ):
        pass
    out = capsys.readouterr().out
    assert "fedmia: begin: waiting for node of clients [0, 1]" in out
    assert "no answer from node of clients [0, 1]" in str(error.value)
    assert str(far[0])[:9] not in out + str(error.value)
    assert not (tmp_path / "out").exists()
