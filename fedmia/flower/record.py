"""Record anybody's Flower app: `with record(grid, folder) as grid:` around its strategy or loop.

No message carries the last aggregate unless clients evaluate it: `grid.final(result.arrays)`.
`messages.py` says what is read off the messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, overload

import flwr
from flwr.app import ArrayRecord, ConfigRecord, Context, Message
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import Result

import fedmia
from fedmia.flower.messages import ROSTER, MessageRecorder
from fedmia.flower.watch import Watch
from fedmia.flower_internals import ClientAppCallable
from fedmia.recording.format import Header
from fedmia.recording.writer import begin_recording
from fedmia.settings.errors import InputError
from fedmia.settings.values import disk_path
from strategies.grids import GridExtras, ReplyObserver, extras_of


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


class RecordingGrid(Grid, GridExtras):
    """A grid that records what passes through another one, which does the work.

    Args:
        grid: Flower's way to the clients.
        recorder: of the messages.
        watch: that may stop the federation: no order to train or evaluate is sent then, and none
            is answered.
    """

    def __init__(self, grid: Grid, recorder: MessageRecorder, watch: Watch | None = None) -> None:
        self._grid, self._recorder, self.watch = grid, recorder, watch
        self._extras = extras_of(grid)
        self._rounds = dict[str, int]()  # of each order that is out

    def final(self, arrays: ArrayRecord) -> None:
        """Record the last aggregate, which no message carries.

        Args:
            arrays: `result.arrays` of the strategy, or those of a loop of your own.
        """
        self._recorder.final(arrays)

    @property
    def stopped(self) -> bool:
        """Whether the watch stopped the federation, for loops of your own."""
        return self._extras.stopped or (self.watch is not None and self.watch.stopped)

    @property
    def ahead(self) -> float:
        return self._extras.ahead

    @property
    def device(self) -> str:
        return self._extras.device

    def client_nodes(self) -> dict[int, int] | None:
        return self._extras.client_nodes()

    def accept(self, node: int) -> None:
        self._extras.accept(node)

    def observe_replies(self, observe: ReplyObserver) -> None:
        self._extras.observe_replies(observe)

    def should_stop(self, server_round: int, result: Result) -> bool:
        """For `strategy.start(.., should_stop=grid.should_stop)`, in Flower from 1.43 on.

        Args:
            server_round: that is over.
            result: of the rounds until then; its model is recorded, and looked at.

        Returns:
            Whether the watch stopped the federation.
        """
        if len(result.arrays):
            self.final(result.arrays)
        return self.stopped

    def _see_orders(self, messages: Iterable[Message]) -> tuple[list[Message], int]:
        """The messages that may be sent, and the round of orders to train."""
        messages = list(messages)
        number = self._recorder.see_orders(messages)
        if self.watch is not None and self._recorder.failure:
            self.watch.end("the recording ended")
        if self.stopped:
            orders = ("train", "evaluate")
            messages = [m for m in messages if not m.metadata.message_type.startswith(orders)]
        return messages, number

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
        """Send messages; the model in them is recorded."""
        messages, number = self._see_orders(messages)
        names = list(self._grid.push_messages(messages)) if messages else []
        self._rounds |= dict.fromkeys(names, number)
        return names

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """The replies that have come; the updates in them are recorded."""
        replies = list(self._grid.pull_messages(message_ids))
        for reply in replies:
            number = self._rounds.pop(reply.metadata.reply_to_message_id, 0)
            self._recorder.see_replies(number, [reply])
        return replies

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Send messages and wait for the replies; models and updates are recorded.

        Args:
            messages: to clients.
            timeout: seconds; None: until every reply is there.

        Returns:
            The replies.
        """
        messages, number = self._see_orders(messages)
        if self.stopped and not messages:
            return []
        replies = list(self._grid.send_and_receive(messages, timeout=timeout))
        self._recorder.see_replies(number, replies)
        return replies


class _RecordedApp(ServerApp):
    """A server app whose grid is recorded."""

    def __init__(self, app: ServerApp, folder: Path, options: dict[str, Any]) -> None:
        super().__init__()
        self._app, self._folder, self._options = app, folder, options

    def __call__(self, grid: Grid, context: Context) -> None:
        with record(grid, self._folder, **self._options) as recorded:
            self._app(recorded, context)


@overload
def record(target: ServerApp, folder: Path | str, **options: Any) -> ServerApp: ...


@overload
def record(
    target: Grid, folder: Path | str, **options: Any
) -> AbstractContextManager[RecordingGrid]: ...


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
            a message holds several. `watch=None`: a `Watch`, which looks at the models as they are
            sent, and may stop the federation.

    Returns:
        A context whose value is the grid to use, or the app to run.

    Raises:
        InputError: the folder is relative, or holds something.
    """
    folder = Path(disk_path(folder))
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
    watch: Watch | None = None,
) -> Iterator[RecordingGrid]:
    if every < 1 or not (updates in ("none", "all") or (isinstance(updates, int) and updates > 0)):
        raise InputError(
            "recording: every must be >= 1, and updates 'none', 'all' or a number of rounds, got "
            f"every={every!r}, updates={updates!r}"
        )
    made_by = {"fedmia": fedmia.__version__, "flwr": flwr.__version__}
    writer = begin_recording(folder, Header(made_by, updates=updates, every=every))
    with watch.looking(folder, grid) if watch else nullcontext(lambda round, state: True) as look:
        recorder = MessageRecorder(writer, arrays, look)
        try:
            yield RecordingGrid(grid, recorder, watch)
        finally:
            recorder.close()
