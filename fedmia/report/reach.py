"""How far a report's images reach: the smallest leak that they would have shown."""

from __future__ import annotations

import math
from typing import Any

from fedmia.options import registry
from fedmia.records.attack_rows import with_auc
from fedmia.records.rows import Report
from fedmia.report.attacker import ScoredRows
from fedmia.report.datasets import statement
from fedmia.report.format import subjects_of
from fedmia.statistics.intervals import ONE_SIDED
from fedmia.statistics.power import images_needed, smallest_detectable_auc

WEAK = 0.55  # the AUC of a leak for which the images needed are counted
MORE = "Try more attacks (`--attacks all`) and other seeds."
SEEDS = "Try other seeds (`--seed 1`)."  # where all attacks were asked for


def smallest_leak(report: Report) -> float | None:
    """The report's `smallest_leak`.

    Args:
        report: with its attacks and its family of tests.

    Returns:
        The AUC, in (0.5, 1); None where not even a perfect attack would have been established, and
        where no attack has an AUC.
    """
    if not (scored := with_auc(report.attacks)):
        return None
    row, effect = _widest(scored), _design_effect(scored)
    n, m, subjects = row.n_members, row.n_nonmembers, None
    if row.n_member_subjects is not None:
        subjects = row.n_member_subjects, row.n_nonmember_subjects
    tests = leak_tests(report, scored)
    return smallest_detectable_auc(round(n / effect), round(m / effect), **tests, subjects=subjects)


def reach(report: Report, scored: ScoredRows) -> tuple[str, str]:
    """How sure a run without an established leak is, and how it could be surer.

    Args:
        report: with its family of tests and its `smallest_leak`.
        scored: attacks of it whose AUC is known.

    Returns:
        The smallest leak that so many images would have shown; what to do.
    """
    others = {*registry.names("attack")}.difference(report.config.get("attacks") or ())
    todo = MORE if others else SEEDS
    if not scored:
        return " ".join(f"{statement(row)}." for row in report.dataset_inference), todo
    row, effect, least = _widest(scored), _design_effect(scored), report.smallest_leak
    n, m = row.n_members, row.n_nonmembers
    more = images_needed(WEAK, **leak_tests(report, scored))
    more = None if more is None else math.ceil(more * effect)
    sizes = f"{n} members and {m} non-members"
    sizes += f" of {of} subjects" if (of := subjects_of(row)) else ""
    sure = f"Not even a perfect attack would have been established with {sizes}."
    if least is not None:
        sure = (
            f"The smallest leak that {sizes} would have shown has AUC {least:.2f} "
            "(0.5: guessing, 1: certain). A smaller one may be there."
        )
    if more is not None and min(n, m) < more:
        todo += f" To show a leak of AUC {WEAK}, score about {more:,} members and as many others"
        todo += "." if effect == 1 else ", with as many images a subject."
    return sure, todo


def leak_tests(report: Report, scored: ScoredRows) -> dict[str, Any]:
    """The tests that a leak must pass for the verdict, as arguments of `smallest_detectable_auc`.

    Args:
        report: with its family of tests.
        scored: attacks of it whose AUC is known.

    Returns:
        Argument -> value.
    """
    family = report.family.intervals
    over = [row.over_control for row in scored if row.over_control is not None]
    return {
        "family": family,
        "level": ONE_SIDED,
        "control_family": max((row.tests for row in over), default=None),
        "controls": max((row.n_controls for row in over), default=1),
    }


def is_audit(report: Report) -> bool:
    """Whether the report is of an encoder, or of its vectors, that was trained elsewhere."""
    return report.encoder is not None or "member_embeddings" in report.config


def _widest(scored: ScoredRows) -> Any:
    """The row of the attack that scored most images."""
    return max(scored, key=lambda row: min(row.n_members, row.n_nonmembers))


def _design_effect(scored: ScoredRows) -> float:
    """By how much images of a subject say less than as many that are drawn one by one."""
    return max(row.design_effect or 1.0 for row in scored)
