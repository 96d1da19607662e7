"""Notes in words: one function for each code, which takes the values by their names.

A note of code `bank-cut` is worded by the function `bank_cut` of one of the modules in `SUBJECTS`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from fedmia.records.note import Note
from fedmia.report.words import (
    notes_controls,
    notes_encoders,
    notes_federation,
    notes_images,
    notes_scores,
)

SUBJECTS = notes_controls, notes_encoders, notes_federation, notes_images, notes_scores
WORDS: Mapping[str, Callable[..., str]] = MappingProxyType(
    {
        name.replace("_", "-"): function
        for subject in SUBJECTS
        for name, function in inspect.getmembers(subject, inspect.isfunction)
        if function.__module__ == subject.__name__ and not name.startswith("_")
    }
)


def in_words(note: Note) -> str:
    """A note as the reader sees it.

    Raises:
        ValueError: an unknown code.
        TypeError: no note, or not the values that its code takes.
    """
    if not isinstance(note, Note):
        raise TypeError(f"{note!r} is no Note; Note('plugin', {{'text': ..}}) holds a sentence")
    if note.code not in WORDS:
        raise ValueError(f"no note has the code '{note.code}'")
    values = {n: in_words(v) if isinstance(v, Note) else v for n, v in note.values.items()}
    return WORDS[note.code](**values)


def sentences(notes: Iterable[Note]) -> list[str]:
    """Notes as the reader sees them, each one or more sentences."""
    return [in_words(note) for note in notes]
