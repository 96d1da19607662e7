"""The notes of an attacker inside a federation, for an audit: its recording's, or a folder's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from torch import Tensor

from fedmia.data.images import digests
from fedmia.recording import Recording
from fedmia.recording.branches import MAIN, ZERO
from fedmia.records.note import Note
from fedmia.rounds.kept import KeptRounds
from fedmia.rounds.notes import RECEIVED, SENT, Notes, read_notes
from fedmia.settings.choices import PluginChoice
from fedmia.settings.commands.audit import Audit
from fedmia.settings.errors import InputError, opt

MIRRORED = -0.8  # under it a rise says little but the loss before
READING = "reading"  # the option that says how notes are read, which an audit may choose anew


def notes_folder(folder: Path, client: int, branch: str) -> Path:
    """Where `fedmia.flower.ascend` keeps the notes of a client, below the folder of its node."""
    return folder / f"client-{client:04d}-{branch}"


def add_climb(folder: Path, rounds: KeptRounds) -> list[Note]:
    """Add the notes in a folder to the rounds of a federation; of several attackers those with most
    rounds.

    Args:
        folder: that `fedmia.flower.ascend` wrote.
        rounds: of the recorded federation; gets the notes, with those of the twin without ascent,
            where there is one, as branch ZERO.

    Returns:
        Notes for the reader of a report.

    Raises:
        InputError: there are none, damaged ones, or those of another federation.
    """
    where, folders = opt("federation.notes", folder), sorted(folder.glob(f"client-*-{MAIN}"))
    if not folders:
        raise InputError(f"{where}: no notes of an attacker; fedmia.flower.ascend writes them")
    every = [_read(one) for one in folders]
    notes = max(every, key=lambda one: len(one.acted(MAIN)))
    last, client = max({*rounds.records, *rounds.states}), notes.about["client"]
    if not (acted := notes.acted(MAIN)):
        raise InputError(f"{where}: client {client} received no model after its ascent")
    if acted[-1] > last:
        raise InputError(f"{where}: of round {acted[-1]}, and {rounds.where} ends at {last}")
    options = notes.about["options"]
    remarks = [
        Note(
            "client-attacked",
            {"client": client, "targets": len(notes.targets), "rounds": acted,
             "steps": options["steps"], "lr": options["lr"]},
        )
    ]  # fmt: skip
    if (correlation := mirrored(notes)) < MIRRORED:
        remarks.append(Note("climb-to-one-loss", {"correlation": correlation}))
    if len(folders) > 1:
        remarks.append(Note("several-attacked", {"clients": len(folders)}))
    if (twin := notes_folder(folder, client, ZERO)).is_dir():
        remarks.append(_add_twin(notes, _read(twin), where))
    rounds.notes = notes
    return remarks


def _read(folder: Path) -> Notes:
    if (notes := read_notes(Recording(folder))) is None:
        raise InputError(f"{opt('federation.notes')}: '{folder}' holds no notes of an attacker")
    return notes


def _add_twin(notes: Notes, twin: Notes, where: str) -> Note:
    """Add the notes of the run without ascent, and say so."""
    if twin.targets != notes.targets:
        raise InputError(f"{where}: the twin without ascent has other targets")
    if twin.acted(ZERO) != notes.acted(MAIN):
        attacked = notes.acted(MAIN)
        return Note("twin-left-out", {"rounds": twin.acted(ZERO), "attacked": attacked})
    notes.tables[ZERO], notes.facts[ZERO] = twin.tables[ZERO], twin.facts[ZERO]
    return Note("twin-not-paired")


def mirrored(notes: Notes) -> float:
    """Correlation of the rise under the first upload with the loss before it.

    Returns:
        In [-1, 1]; -1 where that upload gives all images one loss.
    """
    table = notes.tables[MAIN][notes.acted(MAIN)[0]]
    return float(np.corrcoef(table[SENT] - table[RECEIVED], table[RECEIVED])[0, 1])


def require_targets(notes: Notes, images: Tensor) -> None:
    """Refuse images that the attacker did not act on.

    Args:
        notes: of the attacker.
        images: uint8 (N, C, H, W), scored or known to the attacker.

    Raises:
        InputError: saying how many.
    """
    names = {*notes.targets}
    if missing := sum(name not in names for name in digests(images.numpy())):
        where = opt("federation.notes" if notes.foreign else "federation.recording")
        raise InputError(
            f"{where}: {missing} of the {len(images)} images of the audit are none of "
            f"the {len(names)} targets of client {notes.about['client']}: it must climb them all, "
            "at the size of the audit"
        )


def attack_of_notes(notes: Notes, audit: Audit) -> PluginChoice:
    """The attack that took part in the rounds, with the options that it had there.

    Args:
        notes: of its client.
        audit: may choose another reading.

    Returns:
        The attack.

    Raises:
        InputError: the audit asks for another value of an option than it had in the rounds.
    """
    name, fixed = notes.about["attack"], notes.about["options"]
    own = audit.attack.get(name, {})
    for option, value in own.items():
        if option != READING and fixed.get(option, value) != value:
            raise InputError(
                f"{opt(f'attack.{name}.{option}', value)}: the rounds were attacked with "
                f"{fixed[option]}, and what was noted in them cannot change"
            )
    return PluginChoice(name, {**fixed, **own}).complete("attack")
