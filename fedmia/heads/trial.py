"""One head: dealt its images, trained, noised at every setting, attacked, and what that costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from fedmia.config.head import Head
from fedmia.data.images import IntArray
from fedmia.heads import attack
from fedmia.heads.release import Setting, answers, mechanism, released, scale_of
from fedmia.heads.sensitivity import sampled
from fedmia.heads.stack import Stack, train
from fedmia.options.errors import InputError, opt
from fedmia.options.seeding import rng, seed_words
from fedmia.records import FloatArray
from fedmia.statistics.auc import auc
from fedmia.statistics.thresholds import at_threshold, tpr_at_fpr

FPR = 0.01
MOST_OTHERS = 5000  # non-members asked about
# The classifier fitted on shadows without noise, or with the noise of the release; no classifier.
NAIVE, KNOWING, CONFIDENCE = "shadow", "shadow-knowing", "confidence"


@dataclass(frozen=True)
class Labelled:
    """Features of labelled images: float32 (N, D), and classes int64 (N,), 0..classes-1."""

    features: Tensor
    labels: Tensor
    classes: int


@dataclass(frozen=True)
class Dealt:
    """Rows of one head's images, all apart.

    Attributes:
        members: of the head. others: asked about, never trained on.
        shadow_in, shadow_out: (k, n) of each of the attacker's k shadow heads.
    """

    members: IntArray
    others: IntArray
    shadow_in: IntArray
    shadow_out: IntArray


@dataclass(frozen=True)
class Rates:
    """What an attack gets right of one head, mean over its releases; `tpr` at an FPR of 1 %, None
    below 100 others; `accuracy` is balanced, at the classifier's own threshold, None without."""

    auc: float
    accuracy: float | None
    tpr: float | None


@dataclass(frozen=True)
class Measured:
    """A head at one setting: share of others classified right, the share lost, and the attacks."""

    scale: float
    utility: float
    loss: float
    attacks: Mapping[str, Rates]


@dataclass(frozen=True)
class Trial:
    """One head.

    Attributes:
        fitted: share of its own images that it classifies right.
        sensitivity: {1: L1, 2: L2}, empty where nothing is noised.
        plain: without noise. noised: at each setting.
        placebo: the attacks on the same images, asked about a head that saw none of them.
    """

    fitted: float
    sensitivity: Mapping[int, float]
    plain: Measured
    noised: Mapping[Setting, Measured]
    placebo: Mapping[str, Rates]


def deal(count: int, images: int, generator: np.random.Generator) -> Dealt:
    """Half of all rows are the head's side, half the attacker's.

    A shadow head has as many images as the head; where that gives fewer than the paper's 2,000
    pairs, there are several of them.

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
    return Dealt(own[:images], others, halves[:, :images], halves[:, images:])


class Bench:
    """One head, its shadows, and what is asked of both.

    Args:
        seed: of this head.
    """

    def __init__(self, labelled: Labelled, asked: Head, seed: int) -> None:
        self.labelled, self.asked, self.seed = labelled, asked, seed
        self.dealt = deal(len(labelled.labels), asked.images, rng(seed, "head", "deal"))
        self.queried = np.concatenate([self.dealt.members, self.dealt.others])
        self.head = self._fit("head")(torch.from_numpy(self.dealt.members)[None])
        self.shadows = self._fit("shadows")(torch.from_numpy(self.dealt.shadow_in))
        self.right = self._right(self.head)

    def _fit(self, name: str) -> partial[Stack]:
        """Heads on given rows; every call with one name draws the same randomness."""
        asked, labelled = self.asked, self.labelled
        hidden = [asked.hidden] if asked.hidden else []
        return partial(
            train, labelled.features, labelled.labels,
            widths=[labelled.features.shape[1], *hidden, labelled.classes],
            optimizer=partial(
                torch.optim.SGD, lr=asked.lr, momentum=0.9, weight_decay=asked.weight_decay
            ),
            epochs=asked.epochs, batch=asked.batch_size, seed=seed_words(self.seed, name)[0],
        )  # fmt: skip

    def sensitivity(self) -> Mapping[int, float]:
        """Of this head's own training, its randomness shared with the head."""
        pairs = rng(self.seed, "head", "pairs")
        return sampled(self._fit("head"), self.dealt.members, self.asked.samples, pairs)

    def pairs(self, shadows: Stack) -> Tensor:
        """(PAIRS, 2 classes) answers of the shadows, each to its own two halves, with the truth.

        As many of either half, those of the members first (`member`).
        """
        found = []
        for rows in (self.dealt.shadow_in, self.dealt.shadow_out):
            places = torch.from_numpy(rows)
            said = answers(shadows, self.labelled.features[places])
            asked = attack.queries(said, self.labelled.labels[places])
            found.append(asked.flatten(0, 1)[: attack.PAIRS // 2])
        return torch.cat(found)

    def measured(self, heads: Stack, scale: float, classifiers: Mapping[str, Stack]) -> Measured:
        """The attacks on releases of the head, by name; and the head's use."""
        right = self._right(heads)
        return Measured(
            scale, right, 1 - right / max(self.right, 1e-12), self.attacked(heads, classifiers)
        )

    def attacked(self, heads: Stack, classifiers: Mapping[str, Stack]) -> dict[str, Rates]:
        """What each attack gets right of members and others, on any heads."""
        labels = self.labelled.labels[self.queried]
        said = answers(heads, self.labelled.features[self.queried])
        asked = attack.queries(said, labels)
        found = {n: self._rates(attack.score(c, asked), 0.0) for n, c in classifiers.items()}
        return found | {CONFIDENCE: self._rates(attack.confidence(said, labels), None)}

    def _rates(self, scores: FloatArray, threshold: float | None) -> Rates:
        n = len(self.dealt.members)
        each = list[tuple[float, float | None, float | None]]()
        for row in scores:
            sides = row[:n], row[n:]
            at, low = at_threshold(*sides, threshold)["accuracy"], tpr_at_fpr(*sides, FPR)
            each.append((auc(*sides), at, None if low is None else low[0]))
        aucs, right, rates = zip(*each, strict=True)
        return Rates(float(np.mean(aucs)), _mean(right), _mean(rates))

    def _right(self, heads: Stack) -> float:
        return self._share(heads, self.dealt.others)

    def _share(self, heads: Stack, rows: IntArray) -> float:
        """Share of the rows' images that the heads classify right, the mean over heads."""
        said = heads.logits(self.labelled.features[rows]).argmax(dim=2)
        return float((said == self.labelled.labels[rows]).double().mean())

    def fitted(self) -> float:
        """Share of the head's own images that it classifies right."""
        return self._share(self.head, self.dealt.members)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def trial(labelled: Labelled, asked: Head, seed: int, settings: Sequence[Setting]) -> Trial:
    """Train a head and its shadows, and attack it without noise and at each setting.

    The knowing attacker noises its shadows by the same law and scale.
    """
    bench = Bench(labelled, asked, seed)
    sensitivity = bench.sensitivity() if settings else {}
    shadows, releases, scales = [bench.shadows], [bench.head], [0.0]
    for setting in settings:
        law = mechanism(setting, asked.delta)
        scale = scale_of(law, setting.epsilon, sensitivity)
        name = setting.mechanism, repr(setting.epsilon)
        draw, known = (rng(seed, "head", side, *name) for side in ("release", "shadow"))
        releases.append(released(bench.head.take([0] * asked.draws), law, scale, draw))
        shadows.append(released(bench.shadows, law, scale, known))
        scales.append(scale)
    member = torch.tensor([1, 0]).repeat_interleave(attack.PAIRS // 2)
    fitted = attack.fit(
        torch.stack([bench.pairs(s) for s in shadows]), member, seed_words(seed, "classifier")[0]
    )
    naive = fitted.take([0])
    found = [
        bench.measured(release, scale, {NAIVE: naive} | ({KNOWING: fitted.take([i])} if i else {}))
        for i, (release, scale) in enumerate(zip(releases, scales, strict=True))
    ]
    return Trial(
        fitted=bench.fitted(),
        sensitivity=sensitivity,
        plain=found[0],
        noised=dict(zip(settings, found[1:], strict=True)),
        placebo=bench.attacked(bench.shadows.take([0]), {NAIVE: naive}),
    )
