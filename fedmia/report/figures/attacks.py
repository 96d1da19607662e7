"""Figures of the attacks' AUCs: beside their controls, and at each value of a sweep."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fedmia.records.attack_rows import AttackRow, AucRow, ends, with_auc
from fedmia.records.fields import row_of
from fedmia.records.rows import Report
from fedmia.report.figures import canvas
from fedmia.report.figures.base import ReportFigure, count
from fedmia.report.metrics import OF_CONTROL
from fedmia.report.selection import is_reading
from fedmia.report.words.numbers import TOGETHER, estimate, number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Line = tuple[str, str, AucRow]  # the attack (empty: a control of the one above), its kind, its row
SHAPES = ("s", "D", "^", "v", "P", "X")
SWEPT = {
    "known": "known members (and as many non-members)",
    "query_budget": "query budget, images embedded",
}
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


class Forest(ReportFigure):
    """AUC of every attack with both intervals, the most leaking first, its controls under it; a
    further reading of an attack is left out. None without attacks."""

    name = "attacks"
    place = "attacks"

    def rows(self) -> list[AttackRow]:
        """Rows of the attacks that are drawn, the highest AUC first."""
        rows = with_auc(row for row in self.report.attacks if not is_reading(self.report, row))
        return sorted(rows, key=lambda row: -row.auc)

    def lines(self) -> list[Line]:
        """Every AUC from top to bottom."""
        lines: list[Line] = []
        for row in self.rows():
            lines.append((f"{row.name}{'*' * row.under_attack}", "attack", row))
            lines += [("", label, control) for label, control in beside(self.report, row.name)]
        if (pixels := self.report.pixels) is not None and pixels.auc is not None:
            lines.append(("pixels only", "pixels", pixels))
        return lines

    def plot(self) -> Figure | None:
        lines = self.lines()
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
        attacked = any(row.under_attack for row in self.rows())
        starred = "\n* scored on the model under attack" * attacked
        canvas.auc_axis(axes, f"AUC (0.5: no leakage){starred}")
        n = canvas.counts(lines[0][2].n_members, lines[0][2].n_nonmembers)
        axes.set_title(f"Leakage by attack{', with controls' * bool(kinds)}\n{n}")
        _forest_legend(figure, kinds, self.report)
        return figure

    def caption(self) -> str:
        below = " Its controls stand below it in grey."
        return (
            "AUC of each attack with its 95 % interval alone (thick) and that "
            f"{TOGETHER.format('attacks')} (thin)."
            f"{below if any(kind != 'attack' for _, kind, _ in self.lines()) else ''}"
        )

    def alt(self) -> str:
        rows = self.rows()
        text = f"AUC of {count(len(rows), 'attack')}"
        if rows:
            best, least = rows[0], rows[-1]
            text += f". The highest is {estimate(best.auc, ends(best))} ({best.name})"
            if len(rows) > 1:
                text += f", the lowest {estimate(least.auc, ends(least))} ({least.name})"
            over = sum((row.low or 0.0) > 0.5 for row in rows)
            text += f"; {over} of {len(rows)} simultaneous 95 % intervals lie over 0.5"
        by_kind: dict[str, list[float]] = {}
        for _, kind, row in self.lines():
            if kind != "attack" and row.auc is not None:
                by_kind.setdefault(_kind(kind, self.report), []).append(row.auc)
        spans = ", ".join(f"{kind} {_span(aucs)}" for kind, aucs in by_kind.items())
        return f"{text}. Controls: {spans}." if spans else f"{text}."


def _span(values: Sequence[float]) -> str:
    """`0.48 to 0.53`, or one number."""
    return " to ".join(dict.fromkeys(number(end) for end in (min(values), max(values))))


def _kind(kind: str, report: Report) -> str:
    """A kind of control in words."""
    if kind == "pixels":
        return "pixels only"
    return f"{kind} control" if kind in report.controls else kind


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
        Line2D([], [], color=canvas.BLUE, linewidth=1, label="simultaneous 95 %"),
    ]
    look: dict[str, Any] = {"color": canvas.GREY, "linewidth": 1.8, "markerfacecolor": "white"}
    for i, kind in enumerate(kinds):
        marker = SHAPES[i % len(SHAPES)]
        handles.append(Line2D([], [], marker=marker, label=_kind(kind, report), **look))
    canvas.legend_below(figure, handles, 3)


class Sweep(ReportFigure):
    """AUC of every attack at each value of a sweep with its 95 % interval; None without a sweep.

    The values stand at equal distances, the attacks of one value side by side.
    """

    name = "sweep"
    place = "sweep"

    def rows(self) -> dict[str, list[Any]]:
        """Rows that ran of each attack, by value."""
        listed = [r for r in self.report.sweep if r.scored is not None and r.scored.auc is not None]
        names = dict.fromkeys(row.attack for row in listed)
        listed.sort(key=lambda row: row.value)
        return {name: [row for row in listed if row.attack == name] for name in names}

    def plot(self) -> Figure | None:
        by_attack = self.rows()
        if not by_attack:
            return None
        every = [row for rows in by_attack.values() for row in rows]
        values = sorted({row.value for row in every})
        figure, axes = canvas.one(canvas.COLUMN, 2.8)
        for i, (name, rows) in enumerate(by_attack.items()):
            shift = (i - (len(by_attack) - 1) / 2) * APART * max(len(values), 2)
            places = [values.index(row.value) + shift for row in rows]
            look = canvas.look(i)
            for place, row in zip(places, rows, strict=True):
                bar = {"color": look["color"], "linewidth": 1.2, "alpha": 0.8}
                axes.plot([place] * 2, row.scored.auc_ci, **bar)
            axes.plot(places, [row.scored.auc for row in rows], **look, label=name)
        canvas.half_line(axes)
        axes.set_xticks(range(len(values)), [f"{v:,}" for v in values])
        axes.set_xlim(-0.4, len(values) - 0.6)
        axes.grid(axis="y")
        axes.set_xlabel(SWEPT[every[0].sweep])
        axes.set_ylabel("AUC, 95 % interval")
        n = canvas.counts(every[0].scored.n_members, every[0].scored.n_nonmembers)
        axes.set_title(f"Leakage by the attacker's resources\n{n}")
        canvas.legend(axes)
        return figure

    def caption(self) -> str:
        return "AUC of each attack with its 95 % interval, at each value of the sweep."

    def alt(self) -> str:
        by_attack = self.rows()
        first = next(iter(by_attack.values()))[0]
        texts = []
        for name, rows in by_attack.items():
            points = (f"{number(row.scored.auc)} at {row.value:,}" for row in rows)
            texts.append(f"{name} {', '.join(points)}")
        return f"AUC by {SWEPT[first.sweep]}: {'; '.join(texts)}."
