"""What an attacker inside a federation read of its targets, round by round, in place of models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedmia.data.images import digests
from fedmia.recording.branches import BRANCHES
from fedmia.recording.reader import RecordedRounds
from fedmia.settings.errors import InputError
from fedmia.ssl.base import State
from fedmia.threat import ClientView, Trajectory

Values = NDArray[np.float64]
# Under the model that the client received for the round, under its upload, and under the model that
# it received next, where no later round of it says that.
RECEIVED, SENT, AFTER = "received", "sent", "after"
# Of targets that had a round to themselves, in sets or in batches: under the upload that acted on
# them, under the model that the round ended with, and under that where nothing was acted on.
SIDES = ("sent", "after", "idle")
ALONE = ("sets", "batches")


class Notes:
    """Readings of the targets under each model, (T,) values a model.

    Args:
        targets: digest of each of the T images that the attacker acts on.
        about: values by the names of `fedmia.recording.format.ATTACKER_ABOUT`; of somebody's app
            also `run`, Flower's number of it.

    Attributes:
        tables: branch -> round -> `received`, `sent`, `after`, or `KIND.SIDE` of targets alone
            (NaN of those in none) -> (T,) float64; an upload that was not read is empty.
        facts: branch -> round -> `queries` by kind (empty: of all targets together), the `choice`
            of the attack for all together and for those `alone`, and why it has a `failure`.
    """

    def __init__(self, targets: Sequence[bytes], about: Mapping[str, Any]) -> None:
        self.targets, self.about = targets, about
        self._at = {digest: row for row, digest in enumerate(targets)}
        self.tables: dict[str, dict[int, dict[str, Values]]] = {}
        self.facts: dict[str, dict[int, dict[str, Any]]] = {}

    @property
    def foreign(self) -> bool:
        """Whether the attacker was in somebody's app, with a loss of its own."""
        return "run" in self.about

    # -- taking notes --------------------------------------------------------------------------

    def note(self, branch: str, round: int, **values: Values) -> None:
        """Note readings of a round, by their names in `tables`."""
        self.tables.setdefault(branch, {}).setdefault(round, {}).update(values)

    def facts_of(self, branch: str, round: int) -> dict[str, Any]:
        """What is known of a round beside its readings, to be added to."""
        return self.facts.setdefault(branch, {}).setdefault(round, {"queries": {}})

    def charge(self, branch: str, round: int, queries: int, kind: str = "") -> None:
        """Add what readings of a round asked, of targets alone by their kind."""
        counts = self.facts_of(branch, round)["queries"]
        counts[kind] = counts.get(kind, 0) + queries

    def packed(self, branch: str, round: int) -> tuple[State, dict[str, Any]] | None:
        """What was noted of a round, for a recording.

        Args:
            branch: of the federation.
            round: 1, 2, ...

        Returns:
            Tensors by name, and facts that JSON can hold; None where nothing was noted.
        """
        if round not in self.tables.get(branch, {}) and round not in self.facts.get(branch, {}):
            return None
        table = self.tables.get(branch, {}).get(round, {})
        tensors = {name: torch.from_numpy(values) for name, values in table.items()}
        return tensors, self.facts_of(branch, round)

    def add(self, recording: RecordedRounds) -> None:
        """Take over all that a recording holds of every branch.

        Raises:
            InputError: a file of it is damaged, or is of other targets.
        """
        for branch in BRANCHES:
            for round, (tensors, facts) in recording.notes(branch).items():
                shapes = {tuple(tensor.shape) for tensor in tensors.values()}
                if not shapes <= {(len(self.targets),), (0,)} or "queries" not in facts:
                    raise InputError(f"'{recording.folder}' holds no notes of an attacker")
                self.note(branch, round, **{name: t.numpy() for name, t in tensors.items()})
                self.facts.setdefault(branch, {})[round] = facts

    # -- reading them --------------------------------------------------------------------------

    def uploads(self, branch: str) -> list[int]:
        """Rounds of a branch of whose upload there is a note, ascending."""
        return [*self._by_round(branch, SENT)]

    def rounds(self, branch: str) -> list[int]:
        """Rounds of a branch whose upload was followed by a received model."""
        last = max(self._received(branch), default=0)
        return [r for r in self.uploads(branch) if r < last]

    def rounds_alone(self, branch: str, kind: str) -> list[int]:
        """The round that was replayed for each of the `batches` or `sets` alone, if any."""
        return [*self._by_round(branch, f"{kind}.after")]

    def acted(self, branch: str) -> list[int]:
        """Finished rounds of a branch in which the attack acted on the targets."""
        if not self.about["batches"]:
            return self.rounds(branch)
        return self.rounds_alone(self._replayed(branch), "batches")

    def trajectory(self, branch: str, view: ClientView, images: Tensor) -> Trajectory:
        """What the attack scores targets of a branch by; their share of all queries is charged.

        Args:
            branch: of the federation.
            view: of the active client; counts its queries.
            images: uint8 (N, C, H, W), all of them targets.

        Returns:
            Readings before, of the uploads and after, for each round in which it acted.
        """
        if self.about["batches"]:
            idle = not BRANCHES[branch].armed
            return self.of_alone(self._replayed(branch), "batches", view, images, idle=idle)
        return self.of(branch, view, images)

    def of(self, branch: str, view: ClientView, images: Tensor) -> Trajectory:
        """As `trajectory`, from the rounds that all targets shared.

        Args:
            branch: of the federation.
            view: of the active client; counts its queries.
            images: uint8 (N, C, H, W), all of them targets.

        Returns:
            Readings before, of the uploads and after, for each round.
        """
        rows = self._rows(images)
        self._charge(branch, "", view, len(images))
        rounds, received = self.rounds(branch), self._received(branch)
        after = [received[min(r for r in received if r > round)] for round in rounds]
        sent = [s for r, s in self._by_round(branch, SENT).items() if r in rounds and len(s)]
        return Trajectory(
            rounds,
            np.stack([received[r] for r in rounds])[:, rows],
            np.stack(sent)[:, rows],
            np.stack(after)[:, rows],
        )

    def of_alone(
        self, branch: str, kind: str, view: ClientView, images: Tensor, *, idle: bool = False
    ) -> Trajectory:
        """As `trajectory`, from the replays in which each image's batch had the round to itself.

        Args:
            branch: of the federation.
            kind: `batches` or `sets`.
            view: of the active client; counts its queries.
            images: uint8 (N, C, H, W), all of them targets.
            idle: of the same round without any act.

        Returns:
            The trajectory: one round.
        """
        rows, (round,) = self._rows(images), self.rounds_alone(branch, kind)
        self._charge(branch, kind, view, len(images))
        table = self.tables[branch][round]
        sent, after, untouched = (table[f"{kind}.{side}"] for side in SIDES)
        before = table[RECEIVED]
        models = (before, before, untouched) if idle else (before, sent, after)
        return Trajectory([round], *(values[None, rows] for values in models))

    def choices(self, branch: str) -> dict[str, Any]:
        """What the attack chose for all targets together, and for those alone, in a branch."""
        together, alone = dict[str, Any](), dict[str, Any]()
        for _, facts in sorted(self.facts.get(branch, {}).items()):
            together, alone = facts.get("choice", together), facts.get("alone", alone)
        return {**together, **{f"{name}_alone": value for name, value in alone.items()}}

    def failure(self, branch: str) -> str | None:
        """Why a branch ended before its time; None where it did not."""
        facts = self.facts.get(branch, {}).values()
        return next((one["failure"] for one in facts if "failure" in one), None)

    def queries(self, branch: str, kind: str = "") -> int:
        """Images that the readings of a branch asked for; those of targets alone by their kind."""
        return sum(one["queries"].get(kind, 0) for one in self.facts.get(branch, {}).values())

    def _replayed(self, branch: str) -> str:
        """Whose replays hold what nothing acted on: a branch that is not armed has none."""
        return branch if BRANCHES[branch].armed else BRANCHES[branch].parent

    def _received(self, branch: str) -> dict[int, Values]:
        """Round -> readings under the model that was received for it."""
        after = {round + 1: values for round, values in self._by_round(branch, AFTER).items()}
        return dict(sorted((after | self._by_round(branch, RECEIVED)).items()))

    def _by_round(self, branch: str, name: str) -> dict[int, Values]:
        """Round, ascending -> readings of a name."""
        tables = sorted(self.tables.get(branch, {}).items())
        return {round: table[name] for round, table in tables if name in table}

    def _rows(self, images: Tensor) -> list[int]:
        return [self._at[name] for name in digests(images.numpy())]

    def _charge(self, branch: str, kind: str, view: ClientView, images: int) -> None:
        view.charge(self.queries(branch, kind) * images // len(self.targets))


def read_notes(recording: RecordedRounds) -> Notes | None:
    """The notes of the attacker inside a recorded federation; None: there was none.

    Raises:
        InputError: they are damaged.
    """
    if (attacker := recording.attacker()) is None:
        return None
    targets, about = attacker
    notes = Notes(targets, about)
    notes.add(recording)
    return notes
