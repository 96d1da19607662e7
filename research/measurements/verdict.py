"""How often the verdict errs, and how small a leak it shows: by simulation, with the rule before.

python research/measurements/verdict.py [--reports 400] [--seed 0]
    [--out research/results/verdict.json]

A simulated report has the sizes of a run with an active attacker (`active`): 7 attacks on 160
members and 992 non-members, the same on an untrained encoder and on a placebo, 6 paired
differences, pixels, and one attack on 9 whole data sets; `run` and `audit` have no placebo. Clients
of `whole` train on all that they own, so that its placebo trains on images of the non-members'
kind: a shift that trained encoders see is reversed there. Of reports where nothing is to be found
there are 900 a cell.
Scores are normal. Attacks of one encoder correlate by RHO, as they share images; an attack and
itself on the placebo by PLACEBO, on the untrained encoder by UNTRAINED: a run with the digits
measured .46 and .07 in the median of its attacks.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import norm

from fedmia.records import (
    DatasetInferenceResults,
    Evaluation,
    FloatArray,
    Pair,
    ScoredAttack,
)  # fmt: skip
from fedmia.records.attack_rows import AttackRow, AucRow, OverControlRow
from fedmia.records.client_rows import CLIENT, ClientInferenceRow
from fedmia.records.fields import row_of
from fedmia.records.rows import Report
from fedmia.report.build import family_sizes
from fedmia.report.datasets import inference_row
from fedmia.report.judgement import code_by_attacks
from fedmia.report.metrics import auc_numbers, over_control
from fedmia.runtime.environment import describe
from fedmia.seeding import rng
from fedmia.statistics.auc import auc_estimate, auc_interval
from fedmia.statistics.intervals import LEVEL, ONE_SIDED

RESULTS = Path(__file__).parents[1] / "results" / "verdict.json"
ATTACKS, MEMBERS, NONMEMBERS, CLIENTS = 7, 160, 992, 9
RHO = (0.5, 0.9)
PLACEBO, UNTRAINED = 0.5, 0.1
KINDS = ("active", "run", "audit", "whole")
NULL, NULLS = "nothing", 900
OF_ALL_KINDS = (NULL, "shift 0.56", "leak 0.6")  # the others are of `active` alone
# What a sentence says of an attack beside its numbers.
NAMED = {"vantage": "outsider", "under_attack": False, "rounds": ()}
CODES = ("leaks", "not-established", "control-failed", "shift")
# AUC of the encoder's leak, of a shift that trained encoders see, one that all see, and of pixels.
# `one`: one attack alone finds it.
SCENARIOS: dict[str, dict[str, Any]] = {
    NULL: {},
    **{f"shift {auc} of trained encoders": {"trained": auc} for auc in (0.53, 0.56, 0.6)},
    **{f"shift {auc} of all encoders": {"trained": auc, "untrained": auc} for auc in (0.53, 0.56)},
    **{
        f"shift {auc} of all encoders and pixels": {
            "trained": auc, "untrained": auc, "pixels": auc,
        } for auc in (0.53, 0.56, 0.6)
    },
    **{f"leak {auc}": {"leak": auc} for auc in (0.55, 0.58, 0.6, 0.62, 0.65)},
    **{f"leak {auc}, one attack": {"leak": auc, "one": True} for auc in (0.58, 0.6, 0.62, 0.65)},
}  # fmt: skip


def mean(auc: float) -> float:
    """Of members' scores, where non-members' are standard normal."""
    return float(norm.ppf(auc) * np.sqrt(2))


def simulate(
    stream: np.random.Generator, kind: str, rho: float, *, leak: float = 0.5, trained: float = 0.5,
    untrained: float = 0.5, pixels: float = 0.5, one: bool = False,
) -> Evaluation:  # fmt: skip
    """The scores of one report.

    Args:
        stream: random generator.
        kind: of KINDS.
        rho: correlation of two attacks on one encoder.
        leak: AUC of the leak.
        trained, untrained, pixels: AUC of the shift, as each sees it.
        one: whether one attack alone finds the leak.
    """
    count = MEMBERS + NONMEMBERS
    is_member = np.arange(count) < MEMBERS

    def noise() -> FloatArray:
        common = stream.normal(size=count)
        return np.sqrt(rho) * common + np.sqrt(1 - rho) * stream.normal(size=(ATTACKS, count))

    def attacks(scores: FloatArray, auc: float) -> list[ScoredAttack]:
        sides = (scores + mean(auc) * is_member).astype(float)
        return [
            ScoredAttack(f"a{i}", "", "white_box", "outsider", row[is_member], row[~is_member])
            for i, row in enumerate(sides)
        ]

    released = noise()
    beside = [r * released + np.sqrt(1 - r**2) * noise() for r in (UNTRAINED, PLACEBO)]
    hits = np.arange(ATTACKS) < (1 if one else ATTACKS)
    main = attacks(released + mean(leak) * np.outer(hits, is_member), trained)
    controls = {"untrained": attacks(beside[0], untrained)}
    if kind in ("active", "whole"):
        seen = trained if kind == "active" else 2 * untrained - trained
        controls["placebo"] = attacks(beside[1], seen)
    ids, nobody = np.arange(count), np.zeros(count, dtype=np.int64)
    alone = stream.normal(size=count) + mean(pixels) * is_member
    own, posing, null = (  # nobody's set was trained on: their p-values only cost
        stream.random(n).tolist()
        for n in ((1 if kind == "audit" else CLIENTS), 100, (1 if kind == "audit" else CLIENTS))
    )
    sets = [
        row_of(
            ClientInferenceRow, None, whose=CLIENT, client=k, p_value=p, difference=0.0, n=16,
            n_nonmembers=NONMEMBERS, p_value_untrained=untrained_p,
        )
        for k, (p, untrained_p) in enumerate(zip(own, null, strict=True))
    ]  # fmt: skip
    return Evaluation(
        0, ids[is_member], ids[~is_member], nobody[is_member], nobody[is_member],
        nobody[~is_member], attacks=main, controls=controls,
        pixels=(alone[is_member], alone[~is_member]),
        pairs=[Pair(a, a, "itself") for a in main[: 6 if kind == "active" else 2]],
        inferences=[DatasetInferenceResults("dataset-inference", "", sets, posing)],
        drawn=kind in ("active", "run"),
    )  # fmt: skip


def code_before(run: Evaluation) -> str:
    """The code by the rule before: two-sided intervals of one family of attacks, controls, pairs
    and pixels decide, an attack is not compared with its own control, and no data set counts."""
    beside = [a for rows in run.controls.values() for a in rows]
    family = len(run.attacks) + len(beside) + len(run.pairs) + 1

    def ends(sides: Any) -> tuple[float, float]:
        return auc_interval(auc_estimate(*sides), LEVEL, family)

    low, high = ends(run.pixels)
    if not low <= 0.5 <= high:
        return "shift"
    if any(not low <= 0.5 <= high for low, high in (ends(a.sides) for a in beside)):
        return "control-failed"
    return "leaks" if any(ends(a.sides)[0] > 0.5 for a in run.attacks) else "not-established"


def code_after(run: Evaluation) -> str:
    """The code that `build_report` gives, without all that a report holds beside."""
    tests, beside = family_sizes(run)
    attacks = [
        named(a, auc_numbers(*a.sides, tests, tested=True), over_control(a, run, tests))
        for a in run.attacks
    ]
    controls = {
        name: [named(a, auc_numbers(*a.sides, beside)) for a in rows]
        for name, rows in run.controls.items()
    }
    assert run.pixels is not None
    report = row_of(
        Report, None, attacks=attacks, controls=controls, paired=[],
        pixels=auc_numbers(*run.pixels, beside),
        dataset_inference=[inference_row(i, tests) for i in run.inferences],
    )  # fmt: skip
    return code_by_attacks(report)


def named(attack: ScoredAttack, numbers: AucRow, over: OverControlRow | None = None) -> AttackRow:
    """The row of an attack, of its AUC alone."""
    return row_of(AttackRow, None, **NAMED, **vars(numbers), name=attack.name, over_control=over)


def missing(run: Evaluation, truth: float) -> dict[str, bool]:
    """Whether any bracket of an attack misses its true AUC, where each end holds at LEVEL by
    itself (before) and where both do (after)."""
    tests, _ = family_sizes(run)
    estimates = [auc_estimate(*attack.sides) for attack in run.attacks]

    def misses(level: float) -> bool:
        brackets = (auc_interval(one, level, tests) for one in estimates)
        return any(not low <= truth <= high for low, high in brackets)

    return {"before": misses(ONE_SIDED), "after": misses(LEVEL)}


def cell(kind: str, rho: float, scenario: str, *, reports: int, seed: int) -> dict[str, Any]:
    """How many reports have which code, by the rule before and by the report's own."""
    stream = rng(seed, "verdict", kind, f"{rho}", scenario)
    before, after, missed = Counter[str](), Counter[str](), Counter[str]()
    known = set(SCENARIOS[scenario]) <= {"leak"}  # the true AUC of all attacks is one
    reports = max(reports, NULLS) if scenario == NULL else reports
    for _ in range(reports):
        run = simulate(stream, kind, rho, **SCENARIOS[scenario])
        before[code_before(run)] += 1
        after[code_after(run)] += 1
        if known:
            missed.update(
                k for k, v in missing(run, SCENARIOS[scenario].get("leak", 0.5)).items() if v
            )
    shares = {
        when: {code: round(counts[code] / reports, 4) for code in CODES}
        for when, counts in (("before", before), ("after", after))
    }
    place = {"kind": kind, "correlation": rho, "scenario": scenario, "reports": reports}
    share = {when: round(missed[when] / reports, 4) for when in ("before", "after")}
    return {**place, **shares, "missed": share if known else None}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--reports", type=int, default=400, help="of each cell")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--out", type=Path, default=RESULTS, help="JSON file to write")
    args = parser.parse_args(arguments)
    with ProcessPoolExecutor(args.processes) as pool:
        job = partial(pool.submit, cell, reports=args.reports, seed=args.seed)
        running = [
            job(kind, rho, name) for kind in KINDS for rho in RHO for name in SCENARIOS
            if kind == KINDS[0] or name.startswith(OF_ALL_KINDS)
            or (kind == "whole" and "of trained" in name)
        ]  # fmt: skip
        rows = [future.result() for future in running]
    lines = ",\n".join(f"  {json.dumps(row)}" for row in rows)
    head = {"seed": args.seed, "placebo": PLACEBO, "untrained": UNTRAINED}
    text = json.dumps(head | describe(), indent=1)[:-2]
    args.out.write_text(f'{text},\n "cells": [\n{lines}\n ]\n}}\n')


if __name__ == "__main__":
    main()
