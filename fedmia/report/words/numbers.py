"""Numbers as readers see them, the same in sentences, tables and figures."""

from __future__ import annotations

from fedmia.records.attack_rows import AucRow, Interval, ends

DASH = "–"
TOGETHER = "at 95 % for all {} together"  # what [low, high] are


def number(value: float | None, digits: int = 2) -> str:
    """`0.64`, or a dash for what could not be known."""
    return DASH if value is None else f"{value:.{digits}f}"


def interval(value: Interval | None, digits: int = 2) -> str:
    """`[0.55, 0.72]`, or the empty string."""
    return "" if value is None else f"[{value[0]:.{digits}f}, {value[1]:.{digits}f}]"


def format_p(value: float | None) -> str:
    """`0.0005`, or `4.5e-05` of what so few digits would round away."""
    return f"{value:.1e}" if value and value < 5e-4 else number(value, 4)


def estimate(value: float | None, ci: Interval | None, digits: int = 2) -> str:
    """`0.64 [0.55, 0.72]`, or a dash."""
    return f"{number(value, digits)} {interval(ci, digits)}".strip()


def signed(value: float | None, ci: Interval | None = None, digits: int = 2) -> str:
    """A difference: `+0.04 [-0.01, +0.09]`, or a dash.

    Args:
        value: the difference.
        ci: its interval; None: the text has none.
        digits: behind the point.

    Returns:
        The text.
    """
    if value is None:
        return DASH
    text = f"{value:+.{digits}f}"
    return text if ci is None else f"{text} [{ci[0]:+.{digits}f}, {ci[1]:+.{digits}f}]"


def auc_and_limits(row: AucRow, model: str = "", of: str = "attacks") -> str:
    """`AUC 0.64 [0.55, 0.72] (at 95 % ..; lower limit 0.561; 112 members, ..)`.

    Args:
        row: of the attack or control; of an attack the one-sided limit, which decides, stands by.
        model: which model was scored, in words.
        of: what its interval holds together with.

    Returns:
        The text.
    """
    n = f"{row.n_members} members, {row.n_nonmembers} non-members"
    n += f" of {subjects} subjects" if (subjects := subjects_of(row)) else ""
    n += model and f"; {model}"
    limit = f"; lower limit {number(row.lower_limit, 3)}" if row.lower_limit is not None else ""
    return f"AUC {estimate(row.auc, ends(row))} ({TOGETHER.format(of)}{limit}; {n})"


def subjects_of(row: AucRow) -> str:
    """`20+31`, the subjects that the images of a row belong to, or nothing."""
    if row.n_member_subjects is None:
        return ""
    return f"{row.n_member_subjects}+{row.n_nonmember_subjects}"
