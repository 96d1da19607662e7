"""ROC curves of the attacks, with a band around the best ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedmia.records import Evaluation, ScoredAttack
from fedmia.records.attack_rows import AttackRow, with_auc
from fedmia.records.rows import Report
from fedmia.report.figures import canvas
from fedmia.report.figures.base import ReportFigure, count
from fedmia.report.selection import is_reading
from fedmia.report.words.numbers import estimate, number
from fedmia.statistics.thresholds import roc, tpr_band

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BANDS = 2  # most attacks with a band: more of them cover one another
MOST = 7  # most attacks that are drawn, the most leaking ones: as many as there are colours
POINTS = 40  # false-positive rates at which a band has its limits
AT = "0.01"  # the false-positive rate that the text for readers who cannot see names


def scored_attacks(run: Evaluation, report: Report) -> list[ScoredAttack]:
    """Attacks with scores of both sides, without further readings of one.

    Args:
        run: the scores.
        report: made of them.

    Returns:
        The attacks in their order.
    """
    readings = {row.name for row in report.attacks if is_reading(report, row)}
    return [
        a
        for a in run.attacks
        if a.name not in readings and len(a.scores_members) and len(a.scores_nonmembers)
    ]


class RocCurves(ReportFigure):
    """ROC of the attacks on log axes, where the low false-positive rates count; without further
    readings of an attack. The BANDS attacks of highest AUC have a band.

    Args:
        report: made of the scores.
        run: the scores.
    """

    name = "roc"
    place = "attacks in detail"

    def __init__(self, report: Report, run: Evaluation) -> None:
        super().__init__(report)
        self.run = run
        self.attacks = scored_attacks(run, report)

    def rows(self) -> list[AttackRow]:
        """Rows of the attacks that are drawn, the highest AUC first."""
        rows = with_auc(row for row in self.report.attacks if not is_reading(self.report, row))
        return sorted(rows, key=lambda row: -row.auc)

    def plot(self) -> Figure | None:
        if not self.attacks:
            return None
        most = max(len(a.scores_nonmembers) for a in self.attacks)
        floor_x = 0.7 / most
        floor_y = 0.7 * min(1 / max(len(a.scores_members) for a in self.attacks), 0.01)
        figure, axes = canvas.one(canvas.COLUMN, 3.3)
        line = np.geomspace(floor_x, 1, 50)
        axes.plot(line, line, color=canvas.GREY, linewidth=1, linestyle=":", label="chance")
        names = [row.name for row in self.rows()]
        banded, drawn = names[:BANDS], [a for a in self.attacks if a.name in names[:MOST]]
        for i, attack in enumerate(drawn):
            fpr, tpr = roc(attack.scores_members, attack.scores_nonmembers)
            look = canvas.look(i) | {"marker": "", "drawstyle": "steps-post"}
            # A log axis has no 0: what is reached without one false alarm is drawn at the left
            # edge.
            axes.plot(np.maximum(fpr, floor_x), np.maximum(tpr, 1e-9), **look, label=attack.name)
            if attack.name in banded:
                _band(axes, attack, look["color"])
        axes.loglog()
        axes.set_xlim(floor_x, 1)
        axes.set_ylim(floor_y, 1.05)
        for target in (0.001, 0.01, 0.1):
            if target > floor_x:
                axes.axvline(target, color="#dddddd", linewidth=0.8, zorder=0)
        axes.set_ylabel("true-positive rate")
        method = "pointwise 95 %, Clopper-Pearson,\nwith the threshold's error"
        axes.set_xlabel(f"false-positive rate\nbands of {' and '.join(banded)}:\n{method}")
        n = canvas.counts(len(self.run.member_ids), len(self.run.nonmember_ids))
        some = f", {MOST} most leaking of {len(names)} attacks" if len(names) > MOST else ""
        axes.set_title(f"ROC on log axes{some}\n{n}")
        canvas.legend(axes)
        return figure

    def caption(self) -> str:
        best = f"the {BANDS} attacks" if len(self.attacks) > BANDS else "each attack"
        highest = " with the highest AUC" if len(self.attacks) > BANDS else ""
        subjects = any(attack.subjects is not None for attack in self.attacks)
        trials = ", with as many trials as the subjects' images are worth" if subjects else ""
        most = len(self.attacks) > MOST
        which = f"the {MOST} attacks with the highest AUC" if most else "each attack"
        return (
            f"ROC curve of {which} on log axes: the left end shows the members that are found at "
            f"few false positives. Band of {best}{highest}: pointwise 95 % limits of the "
            "true-positive rate at each true false-positive rate. They are Clopper-Pearson's at "
            "the two thresholds between which the one with this rate lies"
            f"{trials}, and so hold the error of the threshold."
        )

    def alt(self) -> str:
        rows = self.rows()
        text = f"ROC curves of {count(len(rows), 'attack')}."
        known = [row for row in rows if row.tpr_at_fpr.get(AT) is not None]
        if known:
            best = max(known, key=lambda row: row.tpr_at_fpr[AT] or 0.0)
            tpr = estimate(best.tpr_at_fpr[AT], best.tpr_at_fpr_ci[AT])
            text += f" At 1 % false positives {best.name} has the highest true-positive rate, "
            text += f"{tpr}; chance has 0.01."
        return f"{text} The highest AUC is {number(rows[0].auc)} ({rows[0].name})."


def _band(axes: Axes, attack: ScoredAttack, colour: str) -> None:
    """The band around a curve, from the rate that one non-member is."""
    targets = np.geomspace(1 / len(attack.scores_nonmembers), 1, POINTS)
    low, high = tpr_band(*attack.sides, targets, attack.subjects)
    limits = np.maximum(low, 1e-9), high
    axes.fill_between(targets, *limits, color=colour, alpha=0.13, linewidth=0)
    for ends in limits:
        axes.plot(targets, ends, color=colour, alpha=0.5, linewidth=0.6)
