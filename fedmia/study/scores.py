"""Scores of finished audits read back, and one encoder compared with another on the same images."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from fedmia.records import ScoredAttack
from fedmia.records.attack_rows import Interval
from fedmia.statistics.auc import auc_estimate, difference_interval
from fedmia.statistics.intervals import LEVEL
from fedmia.storage.runfolder import damaged

Sides = Mapping[str, ScoredAttack]  # by attack


def read(file: Path) -> tuple[tuple[str, ...], Sides]:
    """The images of a `scores.csv`, and every attack's scores of them.

    Returns:
        Place and truth of each image, in order; attack -> its scores of either side.

    Raises:
        InputError: it is no such file.
    """
    with damaged(file.parent, file.name):
        return _read(file)


def _read(file: Path) -> tuple[tuple[str, ...], Sides]:
    with file.open(encoding="utf-8", newline="") as text:
        head, *lines = list(csv.reader(text))
    truth = np.array([line[1] == "1" for line in lines], dtype=bool)
    scores_by_attack = {}
    for i, name in enumerate(head[4:], 4):
        scores = np.array([float(line[i]) for line in lines])
        scores_by_attack[name] = ScoredAttack(name, "", "", "", scores[truth], scores[~truth])
    return tuple(f"{line[0]} {line[1]}" for line in lines), scores_by_attack


def difference(
    first: ScoredAttack, last: ScoredAttack, family: int
) -> tuple[float, Interval, Interval]:
    """AUC(first) - AUC(last), its interval by itself, and with `family` of them together.

    Args:
        first: scores (members, non-members).
        last: scores of the same images.
        family: number of simultaneous intervals.

    Returns:
        The difference in [-1, 1], its 95 % interval and its simultaneous one.
    """
    apart = auc_estimate(*first.sides).value - auc_estimate(*last.sides).value
    each, together = (
        difference_interval(first.sides, last.sides, LEVEL, count) for count in (1, family)
    )
    return apart, each, together
