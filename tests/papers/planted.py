"""Readings with planted features: no model behind them."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import torch

from fedmia.attacks.base import Known
from fedmia.data.images import digests
from fedmia.evaluation.steps.scorer import Scorer
from fedmia.records import Curves, ScoredAttack
from fedmia.settings.choices import PluginChoice
from fedmia.testing import material
from fedmia.threat import Threat, WhiteBox
from papers.federated.reading import SnapshotFeatures, SnapshotScores, score_snapshot
from papers.federated.static_ascent import StaticAscentScores

KNOWN, MEMBERS, NONMEMBERS = 15, 20, 30  # images a side that are known, and scored ones
LAYERS = ("layer1", "layer2", "avgpool", "encoder")


class NoModel(WhiteBox):
    """A view of which nothing is asked."""

    threat = Threat("white_box", "outsider")
    queries = 0  # type: ignore[assignment]

    def __init__(self) -> None:
        pass

    def unmetered(self) -> Any:
        return nullcontext()


class Evaluation:
    """The parts of a suite that judge what was read."""

    def __init__(self) -> None:
        images = material.textures(2 * KNOWN + MEMBERS + NONMEMBERS, seed=5)
        known, self.members, self.nonmembers = images.split([2 * KNOWN, MEMBERS, NONMEMBERS])
        self.scorer = Scorer(
            Known(known[:KNOWN], known[KNOWN:]), self.members, self.nonmembers, 0, NotImplemented
        )
        self.attacks: dict[str, PluginChoice] = {}

    def view(self, *_: Any) -> Any:
        return NoModel()


def reading(
    evaluation: Evaluation, round: int = 0, shift: float = 1.0, seed: int = 0
) -> SnapshotFeatures:
    """Normal features, those of members moved by `shift`; layers hold logarithms of shares."""
    known, truth = evaluation.scorer.known.both()
    images = torch.cat([known, evaluation.members, evaluation.nonmembers])
    truth = np.concatenate([truth, np.repeat([1, 0], [MEMBERS, NONMEMBERS])])
    draw = np.random.default_rng([seed, round])

    def moved(columns: int) -> np.ndarray:
        return draw.normal(size=(len(truth), columns)) + shift * truth[:, None]

    shares = np.where(truth[:, None] == 1, [0.5, 0.25, 0.125], [0.25, 0.125, 0.0625])
    three = moved(3)
    features = {
        "cosines": moved(3), "combined": three, "loss": three[:, 1:2], "confidence": three[:, 2:],
        "internal": moved(9), **{name: np.log(shares) for name in LAYERS},
    }  # fmt: skip
    return SnapshotFeatures(
        round=round,
        features=features,
        layers=LAYERS,
        names=digests(images.numpy()),
        truth=truth.astype(np.int64),
        known=np.arange(len(truth)) < len(known),
    )


def judged(evaluation: Evaluation, read: SnapshotFeatures) -> SnapshotScores:
    return score_snapshot(evaluation, read)  # type: ignore[arg-type]


def climb(round: int = 0) -> StaticAscentScores:
    """Losses by step: members 1, 2, 3, non-members 1, 3, 5; scores minus the rise, all told."""
    ones = np.ones(MEMBERS), np.ones(NONMEMBERS)
    members = np.outer([1.0, 2.0, 3.0], ones[0])
    others = np.outer([1.0, 3.0, 5.0], ones[1])
    scored = ScoredAttack(
        "ascent-static", "", "white_box", "outsider",
        scores_members=-2 * ones[0] - 0.01 * np.arange(MEMBERS),
        scores_nonmembers=-4 * ones[1] + 0.01 * np.arange(NONMEMBERS),
        known_members=np.array([-2.0, -2.5]),
        known_nonmembers=np.array([-4.0, -3.5]),
    )  # fmt: skip
    return StaticAscentScores(round, scored, members, others)


def loss_curves() -> Curves:
    """Two attacked rounds: members at 1 and 2, non-members at 3 and 4, all at 9 without the act."""
    return Curves(
        act="ascent",
        rounds=np.array([3, 4]),
        members=np.outer([1.0, 2.0], np.ones(MEMBERS)),
        nonmembers=np.outer([3.0, 4.0], np.ones(NONMEMBERS)),
        control_members=np.full((2, MEMBERS), 9.0),
        control_nonmembers=np.full((2, NONMEMBERS), 9.0),
        before_members=np.arange(MEMBERS) / 2,
    )
