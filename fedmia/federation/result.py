"""A run after its last round: its models and notes by round, and what its clients keep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from clients.client_setup import ClientSetup
from fedmia.data.cast import Cast
from fedmia.data.images import IntArray
from fedmia.federation.attacker import load_weights
from fedmia.federation.plan import Plan
from fedmia.federation.schedule import Schedule
from fedmia.recording.branches import MAIN, UNTRAINED
from fedmia.recording.reader import RecordedRounds
from fedmia.records.defence_rows import AggregationRow
from fedmia.records.rows import FaultRow, RoundRow
from fedmia.rounds.base import Rounds, TargetModel
from fedmia.rounds.notes import Notes, read_notes
from fedmia.seeding import ENTROPY
from fedmia.ssl.base import SSLMethod, State
from fedmia.storage.archive import Archive
from fedmia.storage.snapshot import StateStore
from strategies.cohort import draw_cohort


@dataclass(frozen=True)
class TrainedRounds(Rounds):
    """What a run's own federation left, until it is scored.

    Attributes:
        plan: settings, images and their roles.
        client_setup: what all clients of the run share.
        store: what each client keeps, its defence's account among it.
        recording: models and updates of the rounds, branch by branch.
        rounds: one row a finished round of `main`.
        complete: every branch ran to its end.
        faults: of clients.
        gone: those that were dropped.
        failure: why the rounds ended before their time, where it was no interruption.
        archive: where the scores of what is finished are kept, or nowhere.
        aggregation: what the server of `main` did.
        trained: of each client, the finished rounds of `main` in which its update rested on its
            images.
    """

    plan: Plan
    client_setup: ClientSetup
    store: StateStore
    recording: RecordedRounds
    rounds: list[RoundRow]
    complete: bool
    faults: tuple[FaultRow, ...] = ()
    gone: frozenset[int] = frozenset()
    failure: str | None = None
    archive: Archive = field(default_factory=lambda: Archive(None))
    aggregation: AggregationRow | None = None
    trained: Sequence[int] = ()

    @cached_property
    def cast(self) -> Cast:
        """Roles of images, without those of clients that were dropped."""
        return self.plan.cast.without_clients(self.gone)

    def last_rounds(self, scored_at: int) -> IntArray | None:
        """Of each client the last round of `main`, up to a round, in which it trained; 0: none.

        Args:
            scored_at: round of the scored model.

        Returns:
            (clients,); None where all clients train in every round, or where nobody may draw the
            cohorts again.
        """
        phase = self.schedule.phase("main", 0, scored_at, craft=False)
        clients = len(self.cast.parts)
        if self.client_setup.noise_source == ENTROPY:
            return None
        last = np.zeros(clients, dtype=np.int64)
        for round in range(1, scored_at + 1):
            cohort = draw_cohort(phase, round, clients)
            if len(cohort) == clients:
                return None
            last[cohort] = round
        return last

    @property
    def schedule(self) -> Schedule:
        return Schedule(self.plan.experiment)

    # -- as any rounds -------------------------------------------------------------------------

    @property
    def round(self) -> int:
        """The round that passive attacks and probes score: the last before a crafted upload."""
        rounds, clean = self.recording.rounds(MAIN), self.schedule.clean
        active = self.plan.experiment.active_attack is not None
        return max(r for r in rounds if r <= clean) if active else rounds[-1]

    @property
    def scored(self) -> list[int]:
        stored = self.recording.rounds(MAIN)
        return [r for r in self.schedule.evaluated() if r in stored]

    def load(self, target: TargetModel) -> SSLMethod:
        if target.branch == UNTRAINED or target.round is None:
            return load_weights(self.client_setup, self.recording.untrained())
        state = self.recording.models(target.branch)[target.round]
        return load_weights(self.client_setup, state)

    def negatives(self, branch: str = MAIN) -> Mapping[int, State]:
        return self.recording.held(branch)

    def models(self, branch: str = MAIN) -> Mapping[int, State]:
        return self.recording.models(branch)

    def updates(self, branch: str = MAIN) -> Mapping[int, Mapping[int, State]]:
        return self.recording.updates(branch)

    def before(self, branch: str = MAIN) -> Mapping[int, State]:
        return self.recording.before(branch, self.updates(branch))

    @cached_property
    def notes(self) -> Notes | None:  # type: ignore[override]  # read once
        """As the recording holds them."""
        return read_notes(self.recording)
