"""The rule by which an interval answers a question with a smallest effect of interest."""

from __future__ import annotations

HOLDS, FAILS, UNDECIDED = "held", "not held", "undecided"


def answer(ci: tuple[float, float] | None, effect: float) -> str:
    """Whether an effect is there.

    Args:
        ci: its interval; None: there are too few targets for one.
        effect: the smallest effect of interest, > 0.

    Returns:
        `not held` where the interval lies under the smallest effect, also where it lies over 0;
        `held` where it lies over 0; else `undecided`.
    """
    if ci is None:
        return UNDECIDED
    return FAILS if ci[1] < effect else HOLDS if ci[0] > 0 else UNDECIDED
