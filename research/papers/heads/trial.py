"""One head: dealt its images, trained, noised at every setting, attacked, and what that costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from fedmia.data.images import IntArray
from fedmia.defenses.heads.release import (
    ReleaseSetting,
    add_noise,
    mechanism,
    noise_scale,
    predict_probabilities,
)
from fedmia.defenses.heads.sensitivity import sample_sensitivity
from fedmia.defenses.heads.stack import HeadStack, train_heads
from fedmia.records import FloatArray
from fedmia.runtime.eager import SGD
from fedmia.seeding import rng, seed_words
from fedmia.settings.errors import InputError, opt
from fedmia.statistics.auc import auc
from fedmia.statistics.thresholds import decide_at_threshold, tpr_at_fpr
from research.papers.heads import attack
from research.papers.heads.settings import Head

FPR = 0.01
MOST_OTHERS = 5000  # non-members asked about
# The classifier fitted on shadows without noise, or with the noise of the release; no classifier.
NAIVE, KNOWING, CONFIDENCE = "shadow", "shadow-knowing", "confidence"


@dataclass(frozen=True)
class LabelledFeatures:
    """Features of labelled images: float32 (N, D), and classes int64 (N,), 0..classes-1.

    Attributes:
        features: float32 (N, D).
        labels: int64 (N,), 0..classes-1.
        classes: how many.
    """

    features: Tensor
    labels: Tensor
    classes: int


@dataclass(frozen=True)
class HeadSplit:
    """Rows of one head's images, all apart.

    Attributes:
        members: rows of the head's own images.
        others: rows of the scored non-members.
        shadow_in: (k, n) rows on which each of the attacker's k shadow heads is trained.
        shadow_out: (k, n) rows of as many images that it has not seen.
    """

    members: IntArray
    others: IntArray
    shadow_in: IntArray
    shadow_out: IntArray


@dataclass(frozen=True)
class AttackRates:
    """What an attack gets right of one head, the mean over its releases.

    Attributes:
        auc: in [0, 1].
        accuracy: balanced, at the classifier's own threshold; None without one.
        tpr: at an FPR of 1 %; None below 100 non-members.
    """

    auc: float
    accuracy: float | None
    tpr: float | None


@dataclass(frozen=True)
class ReleaseResult:
    """A head at one setting: share of others classified right, the share lost, and the attacks.

    Attributes:
        scale: of the noise on each weight; 0 without noise.
        utility: share of the non-members that the heads classify right.
        loss: share of the utility without noise that is lost (Definition 6.1).
        attacks: by the attack's name.
    """

    scale: float
    utility: float
    loss: float
    attacks: Mapping[str, AttackRates]


@dataclass(frozen=True)
class HeadTrial:
    """One head.

    Attributes:
        train_accuracy: share of its own images that it classifies right.
        sensitivity: {1: L1, 2: L2}, empty where nothing is noised.
        plain: without noise.
        noised: at each setting.
        placebo: the attacks on the same images and a head that saw none of them.
    """

    train_accuracy: float
    sensitivity: Mapping[int, float]
    plain: ReleaseResult
    noised: Mapping[ReleaseSetting, ReleaseResult]
    placebo: Mapping[str, AttackRates]


def split_images(count: int, images: int, generator: np.random.Generator) -> HeadSplit:
    """Half of all rows are the head's side, half the attacker's.

    A shadow head has as many images as the head; where that gives fewer than the paper's 2,000
    pairs, there are several of them.

    Args:
        count: N labelled images.
        images: of one head.
        generator: draws the split.

    Returns:
        Rows of the head, of the non-members and of the shadow heads, all disjoint.

    Raises:
        InputError: fewer than four times the head's images.
    """
    if count < 4 * images:
        raise InputError(
            f"{opt('images', images)}: a head, those asked about and a shadow head's two halves "
            f"need {4 * images} labelled images, there are {count}"
        )
    order = generator.permutation(count)
    own, theirs = order[: count // 2], order[count // 2 :]
    shadows = -(-attack.PAIRS // (2 * images))
    halves = np.stack([generator.permutation(theirs)[: 2 * images] for _ in range(shadows)])
    others = own[images:][:MOST_OTHERS]
    return HeadSplit(own[:images], others, halves[:, :images], halves[:, images:])


class HeadExperiment:
    """One head, its shadows, and what is asked of both.

    Args:
        labelled: features and classes of all images.
        config: the settings of the command.
        seed: of this head.
    """

    def __init__(self, labelled: LabelledFeatures, config: Head, seed: int) -> None:
        self.labelled, self.config, self.seed = labelled, config, seed
        self.split = split_images(len(labelled.labels), config.images, rng(seed, "head", "deal"))
        self.queried = np.concatenate([self.split.members, self.split.others])
        self.head = self._fit("head")(torch.from_numpy(self.split.members)[None])
        self.shadows = self._fit("shadows")(torch.from_numpy(self.split.shadow_in))
        self.accuracy = self.share_right(self.head, self.split.others)

    def _fit(self, name: str) -> partial[HeadStack]:
        """Heads on given rows; every call with one name draws the same randomness."""
        config, labelled = self.config, self.labelled
        hidden = [config.hidden] if config.hidden else []
        return partial(
            train_heads, labelled.features, labelled.labels,
            widths=[labelled.features.shape[1], *hidden, labelled.classes],
            optimizer=partial(
                SGD, lr=config.lr, momentum=0.9, weight_decay=config.weight_decay
            ),
            epochs=config.epochs, batch=config.batch_size, seed=seed_words(self.seed, name)[0],
        )  # fmt: skip

    def sensitivity(self) -> Mapping[int, float]:
        """Of this head's own training, its randomness shared with the head."""
        pairs = rng(self.seed, "head", "pairs")
        return sample_sensitivity(self._fit("head"), self.split.members, self.config.samples, pairs)

    def pairs(self, shadows: HeadStack) -> Tensor:
        """(PAIRS, 2 classes) answers of the shadows, each to its own two halves, with the truth.

        As many of either half, those of the members first (`member`).
        """
        inputs = []
        for rows in (self.split.shadow_in, self.split.shadow_out):
            places = torch.from_numpy(rows)
            probabilities = predict_probabilities(shadows, self.labelled.features[places])
            pairs = attack.classifier_inputs(probabilities, self.labelled.labels[places])
            inputs.append(pairs.flatten(0, 1)[: attack.PAIRS // 2])
        return torch.cat(inputs)

    def measure_release(
        self, heads: HeadStack, scale: float, classifiers: Mapping[str, HeadStack]
    ) -> ReleaseResult:
        """The attacks on releases of the head, by name; and the head's use.

        Args:
            heads: releases of the head.
            scale: of their noise.
            classifiers: by the attack's name.

        Returns:
            Utility and attacks, the mean over releases.
        """
        accuracy = self.share_right(heads, self.split.others)
        return ReleaseResult(
            scale,
            accuracy,
            1 - accuracy / max(self.accuracy, 1e-12),
            self.attack_heads(heads, classifiers),
        )

    def attack_heads(
        self, heads: HeadStack, classifiers: Mapping[str, HeadStack]
    ) -> dict[str, AttackRates]:
        """What each attack gets right of members and others, on any heads.

        Args:
            heads: K heads.
            classifiers: by the attack's name.

        Returns:
            Rates of each attack, those of `confidence` last.
        """
        labels = self.labelled.labels[self.queried]
        probabilities = predict_probabilities(heads, self.labelled.features[self.queried])
        pairs = attack.classifier_inputs(probabilities, labels)
        attack_rates = {
            n: self._rates(attack.score_answers(c, pairs), 0.0) for n, c in classifiers.items()
        }
        return attack_rates | {
            CONFIDENCE: self._rates(attack.label_log_probability(probabilities, labels), None)
        }

    def _rates(self, scores: FloatArray, threshold: float | None) -> AttackRates:
        n = len(self.split.members)
        each = list[tuple[float, float | None, float | None]]()
        for row in scores:
            sides = row[:n], row[n:]
            at, low = decide_at_threshold(*sides, threshold)["accuracy"], tpr_at_fpr(*sides, FPR)
            each.append((auc(*sides), at, None if low is None else low[0]))
        aucs, accuracy, rates = zip(*each, strict=True)
        return AttackRates(float(np.mean(aucs)), _mean(accuracy), _mean(rates))

    def share_right(self, heads: HeadStack, rows: IntArray) -> float:
        """Share of the rows' images that the heads classify right, the mean over heads."""
        predictions = heads.logits(self.labelled.features[rows]).argmax(dim=2)
        return float((predictions == self.labelled.labels[rows]).double().mean())


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def run_trial(
    labelled: LabelledFeatures, config: Head, seed: int, settings: Sequence[ReleaseSetting]
) -> HeadTrial:
    """Train a head and its shadows, and attack it without noise and at each setting.

    The knowing attacker noises its shadows by the same law and scale.

    Args:
        labelled: features and classes of all images.
        config: the settings of the command.
        seed: of this head.
        settings: mechanisms and epsilons to release it under.

    Returns:
        The head without noise, at each setting, and its placebo.
    """
    bench = HeadExperiment(labelled, config, seed)
    sensitivity = bench.sensitivity() if settings else {}
    shadows, releases, scales = [bench.shadows], [bench.head], [0.0]
    for setting in settings:
        law = mechanism(setting, config.delta)
        scale = noise_scale(law, setting.epsilon, sensitivity)
        name = setting.mechanism, repr(setting.epsilon)
        draw, known = (rng(seed, "head", side, *name) for side in ("release", "shadow"))
        releases.append(add_noise(bench.head.take([0] * config.draws), law, scale, draw))
        shadows.append(add_noise(bench.shadows, law, scale, known))
        scales.append(scale)
    member = torch.tensor([1, 0]).repeat_interleave(attack.PAIRS // 2)
    fitted = attack.fit_classifiers(
        torch.stack([bench.pairs(s) for s in shadows]), member, seed_words(seed, "classifier")[0]
    )
    naive = fitted.take([0])
    results = [
        bench.measure_release(
            release, scale, {NAIVE: naive} | ({KNOWING: fitted.take([i])} if i else {})
        )
        for i, (release, scale) in enumerate(zip(releases, scales, strict=True))
    ]
    return HeadTrial(
        train_accuracy=bench.share_right(bench.head, bench.split.members),
        sensitivity=sensitivity,
        plain=results[0],
        noised=dict(zip(settings, results[1:], strict=True)),
        placebo=bench.attack_heads(bench.shadows.take([0]), {NAIVE: naive}),
    )
