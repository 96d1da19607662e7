"""Figures of the attacks: AUCs beside their controls, ROC, features in space."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fedmia.report.figures import canvas
from fedmia.report.metrics import roc
from fedmia.report.rows import AttackRow, Auc, Report, control_sets, known_auc, with_auc
from fedmia.results import FloatArray, RunScores, ScoredAttack

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Line = tuple[str, str, Auc]  # the attack (empty: a control of the one above), its kind, AUC
SHAPES = ("s", "D", "^", "v", "P", "X")


def ordered(rows: Sequence[AttackRow]) -> list[tuple[AttackRow, Auc]]:
    """Attacks with an AUC, by image before by batch, the most leaking first."""
    return sorted(with_auc(rows), key=lambda s: (s[0]["unit"] != "image", -s[1].value))


def beside(report: Report, name: str) -> list[tuple[str, Auc]]:
    """(label, AUC) of every control of attack `name`: the control sets', then the paired ones."""
    found = [
        (label, auc)
        for label, rows in control_sets(report["controls"]).items()
        for row, auc in with_auc(rows)
        if row["name"] == name
    ]
    for pair in report["paired"]:
        if pair["attack"] == name and pair["difference"] is not None:
            ends = pair["auc_control_ci"], pair["auc_control_ci_simultaneous"]
            found.append((pair["control"], Auc(pair["auc_control"], *ends)))
    return found


def forest(report: Report) -> bytes | None:
    """AUC of every attack with both intervals, its controls under it; None without attacks."""
    lines: list[Line] = []
    for row, auc in ordered(report["attacks"]):
        mark = "*" if row["under_attack"] else ""
        lines.append((f"{row['name']}{mark}", "attack", auc))
        lines += [("", label, control) for label, control in beside(report, row["name"])]
    pixels = report["controls"]["pixels"]
    if pixels is not None and (alone := known_auc(pixels)) is not None:
        lines.append(("pixels only", "pixels", alone))
    if not lines:
        return None
    kinds = [k for k in dict.fromkeys(kind for _, kind, _ in lines) if k != "attack"]
    with canvas.style():
        figure = canvas.new(8, 1.9 + 0.27 * len(lines))
        axes = figure.add_subplot()
        place = 0.0
        for name, kind, auc in lines:
            place -= 1.35 if name else 0.85
            shape = "o" if kind == "attack" else SHAPES[kinds.index(kind) % len(SHAPES)]
            _interval(axes, place, auc, shape, canvas.BLUE if kind == "attack" else canvas.GREY)
            _labels(axes, place, name, auc)
        _forest_axes(axes, place, lines, report)
        _forest_legend(axes, kinds, report)
        return canvas.png(figure)


def _interval(axes: Axes, place: float, auc: Auc, shape: str, colour: str) -> None:
    strong = colour != canvas.GREY
    axes.plot(auc.together, [place] * 2, color=colour, linewidth=1.0)
    axes.plot(auc.ci, [place] * 2, color=colour, linewidth=4.0 if strong else 2.5, alpha=0.6)
    face = colour if strong else "white"
    axes.plot(auc.value, place, shape, color=colour, markerfacecolor=face, markersize=6)


def _labels(axes: Axes, place: float, name: str, auc: Auc) -> None:
    across = axes.get_yaxis_transform()
    if name:
        weight = "normal" if name == "pixels only" else "bold"
        axes.text(-0.02, place, name, transform=across, ha="right", va="center", weight=weight)
    low, high = auc.together
    text = f"{auc.value:.2f} [{low:.2f}, {high:.2f}]"
    colour = canvas.INK if name else canvas.GREY
    axes.text(1.02, place, text, transform=across, va="center", color=colour, fontsize=9)


def _forest_axes(axes: Axes, bottom: float, lines: Sequence[Line], report: Report) -> None:
    canvas.half_line(axes, vertical=True)
    ends = [limit for _, _, auc in lines for limit in auc.together]
    axes.set_xlim(max(0.0, min([0.4, *ends]) - 0.03), min(1.0, max([0.75, *ends]) + 0.03))
    axes.set_ylim(bottom - 0.8, -0.4)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x")
    axes.set_axisbelow(True)
    axes.set_xlabel("AUC, members against non-members (0.5: nothing told)")
    sizes = [r for r in report["attacks"] if r["unit"] == "image" and r["auc"] is not None]
    n = canvas.counts(sizes[0]["n_members"], sizes[0]["n_nonmembers"]) if sizes else "batches"
    axes.set_title(f"Leakage by attack, controls beside ({n})")


def _forest_legend(axes: Axes, kinds: Sequence[str], report: Report) -> None:
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=canvas.BLUE, marker="o", linewidth=4, alpha=0.7, label="attack, 95 %"),
        Line2D([], [], color=canvas.BLUE, linewidth=1, label="simultaneous 95 %"),
    ]
    for i, kind in enumerate(kinds):
        shape = SHAPES[i % len(SHAPES)]
        label = "pixels only" if kind == "pixels" else kind
        label += " control" if kind in report["controls"] and kind != "pixels" else ""
        handles.append(
            Line2D(
                [],
                [],
                color=canvas.GREY,
                marker=shape,
                linewidth=2,
                markerfacecolor="white",
                label=label,
            )
        )
    figure = axes.get_figure()
    assert figure is not None
    figure.legend(handles=handles, loc="outside lower left", ncols=3)
    if any(r["under_attack"] for r in report["attacks"]):
        figure.text(0.99, 0.01, "* scored on the model under attack", ha="right", size=8)


def roc_curves(run: RunScores) -> bytes | None:
    """ROC of all attacks on log axes, where the low false-positive rates count."""
    attacks = [a for a in run.attacks if len(a.scores_members) and len(a.scores_nonmembers)]
    if not attacks:
        return None
    most = max(len(a.scores_nonmembers) for a in attacks)
    least_tpr = 1 / max(len(a.scores_members) for a in attacks)
    floor_x, floor_y = 0.7 / most, 0.7 * min(least_tpr, 0.01)
    with canvas.style():
        figure = canvas.new(7, 5.4)
        axes = figure.add_subplot()
        line = np.geomspace(floor_x, 1, 50)
        axes.plot(line, line, color=canvas.GREY, linewidth=1, linestyle=":", label="chance")
        for i, attack in enumerate(attacks):
            _roc_line(axes, attack, i, floor_x)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlim(floor_x, 1)
        axes.set_ylim(floor_y, 1.05)
        for target in (0.001, 0.01, 0.1):
            if target > floor_x:
                axes.axvline(target, color="#dddddd", linewidth=0.8, zorder=0)
        axes.set_xlabel("false-positive rate")
        axes.set_ylabel("true-positive rate")
        n = canvas.counts(len(run.member_ids), len(run.nonmember_ids))
        axes.set_title(f"ROC on log axes ({n})")
        figure.legend(*axes.get_legend_handles_labels(), loc="outside lower left", ncols=3)
        return canvas.png(figure)


def _roc_line(axes: Axes, attack: ScoredAttack, i: int, floor: float) -> None:
    fpr, tpr = roc(attack.scores_members, attack.scores_nonmembers)
    label = attack.name
    if attack.unit == "batch":
        label += f" ({len(attack.scores_members)} + {len(attack.scores_nonmembers)} batches)"
    # A log axis has no 0: what is reached without one false alarm is drawn at the left edge.
    axes.plot(
        np.maximum(fpr, floor),
        np.maximum(tpr, 1e-9),
        drawstyle="steps-post",
        color=canvas.COLOURS[i % len(canvas.COLOURS)],
        linestyle=canvas.DASHES[i % len(canvas.DASHES)],
        linewidth=1.8,
        label=label,
    )


def scatter(run: RunScores, most: int = 1000) -> bytes | None:
    """The three features of the combined attack in space (Fig. 9 of the paper), at most `most`
    images a side; None where no attack handed its features over."""
    attack = next((a for a in run.attacks if a.features_members is not None), None)
    if attack is None or attack.features_members is None or attack.features_nonmembers is None:
        return None
    sides = (attack.features_nonmembers, attack.features_members)
    names = attack.feature_names or ("feature 1", "feature 2", "feature 3")
    with canvas.style():
        figure = canvas.new(6.5, 5.6)
        axes: Any = figure.add_subplot(projection="3d")
        looks = (("non-members", canvas.SKY, "o"), ("members", canvas.MEMBER, "^"))
        shown = []
        for (label, colour, shape), points in zip(looks, sides, strict=True):
            some = _thin(points, most)
            shown.append(len(some))
            look = {"s": 16, "alpha": 0.7, "linewidths": 0, "depthshade": False}
            axes.scatter(*some.T, c=colour, marker=shape, label=label, **look)
        axes.set_xlabel(names[0], labelpad=6)
        axes.set_ylabel(names[1], labelpad=6)
        axes.set_zlabel(names[2], labelpad=6)
        axes.tick_params(labelsize=8)
        axes.set_box_aspect(None, zoom=0.9)
        axes.set_title(f"Features of {attack.name} ({canvas.counts(shown[1], shown[0])})")
        axes.legend(loc="upper left", bbox_to_anchor=(0.0, 0.97))
        return canvas.png(figure)


def _thin(points: FloatArray, most: int) -> FloatArray:
    step = max(1, -(-len(points) // most))
    return points[::step]
