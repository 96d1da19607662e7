"""Multi-Krum: the mean of the updates that Krum prefers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from fedmia.settings import option
from strategies.krum import Krum as _Krum


@dataclass
class MultiKrum(_Krum):
    """The mean of the m updates with the least scores of Krum; m 1 is Krum."""

    paper: ClassVar[str] = "Blanchard et al., NeurIPS 2017, Section 4"
    neutral: ClassVar[Mapping[str, Any]] = {"malicious": 0, "keep": None}

    keep: int | None = option(None, "m, updates that are averaged (none: n - f)", ge=1)

    @property
    def least(self) -> int:
        return max(super().least, self.keep or 1)

    def count_averaged(self, clients: int) -> int:
        """How many updates are averaged: m, else all but the malicious ones."""
        return self.keep or max(1, clients - self.malicious)
