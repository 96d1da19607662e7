"""How often the bound on false discoveries of the list of exposed members is wrong, anywhere in it.

python research/measurements/exposed.py [--draws 5000] [--seed 0]
    [--out research/results/exposed.json]

Each draw is an audit: scores of members and of non-members. Of the members a share is told apart,
their scores are shifted; all others are exchangeable with non-members, and false where they are
listed. An audit errs where any list from the top has more false members than its bound. Of subjects
with images alike (patients), `by_image` is what the bound does where it counts images.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from _results import write_results
from numpy.typing import NDArray

from fedmia.runtime.environment import describe
from fedmia.seeding import rng
from fedmia.statistics import exposed
from fedmia.statistics.intervals import FloatArray, IntArray, clopper_pearson
from fedmia.statistics.subjects import subject_means

RESULTS = Path(__file__).parents[1] / "results" / "exposed.json"
SIZES = ((30, 20), (100, 50), (180, 700), (300, 300), (1000, 200))
SUBJECTS = ((20, 20), (40, 100), (100, 60))
LEAKS = ((0.0, 0.0), (0.2, 4.0), (0.5, 1.0), (0.9, 4.0))  # share of the members, and their shift
WITHIN = 0.6  # correlation of the scores of a subject's images
SHAPES = ("normal", "rounded", "heavy")


def draw_scores(shape: str, count: int, stream: np.random.Generator) -> FloatArray:
    """Scores of images that nothing tells apart, `(count,)`; rounded ones have many ties."""
    if shape == "heavy":
        return stream.standard_t(2, count)
    scores = stream.normal(size=count)
    return np.rint(2 * scores) / 2 if shape == "rounded" else scores


def draw_subjects(count: int, stream: np.random.Generator) -> tuple[FloatArray, IntArray]:
    """Scores of the images of subjects that nothing tells apart, and whose each is; sizes are
    unequal, and subjects with many images score higher."""
    sizes = np.rint(stream.lognormal(1.2, 1, count)).astype(int) + 1
    own = stream.normal(0.3 * np.log(sizes), np.sqrt(WITHIN))
    of = np.repeat(np.arange(count), sizes)
    return own[of] + stream.normal(0, np.sqrt(1 - WITHIN), len(of)), of


def errs(members: FloatArray, others: FloatArray, false: NDArray[np.bool_]) -> tuple[bool, int]:
    """Whether any list has more false members than its bound, and how many are told for certain.

    Args:
        members: their scores, `(n,)`.
        others: of the non-members, `(m,)`.
        false: which members are exchangeable with these, `(n,)`.

    Returns:
        whether it errs, and the most members that a list tells apart for certain.
    """
    bound = exposed.most_false(members, others)
    among = np.cumsum(false[np.argsort(-members, kind="stable")])
    sure = np.arange(1, len(bound) + 1) - bound
    return bool((among > bound).any()), int(sure.max())


def summary(rows: Sequence[tuple[bool, int]]) -> dict[str, float]:
    """Share of the audits that err, its limits, and the mean number told apart for certain."""
    if not rows:
        return {}
    wrong = sum(row[0] for row in rows)
    low, high = clopper_pearson(wrong, len(rows))
    told = float(np.mean([row[1] for row in rows]))
    shares = {"errs": wrong / len(rows), "low": low, "high": high}
    return {name: round(share, 4) for name, share in shares.items()} | {"sure": round(told, 1)}


def of_images(draws: int, seed: int) -> Iterator[dict[str, Any]]:
    """A row for each size, leak and shape of the scores, images drawn one by one."""
    for (n, m), (share, shift), shape in product(SIZES, LEAKS, SHAPES):
        stream, rows = rng(seed, "exposed", f"{n} {m} {share} {shape}"), []
        leaking = round(share * n)
        for _ in range(draws):
            members, others = (draw_scores(shape, size, stream) for size in (n, m))
            members[:leaking] += shift
            rows.append(errs(members, others, np.arange(n) >= leaking))
        place = {"members": n, "nonmembers": m, "shape": shape, "told": leaking, "shift": shift}
        yield place | summary(rows)


def of_subjects(draws: int, seed: int) -> Iterator[dict[str, Any]]:
    """A row for each number of subjects and leak; images of a subject are alike."""
    for (n, m), (share, shift) in product(SUBJECTS, LEAKS):
        stream, rows, by_image = rng(seed, "exposed subjects", f"{n} {m} {share}"), [], []
        leaking = round(share * n)
        for draw in range(draws):
            (a, mine), (b, theirs) = (draw_subjects(count, stream) for count in (n, m))
            a += shift * (mine < leaking)
            means = [subject_means(s, np.full(len(s), 1 / len(s)), of)[0]
                     for s, of in ((a, mine), (b, theirs))]  # fmt: skip
            rows.append(errs(means[0], means[1], np.arange(n) >= leaking))
            if not leaking and draw < draws // 10:  # each has sizes and so bounds of its own
                by_image.append(errs(a, b, mine >= leaking))
        place = {"members": n, "nonmembers": m, "told": leaking, "shift": shift}
        counted = {f"by_image_{name}": share for name, share in summary(by_image).items()}
        yield place | summary(rows) | counted


def simulate(draws: int, seed: int) -> dict[str, Any]:
    """All rows, of images and of subjects.

    Args:
        draws: audits of each row.
        seed: root seed.

    Returns:
        Part -> its rows.
    """
    with_cache = functools.lru_cache(maxsize=256)(exposed.envelope)
    plain, exposed.envelope = exposed.envelope, with_cache
    try:
        return {"images": [*of_images(draws, seed)], "subjects": [*of_subjects(draws, seed)]}
    finally:
        exposed.envelope = plain


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--draws", type=int, default=5000, help="audits of each row")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=RESULTS, help="JSON file to write")
    args = parser.parse_args(arguments)
    parts = simulate(args.draws, args.seed)
    for part, rows in parts.items():
        worst = max(rows, key=lambda row: row["errs"])
        print(f"{part}: {len(rows)} rows, at most {worst['errs']:.4f} err "
              f"[{worst['low']:.4f}, {worst['high']:.4f}]")  # fmt: skip
    results = {"draws": args.draws, "seed": args.seed, "level": 0.95} | parts | describe()
    write_results(args.out, results)


if __name__ == "__main__":
    main()
