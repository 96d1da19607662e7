"""How far a report's images reach: the smallest leak that they would have shown."""

from __future__ import annotations

import math
from typing import Any

from fedmia.records.attack_rows import with_auc
from fedmia.records.rows import Report
from fedmia.report.judgement import ScoredRows
from fedmia.settings import registry
from fedmia.statistics.intervals import ONE_SIDED
from fedmia.statistics.power import images_needed, smallest_detectable_auc

WEAK = 0.55  # the AUC of a leak for which the images needed are counted


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
    row, effect = widest(scored), design_effect(scored)
    n, m, subjects = row.n_members, row.n_nonmembers, None
    if row.n_member_subjects is not None:
        subjects = row.n_member_subjects, row.n_nonmember_subjects
    tests = leak_tests(report, scored)
    return smallest_detectable_auc(round(n / effect), round(m / effect), **tests, subjects=subjects)


def images_short(report: Report, scored: ScoredRows) -> int | None:
    """The members, and as many others, that would show a leak of AUC WEAK.

    Args:
        report: with its family of tests.
        scored: attacks of it whose AUC is known.

    Returns:
        The number; None where so many were scored, and where no number would do.
    """
    row = widest(scored)
    needed = images_needed(WEAK, **leak_tests(report, scored))
    if needed is None:
        return None
    needed = math.ceil(needed * design_effect(scored))
    return needed if min(row.n_members, row.n_nonmembers) < needed else None


def has_untried_attacks(report: Report) -> bool:
    """Whether there are attacks that the settings do not ask for."""
    return bool({*registry.names("attack")}.difference(report.config.get("attacks") or ()))


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


def widest(scored: ScoredRows) -> Any:
    """The row of the attack that scored most images."""
    return max(scored, key=lambda row: min(row.n_members, row.n_nonmembers))


def design_effect(scored: ScoredRows) -> float:
    """By how much images of a subject say less than as many that are drawn one by one."""
    return max(row.design_effect or 1.0 for row in scored)
