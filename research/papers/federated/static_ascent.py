"""The static climb on a run's snapshots: what Figs. 10 to 12 of the paper show."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fedmia.attacks.ascent_static import AscentStatic
from fedmia.evaluation.suite import Suite
from fedmia.records import FloatArray, ScoredAttack
from research.papers.federated.reading import configured_attack, white_box

NAME = "ascent-static"
SHARES = (0.1, 0.25, 0.5, 0.75, 0.9)  # of the scored images, whose loss rises less


@dataclass(frozen=True)
class StaticAscentScores:
    """The static attack on one snapshot.

    Attributes:
        round: of the snapshot.
        scored: the scores of the attack.
        members: (G + 1, n) loss of each member before the ascent and after each step; None unless
            asked for.
        nonmembers: (G + 1, m), the same of the non-members.
    """

    round: int
    scored: ScoredAttack
    members: FloatArray | None = None
    nonmembers: FloatArray | None = None


def score_static_ascent(suite: Suite, round: int, *, by_step: bool = False) -> StaticAscentScores:
    """Score the static attack on a snapshot, with the options that the run gave it.

    Args:
        suite: of the reopened run.
        round: of the model.
        by_step: whether to keep the loss after each step.

    Returns:
        The scores, with the losses where `by_step`.
    """
    view, built = white_box(suite, round), list[AscentStatic]()

    def build(_: str) -> AscentStatic:
        built.append(replace(configured_attack(suite, NAME), reading="rise"))
        return built[-1]

    scorer = suite.scorer.with_build(build)
    scored = scorer.score_attack(NAME, view)
    if not by_step:
        return StaticAscentScores(round, scored)
    losses = built[0].by_step(view, scorer.candidates)  # the first one built was fitted on all
    members, nonmembers = scorer.split_sides(losses.T)
    return StaticAscentScores(round, scored, members.T, nonmembers.T)


def by_threshold(scored: ScoredAttack) -> dict[str, dict[str, float]]:
    """Fig. 12: balanced accuracy where images whose loss rises less than a threshold are members.

    Args:
        scored: the static attack, whose score is the rise with its sign turned.

    Returns:
        Share of the scored images whose loss rises less -> that `threshold`, and the `accuracy`.
    """
    members, others = -scored.scores_members, -scored.scores_nonmembers
    every, rows = np.concatenate([members, others]), {}
    for share in SHARES:
        at = float(np.quantile(every, share))
        accuracy = float((members < at).mean() + (others >= at).mean()) / 2
        rows[f"{share:g}"] = {"threshold": at, "accuracy": accuracy}
    return rows
