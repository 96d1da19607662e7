"""The format of `series.json`: what each row holds, with its unit and range.

AUCs, rates and accuracies lie in [0, 1]; intervals are of 95 %. Those of a point speak of images:
it is one model, however many seeds. A seed draws the attacker's views and deals the images anew,
but for a run's own; over seeds a number is the mean, and so is each end of its interval. One seed's
error is the most that a mean of several can have, so such an interval is rather too wide than too
narrow. Those of `models` speak of models, one a run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from fedmia.report.rows import Interval
from fedmia.sweeping.rows import Spread

FORMAT = 1


class SeriesDifference(TypedDict):
    """An attack's AUC less that on the last encoder of the same run, or of those without rounds,
    on the same images."""

    last: str
    difference: float  # in [-1, 1]
    ci: Interval  # by itself
    ci_simultaneous: Interval  # together with all differences of the series


class SeriesAttack(TypedDict):
    """An attack on one encoder; null where no seed has the number."""

    name: str
    auc: float | None
    auc_ci: Interval | None
    by_seed: list[float | None]
    tpr_at_1_percent_fpr: float | None
    untrained: float | None  # AUC on the untrained control
    difference: SeriesDifference | None  # null on the last encoder itself, or of other images


class SeriesPoint(TypedDict):
    """One encoder."""

    encoder: str  # as it was given
    name: str
    run: str  # its run, or itself
    round: int | None  # null where it has none
    finished: int  # audits, one a seed
    failed: int
    verdicts: dict[str, int]  # code -> audits
    n_members: int | None  # scored, of the first seed
    n_nonmembers: int | None
    attacks: list[SeriesAttack]
    knn: float | None
    knn_ci: Interval | None
    knn_untrained: float | None
    linear: float | None
    linear_ci: Interval | None
    n_probe: int | None  # test images of the probes


class SeriesModels(TypedDict):
    """The same round of several runs."""

    round: int
    attacks: dict[str, Spread]  # AUC, by attack
    knn: Spread
    linear: Spread


class SeriesCell(TypedDict):
    """One audit."""

    name: str
    encoder: str
    seed: int
    state: str  # finished, failed, not run
    reason: str | None  # why it failed
    path: str | None  # its folder under that of the series, once finished
    verdict: str | None


class SeriesReport(TypedDict):
    """The whole of `series.json`, in this order."""

    format: int
    sentence: str
    points: list[SeriesPoint]  # in the order of the encoders
    models: list[SeriesModels]  # by round; empty without several runs
    seeds: Sequence[int]
    finished: int  # audits
    failed: int
    not_run: int
    cells: list[SeriesCell]  # all encoders at the first seed first
    notes: list[str]
    config: Mapping[str, Any]  # the series as its YAML file says it
    timing: Mapping[str, Any]  # seconds, the only wall clocks
