"""The Flower app whose nodes read the data source that the server reads: inline's numbers, whatever
becomes of its nodes on the way."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from flwr.app import Message

from fedmia.recording import Recording
from fedmia.settings.errors import InputError
from strategies.failure_policy import FederationError
from tests.bank import Bank
from tests.flower.nodes import ROUNDS, TINY, Nodes, SuperLink, broken, drawn, echo, held
from tests.observers.test_observing import HEARD, RECORDER
from tests.small_runs import read

pytestmark = pytest.mark.usefixtures("clock")
WHOLE = ROUNDS + (
    "--attacker active --attacks similarity,ascent --attack.similarity.views 4 "
    "--attack.ascent.pairs 1 --defense laplace --train.optimizer_state keep "
)


def weights(out: Path) -> dict[str, list[Any]]:
    """The models of a run, to the bit."""
    models = Recording(out / "recording").models()
    return {f"{r}.{n}": t.tolist() for r, state in models.items() for n, t in state.items()}


@pytest.mark.slow
def test_rehearsal__reports_as_inline(home: Path, tmp_path: Path, bank: Bank) -> None:
    HEARD.clear()
    grid = Nodes()
    assert grid.start(f"{WHOLE} --observe {RECORDER}", tmp_path / "nodes") is None
    report = read(tmp_path / "nodes")
    assert report == read(bank.run(WHOLE)) and weights(tmp_path / "nodes") == weights(
        bank.run(WHOLE)
    )
    kinds = [kind for kind, _, _ in HEARD]
    assert kinds[0] == "begin" and kinds[-2:] == ["report", "end"] and kinds.count("report") == 1
    rounds = [step for _, values, step in HEARD[1:-2] if "main/seconds" in values]
    assert rounds == [row["round"] for row in report["rounds"]] == [1, 2]
    assert "query.kept" in grid.orders and not [*home.iterdir()]  # nothing of a finished run stays


class Losing(Nodes):
    """An answer of client 1 is lost on its way, once: the node had kept its new state by then."""

    def __init__(self) -> None:
        super().__init__()
        self.lost = 0

    def _answer(self, message: Message, context: Any) -> Message:
        reply = super()._answer(message, context)
        client = int(context.node_config["partition-id"])
        if message.metadata.message_type != "train" or client != 1 or self.lost:
            return reply
        self.lost = int(held(message)["config"]["server-round"]) == 2
        return broken(message, "the line broke") if self.lost else reply


FAULTS: dict[str, tuple[Any, str | None]] = {
    "left": (lambda: SuperLink("train", 6), "Error: Node Unavailable (retried)"),
    "began anew": (lambda: SuperLink("train", 1, anew=True), "its node began anew (retried)"),
    "left with a question": (lambda: SuperLink("query.kept", 3), None),
    "began anew with a question": (lambda: SuperLink("query.kept", 1, anew=True), None),
    "lost": (Losing, "the line broke (retried)"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_retry__ends_as_if_nothing_had_happened(
    name: str, home: Path, tmp_path: Path, bank: Bank, capsys: pytest.CaptureFixture[str]
) -> None:
    make, line = FAULTS[name]
    flags = TINY + "--train.optimizer_state keep --defense laplace "
    flags = WHOLE if "question" in name else flags
    grid = make()
    assert grid.start(flags + "--on-failure retry", tmp_path / "again") is None
    assert grid.lost == 1 and weights(tmp_path / "again") == weights(bank.run(flags))
    assert read(tmp_path / "again")["attacks"] == read(bank.run(flags))["attacks"]
    said = [one for one in capsys.readouterr().out.splitlines() if "client 1 failed" in one]
    assert len(said) == (name != "began anew with a question")  # one failure, not three
    assert line is None or said[0].endswith(line)


def test_stop__ends_in_one_line(home: Path, tmp_path: Path) -> None:
    error = SuperLink("train", 1).start(TINY, tmp_path / "out")
    assert str(error).startswith("round 1: client 1 failed: Error: Node Unavailable")
    assert not [*home.iterdir()]


def test_node__that_reads_other_data_is_refused(home: Path, tmp_path: Path) -> None:
    """Or that has images of its own."""
    grid = Nodes()

    def other_seed(kind: str, client: int, message: Message) -> None:
        if (kind, client) == ("query.begin", 1):
            order = held(message)["order"]
            order["settings"] = json.dumps(json.loads(order["settings"]) | {"seed": 7})

    grid.fault = other_seed
    assert "client 1: fingerprint" in str(grid.start(TINY, tmp_path / "out"))
    grid = Nodes()
    grid.give_images(tmp_path, [drawn(8, 8)])
    assert "client 0 has images of its own" in str(grid.start(TINY, tmp_path / "out"))
    assert "client 1 is given no members and" in str(grid.start(TINY, tmp_path / "out", True))
    assert not (tmp_path / "out").exists() and not grid.asked("train")


ARGUMENTS: dict[str, str] = {
    "--out somewhere": "its folder is the app's 'out'",
    "--help": "its folder is the app's 'out'",
    "--backend ray": "the clients of a Flower app are its nodes",
    "--rounds 0": "(--rounds): 0, must be >= 1",
    "--resume RUN": "nodes keep nothing of a run that has ended",
    "--fail-on leaks": "sets an exit code",
    "--client-timeout 9": "a node of Flower's cannot be halted",
}


@pytest.mark.parametrize("private", [True, False])
@pytest.mark.parametrize("flags", ARGUMENTS)
def test_arguments__that_are_not_a_run_s_are_one_line_of_the_log(
    flags: str, private: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    (tmp_path / "RUN").mkdir()
    (tmp_path / "RUN" / "config.yaml").write_text("seed: 3\n")
    grid = Nodes(2, echo)
    with pytest.raises(InputError) as raised:
        grid.start(flags, "somewhere", private)
    assert not grid.sent and not (tmp_path / "somewhere").exists()
    line = said(raised.value, caplog, monkeypatch)
    assert line.startswith("fedmia: error: ") and ARGUMENTS[flags] in line and "\n" not in line


def said(error: Exception, caplog: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    """What Flower's log says of an app that raised."""
    log = logging.getLogger("flwr")
    monkeypatch.setattr(log, "propagate", True)
    log.error("%s raised an exception", "ServerApp", exc_info=error)
    record = caplog.records[-1]
    assert (record.exc_info is None) == record.getMessage().startswith("fedmia")
    return str(record.getMessage())


def test_errors__that_say_all_lose_their_traceback_and_bugs_do_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = Silent().start(TINY.replace("--clients 2 ", ""), tmp_path / "out")
    assert "0 of at least 1 clients connected" in str(error) and error is not None
    assert said(error, caplog, monkeypatch) == f"fedmia: the run failed: {error}"
    assert said(FederationError("a\nb"), caplog, monkeypatch) == "fedmia: the run failed: a b"
    assert said(KeyError("x"), caplog, monkeypatch) == "ServerApp raised an exception"


class Silent(Nodes):
    """Nodes that come late, so many at a count; none of them answers well."""

    def __init__(self, *counts: int) -> None:
        super().__init__(4, echo)
        self.counts = [*counts]
        self.fault = lambda kind, client, message: broken(message)

    def get_node_ids(self) -> Iterable[int]:
        return self._nodes[: self.counts.pop(0) if self.counts else 0]


@pytest.mark.parametrize(
    ("flags", "counts", "clients"),
    [("", [0, 0, 1, 3, 3, 3], 3), ("--clients 4", [2, 4], 4), ("--federation.clients=4", [4], 4)],
)
def test_clients__all_nodes_that_came_or_as_the_arguments_say(
    flags: str, counts: list[int], clients: int, tmp_path: Path
) -> None:
    grid = Silent(*counts)
    error = grid.start(f"{TINY.replace('--clients 2 ', '')}{flags}", tmp_path / "out", private=True)
    assert error is not None and "begin" in str(error)
    assert len(grid.asked("query.begin")) == clients
