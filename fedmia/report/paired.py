"""Does an attack tell more than its control on the same images? Paired differences of AUCs."""

from __future__ import annotations

from collections.abc import Sequence

from fedmia.records import FloatArray, Pair, RunScores, ScoredAttack
from fedmia.records.attack_rows import OverControlRow, PairedRow
from fedmia.records.fields import row_of
from fedmia.report.metrics import auc_fields
from fedmia.statistics.auc import auc, auc_estimate, difference_interval
from fedmia.statistics.intervals import LEVEL, ONE_SIDED

# The AUC and the intervals of a row -> those of a pair's control.
OF_CONTROL = {
    "auc": "auc_control",
    "auc_ci": "auc_control_ci",
    "low": "auc_control_low",
    "high": "auc_control_high",
}
OWN = ("placebo", "untrained")  # controls on the same images, the closer one first


def paired_rows(pairs: Sequence[Pair], family: int) -> list[PairedRow]:
    """The report's `paired`.

    Args:
        pairs: attacks and their paired controls.
        family: number of simultaneous intervals.

    Returns:
        The rows of `report.json`.
    """
    return [_paired_row(pair, family) for pair in pairs]


def _paired_row(pair: Pair, family: int) -> PairedRow:
    attack, control = pair.attack, pair.control
    n, m = map(len, attack.sides)
    row = {"attack": attack.name, "control": control.name, "n_members": n, "n_nonmembers": m}
    row["over"] = pair.over
    if n == 0 or m == 0:
        return row_of(PairedRow, None, **row)
    both, of = (attack.sides, control.sides), attack.subjects
    a, b = (auc_estimate(*one, subjects=of) for one in both)
    difference, together = a.value - b.value, difference_interval(*both, LEVEL, family, of)
    return row_of(
        PairedRow,
        None,
        **row,
        difference=difference,
        low=together[0],
        high=together[1],
        ci=difference_interval(*both, subjects=of),
        auc=a.value,
        **{OF_CONTROL[name]: value for name, value in auc_fields(b, family).items()},
    )


def over_control(attack: ScoredAttack, run: RunScores, family: int) -> OverControlRow | None:
    """What an attack adds to its own control, None where it has none on the same images.

    Where chance alone does not part the sides (`RunScores.drawn`), it must add to each of its
    controls. A placebo is then trained on images of the non-members' kind: what looks trained on to
    such an encoder is on the other side, so the attack must lie over the reversed placebo, too.

    Args:
        attack: the attack.
        run: whose controls they are.
        family: number of simultaneous tests.

    Returns:
        The row of `report.json`.
    """
    nulls = [
        (name, own.sides)
        for name in OWN
        for own in run.controls.get(name, ())
        if own.name == attack.name and min(map(len, own.sides)) > 0
        if [*map(len, own.sides)] == [*map(len, attack.sides)]
    ]
    if run.drawn:
        nulls = nulls[:1]
    else:
        nulls += [
            (f"reversed {name}", (-inside, -outside))
            for name, (inside, outside) in nulls
            if name == "placebo"
        ]
    rows = [_over(attack, null, run, family, len(nulls)) for null in nulls]
    return min(rows, key=lambda row: row.lower_limit, default=None)


def _over(
    attack: ScoredAttack, null: tuple[str, tuple[FloatArray, FloatArray]], run: RunScores,
    family: int, controls: int,
) -> OverControlRow:  # fmt: skip
    """What an attack adds to one control. A run's members are drawn at random, so there the
    untrained encoder is asked at the level of one attack; a placebo costs no power."""
    name, sides = null
    tests = 1 if name == "untrained" and run.drawn else family
    both = attack.sides, sides
    low, high = difference_interval(*both, LEVEL, family, attack.subjects)
    limit, _ = difference_interval(*both, ONE_SIDED, tests, attack.subjects)
    return row_of(
        OverControlRow, None, control=name, difference=auc(*attack.sides) - auc(*sides), low=low,
        high=high, lower_limit=limit, tests=tests, n_controls=controls,
    )  # fmt: skip
