"""Figures of the clients: leakage beside each one's null, and who holds what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fedmia.report.figures import canvas
from fedmia.report.rows import Auc, ClientRow, Report, with_auc

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def leakage(report: Report) -> bytes | None:
    """AUC of each client with both intervals over the band of its null; None without one."""
    rows = with_auc(report["clients"])
    if not rows:
        return None
    with canvas.style():
        figure = canvas.new(7.5, 1.7 + 0.34 * len(rows))
        axes = figure.add_subplot()
        for i, (row, auc) in enumerate(rows):
            _client(axes, -i, row, auc, first=i == 0)
        canvas.half_line(axes, vertical=True)
        axes.set_yticks([-i for i in range(len(rows))], [_name(r) for r, _ in rows])
        axes.set_ylim(-len(rows) + 0.4, 0.6)
        axes.set_xlim(0, 1)
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
        axes.grid(axis="x")
        axes.set_axisbelow(True)
        by = rows[0][0]["attack"]
        axes.set_xlabel(f"AUC of {by}, non-members weighted to the client's classes")
        total = sum(r["n_members"] for r, _ in rows)
        axes.set_title(f"Leakage by client ({total:,} members of {len(rows)} clients)")
        figure.legend(*axes.get_legend_handles_labels(), loc="outside lower left", ncols=3)
        return canvas.png(figure)


def _name(row: ClientRow) -> str:
    defence = row["defence"]
    return f"client {row['id']}, n {row['n_members']}" + (f"\n{defence['name']}" if defence else "")


def _client(axes: Axes, place: float, row: ClientRow, auc: Auc, *, first: bool) -> None:
    if row["null_ci"] is not None and row["null_auc"] is not None:
        low, high = row["null_ci"]
        label = "non-members posing as its members" if first else None
        axes.barh(
            place, high - low, left=low, height=0.62, color=canvas.GREY, alpha=0.25, label=label
        )
        axes.plot([row["null_auc"]] * 2, [place - 0.31, place + 0.31], color=canvas.GREY)
    axes.plot(auc.together, [place] * 2, color=canvas.BLUE, linewidth=1.0)
    axes.plot(auc.ci, [place] * 2, color=canvas.BLUE, linewidth=4, alpha=0.6)
    label = "its members: 95 %, simultaneous 95 %" if first else None
    axes.plot(auc.value, place, "o", color=canvas.BLUE, markersize=6, label=label)


def holdings(report: Report) -> bytes | None:
    """Who holds what: images by client and class; None where classes were not handed over."""
    rows = [(c, c["classes"]) for c in report["clients"] if c["classes"]]
    if not rows:
        return None
    table = np.zeros((len(rows), max(len(held) for _, held in rows)), dtype=int)
    for i, (_, held) in enumerate(rows):
        table[i, : len(held)] = held
    with canvas.style():
        wide = min(10.0, 2.4 + 0.42 * table.shape[1])
        figure = canvas.new(max(4.5, wide), 1.4 + 0.3 * len(rows))
        axes = figure.add_subplot()
        image = axes.imshow(table, cmap="Blues", aspect="auto", vmin=0)
        axes.set_yticks(range(len(rows)), [f"client {r['id']} ({r['size']:,})" for r, _ in rows])
        if table.shape[1] <= 30:
            axes.set_xticks(range(table.shape[1]))
        axes.tick_params(length=0)
        axes.set_xlabel("class")
        for side in axes.spines.values():
            side.set_visible(False)
        if table.shape[1] <= 20 and table.max() < 10_000:
            _numbers(axes, table)
        else:
            figure.colorbar(image, ax=axes, label="images", shrink=0.8)
        axes.set_title(f"Who holds what ({int(table.sum()):,} images)")
        return canvas.png(figure)


def _numbers(axes: Axes, table: Any) -> None:
    for (i, j), count in np.ndenumerate(table):
        if count:
            colour = "white" if count > 0.6 * table.max() else canvas.INK
            axes.text(j, i, f"{count}", ha="center", va="center", fontsize=8, color=colour)
