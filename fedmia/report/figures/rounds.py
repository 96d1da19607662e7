"""Figures over rounds: leakage beside utility and loss, leakage by layer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fedmia.records.attack_rows import with_auc
from fedmia.records.rows import Report, RoundRow
from fedmia.report.figures import canvas
from fedmia.report.figures.base import ReportFigure
from fedmia.report.words.numbers import number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def series(rounds: Sequence[RoundRow], key: str, name: str) -> tuple[list[int], list[float]]:
    """(rounds, AUCs) of attack or layer `name`, where they are known."""
    return known_points((r.round, getattr(r, key).get(name)) for r in rounds)


def known_points(points: Iterable[tuple[int, float | None]]) -> tuple[list[int], list[float]]:
    """(rounds, values) without those of no value."""
    known = {round: value for round, value in points if value is not None}
    return [*known], [*known.values()]


def names(rounds: Sequence[RoundRow], key: str) -> list[str]:
    """Names whose AUC `key` knows of any round, in the order met."""
    met = dict.fromkeys(name for r in rounds for name in getattr(r, key))
    return [name for name in met if series(rounds, key, name)[0]]


def shade_attacked(axes: Axes, rounds: Sequence[RoundRow], *, label: bool = True) -> None:
    """Shade the rounds under attack.

    Args:
        axes: to draw on.
        rounds: the report's rounds.
        label: whether the legend names the shade.
    """
    attacked = [r.round for r in rounds if r.under_attack]
    if attacked:
        text = "under attack" if label else None
        ends = min(attacked) - 0.5, max(attacked) + 0.5
        axes.axvspan(*ends, color=canvas.ORANGE, alpha=0.15, linewidth=0, label=text)


class LeakageByRound(ReportFigure):
    """AUC of each attack by round with 95 % bands, kNN and loss beneath; None without rounds."""

    name = "rounds"
    place = "rounds"

    def beneath(self) -> dict[str, tuple[list[int], list[float]]]:
        """What stands below the AUCs -> its (rounds, values)."""
        rounds = self.report.rounds
        return {
            "kNN accuracy": known_points((r.round, r.knn) for r in rounds),
            "loss": known_points((r.round, r.loss) for r in rounds),
        }

    def plot(self) -> Figure | None:
        rounds, beneath = self.report.rounds, self.beneath()
        listed = names(rounds, "leakage")
        parts = {"AUC": 3.0} if listed else {}
        parts |= {label: 1.3 for label, (xs, _) in beneath.items() if xs}
        if not parts:
            return None
        heights = list(parts.values())
        figure = canvas.new_figure(canvas.COLUMN, 0.9 + sum(0.6 * h for h in heights))
        grid = figure.subplots(len(parts), sharex=True, squeeze=False, height_ratios=heights)[:, 0]
        for axes, label in zip(grid, parts, strict=True):
            axes.set_ylabel(label)
            if label == "AUC":
                for i, name in enumerate(listed):
                    _line(axes, rounds, "leakage", name, canvas.look(i))
                canvas.half_line(axes)
            else:
                xs, ys = beneath[label]
                style = "o-" if len(xs) < 60 else "-"
                axes.plot(xs, ys, style, color=canvas.INK, markersize=2.5, linewidth=1)
            shade_attacked(axes, rounds, label=axes is grid[0])
            axes.grid(axis="y")
        canvas.whole_rounds(grid[-1])
        grid[0].set_title(f"Leakage, utility and loss by round{_sizes(self.report, listed)}")
        canvas.legend(grid[0], 4)
        return figure

    def caption(self) -> str:
        return (
            "AUC of each attack by round with 95 % bands, and utility and loss of the same rounds."
        )

    def alt(self) -> str:
        texts = [f"AUC of {text}" for text in _changes(self.report.rounds, "leakage")]
        texts += [_change(label, *points) for label, points in self.beneath().items() if points[0]]
        return f"By round: {'; '.join(texts)}."


def _changes(rounds: Sequence[RoundRow], key: str) -> list[str]:
    """What the AUC of each attack or layer was at first and at last, the highest first."""
    every = [(name, *series(rounds, key, name)) for name in names(rounds, key)]
    return [_change(*one) for one in sorted(every, key=lambda one: -one[2][-1])]


def _change(name: str, rounds: Sequence[int], values: Sequence[float]) -> str:
    """`similarity 0.50 in round 1, 0.65 in round 27`."""
    ends = dict(zip(rounds, values, strict=True))
    first_last = dict.fromkeys((rounds[0], rounds[-1]))
    return f"{name} " + ", ".join(f"{number(ends[at])} in round {at}" for at in first_last)


def _sizes(report: Report, listed: Sequence[str]) -> str:
    row = next((row for row in with_auc(report.attacks) if row.name in listed), None)
    return "" if row is None else f"\n{canvas.counts(row.n_members, row.n_nonmembers)}"


def _line(
    axes: Axes, rounds: Sequence[RoundRow], key: str, name: str, look: Mapping[str, Any]
) -> None:
    """The AUCs of an attack or a layer by round, over their 95 % band."""
    xs, ys = series(rounds, key, name)
    bands = [ci for r in rounds if (ci := getattr(r, f"{key}_ci").get(name)) is not None]
    if bands and len(bands) == len(xs):
        low, high = zip(*bands, strict=True)
        axes.fill_between(xs, low, high, color=look["color"], alpha=0.1, linewidth=0)
    axes.plot(xs, ys, **look, label=name)


class LeakageByLayer(ReportFigure):
    """AUC by layer and round with 95 % bands, the similarity attack dashed beside (Fig. 6 of the
    paper)."""

    name = "layers"
    place = "rounds"

    def plot(self) -> Figure | None:
        import matplotlib

        rounds = self.report.rounds
        listed = names(rounds, "layers")
        if not listed:
            return None
        figure, axes = canvas.one(canvas.COLUMN, 2.9)
        # Deep layers dark, so that the order of the layers shows without the legend.
        shades = matplotlib.colormaps["viridis_r"]
        for i, name in enumerate(listed):
            dark = shades(0.12 + 0.88 * i / max(1, len(listed) - 1))
            look = canvas.look(i) | {"linestyle": "-", "color": dark}
            _line(axes, rounds, "layers", name, look)
        xs, ys = series(rounds, "leakage", "similarity")
        if xs:
            axes.plot(xs, ys, "--", color=canvas.RED, label="similarity attack")
        canvas.half_line(axes)
        shade_attacked(axes, rounds)
        axes.grid(axis="y")
        canvas.whole_rounds(axes)
        axes.set_ylabel("AUC")
        axes.set_title(f"Leakage by layer and round{_sizes(self.report, ['internal'])}")
        canvas.legend(axes, 4)
        return figure

    def caption(self) -> str:
        return "AUC of the attack on each layer of the encoder, by round, with 95 % bands."

    def alt(self) -> str:
        changes = _changes(self.report.rounds, "layers")
        return f"AUC by layer and round, the highest at last first: {'; '.join(changes)}."
