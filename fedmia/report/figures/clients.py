"""Figures of the clients: leakage beside each one's null, of many its distribution, and who holds
what."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fedmia.records.attack_rows import with_auc
from fedmia.records.client_rows import SUBJECT, ClientRow, LeakRow
from fedmia.records.rows import Report
from fedmia.report.figures import canvas
from fedmia.report.selection import count_clients, has_many_clients, select_clients, unit_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BINS = 40  # of the distribution
WEIGHTED = ",\nnon-members weighted to the client's classes"


def leakage(report: Report) -> Figure | None:
    """AUC of each client with both intervals over the band of its null; None without one."""
    rows = with_auc(select_clients(report))
    if not rows:
        return None
    figure, axes = _forest(rows, [_name(row) for row in rows])
    total, unit = sum(row.n_members for row in rows), unit_of(report)
    of = f"{len(rows)} {unit}s"
    if has_many_clients(report):
        spread = report.client_distribution
        scored = spread.clients if spread else len(with_auc(report.clients))
        of = f"{len(rows)} of {scored:,} {unit}s"
    axes.set_title(f"Leakage by {unit}\n{total:,} members of {of}")
    canvas.legend(axes)
    return figure


def cohorts(report: Report) -> Figure | None:
    """AUC of clients by their last round, over the bands of their nulls; None without cohorts."""
    listed = with_auc(report.client_cohorts)
    if not listed:
        return None
    names = [f"last round {row.cohort}, n {row.n_members:,}" for row in listed]
    figure, axes = _forest(listed, names)
    axes.set_title("Leakage by the clients' last round")
    canvas.legend(axes)
    return figure


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


def _name(row: ClientRow) -> str:
    defence = row.defence
    name = row.name or f"client {row.id}"
    return f"{name}, n {row.n_members}" + (f"\n{defence.name}" if defence else "")


def _client(axes: Axes, place: int, row: LeakRow) -> None:
    first = place == 0  # it alone is named in the legend
    if row.null_ci is not None and row.null_auc is not None:
        low, high = row.null_ci
        label = "non-members posing as its members" if first else None
        axes.barh(place, high - low, 0.62, low, color=canvas.GREY, alpha=0.25, label=label)
        axes.plot([row.null_auc] * 2, [place - 0.31, place + 0.31], color=canvas.GREY)
    label = "its members: 95 %, simultaneous 95 %" if first else None
    canvas.estimate(axes, place, row, label=label)


def distribution(report: Report) -> Figure | None:
    """How many clients have which AUC, beside what their nulls would give; None of few clients."""
    if (spread := report.client_distribution) is None:
        return None
    rows, clients = with_auc(report.clients), spread.clients
    null = spread.null_percentiles
    # Percentiles are evenly likely, and so are the places between them.
    fine = np.linspace(0, 100, 2001)
    null_values = [] if null is None else np.interp(fine, np.arange(101), null).tolist()
    aucs = [row.auc for row in rows]
    if report.client_counts is not None:  # of all clients it holds the percentiles alone
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


def holdings(report: Report) -> Figure | None:
    """Who holds what: images by client and class; None where classes were not handed over. Of many
    clients, those shown."""
    rows = [(c, c.classes) for c in select_clients(report) if c.classes]
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
    of = f" of {len(rows)} of {count_clients(report):,} clients" if has_many_clients(report) else ""
    axes.set_title(f"Images of each class by client\n{int(table.sum()):,} images{of}")
    return figure
