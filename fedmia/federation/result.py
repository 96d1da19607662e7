"""What a federation left: its models and readings by round, and what its clients keep."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from clients.client_context import ClientContext
from fedmia.data.cast import SCORED, Cast
from fedmia.data.images import IntArray
from fedmia.data.sets import ImageSets, form_sets
from fedmia.federation.plan import Plan
from fedmia.federation.readings import Readings
from fedmia.federation.schedule import Schedule
from fedmia.options.seeding import ENTROPY
from fedmia.recording.run import RunRecording
from fedmia.records import Aggregation, Fault, RoundInfo
from fedmia.storage.archive import Archive
from fedmia.storage.snapshot import StateStore
from strategies.cohort import draw_cohort


@dataclass(frozen=True)
class FederationResult:
    """A federation after its last round: everything that is scored.

    Attributes:
        plan: settings, images and their roles.
        client_context: what all clients of the run share.
        store: what each client keeps, its defence's account among it.
        recording: models and updates of the rounds, branch by branch.
        rounds: one row a finished round of `main`.
        complete: every branch ran to its end.
        faults: of clients.
        gone: those that were dropped.
        failure: why the rounds ended before their time, where it was no interruption.
        archive: where the scores of what is finished are kept, or nowhere.
        aggregation: what the server of `main` did.
        readings: of the active client; None where no attack was active.
    """

    plan: Plan
    client_context: ClientContext
    store: StateStore
    recording: RunRecording
    rounds: list[RoundInfo]
    complete: bool
    faults: tuple[Fault, ...] = ()
    gone: frozenset[int] = frozenset()
    failure: str | None = None
    archive: Archive = field(default_factory=lambda: Archive(None))
    aggregation: Aggregation | None = None
    readings: Readings | None = None

    @cached_property
    def cast(self) -> Cast:
        """Roles of images, without those of clients that were dropped."""
        return self.plan.cast.without_clients(self.gone)

    def sets(self) -> ImageSets:
        """The sets formed before the first round, without those of clients that were dropped."""
        members, others = map(self.plan.cast.ids, SCORED)
        formed = form_sets(len(members), len(others), self.plan.experiment.seed)
        stayed = np.isin(members, self.cast.ids("scored_members"))
        whole = formed.members[stayed[formed.members].all(axis=1)]
        return ImageSets((np.cumsum(stayed) - 1)[whole], formed.nonmembers)

    def last_rounds(self, scored_at: int) -> IntArray | None:
        """Of each client the last round of `main`, up to a round, in which it trained; 0: none.

        Args:
            scored_at: round of the scored model.

        Returns:
            (clients,); None where all clients train in every round, or where nobody may draw the
            cohorts again.
        """
        course = self.schedule.course("main", 0, scored_at, craft=False)
        clients = len(self.cast.parts)
        if self.client_context.noise_source == ENTROPY:
            return None
        last = np.zeros(clients, dtype=np.int64)
        for round in range(1, scored_at + 1):
            cohort = draw_cohort(course, round, clients)
            if len(cohort) == clients:
                return None
            last[cohort] = round
        return last

    @property
    def schedule(self) -> Schedule:
        return Schedule(self.plan.experiment)
