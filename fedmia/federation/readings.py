"""What an active client read of the images under test while the rounds passed, for the scorer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedmia.attacks.base import ActiveAttack
from fedmia.data.images import digests
from fedmia.rounds.base import UNTRAINED as UNTRAINED
from fedmia.ssl.base import State
from fedmia.threat import ClientView, Trajectory

Values = NDArray[np.float64]
SIDES = ("sent", "after", "idle")


class Readings:
    """Readings of the targets under each model, (T,) values a model, in place of the models.

    Args:
        attack: the active attack.
        names: digest of each of the T images that it acts on.

    Attributes:
        readings: `received.BRANCH.ROUND` and `sent.BRANCH.ROUND`; of targets of which each batch
            had a round to itself `KIND.BRANCH.ROUND.SIDE`, NaN of those in none. Its sides are
            `sent`, under the upload that climbed the target's batch, `after`, under the model that
            the round ended with, and `idle`, under that where nothing was climbed.
        queries: that they took, by branch or, of batches alone, `BRANCH-KIND`.
        choices: of the attack for batches alone, by branch.
        failures: why a branch has no readings.
    """

    def __init__(self, attack: ActiveAttack, names: Sequence[bytes]) -> None:
        self.attack, self.names = attack, names
        self._at = {name: i for i, name in enumerate(names)}
        self.readings: dict[str, Values] = {}
        self.queries: dict[str, int] = defaultdict(int)
        self.choices: dict[str, dict[str, float]] = {}
        self.failures: dict[str, Exception] = {}

    def rounds(self, branch: str) -> list[int]:
        """Rounds of a branch whose upload was followed by a received model."""
        last = max(self._by_round("received", branch), default=0)
        return [r for r in self.uploads(branch) if r < last]

    def uploads(self, branch: str) -> list[int]:
        """Rounds of a branch of whose upload there is a record."""
        return list(self._by_round("sent", branch))

    def acted(self, branch: str) -> list[int]:
        """Finished rounds of a branch in which the attack acted on the targets."""
        if self.attack.round_size is None:
            return self.rounds(branch)
        return self.rounds_alone("main" if branch == "zero" else branch, "batches")

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

    def notes(self) -> tuple[State, dict[str, Any]]:
        """All readings by name, and the queries and choices."""
        tensors = {name: torch.from_numpy(values) for name, values in self.readings.items()}
        return tensors, {"queries": dict(self.queries), "choices": dict(self.choices)}

    def restore(self, tensors: State, about: Mapping[str, Any]) -> None:
        """Take over the records that `notes` gave, and forget all others."""
        self.readings = {name: tensor.numpy() for name, tensor in tensors.items()}
        self.queries = defaultdict(int, about["queries"])
        self.choices = dict(about["choices"])

    def _by_round(self, kind: str, branch: str, *side: str) -> dict[int, Values]:
        """Round, ascending -> readings of one kind."""
        by_round: dict[int, Values] = {}
        for name, values in list(self.readings.items()):  # another thread may note meanwhile
            of, where, round, *rest = name.split(".")
            if (of, where, *rest) == (kind, branch, *side):
                by_round[int(round)] = values
        return dict(sorted(by_round.items()))

    def _rows(self, images: Tensor) -> list[int]:
        return [self._at[name] for name in digests(images.numpy())]

    def _charge(self, branch: str, view: ClientView, images: int) -> None:
        view.charge(self.queries[branch] * images // len(self.names))
