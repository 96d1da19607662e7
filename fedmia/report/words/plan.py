"""What a plan foresees, in words: the leak that would show, the images that it needs."""

from __future__ import annotations

from fedmia.report.words.numbers import number

NOTHING_TESTED = "nothing would be tested: no attack would have scores"


def smallest_leak(auc: float | None, tests: int) -> str:
    """The smallest leak that the images would show; None: not even a perfect attack."""
    text = "not even a perfect attack" if auc is None else f"AUC {number(auc, 3)} in 80 of 100 runs"
    return f"smallest leak that would show: {text} (tests: {tests})"


def images_needed(leak: float, needed: int | None, available: int) -> str:
    """Whether the images are enough to show a leak.

    Args:
        leak: its AUC.
        needed: members, and as many others; None: more than can be counted.
        available: of each side.

    Returns:
        The line.
    """
    count = "more than ten million" if needed is None else f"{needed:,}"
    enough = "are too few" if needed is None or available < needed else "are enough"
    return (
        f"a leak of AUC {leak:g} needs {count} scored members and as many others; "
        f"the {available:,} of each that can be scored {enough}"
    )
