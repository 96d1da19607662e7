"""What an audit by canaries sees: planted violations by claim, and false alarms.

    python research/measurements/lower_bounds.py [--seeds 20] [--honest 100]
        [--out ...lower_bounds.json]

Each row is one mechanism at one claimed epsilon with one violation, audited on the code path of the
defence and by the bound of its report: `alarms` of `seeds` audits had a lower bound over the claim
(95 %, by itself), with Clopper and Pearson's interval; `bound` is their mean, `most` what the audit
would show if every guess were right, `true` the epsilon that is really spent where an accountant
tells it. The model is a vector of weights: what matters is the sampling, the clipping and the
noise. Designs of DP-SGD: `sampled`, of 50 images in batches of 16, 100 steps; `full`, where every
record is in every one of 20 steps, as where a client holds fewer images than a batch.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from fedmia.defenses import canaries
from fedmia.defenses._noise import ReleaseNoise
from fedmia.defenses._persample import private_optimizer
from fedmia.defenses.accounting import epsilon_spent, noise_for
from fedmia.defenses.canaries import (
    AuditedSteps,
    add_scores,
    draw_coins,
    guess_canaries,
)
from fedmia.defenses.gaussian import Gaussian
from fedmia.defenses.laplace import Laplace
from fedmia.defenses.logistic import Logistic
from fedmia.records.privacy import CanaryBoundRow
from fedmia.report.lowerbounds import epsilon_lower_bound
from fedmia.runtime.environment import describe
from fedmia.seeding import rng
from fedmia.ssl.augment import Augment
from fedmia.ssl.base import SSLMethod
from fedmia.ssl.train import Job, Train
from fedmia.statistics.intervals import clopper_pearson

RESULTS = Path(__file__).parents[1] / "results" / "lower_bounds.json"
DELTA, ERROR, CLIP = 1e-5, 0.05, 1.0
DESIGNS = {"sampled": (16 / 50, 100), "full": (1.0, 20)}  # sampling rate, steps
RELEASES: dict[str, type[ReleaseNoise]] = {
    "gaussian": Gaussian, "laplace": Laplace, "logistic": Logistic,
}  # fmt: skip
CLAIMS = (1.0, 4.0, 8.0)
CANARIES = (1000, 10000)
NOISE = {"none": 1, "noise 1/2": 2, "noise 1/4": 4, "noise 1/8": 8}  # what the noise is divided by
PARTS = 10  # rounds of which one alone is accounted for


class Vector(nn.Module):
    """A model of `weights` weights and nothing else."""

    step_losses = SSLMethod.step_losses  # as DP-SGD asks

    def __init__(self, weights: int) -> None:
        super().__init__()
        self.weights = nn.Linear(weights, 1, bias=False)

    def trainable(self) -> list[nn.Parameter]:
        return [self.weights.weight]


@dataclass(frozen=True)
class Case:
    """One row of the results."""

    mechanism: str  # a key of DESIGNS or RELEASES
    claim: float
    violation: str
    canaries: int
    seeds: int


def fixed_batches() -> Callable[..., list[NDArray[np.int64]]]:
    """In place of Poisson sampling: every record once an epoch, in a batch of a shuffled order."""
    waiting: list[NDArray[np.int64]] = []

    def rows(
        stream: np.random.Generator, records: int, rate: float, steps: int
    ) -> list[NDArray[np.int64]]:
        while len(waiting) < steps:
            waiting.extend(np.array_split(stream.permutation(records), round(1 / rate)))
        return [waiting.pop(0) for _ in range(steps)]

    return rows


def unclipped(job: Job, noise: float, clip: float, expected: float, generator: Any) -> Any:
    """In place of clipping to `clip`: none, under the same noise."""
    far = 1e6
    return private_optimizer(job, noise * clip / far, far * clip, expected, generator)


def planted_noise(case: Case) -> float:
    """Noise multiplier of DP-SGD as planted; 0 for a release, which finds its own."""
    if case.mechanism in RELEASES:
        return 0.0
    rate, count = DESIGNS[case.mechanism]
    claimed = count // PARTS if case.violation == "one round's epsilon" else count
    return noise_for(case.claim, DELTA, rate, claimed, "rdp") / NOISE.get(case.violation, 1)


def dpsgd(case: Case, noise: float, seed: int) -> CanaryBoundRow | None:
    """Guesses of one audit of DP-SGD."""
    rate, count = DESIGNS[case.mechanism]
    method = cast(SSLMethod, Vector(2 * canaries.TOGETHER))
    job = Job(
        method, torch.optim.SGD(method.trainable(), lr=0.0), np.zeros((1, 3, 8, 8), np.uint8),
        Augment(), Train(), rng(seed, "job"), 0, count, torch.device("cpu"),
    )  # fmt: skip
    stream, memory = rng(seed, "canaries"), dict[str, Any]()
    inside = draw_coins(memory, case.canaries, stream)
    with ExitStack() as planted:
        if case.violation == "no clipping":
            planted.enter_context(patch.object(canaries, "private_optimizer", unclipped))
        if case.violation == "fixed batches":
            planted.enter_context(patch.object(canaries, "poisson_rows", fixed_batches()))
        steps = AuditedSteps(noise, CLIP, rate, rate * 50, count)
        add_scores(memory, steps.score(job, inside, stream))
    return guess_canaries(memory, "one-run-gdp" if rate >= 1 else "one-run")


def release(case: Case, _: float, seed: int) -> CanaryBoundRow | None:
    """Guesses of one audit of a mechanism on whole updates, of one round."""
    defense = RELEASES[case.mechanism](epsilon=case.claim, clip=CLIP, canaries=case.canaries)
    states = [{"weight": torch.zeros(1)} for _ in range(2)]
    memory: dict[str, Any] = {"planned": 1}
    replace(defense, canaries=0).release(*states, memory, rng(seed, "scale"))
    memory["scale"] /= NOISE[case.violation]
    defense.release(*states, memory, rng(seed, "release"))
    return guess_canaries(memory, defense.audit)


def row(case: Case) -> dict[str, Any]:
    """One case over its seeds."""
    one = dpsgd if case.mechanism in DESIGNS else release
    delta = DELTA if case.mechanism in (*DESIGNS, "gaussian") else 0.0
    noise = planted_noise(case)
    audits = [cast(CanaryBoundRow, one(case, noise, seed)) for seed in range(case.seeds)]
    bounds = [epsilon_lower_bound(one, delta, one.correct, ERROR) for one in audits]
    alarms = sum(bound > case.claim for bound in bounds)
    low, high = clopper_pearson(alarms, case.seeds)
    return {
        "mechanism": case.mechanism, "claim": case.claim, "violation": case.violation,
        "canaries": case.canaries, "seeds": case.seeds, "alarms": alarms,
        "alarms_ci": [round(low, 3), round(high, 3)], "bound": round(float(np.mean(bounds)), 3),
        "most": round(epsilon_lower_bound(audits[0], delta, audits[0].guesses, ERROR), 3),
        "audit": audits[0].audit,
        "true": spent(case, noise),
    }  # fmt: skip


def spent(case: Case, noise: float) -> float | None:
    """Epsilon that the mechanism as planted spends; None where no accountant covers it."""
    if case.mechanism in RELEASES:
        if case.mechanism != "gaussian":
            return case.claim * NOISE[case.violation]
        defense = Gaussian(epsilon=case.claim)
        scale = defense.scale_for(case.claim, 2 * CLIP, 1) / NOISE[case.violation]
        return round(defense.spent(2 * CLIP, scale, 1), 3)
    if case.violation in ("no clipping", "fixed batches"):
        return None
    rate, count = DESIGNS[case.mechanism]
    return round(epsilon_spent([(noise, rate, count)], DELTA, "rdp"), 3)


def cases(seeds: int, honest: int) -> Iterator[Case]:
    """Every row; what is not sampled knows no fixed batches, and a release only its noise."""
    steps = ("no clipping", "fixed batches", "one round's epsilon")
    for mechanism in (*DESIGNS, *RELEASES):
        more = steps if mechanism in DESIGNS else ()
        for number in CANARIES:
            if number > CANARIES[0] and mechanism != "full":
                continue
            for claim in CLAIMS:
                for violation in (*NOISE, *more):
                    if violation == "fixed batches" and mechanism == "full":
                        continue
                    count = honest if violation == "none" else seeds
                    # Its audit is exact, so that its false alarms are near the 5 % it may have.
                    count *= 10 if (mechanism, violation) == ("gaussian", "none") else 1
                    less = 4 if number > CANARIES[0] else 1
                    yield Case(mechanism, claim, violation, number, max(1, count // less))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=20, help="of each violation")
    parser.add_argument("--honest", type=int, default=100, help="seeds of each honest mechanism")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--out", type=Path, default=RESULTS, help="JSON file to write")
    args = parser.parse_args(arguments)
    with ProcessPoolExecutor(args.processes) as pool:
        rows = []
        for one in pool.map(row, cases(args.seeds, args.honest)):
            rows.append(one)
            write(args.out, rows)


def write(out: Path, rows: Sequence[dict[str, Any]]) -> None:
    """All rows so far, one a line."""
    about = {"delta": DELTA, "confidence": 1 - ERROR, "guessed": canaries.GUESSED, **describe()}
    head = ",\n".join(f" {json.dumps(k)}: {json.dumps(v)}" for k, v in about.items())
    body = ",\n".join(f"  {json.dumps(r)}" for r in rows)
    out.write_text(f'{{\n{head},\n "rows": [\n{body}\n ]\n}}\n')


if __name__ == "__main__":
    main()
