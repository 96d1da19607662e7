"""The format of `head.json`: what each row holds, with its unit and range.

AUCs, rates, accuracies and shares lie in [0, 1]. A `Spread` speaks of heads, each of other images
of one data source and one encoder: its interval would hold the mean of ever more heads, and is of
95 % by itself; simultaneous ones hold together for all AUCs of the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

from fedmia.report.rows import CanaryBoundRow, Interval
from fedmia.sweeping.rows import Spread

FORMAT = 1


class AttackRow(TypedDict):
    """One attack on heads at one setting, over the heads."""

    name: str  # shadow, shadow-knowing, confidence
    auc: Spread
    auc_ci_simultaneous: Interval | None
    accuracy: Spread  # balanced, at the classifier's own threshold; of none without one
    tpr_at_1_percent_fpr: Spread


class HeadRow(TypedDict):
    """Heads at one setting; `mechanism` and `epsilon` are null where nothing is noised."""

    mechanism: str | None
    epsilon: float | None
    delta: float
    standing: str | None  # empirical: the sensitivity is sampled; null where nothing is promised
    meaningful: bool  # whether the epsilon is small enough to mean something
    unit: str  # image: one labelled image of the head, replaced
    lower_bound: CanaryBoundRow | None  # by made-up heads under the same noise; of their epsilon
    scale: Spread  # of the noise on a weight
    utility: Spread  # share of held-out images classified right
    utility_loss: Spread  # Definition 6.1
    attacks: list[AttackRow]


class Controls(TypedDict):
    """Where nothing of the encoder, or of these images, can leak."""

    untrained: HeadRow  # heads without noise on the encoder without what training put into it
    placebo: list[AttackRow]  # the same images, asked about a head that saw none of them


class HeadReport(TypedDict):
    """The whole of `head.json`, in this order."""

    format: int
    sentence: str
    encoder: str
    data: str
    heads: int
    releases: int  # of each head at each setting
    n_members: int  # of each head
    n_nonmembers: int
    shadows: int  # of each head
    weights: int  # of a head
    fitted: Spread  # share of its own images that a head classifies right
    sensitivity: dict[str, Spread]  # l1, l2; of the heads
    assumptions: str
    rows: list[HeadRow]  # without noise first
    controls: Controls
    notes: list[str]
    config: Mapping[str, Any]
    versions: Mapping[str, Any]
    timing: Mapping[str, Any]  # seconds, the only wall clocks
