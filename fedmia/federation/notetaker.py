"""What an active client reads of the images under test while the rounds pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from threading import Lock
from typing import TypeVar

import numpy as np
import torch

from clients.client_round import ClientRound
from clients.client_setup import ClientSetup, ClientTask
from fedmia.attacks.base import ActiveAttack
from fedmia.data.images import IntArray, digests
from fedmia.federation.attacker import load_model, make_attacker
from fedmia.federation.replay import Replay
from fedmia.recording.branches import BRANCHES, MAIN
from fedmia.rounds.notes import AFTER, RECEIVED, SENT, SIDES, Notes, Values
from fedmia.runtime.cores import count_cores
from fedmia.ssl.base import State, under
from fedmia.storage.snapshot import ClientState
from fedmia.threat import WhiteBox
from strategies.failure_policy import FederationError

T = TypeVar("T")
R = TypeVar("R")
Batch = tuple[IntArray, IntArray]  # positions that a climb acts on, and those that it is read of


class NoteTaker(Notes):
    """Reads the targets under each model as the rounds pass, so that no model need be kept.

    Args:
        setup: what all clients of the run share.
        attack: the active attack.
    """

    def __init__(self, setup: ClientSetup, attack: ActiveAttack) -> None:
        experiment, name = setup.experiment, str(setup.experiment.active_attack)
        self.images = setup.take(setup.targets)
        self.setup, self.attack = setup, attack
        self.attacker, self._lock = make_attacker(setup), Lock()
        about = {
            "attack": name,
            "options": dict(experiment.attack_choices[name].options),
            "client": experiment.holder,
            "known": sum(map(len, setup.known)),
            "batches": attack.round_size is not None,
        }
        super().__init__(digests(self.images.numpy()), about)

    def receive(self, branch: str, round: int, state: State, bank: State) -> None:
        """Read a model that the client received for an attacked round.

        Args:
            branch: of the run.
            round: 1, 2, ...
            state: global weights.
            bank: what the client holds beside the model, such as its queue.
        """
        self.note(branch, round, **{RECEIVED: self._read_all(branch, round, state, bank)})

    def send(self, branch: str, round: int, state: State, bank: State) -> None:
        """Note an upload; read it if it is the first, or if the attack reads all uploads.

        Args:
            branch, round, bank: as of `receive`.
            state: the weights that it uploads.
        """
        reads = self.attack.reads_uploads() or not self.uploads(branch)
        readings = self._read_all(branch, round, state, bank) if reads else np.zeros(0)
        self.note(branch, round, **{SENT: readings})

    def end(self, branch: str, round: int, state: State, bank: State) -> None:
        """Read the model after the last round.

        Args:
            branch, round, bank: as of `receive`.
            state: global weights after it.
        """
        self.note(branch, round, **{AFTER: self._read_all(branch, round, state, bank)})

    # -- batches that have a round to themselves -------------------------------------------------

    def replays(self, branch: str) -> bool:
        """Whether a round of the branch is replayed, for sets or for all images in batches."""
        by_batch = self.attack.round_size is not None and BRANCHES[branch].armed
        return by_batch or (branch == MAIN and bool(self.setup.sets))

    def replay(self, replay: Replay) -> None:
        """Replay a round for each batch alone, and read the batch.

        Each replay starts from the round's first weights and ends with the upload for that batch.

        Args:
            replay: the finished round.
        """
        if replay.branch == MAIN and self.setup.sets:
            self._replay(replay, "sets", [(rows, rows) for rows in self.setup.sets])
        if self.attack.round_size is not None:
            self._replay(replay, "batches", self.batches(self.attack.round_size))

    def _replay(self, replay: Replay, kind: str, batches: list[Batch]) -> None:
        setup, branch, round = self.setup, replay.branch, replay.round
        alone = {side: np.full(len(self.images), np.nan) for side in SIDES}
        task = ClientTask(self.about["client"], round, branch, craft=True)
        client_round = ClientRound(setup, replay.holder, task, replay.received, replay.broadcast())
        read = partial(self._read, branch, round, bank=bank_of(replay.holder), kind=kind)

        def end(upload: State) -> State:
            return replay.play({n: t for n, t in upload.items() if setup.is_shared(n)})

        def act(batch: Batch) -> None:
            if setup.is_stopped():
                return
            acted, rows = batch
            crafted = client_round.craft(client_round.idle(), client_round.received, acted)
            alone["sent"][rows] = read(crafted, rows)
            with suppress(FederationError):  # a climb that diverged: its targets have no reading
                alone["after"][rows] = read(end(crafted), rows)

        act(batches[0])  # chooses for all
        run_in_threads(act, batches[1:], setup.threads)
        rows = np.sort(np.concatenate([rows for _, rows in batches]))
        alone["idle"][rows] = read(end(replay.received), rows)
        if all(np.isfinite(values[rows]).all() for values in alone.values()):
            self.note(branch, round, **{f"{kind}.{side}": one for side, one in alone.items()})
        choice = client_round.memory.get("attack", {}).get("choice", {})
        self.facts_of(branch, round)["alone"] = choice

    def batches(self, size: int) -> list[Batch]:
        """All targets in batches of one size, known images apart from others; the last of either
        is filled with images of the first, which are not read in it."""
        setup = self.setup
        known = np.isin(setup.targets, np.concatenate(setup.known))
        return [
            (np.resize(np.roll(rows, -start), size), rows[start : start + size])
            for rows in (known.nonzero()[0], (~known).nonzero()[0])
            for start in range(0, len(rows), size)
        ]

    def _read_all(self, branch: str, round: int, state: State, bank: State) -> Values:
        """(T,) readings. Two halves side by side: training waits meanwhile."""
        halves = np.array_split(np.arange(len(self.images)), 2)
        read = partial(self._read, branch, round, state, bank=bank)
        return np.concatenate(run_in_threads(read, halves, self.setup.threads))

    def view(self, state: State, bank: State) -> WhiteBox:
        """What the active client has of a model."""
        view = self.attacker.view(load_model(self.setup, self.attacker, state, bank), "client")
        assert isinstance(view, WhiteBox)
        return view

    def _read(
        self, branch: str, round: int, state: State, rows: IntArray, *, bank: State, kind: str = ""
    ) -> Values:
        view = self.view(state, bank)
        readings = self.attack.read(view, self.images[rows])
        with self._lock:
            self.charge(branch, round, view.queries, kind)
        return readings


def run_in_threads(work: Callable[[T], R], parts: Sequence[T], threads: int) -> list[R]:
    """The results of parts of some work, as many side by side as there are cores for."""
    workers = max(1, count_cores() // threads)
    with ThreadPoolExecutor(workers, "notes", torch.set_num_threads, (threads,)) as pool:
        return list(pool.map(work, parts))


def bank_of(local_state: ClientState | None) -> State:
    """The bank of negatives in what a client keeps; its key encoder stays with the client."""
    local = under("local.", local_state.tensors if local_state else {})
    return {name: tensor.clone() for name, tensor in local.items() if not name.startswith("key.")}
