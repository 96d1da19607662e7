"""What an attacker in a Flower app read of its targets: a file of its node, written and scored."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from fedmia.attacks.ascent import Ascent
from fedmia.data.images import digests
from fedmia.federation.readings import Readings
from fedmia.options.errors import InputError, opt
from fedmia.recording.format import MAIN
from fedmia.rounds.kept import KeptRounds
from fedmia.storage import durable
from fedmia.storage.snapshot import read_tensors, write_tensors

TWIN = "zero"  # branch of the run without ascent; that with it is MAIN
MIRRORED = -0.8  # under it a rise says little but the loss before
FIELDS = ("client", "run", "steps", "lr", "batch", "trained", "label")


@dataclass
class ClimbNotes:
    """Notes of one attacker in one run.

    Attributes:
        client: partition id.
        run: Flower's id of the run.
        steps: passes over the targets in a round.
        lr: learning rate of the ascent.
        batch: targets in a step.
        trained: the last round in which the client was asked to train; 0: none.
        label: what the message of that round called it.
        readings: losses of the targets by model; of no target yet.
        remarks: for the reader of a report.
    """

    client: int
    run: str
    steps: int
    lr: float
    batch: int
    trained: int = 0
    label: int | None = None
    readings: Readings = field(default_factory=lambda: Readings(Ascent(), ()))
    remarks: list[str] = field(default_factory=list)

    @property
    def choices(self) -> dict[str, Any]:
        """Options of the attack, as it was run."""
        return {"steps": self.steps, "lr": self.lr, "batch": self.batch}

    def acted(self, branch: str = MAIN) -> list[int]:
        """Attacked rounds after which the client received a model."""
        return self.readings.rounds(branch)

    def mirrored(self) -> float:
        """Correlation of the rise under the first upload with the loss before it; -1 where that
        upload gives all images one loss."""
        first, values = self.acted()[0], self.readings.readings
        before = values[f"received.{MAIN}.{first}"]
        return float(np.corrcoef(values[f"sent.{MAIN}.{first}"] - before, before)[0, 1])

    def digest(self) -> str:
        """Of all that was read."""
        values = sorted(self.readings.readings.items())
        return hashlib.sha256(b"".join(n.encode() + v.tobytes() for n, v in values)).hexdigest()

    def require(self, images: Tensor) -> None:
        """Refuse images that the attacker did not climb.

        Args:
            images: uint8 (N, C, H, W), scored or known to the attacker.

        Raises:
            InputError: saying how many.
        """
        names = {*self.readings.names}
        if missing := sum(name not in names for name in digests(images.numpy())):
            raise InputError(
                f"{opt('notes')}: {missing} of the {len(images)} images of the audit are none of "
                f"the {len(names)} targets of client {self.client}: it must climb them all, at the "
                "size of the audit"
            )

    def add_twin(self, twin: ClimbNotes, where: str) -> None:
        """Add the readings of the run without ascent.

        Args:
            twin: its notes.
            where: what errors call the folder.

        Raises:
            InputError: it has other targets.
        """
        if twin.readings.names != self.readings.names:
            raise InputError(f"{where}: the twin without ascent has other targets")
        if twin.acted(TWIN) != self.acted():
            rounds = f"{twin.acted(TWIN)}, not {self.acted()}"
            self.remarks.append(f"The twin without ascent is left out: it has rounds {rounds}.")
            return
        self.readings.readings |= twin.readings.readings
        self.readings.queries |= twin.readings.queries
        self.remarks.append(
            "The twin without ascent is another run of the app, not paired: what differs between "
            "two runs counts in the difference, and its interval is of the images alone."
        )


def load_notes(folder: Path, own: ClimbNotes, branch: str, targets: Tensor) -> ClimbNotes:
    """The notes of an attacker, to be continued.

    Args:
        folder: of the notes.
        own: the attacker and its climb.
        branch: MAIN or TWIN.
        targets: uint8 (T, C, H, W).

    Returns:
        The notes; new ones in the first round.

    Raises:
        InputError: they are those of another run, or damaged.
    """
    path, names = _path(folder, own.client, branch), digests(targets.numpy())
    if not path.is_file():
        return replace(own, readings=Readings(Ascent(steps=own.steps, lr=own.lr), names))
    notes = read_notes(path)
    if (notes.run, notes.readings.names) != (own.run, names):
        raise InputError(f"notes: '{path}' is of another run or other targets; name a new folder")
    return notes


def save_notes(folder: Path, notes: ClimbNotes, branch: str) -> None:
    """Write the notes of an attacker whole.

    Args:
        folder: of the notes; its owner alone can read them.
        notes: of the attacker.
        branch: MAIN or TWIN.

    Raises:
        InputError: the disk refuses.
    """
    path, readings = _path(folder, notes.client, branch), notes.readings
    tensors, about = readings.notes()
    about |= {name: getattr(notes, name) for name in FIELDS}
    about["targets"] = [name.hex() for name in readings.names]
    try:
        durable.make_folder(folder)
        write_tensors(tensors, path, about)
    except OSError as error:
        raise InputError(f"notes: {error}") from None


def read_notes(path: Path) -> ClimbNotes:
    """Read a file of `save_notes`.

    Raises:
        InputError: it is damaged, or holds something else.
    """
    tensors, about = read_tensors(path)
    try:
        names = [bytes.fromhex(name) for name in about["targets"]]
        notes = ClimbNotes(**{name: about[name] for name in FIELDS})
        notes.readings = Readings(Ascent(steps=notes.steps, lr=notes.lr), names)
        notes.readings.restore(tensors, about)
        whole = all(v.shape == (len(names),) for v in notes.readings.readings.values())
    except (InputError, KeyError, TypeError, ValueError, AttributeError):
        whole = False
    if not whole:
        raise InputError(f"{opt('notes')}: '{path}' holds no notes of an attacker")
    return notes


def _path(folder: Path, client: int, branch: str) -> Path:
    return folder / f"client-{client:04d}-{branch}.safetensors"


def read_climb(folder: Path, rounds: KeptRounds) -> ClimbNotes:
    """The notes in a folder; of several attackers those with most rounds.

    Args:
        folder: that `fedmia.flower.ascend` wrote.
        rounds: of the recorded federation.

    Returns:
        The attacker's notes, with the readings of its twin, where it has one, as branch TWIN.

    Raises:
        InputError: there are none, damaged ones, or those of another federation.
    """
    where, files = opt("notes", folder), sorted(folder.glob(f"client-*-{MAIN}.safetensors"))
    if not files:
        raise InputError(f"{where}: no notes of an attacker; fedmia.flower.ascend writes them")
    every = [read_notes(path) for path in files]
    notes, last = (
        max(every, key=lambda one: len(one.acted())),
        max({*rounds.records, *rounds.states}),
    )
    if not notes.acted():
        raise InputError(f"{where}: client {notes.client} received no model after its ascent")
    if notes.acted()[-1] > last:
        end = f"{rounds.where} ends at {last}"
        raise InputError(f"{where}: of round {notes.acted()[-1]}, and {end}")
    notes.remarks.append(
        f"Client {notes.client} attacked: it climbed {len(notes.readings.names)} images in rounds "
        f"{', '.join(map(str, notes.acted()))} ({notes.steps} passes, learning rate {notes.lr:g}); "
        "every attack on models of these rounds and later ones is on a federation under attack."
    )
    if (mirrored := notes.mirrored()) < MIRRORED:
        notes.remarks.append(
            "The climb carried all images to nearly one loss, so its rise is the loss before, "
            f"backwards (correlation {mirrored:.2f}): fewer steps or a lower learning rate help."
        )
    if len(files) > 1:
        notes.remarks.append(f"{len(files)} clients attacked; the notes of one are read.")
    if (path := _path(folder, notes.client, TWIN)).is_file():
        notes.add_twin(read_notes(path), where)
    return notes
