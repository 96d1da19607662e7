"""Which attacks a verdict names, who can run them, and on which model: each from its own row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fedmia.options.vantages import VANTAGES
from fedmia.recording.branches import BRANCHES
from fedmia.records.attack_rows import AttackRow, AucRow, PairedRow, ends, with_auc
from fedmia.records.client_rows import InferenceRow
from fedmia.records.rows import Report

ScoredRows = Sequence[Any]  # of attacks whose AUC is known

ASKS = ("black_box", "outsider")
OUTSIDER = {"black_box": "can use", "white_box": "has the weights of"}


def rounds_of(row: AttackRow) -> str:
    """`24`, or `25-30` of an attack that acted in several; empty of a model of no run."""
    rounds = row.rounds
    return "-".join(str(r) for r in sorted({*rounds[:1], *rounds[-1:]}))


def model_read(row: AttackRow) -> str:
    """`the model of round 24`, `the models under attack of rounds 25-30`, or nothing."""
    several = "-" in (rounds := rounds_of(row))
    if row.under_attack:
        what = f"the model{'s' * (several or not rounds)} under attack"
        return f"{what} of round{'s' * several} {rounds}" if rounds else what
    if not rounds:
        return ""
    return f"{VANTAGES[row.vantage].whole} round{'s' * several} {rounds}"


def model_of(row: AttackRow) -> str:
    """`on the model of round 24`, or nothing of a model of no run."""
    return f"on {model}" if (model := model_read(row)) else ""


def who(row: AttackRow | InferenceRow) -> str:
    """`Someone who can use the model of round 24`: the least that an attack takes.

    Args:
        row: of the attack, or of one on whole data sets.

    Returns:
        Words that begin a sentence.
    """
    vantage, crafts, model = row.vantage, False, ""
    if isinstance(row, AttackRow):
        crafts, model = row.under_attack, model_read(row)
    if crafts and vantage == "outsider":
        vantage = "client"  # nobody else sends updates
    does = VANTAGES[vantage].does
    if not does:
        does = f"{OUTSIDER[row.access]} {model or 'this model'}"
    return f"Someone who {does}{' and sends crafted updates' * crafts}"


def what_leaks(row: AttackRow) -> str:
    """`The encoder leaks membership`: of what the attack read."""
    if row.under_attack:
        return "The models under attack leak membership"
    vantage = VANTAGES[row.vantage]
    of_rounds = bool(row.rounds) or bool(vantage.keeps)
    return f"{(vantage if of_rounds else VANTAGES['outsider']).leaks} membership"


def excludes_half(row: AucRow) -> bool:
    """Whether the limits of an AUC leave out 0.5, on either side."""
    low, high = ends(row) or (0.0, 1.0)
    return not low <= 0.5 <= high


def lies_over_half(row: AucRow) -> bool:
    """Whether the one-sided limit of an attack's AUC lies over 0.5."""
    return (row.lower_limit or 0.0) > 0.5


def is_reversed(row: AucRow) -> bool:
    """Whether an AUC lies wholly under 0.5."""
    return row.high is not None and row.high < 0.5


def shifted_pixels(report: Report) -> AucRow | None:
    """The classifier on pixels where it tells members apart, else None."""
    pixels = report.pixels
    return pixels if pixels is not None and excludes_half(pixels) else None


def failed_control(report: Report) -> tuple[str, AttackRow] | None:
    """(set name, row) of the control farthest from 0.5 among those that exclude it, though nothing
    can leak there."""
    failed = [
        (name, row)
        for name, rows in report.controls.items()
        if name not in BRANCHES or not BRANCHES[name].leaks
        for row in rows
        if excludes_half(row)
    ]
    return max(failed, key=lambda f: abs((f[1].auc or 0.0) - 0.5), default=None)


def leaks(row: AttackRow) -> bool:
    """Whether an attack's AUC lies over 0.5 and over that of its own control, where it has one."""
    over = row.over_control
    return lies_over_half(row) and (over is None or over.lower_limit > 0)


def lacks_control(report: Report) -> bool:
    """Whether no attack, on images or on whole data sets, was tried where nothing can leak."""
    tests = [c.p_value_untrained for row in report.dataset_inference for c in row.clients]
    beside = [row.over_control is not None for row in with_auc(report.attacks)]
    return not any(beside) and all(p is None for p in tests)


def pairs_of(report: Report, row: AttackRow) -> list[PairedRow]:
    """What an attack adds to itself without its act, those to which it adds nothing first."""
    own = [p for p in report.paired if p.attack == row.name and p.low is not None]
    return sorted(own, key=lambda p: (p.low or 0.0) > 0)


def adds_nothing(report: Report, row: AttackRow) -> bool:
    """Whether crafted updates found no more than a control without them did."""
    return row.under_attack and any((p.low or 0.0) <= 0 for p in pairs_of(report, row))


def strongest_leaks(report: Report) -> list[AttackRow]:
    """The attack that decides that the run leaks; then what leaks under attack alone, and to whom
    the model's answers suffice. None where no attack leaks.

    One with a control comes before one without. A model that trained as all others did comes before
    one under attack, and crafted updates that add nothing come last.

    Args:
        report: with the attacks and their paired controls.

    Returns:
        Rows of its attacks.
    """
    leaking = [row for row in with_auc(report.attacks) if leaks(row)]
    if not leaking:
        return []

    def rank(row: AttackRow) -> tuple[bool, bool, bool, float]:
        idle = adds_nothing(report, row)
        return row.over_control is not None, not row.under_attack, not idle, row.auc or 0.0

    first = max(leaking, key=rank)
    alike = [
        row for row in leaking if (row.over_control is not None) == (first.over_control is not None)
    ]
    crafted = [row for row in alike if row.under_attack and not adds_nothing(report, row)]
    asking = [row for row in alike if (row.access, row.vantage) == ASKS and not row.under_attack]
    others = [crafted] * (not first.under_attack) + [asking] * (first not in asking)
    return [first, *(max(rows, key=rank) for rows in others if rows)]


def highest(scored: ScoredRows) -> AttackRow:
    """The attack of highest AUC, one that lies over 0.5 before one that may not."""
    row: AttackRow = max(scored, key=lambda row: (lies_over_half(row), row.auc))
    return row


def names_in_verdict(report: Report) -> set[str]:
    """Names of the attacks that the report's sentences name; each is a row of its table."""
    scored = with_auc(report.attacks)
    rows = strongest_leaks(report) or ([highest(scored)] if scored else [])
    rows += [row for row in scored if is_reversed(row)]
    failed = failed_control(report)
    return {row.name for row in rows} | ({failed[1].name} if failed else set())
