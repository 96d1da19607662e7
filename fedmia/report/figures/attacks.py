"""Figures of the attacks: AUCs beside their controls, ROC, features, a sweep."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fedmia.records import FloatArray, RunScores, ScoredAttack
from fedmia.records.attack_rows import AucRow, ends, with_auc
from fedmia.records.fields import row_of
from fedmia.records.rows import Report
from fedmia.report.figures import canvas
from fedmia.report.paired import OF_CONTROL
from fedmia.report.selection import is_reading
from fedmia.report.words.numbers import estimate
from fedmia.statistics.thresholds import roc

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Line = tuple[str, str, AucRow]  # the attack (empty: a control of the one above), its kind, its row
SHAPES = ("s", "D", "^", "v", "P", "X")
SWEPT = {
    "known": "known members (and as many non-members)",
    "query_budget": "query budget, images embedded",
}
PAIRS = ((0, 1), (0, 2), (1, 2))  # of three features: the one across, the one upwards
MOST = 1000  # points of a side
APART = 0.012  # of the axis of a sweep, between the markers of two attacks at one value


def beside(report: Report, name: str) -> list[tuple[str, AucRow]]:
    """(label, row) of every control of attack `name`: the control sets', then the paired ones.

    Args:
        name: of the attack.

    Returns:
        Label of each control, and the row that has its AUC and both intervals.
    """
    controls: list[tuple[str, AucRow]] = [
        (label, row)
        for label, rows in report.controls.items()
        for row in with_auc(rows)
        if row.name == name
    ]
    for pair in report.paired:
        if pair.attack == name and pair.difference is not None:
            own = {name: getattr(pair, field) for name, field in OF_CONTROL.items()}
            controls.append((pair.control, row_of(AucRow, pair, lower_limit=None, **own)))
    return controls


def forest(report: Report) -> Figure | None:
    """AUC of every attack with both intervals, the most leaking first, its controls under it; a
    further reading of an attack is left out. None without attacks."""
    lines: list[Line] = []
    rows = with_auc(row for row in report.attacks if not is_reading(report, row))
    for row in sorted(rows, key=lambda row: -row.auc):
        lines.append((f"{row.name}{'*' * row.under_attack}", "attack", row))
        lines += [("", label, control) for label, control in beside(report, row.name)]
    if (pixels := report.pixels) is not None and pixels.auc is not None:
        lines.append(("pixels only", "pixels", pixels))
    if not lines:
        return None
    kinds = [k for k in dict.fromkeys(kind for _, kind, _ in lines) if k != "attack"]
    figure, axes = canvas.one(canvas.COLUMN, 1.3 + 0.16 * len(lines))
    place = 0.0
    for name, kind, row in lines:
        place -= 1.35 if name else 0.85
        shape = "o" if kind == "attack" else SHAPES[kinds.index(kind) % len(SHAPES)]
        canvas.estimate(axes, place, row, shape, faint=kind != "attack")
        _labels(axes, place, name, row)
    limits = [end for _, _, row in lines for end in (row.low, row.high) if end is not None]
    axes.set_xlim(max(0.0, min([0.4, *limits]) - 0.03), min(1.0, max([0.75, *limits]) + 0.03))
    axes.set_ylim(place - 0.8, -0.4)
    axes.set_yticks([])
    attacked = any(row.under_attack for row in rows)
    starred = "\n* scored on the model under attack" * attacked
    canvas.auc_axis(axes, f"AUC (0.5: no leakage){starred}")
    n = canvas.counts(lines[0][2].n_members, lines[0][2].n_nonmembers)
    axes.set_title(f"Leakage by attack{', with controls' * bool(kinds)}\n{n}")
    _forest_legend(figure, kinds, report)
    return figure


def _labels(axes: Axes, place: float, name: str, row: AucRow) -> None:
    across = axes.get_yaxis_transform()
    if name:
        weight = "normal" if name == "pixels only" else "bold"
        axes.text(-0.02, place, name, transform=across, ha="right", va="center", weight=weight)
    text = estimate(row.auc, ends(row))
    colour = canvas.INK if name else canvas.GREY
    axes.text(1.02, place, text, transform=across, va="center", color=colour, fontsize=7)


def _forest_legend(figure: Figure, kinds: Sequence[str], report: Report) -> None:
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=canvas.BLUE, marker="o", linewidth=3, alpha=0.7, label="attack, 95 %"),
        Line2D([], [], color=canvas.BLUE, linewidth=1, label="at 95 % for all together"),
    ]
    look: dict[str, Any] = {"color": canvas.GREY, "linewidth": 1.8, "markerfacecolor": "white"}
    for i, kind in enumerate(kinds):
        label = f"{kind} control" if kind in report.controls else kind
        label = "pixels only" if kind == "pixels" else label
        handles.append(Line2D([], [], marker=SHAPES[i % len(SHAPES)], label=label, **look))
    canvas.legend_below(figure, handles, 3)


def roc_curves(run: RunScores, report: Report) -> Figure | None:
    """ROC of the attacks on log axes, where the low false-positive rates count; without further
    readings of an attack.

    Args:
        run: the scores.
        report: made of them.

    Returns:
        The figure, None without an attack.
    """
    attacks = scored_attacks(run, report)
    if not attacks:
        return None
    floor_x = 0.7 / max(len(a.scores_nonmembers) for a in attacks)
    floor_y = 0.7 * min(1 / max(len(a.scores_members) for a in attacks), 0.01)
    figure, axes = canvas.one(canvas.COLUMN, 3.3)
    line = np.geomspace(floor_x, 1, 50)
    axes.plot(line, line, color=canvas.GREY, linewidth=1, linestyle=":", label="chance")
    for i, attack in enumerate(attacks):
        fpr, tpr = roc(attack.scores_members, attack.scores_nonmembers)
        look = canvas.look(i) | {"marker": "", "drawstyle": "steps-post"}
        # A log axis has no 0: what is reached without one false alarm is drawn at the left edge.
        axes.plot(np.maximum(fpr, floor_x), np.maximum(tpr, 1e-9), **look, label=attack.name)
    axes.loglog()
    axes.set_xlim(floor_x, 1)
    axes.set_ylim(floor_y, 1.05)
    for target in (0.001, 0.01, 0.1):
        if target > floor_x:
            axes.axvline(target, color="#dddddd", linewidth=0.8, zorder=0)
    axes.set_xlabel("false-positive rate")
    axes.set_ylabel("true-positive rate")
    n = canvas.counts(len(run.member_ids), len(run.nonmember_ids))
    axes.set_title(f"ROC on log axes\n{n}")
    canvas.legend(axes)
    return figure


def scored_attacks(run: RunScores, report: Report) -> list[ScoredAttack]:
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


def scatter(run: RunScores) -> Figure | None:
    """The three features of the combined attack, two at a time (Fig. 9 of the paper shows them in
    space); None where no attack handed its features over.

    Args:
        run: the scores.

    Returns:
        The figure, None without the combined attack.
    """
    attack = next((a for a in run.attacks if a.features_members is not None), None)
    if attack is None or attack.features_members is None or attack.features_nonmembers is None:
        return None
    members, nonmembers = attack.features_members, attack.features_nonmembers
    figure = canvas.new_figure(canvas.WIDE, 2.7)
    panels = figure.subplots(1, 3)
    names = attack.feature_names or ("feature 1", "feature 2", "feature 3")
    draw_pairs(panels, members, nonmembers, names)
    sizes = canvas.counts(len(members), len(nonmembers))
    heading = f"Features of {attack.name}, two at a time ({sizes})"
    figure.suptitle(heading, x=0.01, ha="left")
    canvas.legend(panels[0])
    return figure


def draw_pairs(
    panels: Sequence[Axes], members: FloatArray, nonmembers: FloatArray, names: Sequence[str]
) -> None:
    """Draw three features in three plots, members and non-members on the same axes.

    Args:
        panels: the three plots, in the order of PAIRS.
        members: (N, 3) features.
        nonmembers: (M, 3) features.
        names: of the three features.
    """
    look: dict[str, Any] = {"s": 7, "alpha": 0.65, "linewidths": 0}
    for axes, (across, up) in zip(panels, PAIRS, strict=True):
        for side, colour, marker, label in (
            (nonmembers, canvas.SKY, "o", "non-members"),
            (members, canvas.MEMBER, "^", "members"),
        ):
            points = side[:: max(1, -(-len(side) // MOST))]
            axes.scatter(
                points[:, across], points[:, up], c=colour, marker=marker, label=label, **look
            )
        axes.set_xlabel(names[across])
        axes.set_ylabel(names[up])
        axes.locator_params(axis="x", nbins=3)  # long numbers stand side by side
        axes.locator_params(axis="y", nbins=5)


def by_value(report: Report) -> Figure | None:
    """AUC of every attack at each value of a sweep with its 95 % interval; None without a sweep.

    The values stand at equal distances, the attacks of one value side by side.
    """
    rows: list[Any] = [r for r in report.sweep if r.scored is not None and r.scored.auc is not None]
    if not rows:
        return None
    values = sorted({row.value for row in rows})
    names = list(dict.fromkeys(row.attack for row in rows))
    figure, axes = canvas.one(canvas.COLUMN, 2.8)
    for i, name in enumerate(names):
        own = sorted((row for row in rows if row.attack == name), key=lambda row: row.value)
        shift = (i - (len(names) - 1) / 2) * APART * max(len(values), 2)
        places = [values.index(row.value) + shift for row in own]
        look = canvas.look(i)
        for place, row in zip(places, own, strict=True):
            axes.plot([place] * 2, row.scored.auc_ci, color=look["color"], linewidth=1.2, alpha=0.8)
        axes.plot(places, [row.scored.auc for row in own], **look, label=name)
    canvas.half_line(axes)
    axes.set_xticks(range(len(values)), [f"{v:,}" for v in values])
    axes.set_xlim(-0.4, len(values) - 0.6)
    axes.grid(axis="y")
    axes.set_xlabel(SWEPT[rows[0].sweep])
    axes.set_ylabel("AUC, 95 % interval")
    n = canvas.counts(rows[0].scored.n_members, rows[0].scored.n_nonmembers)
    axes.set_title(f"Leakage by the attacker's resources\n{n}")
    canvas.legend(axes)
    return figure
