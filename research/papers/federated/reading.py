"""What the paper's passive attacks read of one snapshot, and what their classifiers make of it.

All images are read once; each attack of Figs. 6 and 8 and each classifier of Table IV is then a
few of the columns, fitted on the known images and scored by the harness that every run uses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from fedmia.attacks.base import Attack, Known, Scores
from fedmia.attacks.classifier import CLASSIFIERS, decide, fit_classifier
from fedmia.attacks.combined import Combined
from fedmia.attacks.internal import Internal, top_confidences
from fedmia.attacks.similarity import Similarity
from fedmia.data.images import digests
from fedmia.evaluation.steps.scorer import Scorer
from fedmia.evaluation.suite import Suite
from fedmia.recording.branches import MAIN
from fedmia.records import ScoredAttack
from fedmia.rounds.base import TargetModel
from fedmia.settings.choices import PluginChoice
from fedmia.threat import Threat, WhiteBox

TOP = 3  # largest confidences, as in the paper
PAPERS = {"similarity": {"pairs": "top3"}}  # options of the paper that are no defaults
FEATURES = ("cosine similarity", "contrastive loss", "highest confidence")  # of Eq. 7
PART = 512  # images whose rows are in memory at once: the first layer's map of each has 65,536


@dataclass
class PrecomputedFeatures(Attack):
    """A classifier on features that were read before, looked up by the image's bytes.

    Attributes:
        rows: digest of an image -> its features.
        classifier: `lda`, `lr` or `svm`.
    """

    paper: ClassVar[str] = "Chen et al., Federated Contrastive Learning"
    needs: ClassVar[Threat] = Threat("white_box", "outsider")
    looks_at: ClassVar[tuple[str, ...]] = ("features",)

    rows: Mapping[bytes, NDArray[np.float64]] = field(default_factory=dict)
    classifier: str = "lr"

    def fit(self, view: Any, known: Known, rng: np.random.Generator) -> None:
        images, truth = known.both()
        self._model = fit_classifier(self.classifier, self._inputs(images), truth)

    def score(self, view: Any, images: torch.Tensor) -> Scores:
        return decide(self._model, self._inputs(images))

    def _inputs(self, images: torch.Tensor) -> Scores:
        return np.stack([self.rows[name] for name in digests(images.numpy())])


@dataclass(frozen=True)
class SnapshotFeatures:
    """Features of all images of a run under one snapshot, by name, float64 (N, columns) each.

    `cosines`: pairwise cosines of the image's views, the three largest or as the run has it.
    `combined`: mean cosine, contrastive loss, highest confidence (Eq. 7), the last two also alone,
    as `loss` and `confidence`. A layer's name: its three largest confidences, as logarithms;
    `internal`: those of the layers that the internal attack reads.

    Attributes:
        round: of the snapshot.
        features: by name, float64 (N, columns).
        layers: names of the encoder's layers, the first first.
        names: digests of the N images.
        truth: (N,), 1 = member, of known and scored images.
        known: (N,), which images the attacker knows.
    """

    round: int
    features: Mapping[str, NDArray[np.float64]]
    layers: tuple[str, ...]
    names: list[bytes]
    truth: NDArray[np.int64]
    known: NDArray[np.bool_]

    def scored(self, name: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(members, non-members) under test of the feature, (n, columns), (m, columns)."""
        rows, member = self.features[name], self.truth == 1
        return rows[~self.known & member], rows[~self.known & ~member]

    def known_features(self, name: str) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """The feature and the truth of the known images."""
        return self.features[name][self.known], self.truth[self.known]

    def classified(
        self, scorer: Scorer, view: WhiteBox, name: str, classifier: str
    ) -> ScoredAttack:
        """A classifier on one feature, fitted on the known images, scored on the others.

        Args:
            scorer: fits and scores attacks.
            view: of the snapshot.
            name: of the feature.
            classifier: its name.

        Returns:
            The scores of the images that are not known.
        """
        rows = dict(zip(self.names, self.features[name], strict=True))
        own_scorer = scorer.with_build(
            lambda _: PrecomputedFeatures(rows=rows, classifier=classifier)
        )
        return own_scorer.score_attack(name, view)


def read_features(suite: Suite, round: int) -> SnapshotFeatures:
    """Every feature of the paper's passive attacks, of the known and the scored images.

    The options (views, pairs, negatives, classifiers) are those of the run's own attacks, else the
    paper's and the defaults; the three largest confidences are taken whatever they say.

    Args:
        suite: of the reopened run.
        round: of the model.

    Returns:
        Features of the known images, then of the scored members and non-members.
    """
    scorer = suite.scorer
    known, truth = scorer.known.both()
    images = torch.cat([known, scorer.members, scorer.nonmembers])
    sides = np.repeat([1, 0], [len(scorer.members), len(scorer.nonmembers)])
    parts = [_read_part(suite, round, some) for some in images.split(PART)]
    features = {name: np.concatenate([p[name] for p in parts]) for name in parts[0]}
    return SnapshotFeatures(
        round=round,
        features=features,
        layers=layers_of(suite),
        names=digests(images.numpy()),
        truth=np.concatenate([truth, sides]).astype(np.int64),
        known=np.arange(len(images)) < len(known),
    )


def _read_part(suite: Suite, round: int, images: torch.Tensor) -> dict[str, NDArray[np.float64]]:
    """The features of some of the images, through a view that is thrown away with its rows."""
    view = white_box(suite, round)
    similarity: Similarity = configured_attack(suite, "similarity")
    combined: Combined = configured_attack(suite, "combined")
    internal: Internal = configured_attack(suite, "internal")
    three = combined.inputs(view, images)
    outputs = view.features(images, view.layers)
    layers = {
        name: top_confidences(outputs_of_layer, TOP) for name, outputs_of_layer in outputs.items()
    }
    chosen = view.layers[-3:] if internal.layers is None else internal.layers
    return {
        "cosines": similarity.inputs(view, images),
        "combined": three,
        "loss": three[:, 1:2],
        "confidence": three[:, 2:3],
        "internal": np.concatenate([layers[name] for name in chosen], axis=1),
        **layers,
    }


def white_box(suite: Suite, round: int) -> WhiteBox:
    """What the attacker has of a round's model; nothing of it is shared with other views."""
    view = suite.view(TargetModel(MAIN, round), "internal")
    assert isinstance(view, WhiteBox)
    return view


def configured_attack(suite: Suite, name: str) -> Any:
    """The attack with the options that the run gave it, else with the paper's and the defaults.

    Args:
        suite: of the reopened run.
        name: of the attack.

    Returns:
        The attack, not fitted.
    """
    usual = PluginChoice(name, PAPERS.get(name, {}))
    return suite.attacks.get(name, usual).build("attack")


def layers_of(suite: Suite) -> tuple[str, ...]:
    """Names of the encoder's layers, the first first."""
    return tuple(suite.method(suite.main).encoder.layers)


@dataclass(frozen=True)
class SnapshotScores:
    """Scores of one snapshot: the five methods of Fig. 8, the layers of Fig. 6, and the
    classifiers of Table IV on the combined features.

    The paper speaks of the combination and "the other four methods" and names none of them; they
    are read here as its other two attacks, and the combination's loss and confidence alone.

    Attributes:
        round: of the snapshot.
        methods: the five methods of Fig. 8, by name.
        layers: the layers of Fig. 6, by name.
        classifiers: the classifiers of Table IV, by name.
    """

    round: int
    methods: Mapping[str, ScoredAttack]
    layers: Mapping[str, ScoredAttack]
    classifiers: Mapping[str, ScoredAttack]


def score_snapshot(suite: Suite, reading: SnapshotFeatures) -> SnapshotScores:
    """Fit and score every attack on what was read of the snapshot.

    Args:
        suite: of the reopened run.
        reading: the features of this snapshot.

    Returns:
        The scores of every method, layer and classifier.
    """
    scorer, view = suite.scorer, white_box(suite, reading.round)

    def scored(name: str, classifier: str) -> ScoredAttack:
        return reading.classified(scorer, view, name, classifier)

    classifiers = {name: scored("combined", name) for name in CLASSIFIERS}
    combined: Combined = configured_attack(suite, "combined")
    similarity: Similarity = configured_attack(suite, "similarity")
    internal: Internal = configured_attack(suite, "internal")
    layers = {name: scored(name, internal.classifier) for name in reading.layers}
    return SnapshotScores(
        round=reading.round,
        methods={
            "combined": classifiers[combined.classifier],
            "similarity": scored("cosines", similarity.classifier),
            "internal": scored("internal", internal.classifier),
            "loss": scored("loss", combined.classifier),
            "confidence": scored("confidence", combined.classifier),
        },
        layers=layers,
        classifiers=classifiers,
    )
