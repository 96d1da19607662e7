"""Figures of the clients: leakage beside each one's null, of many its distribution, and who holds
what."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fedmia.records.attack_rows import with_auc
from fedmia.records.client_rows import NEVER, SUBJECT, ClientRow, CohortRow, LeakRow
from fedmia.report.figures import canvas
from fedmia.report.figures.base import ReportFigure, count
from fedmia.report.selection import count_clients, has_many_clients, select_clients, unit_of
from fedmia.report.words.clients import distribution_sentence
from fedmia.report.words.numbers import number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BINS = 40  # of the distribution
WEIGHTED = ",\nnon-members weighted to the client's classes"


class LeakageByClient(ReportFigure):
    """AUC of each client with both intervals over the band of its null; None without one."""

    name = "clients"
    place = "clients"

    def rows(self) -> list[ClientRow]:
        """Rows of the clients that are drawn."""
        return with_auc(select_clients(self.report))

    def plot(self) -> Figure | None:
        rows = self.rows()
        if not rows:
            return None
        figure, axes = _forest(rows, [_name(row) for row in rows])
        total, unit = sum(row.n_members for row in rows), unit_of(self.report)
        of = f"{len(rows)} {unit}s"
        if has_many_clients(self.report):
            spread = self.report.client_distribution
            scored = spread.clients if spread else len(with_auc(self.report.clients))
            of = f"{len(rows)} of {scored:,} {unit}s"
        axes.set_title(f"Leakage by {unit}\n{total:,} members of {of}")
        canvas.legend(axes)
        return figure

    def caption(self) -> str:
        if unit_of(self.report) == SUBJECT:
            return (
                "AUC of each subject's images against those of the non-member subjects. Grey: the "
                "null, one non-member subject at a time against the others."
            )
        return (
            "AUC of each client's members against non-members of the same class mix, or against "
            "non-members that the client owns. Grey: the null, non-members that pose as its "
            "members."
        )

    def alt(self) -> str:
        rows = self.rows()
        return f"AUC of {rows[0].attack} by {unit_of(self.report)}. {_extremes(rows, _short)}"


class LeakageByCohort(ReportFigure):
    """AUC of clients by their last round, over the bands of their nulls; None without cohorts."""

    name = "cohorts"
    place = "cohorts"

    def plot(self) -> Figure | None:
        rows = with_auc(self.report.client_cohorts)
        if not rows:
            return None
        figure, axes = _forest(rows, [f"{_round(row)}, n {row.n_members:,}" for row in rows])
        axes.set_title("Leakage by the clients' last round")
        canvas.legend(axes)
        return figure

    def caption(self) -> str:
        return (
            "AUC of the members of clients by the last round in which they trained. Grey: the "
            "null, non-members that pose as these members."
        )

    def alt(self) -> str:
        rows = with_auc(self.report.client_cohorts)
        of = f"AUC of {rows[0].attack} by the clients' last round."
        return f"{of} {_extremes(rows, _round)}"


def _extremes(rows: Sequence[LeakRow], name: Callable[[Any], str]) -> str:
    """The highest and the lowest AUC, and how many lie over the range of their null."""
    ranked = sorted(with_auc(rows), key=lambda row: -row.auc)
    ends = [f"{number(row.auc)} ({name(row)})" for row in (ranked[0], ranked[-1])]
    text = f"The highest is {ends[0]}"
    text += f", the lowest of {len(rows)} {ends[1]}." if len(rows) > 1 else "."
    nulls = [row for row in ranked if row.null_ci is not None]
    over = sum(row.auc > row.null_ci[1] for row in nulls)
    return f"{text} {over} of {len(nulls)} lie over the range of their null." if nulls else text


def _forest(rows: Sequence[LeakRow], names: Sequence[str]) -> tuple[Figure, Axes]:
    """AUCs from top to bottom, each on its null."""
    figure, axes = canvas.one(canvas.COLUMN, 1.3 + 0.22 * len(rows))
    for i, row in enumerate(rows):
        _client(axes, -i, row)
    canvas.auc_axis(axes, f"AUC of {rows[0].attack}{WEIGHTED * (rows[0].whose != SUBJECT)}")
    axes.set_yticks([-i for i in range(len(rows))], names)
    axes.set_ylim(-len(rows) + 0.4, 0.6)
    axes.set_xlim(0, 1)
    axes.tick_params(axis="y", length=0)
    return figure, axes


def _round(row: CohortRow) -> str:
    return "drawn in no round" if row.cohort == NEVER else f"last round {row.cohort}"


def _short(row: ClientRow) -> str:
    return row.name or f"client {row.id}"


def _name(row: ClientRow) -> str:
    defence = row.defence
    return f"{_short(row)}, n {row.n_members}" + (f"\n{defence.name}" if defence else "")


def _client(axes: Axes, place: int, row: LeakRow) -> None:
    first = place == 0  # it alone is named in the legend
    if row.null_ci is not None and row.null_auc is not None:
        low, high = row.null_ci
        posers = "non-member subjects" if row.whose == SUBJECT else "non-members posing as its own"
        label = f"null: {posers}" if first else None
        axes.barh(place, high - low, 0.62, low, color=canvas.GREY, alpha=0.25, label=label)
        axes.plot([row.null_auc] * 2, [place - 0.31, place + 0.31], color=canvas.GREY)
    label = "AUC, 95 % (thin: simultaneous 95 %)" if first else None
    canvas.estimate(axes, place, row, label=label)


class ClientHistogram(ReportFigure):
    """How many clients have which AUC, beside what their nulls would give; None of few clients."""

    name = "clients-distribution"
    place = "all clients"

    def plot(self) -> Figure | None:
        if (spread := self.report.client_distribution) is None:
            return None
        rows, clients = with_auc(self.report.clients), spread.clients
        null = spread.null_percentiles
        # Percentiles are evenly likely, and so are the places between them.
        fine = np.linspace(0, 100, 2001)
        null_values = [] if null is None else np.interp(fine, np.arange(101), null).tolist()
        aucs = [row.auc for row in rows]
        if self.report.client_counts is not None:  # of all clients it holds the percentiles alone
            aucs = np.interp(fine, np.arange(101), spread.percentiles).tolist()
        ends = [*aucs, *([] if null is None else null[1:-1])]
        bins = np.linspace(min(ends) - 1e-9, max(ends) + 1e-9, BINS + 1).tolist()
        figure, axes = canvas.one(canvas.COLUMN, 2.5)
        filled: dict[str, Any] = {"color": canvas.BLUE, "alpha": 0.6, "label": "clients"}
        outlined: dict[str, Any] = {"color": canvas.GREY, "linewidth": 1.2, "histtype": "step"}
        outlined["label"] = "non-members posing as their members"
        for values, look in ((aucs, filled), (null_values, outlined)):
            if values:
                axes.hist(values, bins, weights=[clients / len(values)] * len(values), **look)
        canvas.half_line(axes, vertical=True)
        axes.set_xlabel(f"AUC of {rows[0].attack}{WEIGHTED}")
        axes.set_ylabel("clients")
        axes.set_title(f"Leakage of {clients:,} clients")
        canvas.legend(axes)
        return figure

    def caption(self) -> str:
        return (
            "Histogram of the AUC over clients. Grey: the null, as many draws of non-members that "
            "pose as the clients' members, where nothing can leak."
        )

    def alt(self) -> str:
        if (spread := self.report.client_distribution) is None:
            return ""
        by = with_auc(self.report.clients)[0].attack
        return f"Histogram over clients. {distribution_sentence(spread, str(by))}"


class Holdings(ReportFigure):
    """Who holds what: images by client and class; None where classes were not handed over. Of many
    clients, those shown."""

    name = "holdings"
    place = "clients"

    def rows(self) -> list[tuple[ClientRow, list[int]]]:
        """Clients that are drawn, with their images by class."""
        return [(c, c.classes) for c in select_clients(self.report) if c.classes]

    def plot(self) -> Figure | None:
        rows = self.rows()
        if not rows:
            return None
        classes = max(len(counts) for _, counts in rows)
        table = np.array([[*counts, *[0] * (classes - len(counts))] for _, counts in rows])
        width = canvas.COLUMN if classes <= 10 else canvas.WIDE
        figure, axes = canvas.one(width, 1.1 + 0.2 * len(rows))
        image = axes.imshow(table, cmap="Blues", aspect="auto", vmin=0)
        axes.set_yticks(range(len(rows)), [f"client {r.id} ({r.size:,})" for r, _ in rows])
        if classes <= 30:
            axes.set_xticks(range(classes))
        axes.tick_params(length=0)
        axes.set_xlabel("class")
        axes.spines[:].set_visible(False)
        if classes <= 20 and table.max() < 10_000:
            for (i, j), count in np.ndenumerate(table):
                if count:
                    colour = "white" if count > 0.6 * table.max() else canvas.INK
                    axes.text(j, i, f"{count}", ha="center", va="center", fontsize=7, color=colour)
        else:
            figure.colorbar(image, ax=axes, label="images", shrink=0.8)
        every = f"{count_clients(self.report):,} clients"
        of = f" of {len(rows)} of {every}" if has_many_clients(self.report) else ""
        axes.set_title(f"Images of each class by client\n{int(table.sum()):,} images{of}")
        return figure

    def caption(self) -> str:
        return "Number of images of each class that each client holds."

    def alt(self) -> str:
        rows = self.rows()
        ranked = sorted(rows, key=lambda row: -row[0].size)
        most, least = ranked[0][0], ranked[-1][0]
        spread = [sum(images > 0 for images in counts) for _, counts in rows]
        return (
            f"Images by class of {count(len(rows), 'client')}. Client {most.id} holds the most, "
            f"{most.size:,}, client {least.id} the fewest, {least.size:,}. A client holds images "
            f"of {min(spread)} to {max(spread)} of {max(len(c) for _, c in rows)} classes."
        )
