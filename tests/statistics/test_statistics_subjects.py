"""Images of one subject resemble each other: intervals count subjects."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

from fedmia.seeding import rng
from fedmia.statistics.auc import auc_correlation, auc_estimate, auc_interval, difference_interval
from fedmia.statistics.intervals import ONE_SIDED
from fedmia.statistics.power import smallest_detectable_auc
from fedmia.statistics.subjects import effective_trials
from fedmia.statistics.thresholds import decide_at_threshold, tpr_at_fpr

COMMITTED = Path(__file__).parents[2] / "research" / "results" / "coverage.json"


def grouped(seed: int, count: int = 12) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Scores and subjects of both sides: of each subject one to nine images that resemble."""
    stream, scores, subjects = rng(seed, "subjects"), [], []
    for shift in (1.0, 0.0):
        of = np.repeat(np.arange(count) * 7, stream.integers(1, 10, count))
        scores.append(shift + stream.normal(size=7 * count)[of] + stream.normal(size=len(of)))
        subjects.append(of)
    return scores, subjects


def test_auc_estimate__is_obuchowskis_sums_over_subjects() -> None:
    (a, b), subjects = grouped(0)
    estimate = auc_estimate(a, b, subjects=tuple(subjects))
    wins = [[float(x > y) for y in b] for x in a]
    value, variance = float(np.mean(wins)), 0.0
    for parts, of in ((np.mean(wins, axis=1), subjects[0]), (np.mean(wins, axis=0), subjects[1])):
        sums, squares = 0.0, 0.0
        for one in set(of.tolist()):
            mine = [part - value for part, whose in zip(parts, of, strict=True) if whose == one]
            sums += sum(mine) ** 2
            squares += len(mine) ** 2
        variance += sums / len(of) ** 2 / (1 - squares / len(of) ** 2)
    assert (estimate.value, estimate.variance) == pytest.approx((value, variance))
    assert estimate.variance > 2 * auc_estimate(a, b).variance
    assert estimate.smaller < 12


def test_auc_estimate__subjects_of_one_image_are_images() -> None:
    (a, b), _ = grouped(1)
    alone = np.arange(len(a)), np.arange(len(b))[::-1]
    ours, images = auc_estimate(a, b, subjects=alone), auc_estimate(a, b)
    assert vars(ours) == pytest.approx(vars(images))
    other = a + rng(1, "noise").normal(size=len(a)), b + rng(2, "noise").normal(size=len(b))
    pair = difference_interval((a, b), other), difference_interval((a, b), other, subjects=alone)
    assert pair[1] == pytest.approx(pair[0])


def test_auc_correlation__of_subjects_is_one_with_itself() -> None:
    (a, b), subjects = grouped(2)
    assert auc_correlation((a, b), (a, b), tuple(subjects)) == pytest.approx(1)
    assert auc_correlation((a, b), (-a, -b), tuple(subjects)) == pytest.approx(-1)


def test_effective_trials__lie_between_subjects_and_images() -> None:
    of = np.repeat(np.arange(20), 10)
    one_fate = of < 5
    assert effective_trials(one_fate, of, 0.025) == pytest.approx(20 * 0.877, abs=0.2)  # 1.96 / t
    assert effective_trials(np.zeros(200, bool), of, 0.025) == pytest.approx(20)
    independent = np.arange(200) % 10 < 3  # three of ten of each subject
    assert effective_trials(independent, of, 0.025) == pytest.approx(20)  # no variance to go by
    mixed = rng(0, "mixed").random(200) < 0.3
    assert 100 < effective_trials(mixed, of, 0.025) <= 200


def test_rates__are_those_of_the_images_and_surer_of_nothing() -> None:
    (a, b), subjects = grouped(3, 40)
    by_image, by_subject = (tpr_at_fpr(a, b, 0.1, s) for s in (None, tuple(subjects)))
    assert by_image is not None and by_subject is not None
    assert by_subject[0] == by_image[0] and by_subject[2] == by_image[2]
    assert by_subject[1][0] <= by_image[1][0] and by_subject[1][1] >= by_image[1][1]
    images, ours = (decide_at_threshold(a, b, 0.5, s) for s in (None, tuple(subjects)))
    for name in ("accuracy", "precision", "recall"):
        assert ours[name] == pytest.approx(images[name])  # type: ignore[literal-required]
        low, high = ours[f"{name}_ci"]  # type: ignore[literal-required]
        assert low < images[f"{name}_ci"][0] < images[f"{name}_ci"][1] < high  # type: ignore[literal-required]


def test_coverage__by_subject_where_intervals_by_image_fail() -> None:
    simulation = json.loads(COMMITTED.read_text(encoding="utf-8"))
    error = 2 * (0.93 * 0.07 / simulation["draws"]) ** 0.5
    rows = [*simulation["subjects"], *simulation["subjects_tpr"]]
    assert [row for row in rows if row["coverage"] < 0.93 - error] == []
    assert {row["subjects"] for row in simulation["subjects"]} == {10, 20, 50, 200}
    correlated = [row for row in simulation["subjects"] if row["correlation"] == 0.5]
    assert max(row["coverage_by_image"] for row in correlated) < 0.8


@pytest.mark.parametrize("within", [0.1, 0.5])
def test_interval__covers_few_unequal_subjects(within: float) -> None:
    stream, covered = rng(0, "cover", int(10 * within)), 0
    for _ in range(300):
        sides, subjects = [], []
        for _ in range(2):
            of = np.repeat(np.arange(12), stream.geometric(1 / 6, 12))
            common = stream.normal(size=12)[of] * within**0.5
            sides.append(common + stream.normal(size=len(of)) * (1 - within) ** 0.5)
            subjects.append(of)
        low, high = auc_interval(auc_estimate(*sides, subjects=tuple(subjects)))
        covered += low <= 0.5 <= high
    assert covered >= 0.93 * 300


def resembling(stream: np.random.Generator, count: int, each: int, share: float) -> np.ndarray:
    """Scores (count, each) of subjects within which the correlation is `share`."""
    own = stream.normal(size=(count, 1)) * np.sqrt(share)
    return own + stream.normal(size=(count, each)) * np.sqrt(1 - share)


@pytest.mark.parametrize(("count", "share"), [(20, 0.1), (20, 0.5), (50, 0.5)])
def test_smallest_detectable_auc__by_design_effect_and_subjects(count: int, share: float) -> None:
    stream, of = rng(count, "power"), np.repeat(np.arange(count), 10)
    sides = [[resembling(stream, count, 10, share).ravel() for _ in "ab"] for _ in range(400)]
    effects = [
        auc_estimate(a, b, subjects=(of, of)).variance / auc_estimate(a, b).variance
        for a, b in sides[:80]
    ]
    worth = round(10 * count / float(np.median(effects)))
    least = smallest_detectable_auc(worth, worth, 16, level=ONE_SIDED, subjects=(count, count))
    assert least is not None
    apart = float(norm.ppf(least) * np.sqrt(2))
    estimates = (auc_estimate(a + apart, b, subjects=(of, of)) for a, b in sides)
    over = np.mean([auc_interval(one, ONE_SIDED, 16)[0] > 0.5 for one in estimates])
    assert 0.7 < over < 0.88  # 0.8, and what 400 draws and few subjects leave open
