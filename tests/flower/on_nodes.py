"""A Flower grid whose nodes run the app in this process, and their own images."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Message, RecordDict

from clients.app import Answer
from fedmia.federation.inline import InlineGrid
from fedmia.federation.plan import make_plan
from fedmia.flower import client, server
from fedmia.recording import Recording
from fedmia.runtime.stopwatch import Stopwatch
from fedmia.ssl.base import State
from fedmia.storage.outfolder import OutFolder
from tests.flower_clients import context_of
from tests.small_runs import SIMILARITY, SMALL

ROUNDS = SMALL + "--clients 2 --rounds 2 "
TINY = f"{ROUNDS}{SIMILARITY}--attacker none "


class Seen(InlineGrid):
    """Keeps what nodes answered, by the type of what was asked."""

    def __init__(self, clients: int) -> None:
        super().__init__(self._answer_as_node, clients, 1, 1)
        self.answers: dict[str, list[RecordDict]] = {}
        self.config: dict[int, dict[str, Any]] = {number: {} for number in range(clients)}

    def _answer_as_node(self, message: Message, number: int, *_: Any) -> Answer:
        return client.app(message, context_of(number, **self.config[number])), None

    def give(self, client: int, **config: Any) -> None:
        self.config[client].update(config)

    def pull_messages(self, message_ids: Any) -> Any:
        replies: list[Message] = list(super().pull_messages(message_ids))
        for reply in replies:
            if reply.has_content():
                kind = reply.metadata.message_type
                self.answers.setdefault(kind, []).append(reply.content)
        return replies


@contextmanager
def nodes(clients: int = 2) -> Iterator[Seen]:
    grid = Seen(clients)
    try:
        yield grid
    finally:
        grid.close()


def run(work: Any, grid: InlineGrid, flags: str, out: Path) -> None:
    """`server.rehearse` or `gather.gather` into a folder."""
    place, watch = OutFolder(out, "another run"), Stopwatch(time.perf_counter())
    with place:
        work(grid, server.invocation(flags), place, watch)


def last_weights(out: Path) -> State:
    """The global model after the second round."""
    return Recording(out / "recording").load("main", 2)[0]


def own_images(flags: str, folder: Path) -> list[dict[str, str]]:
    """The clients' images of an inline run, and its non-members dealt to them, as files."""
    plan = make_plan(server.invocation(flags).settings)
    data, split = plan.cast.data, plan.cast
    outside = np.concatenate([split.ids("known_nonmembers"), split.ids("scored_nonmembers")])
    halves = np.array_split(outside, len(split.parts))
    given = []
    for number, sides in enumerate(zip(split.parts, halves, strict=True)):
        given.append({})
        for side, indices in zip(("members", "nonmembers"), sides, strict=True):
            file = folder / f"{side}-{number}.npz"
            np.savez(file, x=data.images[indices][:, 0], y=np.zeros(len(indices), np.int64))
            given[-1][side] = f"npz:{file}"
    return given
