"""What an active client reads of the images under test while the rounds pass."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Lock
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from clients.client_context import RoundTask
from clients.client_round import ClientRound
from fedmia.attacks.base import ActiveAttack
from fedmia.data.images import IntArray, digests
from fedmia.evaluation.federated.observer import Observer
from fedmia.federation.forks import Fork
from fedmia.runtime.cores import count_cores
from fedmia.ssl.base import State, under
from fedmia.storage.snapshot import SingleStateStore, Snapshot
from fedmia.threat import ClientView, Trajectory
from fedmia.threat.signals import Signals

Values = NDArray[np.float64]
Batch = tuple[IntArray, IntArray]  # positions that a climb acts on, and those that it is read of


SIDES = ("sent", "after", "idle")


class TrajectoryRecorder:
    """Reads the targets under each model, (T,) values a model, so that no model need be kept.

    Attributes:
        observer: makes the attacker's views.
        attack: the active attack.
        readings: `received.BRANCH.ROUND` and `sent.BRANCH.ROUND`; of targets of which each batch
            had a round to itself `KIND.BRANCH.ROUND.SIDE`, NaN of those in none. Its sides are
            `sent`, under the upload that climbed the target's batch, `after`, under the model that
            the round ended with, and `idle`, under that where nothing was climbed.
        queries: that they took, by branch or, of batches alone, `BRANCH-KIND`.
        choices: of the attack for batches alone, by branch.
    """

    def __init__(self, observer: Observer, attack: ActiveAttack) -> None:
        self.observer, self.attack = observer, attack
        self.targets = observer.client_context.take(observer.client_context.targets)
        self._at = {name: i for i, name in enumerate(digests(self.targets.numpy()))}
        self.readings: dict[str, Values] = {}
        self.queries: dict[str, int] = defaultdict(int)
        self.choices: dict[str, dict[str, float]] = {}
        self._lock = Lock()

    def received(self, branch: str, round: int, snapshot: Snapshot) -> None:
        """Read a model that the client received for attacked `round`, or after the last one."""
        self.readings[f"received.{branch}.{round}"] = self._read_all(branch, snapshot)

    def sent(self, branch: str, round: int, snapshot: Snapshot) -> None:
        """Note an upload; read it if it is the first, or if the attack reads all uploads."""
        reads = self.attack.reads_uploads() or not self._by_round("sent", branch)
        readings = self._read_all(branch, snapshot) if reads else np.zeros(0)
        self.readings[f"sent.{branch}.{round}"] = readings

    def _by_round(self, kind: str, branch: str, *side: str) -> dict[int, Values]:
        """Round, ascending -> readings of one kind."""
        by_round: dict[int, Values] = {}
        for name, values in list(self.readings.items()):  # another thread may note meanwhile
            of, where, round, *rest = name.split(".")
            if (of, where, *rest) == (kind, branch, *side):
                by_round[int(round)] = values
        return dict(sorted(by_round.items()))

    def rounds(self, branch: str) -> list[int]:
        """Rounds of a branch whose upload was followed by a received model."""
        last = max(self._by_round("received", branch), default=0)
        return [r for r in self._by_round("sent", branch) if r < last]

    def of(self, branch: str, view: ClientView, images: Tensor) -> Trajectory:
        """The trajectory of target images. Their share of all queries is charged to the view.

        Args:
            branch: of the run: `main`, `zero`, `placebo` or `untrained`.
            view: view of the active client; counts its queries.
            images: uint8 (N, C, H, W), all of them targets.

        Returns:
            Readings before, of the uploads and after, for each round.

        Raises:
            KeyError: an image that is no target.
        """
        rows = self._rows(images)
        self._charge(branch, view, len(images))
        rounds, received = self.rounds(branch), self._by_round("received", branch)
        after = [received[min(r for r in received if r > round)] for round in rounds]
        sent = [s for r, s in self._by_round("sent", branch).items() if r in rounds and len(s)]
        return Trajectory(
            rounds,
            np.stack([received[r] for r in rounds])[:, rows],
            np.stack(sent)[:, rows],
            np.stack(after)[:, rows],
        )

    # -- batches that have a round to themselves -------------------------------------------------

    def forks(self, branch: str) -> bool:
        """Whether a round of the branch is replayed, for sets or for all images in batches."""
        by_batch = self.attack.round_size is not None and branch in ("main", "placebo")
        return by_batch or (branch == "main" and bool(self.observer.client_context.sets))

    def forked(self, fork: Fork) -> None:
        """Replay the round for each batch alone, and read the batch.

        Each replay starts from the round's first weights and ends with the upload for that batch.
        """
        client_context, branch = self.observer.client_context, fork.branch
        if branch == "main" and client_context.sets:
            self._replay(fork, "sets", [(rows, rows) for rows in client_context.sets])
        if self.attack.round_size is not None:
            self._replay(fork, "batches", self.batches(self.attack.round_size))

    def rounds_alone(self, branch: str, kind: str) -> list[int]:
        """The round that was replayed for each of the `batches` or `sets` alone, if any."""
        return list(self._by_round(kind, branch, "after"))

    def of_alone(
        self, branch: str, kind: str, view: ClientView, images: Tensor, *, idle: bool = False
    ) -> Trajectory:
        """As `of`, from the replays in which each image's batch had the round to itself.

        Args:
            branch: of the run: `main`, `zero`, `placebo` or `untrained`.
            kind: `batches` or `sets`.
            view: view of the active client; counts its queries.
            images: uint8 (N, C, H, W), all of them targets.
            idle: of the same round without any climb.

        Returns:
            The trajectory: one round.
        """
        rows, (round,) = self._rows(images), self.rounds_alone(branch, kind)
        self._charge(f"{branch}-{kind}", view, len(images))
        sent, after, untouched = (self.readings[f"{kind}.{branch}.{round}.{s}"] for s in SIDES)
        before = self.readings[f"received.{branch}.{round}"]
        models = (before, before, untouched) if idle else (before, sent, after)
        return Trajectory([round], *(values[None, rows] for values in models))

    def _replay(self, fork: Fork, kind: str, batches: list[Batch]) -> None:
        client_context, count = self.observer.client_context, len(self.targets)
        alone = {side: np.full(count, np.nan) for side in SIDES}
        holder = self.observer.holder
        assert holder is not None
        task = RoundTask(holder, fork.round, fork.branch, craft=True)
        client_round = ClientRound(
            client_context, SingleStateStore(fork.holder), task, fork.received, fork.broadcast
        )
        bank = under("local.", fork.holder.tensors if fork.holder else {})
        bank = {name: t for name, t in bank.items() if not name.startswith("key.")}
        read = partial(self._read, f"{fork.branch}-{kind}")

        def climb(batch: Batch) -> None:
            if client_context.is_stopped():
                return
            acted, rows = batch
            crafted = client_round.craft(client_round.idle(), client_round.received, acted)
            alone["sent"][rows] = read(Snapshot(fork.round, crafted, bank), rows)
            alone["after"][rows] = read(Snapshot(fork.round, fork.end_round(crafted), bank), rows)

        climb(batches[0])  # chooses for all
        workers = max(1, count_cores() // client_context.threads)
        with ThreadPoolExecutor(
            workers, "fork", torch.set_num_threads, (client_context.threads,)
        ) as pool:
            list(pool.map(climb, batches[1:]))
        rows = np.sort(np.concatenate([rows for _, rows in batches]))
        alone["idle"][rows] = read(Snapshot(fork.round, fork.end_round(fork.received), bank), rows)
        if all(np.isfinite(values[rows]).all() for values in alone.values()):
            where = f"{kind}.{fork.branch}.{fork.round}"  # else interrupted, or a climb diverged
            self.readings |= {f"{where}.{side}": values for side, values in alone.items()}
        self.choices[fork.branch] = client_round.memory.get("attack", {}).get("choice", {})

    def batches(self, size: int) -> list[Batch]:
        """All targets in batches of one size, known images apart from others; the last of either
        is filled with images of the first, which are not read in it."""
        client_context = self.observer.client_context
        known = np.isin(client_context.targets, np.concatenate(client_context.known))
        return [
            (np.resize(np.roll(rows, -start), size), rows[start : start + size])
            for rows in (known.nonzero()[0], (~known).nonzero()[0])
            for start in range(0, len(rows), size)
        ]

    # -- all that was noted ---------------------------------------------------------------------

    def notes(self) -> tuple[State, dict[str, Any]]:
        """All readings by name, and the queries and choices."""
        tensors = {name: torch.from_numpy(values) for name, values in self.readings.items()}
        return tensors, {"queries": dict(self.queries), "choices": dict(self.choices)}

    def restore(self, tensors: State, about: Mapping[str, Any]) -> None:
        """Take over the records that `notes` gave, and forget all others."""
        self.readings = {name: tensor.numpy() for name, tensor in tensors.items()}
        self.queries = defaultdict(int, about["queries"])
        self.choices = dict(about["choices"])

    def _rows(self, images: Tensor) -> list[int]:
        return [self._at[name] for name in digests(images.numpy())]

    def _charge(self, branch: str, view: ClientView, images: int) -> None:
        view.charge(self.queries[branch] * images // len(self.targets))

    def _read_all(self, branch: str, snapshot: Snapshot) -> Values:
        """(T,) readings. Two halves side by side: training waits meanwhile."""
        rows, threads = np.arange(len(self.targets)), self.observer.client_context.threads
        read = partial(self._read, branch, snapshot)
        with ThreadPoolExecutor(2, "read", torch.set_num_threads, (threads,)) as pool:
            return np.concatenate(list(pool.map(read, np.array_split(rows, 2))))

    def _read(self, branch: str, snapshot: Snapshot, rows: IntArray) -> Values:
        view = self.observer.view(snapshot, Signals())
        readings = self.attack.read(view, self.targets[rows])
        with self._lock:
            self.queries[branch] += view.queries
        return readings
