"""Why a report passes or fails a condition, in one line each, and what is printed of it."""

from __future__ import annotations

from collections.abc import Sequence

from fedmia.records.defence_rows import DefencePart
from fedmia.records.privacy import Epsilon
from fedmia.records.rows import Report
from fedmia.report.words.numbers import number

NO_SCORES = "no attack has scores"
NO_PERFECT_ATTACK = "the images would not have shown even a perfect attack"
NO_EPSILON = "the report states no epsilon"
UNLISTED = "a client that the report does not list"


def outcome(condition: str, failed: bool, why: str) -> str:
    """`auc>0.6: failed: combined has 0.742`."""
    return f"{condition}: {('passed', 'failed')[failed]}: {why}"


def verdict_is(report: Report) -> str:
    """`the verdict is not-established`."""
    return f"the verdict is {report.verdict_code}"


def not_run(report: Report) -> str:
    """Attacks that could not run, to stand behind what the others say, or nothing."""
    return f"; not run: {', '.join(report.not_run)}" if report.not_run else ""


def broke(names: Sequence[str]) -> str:
    """Attacks whose result nobody knows."""
    return f"not known, since they broke: {', '.join(names)}"


def unresolved(names: Sequence[str]) -> str:
    """Attacks that have no number to judge by."""
    return f"{', '.join(names)}: too few non-members for this rate, or none scored"


def largest(name: str, value: float, size: float, report: Report) -> str:
    """`combined has 0.742`.

    Args:
        name: of the attack that decides.
        value: its AUC or its true-positive rate.
        size: the same with its scores turned round, where that is more.
        report: whose attack it is.

    Returns:
        The text.
    """
    text = f"{name} has {number(value, 3)}"
    if size > value:
        text += f", which is {number(size, 3)} with its scores turned round"
    return text + not_run(report)


def smallest(least: float) -> str:
    """The smallest leak that would have shown."""
    return f"the smallest leak that the images would have shown has AUC {number(least, 3)}"


def client(number: int) -> str:
    """`client 3`."""
    return f"client {number}"


def epsilon_text(defence: DefencePart, spent: Epsilon) -> str:
    """`epsilon 8 for one image (delta 1e-05, dpsgd: heuristic)`."""
    text = f"epsilon {spent.value:g} for one {spent.unit or 'unit that is not named'}"
    return f"{text} (delta {spent.delta:g}, {defence.name}: {spent.standing})"


def lacks_epsilon(who: str, standings: Sequence[str], others: Sequence[str]) -> str:
    """That a client has no epsilon that counts, and those that it has."""
    return "; ".join([f"{who} has no {' or '.join(standings)} epsilon", *others])


def has_epsilon(who: str, text: str) -> str:
    """`client 3 has epsilon 8 for one image (..)`."""
    return f"{who} has {text}"
