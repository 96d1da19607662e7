"""What an active client reads of the images under test while the rounds pass."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedmia.attacks.base import ActiveAttack
from fedmia.data.images import digests
from fedmia.federation.snapshot import Snapshot
from fedmia.scoring.observer import Observer
from fedmia.ssl.base import State
from fedmia.threat import ClientView, Trajectory
from fedmia.threat.signals import Signals

Readings = dict[int, NDArray[np.float64]]


class Notebook:
    """Readings of the targets, (T,) a model, by branch and round: no model is kept for them.

    Args:
        turns: crafted rounds that the client can expect.
    """

    def __init__(self, observer: Observer, attack: ActiveAttack, turns: int) -> None:
        self.observer, self.attack, self.turns = observer, attack, turns
        self.targets = observer.site.take(observer.site.targets)
        self._at = {name: i for i, name in enumerate(digests(self.targets.numpy()))}
        self._received: dict[str, Readings] = defaultdict(dict)
        self._sent: dict[str, Readings] = defaultdict(dict)
        self.queries: dict[str, int] = defaultdict(int)

    def received(self, branch: str, round: int, snapshot: Snapshot) -> None:
        """Read a model that the client received for attacked `round`, or after the last one."""
        self._received[branch][round] = self._read(branch, snapshot)

    def sent(self, branch: str, round: int, snapshot: Snapshot) -> None:
        """Note an upload, and read it if it is the first or the attack wants them all."""
        wanted = self.attack.reads_uploads() or not self._sent[branch]
        found = self._read(branch, snapshot) if wanted else np.zeros(0)
        self._sent[branch][round] = found

    def rounds(self, branch: str) -> list[int]:
        """Rounds of a branch whose upload was followed by a model received."""
        last = max(self._received[branch], default=0)
        return [r for r in self._sent[branch] if r < last]

    def untouched(self, branch: str) -> int:
        """Targets that no upload of the branch acted on."""
        return int((~self._acted(branch, len(self.rounds(branch))).any(axis=0)).sum())

    def of(self, branch: str, view: ClientView, images: Tensor) -> Trajectory:
        """The trajectory of uint8 (N, C, H, W), all of them targets; their part of all queries.

        Raises:
            KeyError: an image that is no target.
        """
        rows = [self._at[name] for name in digests(images.numpy())]
        view.charge(self.queries[branch] * len(images) // len(self.targets))
        rounds, received = self.rounds(branch), self._received[branch]
        after = [received[min(r for r in received if r > round)] for round in rounds]
        sent = [s for r, s in self._sent[branch].items() if r in rounds and len(s)]
        return Trajectory(
            rounds,
            np.stack([received[r] for r in rounds])[:, rows],
            np.stack(sent)[:, rows],
            np.stack(after)[:, rows],
            self._acted(branch, len(rounds))[:, rows],
        )

    def notes(self) -> tuple[State, dict[str, int]]:
        """All readings by `received.BRANCH.ROUND` and `sent.BRANCH.ROUND`, and the queries."""
        sides = {"received": self._received, "sent": self._sent}
        named = {
            f"{side}.{branch}.{round}": torch.from_numpy(found)
            for side, branches in sides.items()
            for branch, readings in branches.items()
            for round, found in readings.items()
        }
        return named, dict(self.queries)

    def restore(self, tensors: State, about: Mapping[str, int]) -> None:
        """Hold what `notes` told of, and nothing else."""
        sides = {"received": self._received, "sent": self._sent}
        self._received.clear()
        self._sent.clear()
        self.queries.clear()
        for name, tensor in tensors.items():
            side, branch, round = name.split(".")
            sides[side][branch][int(round)] = tensor.numpy()
        self.queries.update(about)

    def _acted(self, branch: str, rounds: int) -> NDArray[np.bool_]:
        count = len(self.targets)
        if branch == "sets":
            return np.ones((rounds, count), dtype=bool)
        masks = [self.attack.chosen(count, number, self.turns) for number in range(rounds)]
        return np.stack(masks) if masks else np.zeros((0, count), dtype=bool)

    def _read(self, branch: str, snapshot: Snapshot) -> NDArray[np.float64]:
        """(T,) readings, NaN for targets that the branch asks nothing about. Two halves side by
        side: training waits meanwhile."""
        site, found = self.observer.site, np.full(len(self.targets), np.nan)
        rows = np.arange(len(found))
        if branch == "sets":
            rows = np.unique(np.concatenate([*site.sets, rows[:0]]))
        views = [self.observer.view(snapshot, Signals()) for _ in range(2)]
        halves = self.targets[rows].tensor_split(2)
        with ThreadPoolExecutor(2, "read", torch.set_num_threads, (site.threads,)) as pool:
            found[rows] = np.concatenate(list(pool.map(self.attack.read, views, halves)))
        self.queries[branch] += sum(view.queries for view in views)
        return found
