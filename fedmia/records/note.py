"""A note for the reader of a report: what it says, before anybody words it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Note:
    """A note. `fedmia.report.words.notes` words it, and refuses a code that it does not know.

    A plugin has no codes of its own: `Note("plugin", {"text": "A sentence."})` is its sentence.

    Attributes:
        code: what kind of note it is.
        values: what the sentence of that kind is made of, by name; a value may be a note.
    """

    code: str
    values: Mapping[str, Any] = field(default_factory=dict, hash=False)
