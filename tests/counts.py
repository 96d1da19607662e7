"""Counts of what a federation in this process copies, draws and moves between host and card.

`python -m tests.counts` prints them for the cases below, on the CPU and on a pretended card.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from clients.app import answer, together_app
from clients.client_setup import ClientSetup
from fedmia.federation.inline import InlineGrid
from fedmia.federation.ledger import Ledger
from fedmia.ssl.base import State
from strategies.cohort import Phase
from strategies.failure_policy import FailurePolicy
from tests.pretend_card import CARD, Watch, pretend_card, size
from tests.small_setup import changed, small_setup

T = TypeVar("T")
ROUNDS = 2  # the third is as the second
# Clients, images of each, images in a batch, clients in one pass.
CASES = {"one after the other": (10, 32, 16, 1), "in one pass": (64, 4, 4, 64)}
DEVICES = "cpu", CARD.type
# Of a client and round: copies of as many bytes as it sends and keeps, numbers drawn by torch,
# uploads that leave the card and that come to it, and how often the host waits for the card.
COLUMNS = "copied", "drawn", "to host", "to card", "waits"


@dataclass(frozen=True)
class Counted:
    """A federation and what was counted of it.

    Attributes:
        rounds: counts of each round, of a client, in the units of COLUMNS.
        state: its weights in the end.
    """

    rounds: list[dict[str, float]]
    state: State


def federate(setup: ClientSetup, at_once: int, watch: Watch, rounds: int = ROUNDS) -> Counted:
    """Run a federation of these clients, with a worker of one thread.

    Args:
        setup: its clients, all honest.
        at_once: clients in one pass.
        watch: at work in this thread.
        rounds: how many.

    Returns:
        What was counted.
    """
    clients, store, strategy = len(setup.roles), Ledger(), setup.experiment.strategy
    together = watched(watch, together_app(setup)) if at_once > 1 else None
    grid = InlineGrid(
        watched(watch, partial(answer, setup)), clients, 1, 1, store, None, together, at_once,
        device=setup.device,
    )  # fmt: skip
    state, policy = setup.method(-1, None).shared_state(), FailurePolicy(clients)
    phase, counts = Phase("main", 0, rounds, False, 1.0, 0, rounds), list[Counter[str]]()
    sent = nbytes(state)
    watch.take()
    with closing(grid):
        for done in strategy.build("strategy").rounds(grid, phase, state, policy):
            counts.append(watch.take())
            state = done.state
    kept = store.load("main", 0)
    assert kept is not None
    units = {"copied": sent + nbytes(kept.tensors), "to host": sent, "to card": sent}
    return Counted(
        [{n: row[n] / units.get(n, 1) / clients for n in COLUMNS} for row in counts], state
    )


def watched(watch: Watch, work: Callable[..., T]) -> Callable[..., T]:
    """`work` in a thread of its own, counted too."""

    def run(*args: Any) -> T:
        with watch:
            return work(*args)

    return run


def nbytes(state: State) -> int:
    """Bytes of its tensors."""
    return sum(map(size, state.values()))


def count_case(folder: Path, case: str, device: str, **more: Any) -> Counted:
    """What is counted of a case on a device; `more` as `changed` takes it."""
    clients, images, batch, at_once = CASES[case]
    draw = np.random.default_rng(0)
    np.save(folder / "images.npy", draw.integers(0, 256, (clients * images, 3, 8, 8), np.uint8))
    parts = np.split(np.arange(clients * images), clients)
    setup = small_setup(folder / "images.npy", parts, clients_at_once=at_once, **more)
    train = replace(setup.experiment.train, batch_size=batch)
    with pretend_card() as watch:
        return federate(changed(setup, train=train, device=device), at_once, watch)


def describe(rows: Mapping[tuple[str, str], Counted]) -> str:
    """A table of the counts."""
    lines = [f"{'of a client and round':34}" + "".join(f"{name:>17}" for name in COLUMNS)]
    for (case, device), counted in rows.items():
        for number, row in enumerate(counted.rounds, 1):
            about = f"{case}, {device}, round {number}"
            lines.append(f"{about:34}" + "".join(f"{row[name]:17.2f}" for name in COLUMNS))
    return "\n".join(lines)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        rows = {(c, d): count_case(Path(name), c, d) for c in CASES for d in DEVICES}
    print(describe(rows))
