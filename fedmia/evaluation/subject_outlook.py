"""`--plan` with `--groups`: how many subjects a leak needs, and what one of them can be told."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy

from fedmia.data.cast import Cast
from fedmia.data.images import IntArray
from fedmia.evaluation.suite import Suite
from fedmia.records import Evaluation, ScoredAttack
from fedmia.records.attack_rows import with_auc
from fedmia.report.build import build_report
from fedmia.report.reach import WEAK, leak_tests
from fedmia.seeding import rng
from fedmia.statistics.intervals import FloatArray
from fedmia.statistics.one_subject import chance_of_naming, others_needed, smallest_nameable_auc
from fedmia.statistics.power import images_needed, smallest_detectable_auc
from fedmia.statistics.subjects import Subjects, design_effect, intraclass_correlation

SUBJECTS, EACH = 12, 10  # fewest subjects of a side in a pilot, and most images of one of them
IMAGES = (1, 4, 20)  # images of one subject for which an outlook is given
Sides = tuple[FloatArray, FloatArray]


def pick_subjects(subjects: IntArray, least: int) -> IntArray:
    """Positions of the images of a pilot: whole subjects, of large ones EACH images.

    Args:
        subjects: of the images of a role, (N,).
        least: fewest images.

    Returns:
        Positions, of SUBJECTS subjects or more; all where there are fewer.
    """
    draw, chosen = rng(0, "pilot subjects"), list[IntArray]()
    for at, one in enumerate(draw.permutation(np.unique(subjects))):
        if at >= SUBJECTS and sum(map(len, chosen)) >= least:
            break
        chosen.append(draw.permutation(np.flatnonzero(subjects == one))[:EACH])
    return np.sort(np.concatenate(chosen))


def score_sets(suite: Suite, names: Sequence[str]) -> tuple[dict[str, Sides], float]:
    """The scores of single images by which attacks on data sets compare sets.

    Args:
        suite: the attacks, on the images of a pilot.
        names: of attacks on data sets.

    Returns:
        Scores (n,) and (m,) by attack, and the seconds that they took.
    """
    began, scores = time.perf_counter(), dict[str, Sides]()
    for name in names:
        attack, view, scorer = suite.build(name), suite.view(suite.main, name), suite.scorer
        attack.fit(view, scorer.known, rng(scorer.seed, "fit", name))
        scores[name] = scorer.split_sides(attack.score(view, scorer.candidates))
    return scores, time.perf_counter() - began


def foresee(
    pilot: Evaluation, cast: Cast, sets: Mapping[str, Sides], leak: float | None
) -> dict[str, Any]:
    """What the subjects of an audit could show.

    Args:
        pilot: its scores.
        cast: all images in their roles.
        sets: as of `score_sets`, of the pilot.
        leak: AUC of a leak for which subjects are counted; None: none.

    Returns:
        Rows of the outlook: `subjects`, `one_subject` where an attack on data sets runs, and in
        place of those of single images `smallest_auc`, `images_needed`, `images_available`.
    """
    report, subjects = build_report(pilot), cast.subject_sides("scored")
    assert subjects is not None and pilot.subjects is not None
    sizes = [np.unique(one, return_counts=True)[1] for one in subjects]
    counts = [len(one) for one in sizes]
    scored = with_auc(report.attacks)
    row: dict[str, Any] = {"subjects": {
        "scored_members": counts[0],
        "scored_nonmembers": counts[1],
        "images_each": [float(len(of) / n) for of, n in zip(subjects, counts, strict=True)],
    }}  # fmt: skip
    tests = leak_tests(report, scored)
    if scored and counts[0] > 1:
        row["subjects"]["pilot"] = [len(np.unique(one)) for one in pilot.subjects]
        row |= _of_many(row["subjects"], sizes, _alike(pilot.attacks, pilot.subjects), tests, leak)
    else:  # no interval over one subject lies over 0.5
        row |= {"smallest_auc": None, "images_needed": None}
    alike = [intraclass_correlation(list(zip(s, pilot.subjects, strict=True)))
             for s in sets.values()]  # fmt: skip
    if sets:
        row["one_subject"] = _of_one(cast, subjects[0], counts, tests["family"], alike, leak)
    return row


def _alike(attacks: Sequence[ScoredAttack], subjects: Subjects) -> float | None:
    """How alike the scores of a subject's images are, by the attack where they are most."""
    known = list[float]()
    for one in attacks:
        if not all(map(len, one.sides)):
            continue
        ranks = scipy.stats.rankdata(np.concatenate(one.sides))
        halves = np.split(ranks, [len(one.sides[0])])
        alike = intraclass_correlation(list(zip(halves, subjects, strict=True)))
        known += [] if alike is None else [alike]
    return max(known, default=None)


def _of_many(
    row: dict[str, Any], sizes: Sequence[IntArray], alike: float | None,
    tests: Mapping[str, Any], leak: float | None,
) -> dict[str, Any]:  # fmt: skip
    """The leak of single images that so many subjects would show, and how many it takes."""
    # Where nothing tells how alike the images of a subject are, they are taken for one image.
    effects = [design_effect(one, 1.0 if alike is None else alike) for one in sizes]
    images, counts = [int(one.sum()) for one in sizes], [len(one) for one in sizes]
    each = [n / effect for n, effect in zip(images, effects, strict=True)]
    row |= {"correlation": alike, "design_effects": effects}
    worth = sum(each) / sum(counts)
    needed = leak and images_needed(leak, **tests, worth=worth)
    available = min(counts)
    row |= {"needed": needed, "available": available}
    n, m = (max(round(one), 1) for one in each)
    return {
        "smallest_auc": smallest_detectable_auc(n, m, **tests, subjects=(counts[0], counts[1])),
        "images_needed": needed and math.ceil(needed * sum(images) / sum(counts)),
        "images_available": min(images),
    }


def _of_one(
    cast: Cast, members: IntArray, counts: Sequence[int], family: int,
    alike: Sequence[float | None], leak: float | None,
) -> dict[str, Any]:  # fmt: skip
    """What the test of exchange can say of one subject: in this audit where its p-value can be
    small enough, else in an audit of that subject by one attack alone."""
    tests, others = family * counts[0], counts[1]
    enough = others >= others_needed(tests)
    corrected, beside = (tests, others) if enough else (1, max(others, others_needed(1)))
    known = [one for one in alike if one is not None]
    correlation = max(known, default=1.0)  # else two images say no more than one
    names = {cast.subject_names[i] for i in np.unique(members)}
    numbers = sorted({*IMAGES, *([len(members)] * (len(names) == 1))})
    auc = WEAK if leak is None else leak

    def outlook(images: int) -> dict[str, Any]:
        of = images, correlation, beside, corrected
        return {"smallest_auc": smallest_nameable_auc(*of), "chance": chance_of_naming(auc, *of)}

    return {
        "name": names.pop() if len(names) == 1 else None,
        "tests": tests,
        "attacks": family,
        "others": others,
        "smallest_p": 1 / (others + 1),
        "others_needed": others_needed(tests),
        "others_needed_alone": others_needed(1),
        "correlation": max(known, default=None),
        "beside": beside,
        "beside_tests": corrected,
        "leak": auc,
        "images": {images: outlook(images) for images in numbers},
        "chance_unused": chance_of_naming(0.5, 1, correlation, beside, corrected),
    }
