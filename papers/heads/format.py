"""The format of `head.json`; the conventions of `fedmia.study.formats` hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

from fedmia.records.attack_rows import Interval
from fedmia.records.defence_rows import CanaryBoundRow
from fedmia.statistics.spread import Spread
from fedmia.study.formats import AucSpread, ReportHead


class HeadAttack(AucSpread):
    """One attack (shadow, shadow-knowing, confidence) on heads at one setting, over the heads."""

    auc_ci_simultaneous: Interval | None
    accuracy: Spread  # balanced, at the classifier's own threshold; of none without one
    tpr_at_1_percent_fpr: Spread


class HeadRow(TypedDict):
    """Heads at one setting; `mechanism` and `epsilon` are null where nothing is noised.

    Attributes:
        mechanism: name of the noise.
        epsilon: privacy budget of a release.
        delta: 0 of a pure mechanism.
        standing: empirical: the sensitivity is sampled; null where nothing is promised.
        meaningful: whether the epsilon is small enough to mean something.
        unit: image: one labelled image of the head, replaced.
        lower_bound: by made-up heads under the same noise; of their epsilon.
        scale: of the noise on a weight.
        utility: share of held-out images classified right.
        utility_loss: Definition 6.1.
        attacks: one entry for each attack.
    """

    mechanism: str | None
    epsilon: float | None
    delta: float
    standing: str | None
    meaningful: bool
    unit: str
    lower_bound: CanaryBoundRow | None
    scale: Spread
    utility: Spread
    utility_loss: Spread
    attacks: list[HeadAttack]


class HeadControls(TypedDict):
    """Where nothing of the encoder, or of these images, can leak.

    Attributes:
        untrained: heads without noise on the encoder without what training put into it.
        placebo: the same images, asked about a head that saw none of them.
    """

    untrained: HeadRow
    placebo: list[HeadAttack]


class HeadReport(ReportHead):
    """The whole of `head.json`."""

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
    controls: HeadControls
    versions: Mapping[str, Any]
