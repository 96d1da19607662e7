"""False alarms of dataset inference: sets on which no encoder was trained, dealt to posers as
images are to clients, and how many a test calls trained on.

What is compared is how alike an image's views are under an untrained encoder: a quantity that
differs from class to class. Tests beside the attack's own, on the same posers:

- `welch`: a t-test of the set against all others, as in Dziedzic et al. (2209.09024);
- `welch-matched`: the same against others drawn with the set's class counts;
- `resampled`: DOV4CL's (2502.07276): 50 differences of means of 32 drawn images of each side, a
  t-test of those under the suspect against those under a second encoder that never saw them either.

`power` repeats a test with half a standard deviation added to the values of the first 300
posers.

`control` is of sets of subjects: values are Gaussian, of a given correlation within a subject, and
every member subject is a set in question beside the same non-member subjects. How often do two
rules void the result at a chance of VOID? `count`: too many p-values under 5 %, taken for
independent; `together`: all member subjects as one set, whose subjects change sides whole. Nothing
leaks in `null`; in `power` members are SHIFTED standard deviations of a subject's mean higher, at
so many non-members that `count` keeps its level.

    python benchmarks/dataset_inference.py [--posers 3000] [--nulls 1000] [--seed 0]
        [--out benchmarks/results/dataset_inference.json]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import ttest_ind

from fedmia.attacks._cosine import pairwise_cosines
from fedmia.attacks._exchange import exchange_subjects, exchange_test
from fedmia.data.base import Request
from fedmia.data.images import ImageSet, IntArray
from fedmia.runtime.environment import describe
from fedmia.seeding import rng, torch_rng
from fedmia.settings import registry
from fedmia.ssl.base import TrainingData
from fedmia.statistics.pvalues import VOID, exceeds_false_alarms
from fedmia.threat import BlackBox

RESULTS = Path(__file__).parent / "results" / "dataset_inference.json"
IMAGES, POSING, CLIENTS, VIEWS = 1080, 104, 9, 24  # as in the default run
PARTITIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "iid": ("iid", {}),
    "dirichlet-0.5": ("dirichlet", {"alpha": 0.5}),
    "dirichlet-0.1": ("dirichlet", {"alpha": 0.1}),
    "shards-2": ("shards", {"classes": 2}),
}
DRAWS, DRAWN, SHIFT, RAISED = 50, 32, 0.5, 300
CORRELATIONS, SIZES, SHIFTED = (0.0, 0.5, 0.9), (1, 5, 20), 0.8
CASES = (20, 20, 0.0), (100, 20, 0.0), (20, 400, 0.0), (20, 400, SHIFTED)
CASE = ("size", "correlation", "members", "others", "shift")

Values = np.ndarray[Any, np.dtype[np.float64]]
# (suspect's values, second encoder's, classes, set, others, stream) -> p-value
Test = Callable[[Values, Values, IntArray, IntArray, IntArray, np.random.Generator], float]


def values(data: ImageSet, seed: int) -> Values:
    """(N,) mean cosine of each image's views under an encoder that no image has trained."""
    spec = registry.build("ssl", "mocov2", {})
    net = registry.build("model", "smallnet", {}).build(data.channels, data.size)
    training_data = TrainingData((0.5,) * data.channels, (0.5,) * data.channels, 100)
    method = spec.build(net, training_data, torch_rng(seed, "encoder"))
    view = BlackBox(method, spec.augment, seed=seed, device=torch.device("cpu"))
    return pairwise_cosines(view.embed_views(torch.from_numpy(data.images), VIEWS)).mean(axis=1)


def exchange(v: Values, w: Values, c: IntArray, a: IntArray, b: IntArray, g: Any) -> float:
    """The attack's own."""
    return exchange_test(v[a], c[a], v[b], c[b], g).p_value or 1.0


def welch(v: Values, w: Values, c: IntArray, a: IntArray, b: IntArray, g: Any) -> float:
    """Of means, one-sided."""
    p_value = ttest_ind(v[a], v[b], equal_var=False, alternative="greater").pvalue
    return float(np.nan_to_num(p_value, nan=1.0))


def matched(v: Values, w: Values, c: IntArray, a: IntArray, b: IntArray, g: Any) -> float:
    """`welch` against as many others of each class."""
    counts = zip(*np.unique(c[a], return_counts=True), strict=True)
    picked = [g.permutation(b[c[b] == kind])[:n] for kind, n in counts]
    return welch(v, w, c, a, np.concatenate(picked), g)


def resampled(v: Values, w: Values, c: IntArray, a: IntArray, b: IntArray, g: Any) -> float:
    """DOV4CL's t-test, which takes draws from the same images for independent."""
    k = min(DRAWN, len(a))
    sides = [(g.permutation(a)[:k], g.permutation(b)[:k]) for _ in range(DRAWS)]
    ours, shadow = ([u[x].mean() - u[y].mean() for x, y in sides] for u in (v, w))
    p_value = ttest_ind(ours, shadow, equal_var=False, alternative="greater").pvalue
    return float(np.nan_to_num(p_value, nan=1.0))


TESTS: dict[str, Test] = {
    "exchange": exchange,
    "welch": welch,
    "welch-matched": matched,
    "resampled": resampled,
}


def posers(classes: IntArray, partition: Any, draw: np.random.Generator) -> Iterator[IntArray]:
    """Sets without end: POSING images at a time, dealt to CLIENTS."""
    while True:
        chosen = draw.permutation(len(classes))[:POSING]
        yield from (chosen[part] for part in partition(classes[chosen], CLIENTS, draw))


def measure(data: ImageSet, name: str, count: int, seed: int) -> dict[str, Any]:
    """Share of `count` posers' sets with a p-value at most 1 and 5 %, by test; and power at 5 %."""
    partition = registry.build("partition", *PARTITIONS[name])
    suspect, second = values(data, seed), values(data, seed + 1)
    every, draw = np.arange(len(data)), rng(seed, "posers", name)
    sets = [one for one, _ in zip(posers(data.labels, partition, draw), range(count), strict=False)]
    results: dict[str, Any] = {"images_a_set": float(np.median([len(s) for s in sets]))}
    for test, call in TESTS.items():

        def share_of_alarms(v: Values, some: list[IntArray], call: Test = call) -> Values:
            rests = (np.setdiff1d(every, one) for one in some)
            pairs = zip(some, rests, strict=True)
            return np.array([call(v, second, data.labels, *pair, draw) for pair in pairs])

        null = share_of_alarms(suspect, sets)
        power = [
            share_of_alarms(suspect + SHIFT * suspect.std() * np.isin(every, one), [one])
            for one in sets[:RAISED]
        ]
        results[test] = {
            "alarms_0.01": float((null <= 0.01).mean()),
            "alarms_0.05": float((null <= 0.05).mean()),
            "power_0.05": float((np.array(power) <= 0.05).mean()),
        }
    return results


def control(count: int, seed: int) -> list[dict[str, Any]]:
    """Share of `count` sets of subjects that each rule voids, by size, correlation and others."""
    rows = []
    for size in SIZES:
        for within in CORRELATIONS:
            for members, others, shift in CASES:
                draw = rng(seed, "control", size, str(within), members, others, str(shift))
                case = size, within, members, others, shift
                voids = np.array([_void(draw, *case) for _ in range(count)])
                by_rule = dict(zip(("count", "together"), voids.mean(axis=0).tolist(), strict=True))
                rows.append(dict(zip(CASE, case, strict=True)) | by_rule)
                print(json.dumps(rows[-1]), flush=True)
    return rows


def _void(
    draw: Any, size: int, within: float, members: int, others: int, shift: float
) -> tuple[bool, bool]:
    """What either rule says of so many subjects of members and of others."""
    of = np.repeat(np.arange(members + others), size)
    v = within**0.5 * draw.normal(size=members + others)[of]
    v += (1 - within) ** 0.5 * draw.normal(size=len(of))
    mine, rest = of < members, of >= members
    v[mine] += shift * (within + (1 - within) / size) ** 0.5
    each = (exchange_subjects(v[of == k], of[of == k], v[rest], of[rest], draw, 0)
            for k in range(members))  # fmt: skip
    count = exceeds_false_alarms([one.p_value or 1.0 for one in each])
    together = exchange_subjects(v[mine], of[mine], v[rest], of[rest], draw)
    return count, (together.p_value or 1.0) <= VOID


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--posers", type=int, default=3000)
    parser.add_argument("--nulls", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    whole = registry.build("dataset", "digits", {}).load(Request(None, None, None, arguments.seed))
    data = whole.take(rng(arguments.seed, "images").permutation(len(whole))[:IMAGES])
    cells = {}
    for name in PARTITIONS:
        cells[name] = measure(data, name, arguments.posers, arguments.seed)
        print(name, json.dumps(cells[name]))
    about = describe()
    error = {
        level: (float(level) * (1 - float(level)) / arguments.posers) ** 0.5
        for level in ("0.01", "0.05")
    }
    head = {"posers": arguments.posers, "seed": arguments.seed, "monte_carlo_se": error}
    subjects = {"nulls": arguments.nulls, "rows": control(arguments.nulls, arguments.seed)}
    text = json.dumps(
        head | {"cells": cells, "subjects": subjects, "versions": about["versions"]}, indent=2
    )
    arguments.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
