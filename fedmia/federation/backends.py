"""Where clients run: in threads of this process, or in Flower's simulation on Ray."""

from __future__ import annotations

import itertools
import logging
import math
import os
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch
from flwr.app import Array, Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity
from numpy.typing import NDArray

from fedmia.runtime.cores import cores

ServerMain = Callable[[Grid], None]
SERVER = 1  # Flower's node id of the server; clients are the nodes after it


class Opened(Array):
    """An array on its way, its numbers read: once for all clients, and by no two threads at once.

    NumPy parses Python to read them, and in CPython 3.11 two threads that do so at once break one
    another's (gh-106905: "AST constructor recursion depth mismatch").
    """

    def __init__(self, array: Array) -> None:
        self.__dict__.update(array.__dict__)
        self._opened = array.numpy()

    def numpy(self) -> NDArray[Any]:
        """A copy, which its client may change."""
        return self._opened.copy()


class InlineGrid(Grid):
    """A Flower grid whose nodes are threads of this process; node id = partition id + 2.

    Two threads train two small clients nearly twice as fast as one after the other: torch lets go
    of the interpreter lock inside its kernels. A fork after torch has started threads hangs.
    """

    def __init__(self, app: ClientApp, clients: int, workers: int, threads: int) -> None:
        # Flower's `Message` asks for its sender's identity; its own runners set it likewise.
        TaskIdentity.task_id = TaskIdentity.run_id = 1
        TaskIdentity.node_id = SERVER
        self._app = app
        self._contexts = {}
        for client in range(clients):
            node = SERVER + 1 + client
            config: dict[str, Any] = {"partition-id": client, "num-partitions": clients}
            self._contexts[node] = Context(1, node, config, RecordDict(), {})
        self._pool = ThreadPoolExecutor(
            workers, "client", initializer=torch.set_num_threads, initargs=(threads,)
        )
        self._pending: dict[str, Future[Message]] = {}
        self._names = itertools.count()
        self._took: dict[int, float] = {}

    def set_run(self, run: Any) -> None:
        return None

    @property
    def run(self) -> Any:
        return None

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str,
        ttl: float | None = None,
    ) -> Message:  # fmt: skip
        return Message(
            content, dst_node_id=dst_node_id, message_type=message_type, group_id=group_id, ttl=ttl
        )

    def get_node_ids(self) -> Iterable[int]:
        return list(self._contexts)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        messages = list(messages)
        for record in [r for m in messages for r in m.content.array_records.values()]:
            record.update({n: a if isinstance(a, Opened) else Opened(a) for n, a in record.items()})
        sent = {str(next(self._names)): self._pool.submit(self._answer, m) for m in messages}
        self._pending |= sent
        return list(sent)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return [self._pending.pop(name).result() for name in message_ids]

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        # The slowest first, by their last round, so that no core waits for one of them at the end.
        slowest = sorted(messages, key=lambda m: -self._took.get(m.metadata.dst_node_id, math.inf))
        return self.pull_messages(self.push_messages(slowest))

    def close(self) -> None:
        """Wait for the threads to end."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _answer(self, message: Message) -> Message:
        node, began = message.metadata.dst_node_id, time.perf_counter()
        try:
            return self._app(message, self._contexts[node])
        except Exception as error:  # as Flower does: the strategy says whose it was and stops
            reason = f"{type(error).__name__}: {error}"
            return Message(Error(code=0, reason=reason), reply_to=message)
        finally:
            self._took[node] = time.perf_counter() - began


def run_inline(server: ServerMain, app: ClientApp, clients: int, threads: int) -> None:
    """Run `server` against clients in this process, as many at once as the cores allow."""
    logging.getLogger("flwr").setLevel(logging.ERROR)  # it logs every round of every branch
    workers = max(1, min(clients, cores() // threads))
    grid = InlineGrid(app, clients, workers, threads)
    try:
        server(grid)
    finally:
        grid.close()


def run_ray(
    server: ServerMain, app: ClientApp, clients: int, threads: int, gpus_per_client: float
) -> None:
    """Run `server` against Flower's simulation runtime: one Ray actor per `threads` cores.

    Raises:
        whatever `server` raises, unwrapped.
    """
    os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
    os.environ.setdefault("RAY_DEDUP_LOGS", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # or Ray prints a warning
    from flwr.serverapp import ServerApp
    from flwr.simulation import run_simulation

    # What fails comes back as a message or an exception and is said once, in one line; the threads
    # that a second Ctrl-C ends would print their tracebacks on top.
    logging.getLogger("flwr").setLevel(logging.CRITICAL)
    failure: list[BaseException] = []
    main = ServerApp()

    @main.main()
    def _(grid: Grid, context: Context) -> None:
        try:
            server(grid)
        except BaseException as error:  # handed to the caller below: Flower would only log it
            failure.append(error)

    resources: dict[str, Any] = {"num_cpus": threads, "num_gpus": gpus_per_client}
    init: dict[str, Any] = {"include_dashboard": False, "log_to_driver": False}
    init["num_cpus"] = cores()
    backend: Any = {"client_resources": resources, "init_args": init}
    run_simulation(main, app, clients, backend_config=backend)
    if failure:
        raise failure[0]
