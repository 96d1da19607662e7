"""Which rounds a run has, and which of them are kept or evaluated."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedmia.settings.experiment import Experiment
from fedmia.settings.roles import sees


@dataclass(frozen=True)
class Schedule:
    """The rounds of an experiment, counted on over pre-training and federation."""

    experiment: Experiment

    @property
    def clean(self) -> int:
        """Last round before the first that may be attacked."""
        return self.experiment.pretrain.rounds

    @property
    def last(self) -> int:
        return self.clean + self.experiment.federation.rounds

    def evaluated(self) -> list[int]:
        """Rounds whose model is scored: evenly spread, with the first, the last clean, the last."""
        spread = np.linspace(0, self.last, self.experiment.federation.snapshots + 1)
        return sorted({*(int(r) for r in spread.round()), self.clean, self.last})

    def updates_kept(self) -> set[int]:
        """Rounds whose updates by client stay on disk: `federation.keep_updates`, evenly spread,
        or the evaluated ones where the server attacks; never those of a server's own training."""
        asked, pretrain = self.experiment.federation.keep_updates, self.experiment.pretrain
        first = self.clean if pretrain.mode in ("pooled", "public") else 0
        if asked is None:
            server = sees(self.experiment.attacker).vantage == "server"
            return {r for r in self.evaluated() if r > first} if server else set()
        spread = np.linspace(first, self.last, asked + 1)[1:]
        return {int(r) for r in spread.round()} - {first}
