"""What an active client reads of the images under test while the rounds pass."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Lock

import numpy as np
import torch

from clients.client_context import ClientContext, RoundTask
from clients.client_round import ClientRound
from fedmia.attacks.base import ActiveAttack
from fedmia.data.images import IntArray, digests
from fedmia.federation.attacker import load_model, make_attacker
from fedmia.federation.forks import Fork, bank_of
from fedmia.federation.readings import SIDES, Readings, Values
from fedmia.runtime.cores import count_cores
from fedmia.ssl.base import State
from fedmia.storage.snapshot import SingleStateStore
from fedmia.threat import WhiteBox

Batch = tuple[IntArray, IntArray]  # positions that a climb acts on, and those that it is read of


class TrajectoryRecorder(Readings):
    """Reads the targets under each model as the rounds pass, so that no model need be kept.

    Args:
        context: what all clients of the run share.
        attack: the active attack.
    """

    def __init__(self, context: ClientContext, attack: ActiveAttack) -> None:
        self.targets = context.take(context.targets)
        super().__init__(attack, digests(self.targets.numpy()))
        self.context, self.attacker, self._lock = context, make_attacker(context), Lock()

    def received(self, branch: str, round: int, state: State, bank: State) -> None:
        """Read a model that the client received for attacked `round`, or after the last one."""
        self.readings[f"received.{branch}.{round}"] = self._read_all(branch, state, bank)

    def sent(self, branch: str, round: int, state: State, bank: State) -> None:
        """Note an upload; read it if it is the first, or if the attack reads all uploads."""
        reads = self.attack.reads_uploads() or not self._by_round("sent", branch)
        readings = self._read_all(branch, state, bank) if reads else np.zeros(0)
        self.readings[f"sent.{branch}.{round}"] = readings

    # -- batches that have a round to themselves -------------------------------------------------

    def forks(self, branch: str) -> bool:
        """Whether a round of the branch is replayed, for sets or for all images in batches."""
        by_batch = self.attack.round_size is not None and branch in ("main", "placebo")
        return by_batch or (branch == "main" and bool(self.context.sets))

    def forked(self, fork: Fork) -> None:
        """Replay the round for each batch alone, and read the batch.

        Each replay starts from the round's first weights and ends with the upload for that batch.
        """
        client_context, branch = self.context, fork.branch
        if branch == "main" and client_context.sets:
            self._replay(fork, "sets", [(rows, rows) for rows in client_context.sets])
        if self.attack.round_size is not None:
            self._replay(fork, "batches", self.batches(self.attack.round_size))

    def _replay(self, fork: Fork, kind: str, batches: list[Batch]) -> None:
        client_context, count = self.context, len(self.targets)
        alone = {side: np.full(count, np.nan) for side in SIDES}
        holder = client_context.experiment.holder
        assert holder is not None
        task = RoundTask(holder, fork.round, fork.branch, craft=True)
        client_round = ClientRound(
            client_context, SingleStateStore(fork.holder), task, fork.received, fork.broadcast
        )
        bank, read = bank_of(fork.holder), partial(self._read, f"{fork.branch}-{kind}")

        def climb(batch: Batch) -> None:
            if client_context.is_stopped():
                return
            acted, rows = batch
            crafted = client_round.craft(client_round.idle(), client_round.received, acted)
            alone["sent"][rows] = read(crafted, bank, rows)
            alone["after"][rows] = read(fork.end_round(crafted), bank, rows)

        climb(batches[0])  # chooses for all
        threads = client_context.threads
        workers = max(1, count_cores() // threads)
        with ThreadPoolExecutor(workers, "fork", torch.set_num_threads, (threads,)) as pool:
            list(pool.map(climb, batches[1:]))
        rows = np.sort(np.concatenate([rows for _, rows in batches]))
        alone["idle"][rows] = read(fork.end_round(fork.received), bank, rows)
        if all(np.isfinite(values[rows]).all() for values in alone.values()):
            where = f"{kind}.{fork.branch}.{fork.round}"  # else interrupted, or a climb diverged
            self.readings |= {f"{where}.{side}": values for side, values in alone.items()}
        self.choices[fork.branch] = client_round.memory.get("attack", {}).get("choice", {})

    def batches(self, size: int) -> list[Batch]:
        """All targets in batches of one size, known images apart from others; the last of either
        is filled with images of the first, which are not read in it."""
        client_context = self.context
        known = np.isin(client_context.targets, np.concatenate(client_context.known))
        return [
            (np.resize(np.roll(rows, -start), size), rows[start : start + size])
            for rows in (known.nonzero()[0], (~known).nonzero()[0])
            for start in range(0, len(rows), size)
        ]

    def _read_all(self, branch: str, state: State, bank: State) -> Values:
        """(T,) readings. Two halves side by side: training waits meanwhile."""
        rows, threads = np.arange(len(self.targets)), self.context.threads
        read = partial(self._read, branch, state, bank)
        with ThreadPoolExecutor(2, "read", torch.set_num_threads, (threads,)) as pool:
            return np.concatenate(list(pool.map(read, np.array_split(rows, 2))))

    def view(self, state: State, bank: State) -> WhiteBox:
        """What the active client has of a model.

        Args:
            state: its weights, by name.
            bank: what the client held beside them, such as its queue.

        Returns:
            The model in its hands.
        """
        method = load_model(self.context, self.attacker, state, bank)
        view = self.attacker.view(method, "client")
        assert isinstance(view, WhiteBox)
        return view

    def _read(self, branch: str, state: State, bank: State, rows: IntArray) -> Values:
        view = self.view(state, bank)
        readings = self.attack.read(view, self.targets[rows])
        with self._lock:
            self.queries[branch] += view.queries
        return readings
