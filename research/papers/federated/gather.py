"""All that the tables and figures are made of: every evaluated round read, judged and climbed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import numpy as np

from fedmia.evaluation.score import run_side_by_side
from fedmia.evaluation.suite import Progress, Suite
from fedmia.records import Curves
from fedmia.records.rows import RoundRow
from fedmia.runs import Run
from fedmia.settings.commands.experiment import Experiment
from fedmia.settings.errors import InputError
from fedmia.storage.json_rows import to_json
from research.papers.claims.of_ascent import claims
from research.papers.federated.reading import (
    SnapshotFeatures,
    SnapshotScores,
    read_features,
    score_snapshot,
)
from research.papers.federated.static_ascent import (
    StaticAscentScores,
    by_threshold,
    score_static_ascent,
)
from research.papers.federated.tables import Row, rates, table_2, table_3, table_4


@dataclass(frozen=True)
class PaperResults:
    """A run's evaluated rounds, in order, one entry a round in each list.

    Attributes:
        at: index of the round that passive attacks score.
        features: of each evaluated round.
        scores: of each evaluated round.
        static_ascents: of each evaluated round.
        history: the report's rounds.
        curves: losses by attacked round, None without an active attack.
        strategy: by which the run aggregates.
    """

    at: int
    features: Sequence[SnapshotFeatures]
    scores: Sequence[SnapshotScores]
    static_ascents: Sequence[StaticAscentScores]
    history: Sequence[RoundRow]
    curves: Curves | None
    strategy: str

    def methods(self) -> dict[str, list[tuple[int, Row]]]:
        """(round, rates) of the five methods of Fig. 8."""
        names = self.scores[0].methods
        return {n: [(j.round, rates(j.methods[n])) for j in self.scores] for n in names}

    def layers(self) -> dict[str, list[tuple[int, Row]]]:
        """(round, rates) of every layer, and of the cosine similarity attack as `feature`."""
        names = self.scores[0].layers
        layer_rates = {n: [(j.round, rates(j.layers[n])) for j in self.scores] for n in names}
        return {**layer_rates, "feature": self.methods()["similarity"]}


def gather_results(run: Run, suite: Suite) -> PaperResults:
    """Read, judge and climb every evaluated round; rounds run side by side.

    Args:
        run: a finished run.
        suite: of the run opened again.

    Returns:
        Features and scores of all its evaluated rounds.

    Raises:
        InputError: no model was kept.
    """
    history, rounds = run.records.rounds, suite.rounds.scored
    if not rounds:
        raise InputError(f"run '{run.folder}' holds no models in recording/models/main")
    settings = cast(Experiment, run.settings)
    attacked = {r.round for r in history if r.under_attack}
    at = ([r for r in rounds if r not in attacked] or rounds)[-1]
    work: dict[str, Callable[[], Any]] = {
        str(r): partial(_score_round, suite, r, by_step=r == at) for r in rounds
    }
    by_round = run_side_by_side(work, settings.machine.threads_per_client, Progress())
    features, scores, static_ascents = zip(*(by_round[str(r)] for r in rounds), strict=True)
    return PaperResults(
        at=rounds.index(at),
        features=features,
        scores=scores,
        static_ascents=static_ascents,
        history=history,
        curves=run.curves,
        strategy=settings.strategy.name,
    )


def _score_round(
    suite: Suite, round: int, *, by_step: bool
) -> tuple[SnapshotFeatures, SnapshotScores, StaticAscentScores]:
    features = read_features(suite, round)
    scores = score_snapshot(suite, features)
    return features, scores, score_static_ascent(suite, round, by_step=by_step)


def numbers(results: PaperResults) -> dict[str, Any]:
    """The tables and the numbers behind the figures, as `tables.json` holds them."""
    at, attacked = results.at, {r.round for r in results.history if r.under_attack}
    climb = results.static_ascents[at]
    rounds = []
    for reading, scores, each in zip(
        results.features, results.scores, results.static_ascents, strict=True
    ):
        members, others = (side.mean(axis=0) for side in reading.scored("combined"))
        rounds.append(
            {
                "round": reading.round,
                "under_attack": reading.round in attacked,
                "mean_similarity": {"members": members[0], "nonmembers": others[0]},
                "mean_loss": {"members": members[1], "nonmembers": others[1]},
                "methods": {name: rates(s) for name, s in scores.methods.items()},
                "layers": {name: rates(s) for name, s in scores.layers.items()},
                "ascent_static": {
                    **rates(each.scored),
                    "choices": each.scored.choices,
                    "by_threshold": by_threshold(each.scored),
                },
            }
        )
    sides = {"members": climb.members, "nonmembers": climb.nonmembers}
    steps = {k: np.asarray(v).mean(axis=1) for k, v in sides.items() if v is not None}
    return to_json(
        {
            "round": results.features[at].round,
            "table_2": table_2(results.scores[at]),
            "table_3": table_3(results.features[at]),
            "table_4": table_4(results.scores[at]),
            "rounds": rounds,
            "mean_loss_by_step": steps,
            "claims": claims(climb, results.curves),
        }
    )
