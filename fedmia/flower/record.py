"""Record anybody's Flower app: `with record(grid, folder) as grid:` around its strategy or loop.

The grid sees each global model as it is sent, and each update as it returns, before a strategy
changes it. No message carries the last aggregate unless clients evaluate it: `grid.final(arrays)`.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import RLock
from typing import Any, overload

import flwr
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp.typing import ClientAppCallable
from flwr.serverapp import Grid, ServerApp

import fedmia
from fedmia.options.errors import InputError
from fedmia.recording.format import Header, RoundRecord
from fedmia.recording.writer import RecordingWriter, describe_size
from fedmia.ssl.base import State
from fedmia.storage.arrays import tensors

ROSTER = "fedmia.roster"  # the record of a reply that says which partition a node holds
EXAMPLES = ("num-examples", "num_examples")
log = logging.getLogger("flwr")


def roster(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """Say with each reply which partition the node holds: `ClientApp(mods=[roster])`.

    Args:
        message: from the server.
        context: of the node; its `partition-id` is said.
        call_next: the next mod, or the app.

    Returns:
        The app's reply, with one record more, which the recording takes out again.
    """
    reply = call_next(message, context)
    if reply.has_content() and (partition := context.node_config.get("partition-id")) is not None:
        reply.content[ROSTER] = ConfigRecord({"partition": int(partition)})
    return reply


class RecordingGrid(Grid):
    """A grid that records what passes through another one, which does the work.

    Args:
        grid: Flower's way to the clients.
        writer: of the recording.
        arrays: name of the record of the weights, where a message holds several; else None.
    """

    def __init__(self, grid: Grid, writer: RecordingWriter, arrays: str | None) -> None:
        self._grid, self._writer, self._arrays = grid, writer, arrays
        self._lock = RLock()
        self._round, self._began, self._digest = 0, 0.0, ""
        self._sent = dict[str, tuple[Any, ...]]()  # name -> shape and type of the model's tensors
        self._lines = dict[int, RoundRecord]()
        self._numbers = dict[int, int]()  # client of each node
        self._rounds = dict[str, int]()  # round of each message that is out
        self._modelled = -1  # last round whose model is written

    def __getattr__(self, name: str) -> Any:
        return getattr(self._grid, name)

    # -- Flower's grid -------------------------------------------------------------------------

    def set_run(self, run: Any) -> None:
        self._grid.set_run(run)

    @property
    def run(self) -> Any:
        return self._grid.run

    def create_message(self, *args: Any, **options: Any) -> Message:
        return self._grid.create_message(*args, **options)

    def get_node_ids(self) -> Iterable[int]:
        return self._grid.get_node_ids()

    def get_nodes(self) -> Iterable[Any]:
        return self._grid.get_nodes()

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        messages = list(messages)
        round = self._see_orders(messages)
        names = list(self._grid.push_messages(messages))
        if round:
            self._rounds |= dict.fromkeys(names, round)
        return names

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        replies = list(self._grid.pull_messages(message_ids))
        for reply in replies:
            if round := self._rounds.pop(reply.metadata.reply_to_message_id, 0):
                self._see_replies(round, [reply])
        return replies

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        messages = list(messages)
        round = self._see_orders(messages)
        replies = list(self._grid.send_and_receive(messages, timeout=timeout))
        if round:
            self._see_replies(round, replies)
        return replies

    # -- what is recorded ----------------------------------------------------------------------

    def final(self, arrays: ArrayRecord) -> None:
        """Record the last aggregate, which no message carries.

        Args:
            arrays: `result.arrays` of the strategy, or those of a loop of your own.
        """
        with self._lock:
            self._end_round(self._round)
            self._write_model(self._round, arrays)

    def _see_orders(self, messages: list[Message]) -> int:
        """Record the model that messages carry; the round of orders to train, else 0."""
        with self._lock:
            models = [(m, arrays) for m in messages if (arrays := self._weights(m)) is not None]
            if self._writer.failure or not models:
                return 0
            message, arrays = models[0]
            kind = message.metadata.message_type.partition(".")[0]
            if kind not in ("train", "evaluate"):
                return 0
            state, digest = tensors(arrays), ""
            for _, other in models[1:]:
                if other is not arrays:
                    digest = digest or digest_of(state)
                    if digest_of(tensors(other)) != digest:
                        return self._refuse("each client gets a model of its own")
            if kind == "evaluate":
                if self._round:
                    self._end_round(self._round)
                    self._write_state(self._round, state)
                return 0
            round = round_of(message) or self._count_round(state)
            if round != self._round:
                self._end_round(self._round)
                self._write_state(round - 1, state)
                self._round, self._began = round, time.perf_counter()
                self._lines[round] = RoundRecord("main", round)
                if not self._sent:
                    self._begin(state, len(messages))
            for order in messages:
                self._numbers.setdefault(order.metadata.dst_node_id, len(self._numbers))
            return round

    def _begin(self, state: State, clients: int) -> None:
        self._sent = form_of(state)
        size = describe_size(state, clients, self._writer.header.updates)
        log.info("recording to %s: %s", self._writer.folder, size)

    def _count_round(self, state: State) -> int:
        """The round, where no message says it: another model begins another one."""
        digest = digest_of(state)
        new, self._digest = digest != self._digest, digest
        return self._round + new

    def _see_replies(self, round: int, replies: list[Message]) -> None:
        """Record what clients sent, and take the roster's record out."""
        for reply in replies:
            if not reply.has_content():
                continue
            said = reply.content.pop(ROSTER, None)
            with self._lock:
                if self._writer.failure or round not in self._lines:
                    continue
                node = reply.metadata.src_node_id
                client = self._numbers.setdefault(node, len(self._numbers))
                if isinstance(said, ConfigRecord):
                    client = int(said["partition"])  # type: ignore[arg-type]
                else:
                    self._lines[round].named_by = "nodes"
                self._see_update(self._lines[round], client, reply)

    def _see_update(self, line: RoundRecord, client: int, reply: Message) -> None:
        line.seconds = round(time.perf_counter() - self._began, 3)
        metrics = metrics_of(reply.content)
        examples = [metrics[name] for name in EXAMPLES if name in metrics]
        line.cohort = sorted({*line.cohort, client})
        line.metrics[client] = metrics
        line.examples |= {client: examples[0]} if examples else {}
        if self._writer.header.updates == "none":
            return
        arrays = self._weights(reply)
        if arrays is None:
            return self._miss(line, client, "holds no weights")
        state = tensors(arrays)
        if form_of(state) != self._sent:
            lacking = sorted({*self._sent} ^ {*state}) or [
                n for n, form in form_of(state).items() if form != self._sent[n]
            ]
            return self._miss(line, client, f"is partial or masked: see {lacking[0]}")
        if digest := self._writer.write_update(line.round, client, state):
            line.updates[client] = digest

    def _miss(self, line: RoundRecord, client: int, why: str) -> None:
        log.warning("recording: the update of client %d in round %d %s; it is not kept",
                    client, line.round, why)  # fmt: skip

    def _end_round(self, round: int) -> None:
        if (line := self._lines.pop(round, None)) is not None:
            self._writer.end_round(line)

    def _write_model(self, round: int, arrays: ArrayRecord) -> None:
        self._write_state(round, tensors(arrays))

    def _write_state(self, round: int, state: State) -> None:
        if round > self._modelled:
            self._writer.write_model(round, state)
            self._modelled = round

    def _weights(self, message: Message) -> ArrayRecord | None:
        """The record of a message's weights; None where it holds none."""
        if not message.has_content():
            return None
        records = message.content.array_records
        if self._arrays is not None and self._arrays in records:
            return records[self._arrays]
        if len(records) > 1:
            names = ", ".join(records)
            self._refuse(f"messages hold several ArrayRecords: arrays= names one of {names}")
        return next(iter(records.values()), None) if len(records) == 1 else None

    def _refuse(self, why: str) -> int:
        """Refuse in the first round, when nothing is lost; end the recording later."""
        if not self._round:
            raise InputError(f"recording: {why}")
        self._writer.failure = why
        log.warning("recording to %s ended in round %d: %s", self._writer.folder, self._round, why)
        return 0


class _RecordedApp(ServerApp):
    """A server app whose grid is recorded."""

    def __init__(self, app: ServerApp, folder: Path, options: dict[str, Any]) -> None:
        self._app, self._folder, self._options = app, folder, options

    def __call__(self, grid: Grid, context: Context) -> None:
        with record(grid, self._folder, **self._options) as recorded:
            self._app(recorded, context)


@overload
def record(target: ServerApp, folder: Path | str, **options: Any) -> ServerApp: ...


@overload
def record(target: Grid, folder: Path | str, **options: Any) -> Any: ...


def record(target: Any, folder: Path | str, **options: Any) -> Any:
    """Record what a Flower app trains, for `fedmia audit --federation FOLDER`.

    Args:
        target: the grid, around whose use this is the context; or a `ServerApp`, of which a
            recorded one is returned.
        folder: of the recording, new or empty; an absolute path, as `flwr run` starts a ServerApp
            in a folder of its own.
        options: `every=1`: the model of every so many rounds is kept. `updates="none"`: `"all"`,
            or the number of the last rounds whose updates are kept, for attacks of the server;
            they reveal more than models do. `arrays=None`: name of the record of the weights, where
            a message holds several.

    Returns:
        A context whose value is the grid to use, or the app to run.

    Raises:
        InputError: the folder is relative, or holds something.
    """
    folder = Path(folder)
    if not folder.is_absolute():
        raise InputError(f"recording: the folder must be an absolute path, got '{folder}'")
    if isinstance(target, ServerApp):
        return _RecordedApp(target, folder, options)
    return _recording(target, folder, **options)


@contextmanager
def _recording(
    grid: Grid,
    folder: Path,
    every: int = 1,
    updates: str | int = "none",
    arrays: str | None = None,
) -> Iterator[RecordingGrid]:
    if every < 1 or not (updates in ("none", "all") or (isinstance(updates, int) and updates > 0)):
        raise InputError(
            "recording: every must be >= 1, and updates 'none', 'all' or a number of rounds, got "
            f"every={every!r}, updates={updates!r}"
        )
    made_by = {"fedmia": fedmia.__version__, "flwr": flwr.__version__}
    writer = RecordingWriter(folder, Header(made_by, updates=updates, every=every), log.warning)
    recorded = RecordingGrid(grid, writer, arrays)
    try:
        yield recorded
    finally:
        with recorded._lock:
            recorded._end_round(recorded._round)
        writer.close()


def round_of(message: Message) -> int:
    """The round that a message says: `server-round`, else a number as its group; 0: none."""
    for config in message.content.config_records.values():
        if isinstance(round := config.get("server-round"), int):
            return round
    group = message.metadata.group_id
    return int(group) if group and group.isdecimal() else 0


def metrics_of(content: RecordDict) -> dict[str, float]:
    """Every number of a reply's metrics by its name."""
    records: Iterable[MetricRecord] = content.metric_records.values()
    return {
        name: float(value)
        for one in records
        for name, value in one.items()
        if isinstance(value, int | float)
    }


def form_of(state: State) -> dict[str, tuple[Any, ...]]:
    """Shape and type of each tensor."""
    return {name: (tuple(t.shape), t.dtype) for name, t in state.items()}


def digest_of(state: State) -> str:
    """A digest of a model's numbers."""
    digest = hashlib.sha256()
    for name, tensor in state.items():
        digest.update(name.encode())
        digest.update(tensor.contiguous().numpy().tobytes())
    return digest.hexdigest()
