"""Which rounds a run has, and which of them are attacked, scored and kept."""

from __future__ import annotations

import numpy as np

from fedmia.recording.branches import BRANCHES
from fedmia.settings.commands.experiment import Experiment
from strategies.cohort import Phase, draw_cohort


class Schedule:
    """The federated rounds of an experiment, from 1 to `last`; 0 is the first model."""

    def __init__(self, experiment: Experiment) -> None:
        self.experiment = experiment

    @property
    def clean(self) -> int:
        """The last round before the attacked ones; the last of all where none is attacked."""
        return self.last - self.experiment.attack_rounds

    @property
    def last(self) -> int:
        return self.experiment.federation.rounds

    def branches(self, placebo: bool) -> dict[str, int]:
        """The branches whose rounds need clients, in their order.

        Args:
            placebo: whether there are images for the placebo.

        Returns:
            Name -> the last round that it shares with its parent; 0: it begins with the first.
        """
        attacked = self.experiment.active_attack is not None
        return {
            name: self.clean if one.parent else 0
            for name, one in BRANCHES.items()
            if one.runs(attacked, placebo)
        }

    def evaluated(self) -> list[int]:
        """Rounds whose model is scored: evenly spread, with 0, the last clean one and the last."""
        spread = np.linspace(0, self.last, self.experiment.federation.snapshots + 1)
        return sorted({*(int(r) for r in spread.round()), self.clean, self.last})

    def received(self, client: int | None) -> set[int]:
        """Rounds whose scored model the attacker has: a client, those before rounds of its own.

        Args:
            client: the attacker's; None: it is the server.

        Returns:
            The rounds; a client has the last model, too, once it is released.
        """
        rounds = self.evaluated()
        if client is not None:
            rounds = [r for r in rounds[:-1] if self.takes_part(client, r + 1)]
        return {*rounds}

    def updates_kept(self) -> set[int]:
        """Rounds whose updates by client stay on disk: `federation.keep_updates`, evenly spread,
        or the evaluated ones where the server attacks."""
        count = self.experiment.federation.keep_updates
        if count is None:
            reads = self.experiment.threat.row.keeps == "updates"
            return {r for r in self.evaluated() if r} if reads else set()
        spread = np.linspace(0, self.last, count + 1)[1:]
        return {int(r) for r in spread.round()} - {0}

    def changes_kept(self) -> set[int]:
        """Rounds before which the model stays on disk, too: those whose updates stay, and the
        evaluated ones where the attacker reads what a round changed."""
        reads = bool(self.experiment.threat.row.keeps)
        return self.updates_kept() | ({r for r in self.evaluated() if r} if reads else set())

    def phase(self, branch: str, first: int, last: int, *, craft: bool) -> Phase:
        """The rounds of a branch after `first`, up to `last`.

        Args:
            branch: which federation of the run: `main`, `zero` or `placebo`.
            first: round that the range follows.
            last: last round of the range.
            craft: whether the active attacker may craft an upload.

        Returns:
            The range of rounds.
        """
        run, share = self.experiment, self.experiment.federation.participation
        return Phase(branch, first, last, craft, share, run.seed, self.last, run.malicious_clients)

    def takes_part(self, client: int, round: int) -> bool:
        """Whether the cohort of a round holds the client, in every branch.

        Args:
            client: partition id of the client.
            round: 1, 2, ... to the last.

        Returns:
            True where the client is in the cohort.
        """
        phase = self.phase("main", 0, self.last, craft=False)
        return client in draw_cohort(phase, round, self.experiment.federation.clients)
