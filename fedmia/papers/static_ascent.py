"""The static climb on a run's snapshots: what Figs. 10 to 12 of the paper show."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fedmia.attacks.ascent_static import AscentStatic
from fedmia.evaluation.federated.snapshots import Evaluation
from fedmia.papers.reading import configured_attack
from fedmia.records import FloatArray, ScoredAttack
from fedmia.storage.snapshot import Snapshot
from fedmia.threat.signals import Signals

NAME = "ascent-static"


@dataclass(frozen=True)
class StaticAscentScores:
    """The static attack on one snapshot.

    Attributes:
        members, nonmembers: (G + 1, n), (G + 1, m) loss of each image before the climb and after
            each of its steps; None where they were not asked for.
    """

    round: int
    scored: ScoredAttack
    members: FloatArray | None = None
    nonmembers: FloatArray | None = None


def score_static_ascent(
    evaluation: Evaluation, snapshot: Snapshot, *, by_step: bool = False
) -> StaticAscentScores:
    """Score the static attack on a snapshot, with the options that the run gave it."""
    view, built = evaluation.observed.view(snapshot, Signals()), list[AscentStatic]()

    def build(_: str) -> AscentStatic:
        built.append(replace(configured_attack(evaluation, NAME), reading="rise"))
        return built[-1]

    scorer = replace(evaluation.scorer, build=build)
    scored = scorer.score_attack(NAME, view)
    if not by_step:
        return StaticAscentScores(snapshot.round, scored)
    losses = built[0].by_step(view, scorer.candidates)  # the first one built was fitted on all
    members, nonmembers = scorer.split_sides(losses.T)
    return StaticAscentScores(snapshot.round, scored, members.T, nonmembers.T)
