"""The tables of a series' page, and the one in the terminal."""

from __future__ import annotations

import rich.table

from fedmia.report.format import DASH, estimate, interval, number
from fedmia.report.tables import Cell, Row, Table
from fedmia.series.rows import SeriesDifference, SeriesReport
from fedmia.sweeping.tables import over_models, verdicts

DIGITS = 3


def attacks(report: SeriesReport) -> Table:
    """Every attack on every encoder."""
    head: list[str | Cell] = [
        "encoder", "attack", Cell("AUC, 95 %", ("mean over seeds",)), "by seed", "TPR at 1 % FPR",
        Cell("untrained control", ("AUC",)),
        Cell("less the last, 95 %", ("then all differences together",)),
    ]  # fmt: skip
    return Table(
        head,
        [
            Row([
                point["name"], row["name"], estimate(row["auc"], row["auc_ci"], DIGITS),
                " ".join(number(auc, DIGITS) for auc in row["by_seed"]),
                number(row["tpr_at_1_percent_fpr"], DIGITS), number(row["untrained"], DIGITS),
                _signed(row["difference"]),
            ])
            for point in report["points"] for row in point["attacks"]
        ],
    )  # fmt: skip


def points(report: SeriesReport) -> Table:
    """Use and verdicts of every encoder."""
    return Table(
        ["encoder", "weighted kNN, 95 %", "untrained kNN", "linear probe, 95 %", "test images",
         "members", "non-members", Cell("verdicts", ("one a seed",)), "failed"],
        [
            Row([
                point["name"], estimate(point["knn"], point["knn_ci"], DIGITS),
                number(point["knn_untrained"], DIGITS),
                estimate(point["linear"], point["linear_ci"], DIGITS), _count(point["n_probe"]),
                _count(point["n_members"]), _count(point["n_nonmembers"]),
                verdicts(point["verdicts"]), str(point["failed"]),
            ])
            for point in report["points"]
        ],
    )  # fmt: skip


def models(report: SeriesReport) -> Table:
    """Every attack at the rounds that several runs have."""
    return Table(
        ["round", "attack", "mean AUC, 95 %", "weighted kNN, 95 %", "linear probe, 95 %", "models"],
        [
            Row([
                str(row["round"]), name, over_models(auc), over_models(row["knn"]),
                over_models(row["linear"]), str(auc["n"]),
            ])
            for row in report["models"] for name, auc in row["attacks"].items()
        ],
    )  # fmt: skip


def terminal(report: SeriesReport) -> rich.table.Table:
    """One line an encoder and attack, the most leaking first."""
    table = rich.table.Table(box=None, pad_edge=False, padding=(0, 1), header_style="bold")
    for head in ("encoder", "attack"):
        table.add_column(head, overflow="fold")
    for head in ("AUC, 95 %", "kNN, 95 %"):
        table.add_column(head, justify="right")
    for point in report["points"]:
        said, knn = point["name"], estimate(point["knn"], point["knn_ci"], DIGITS)
        for row in sorted(point["attacks"], key=lambda r: -(r["auc"] or 0.0)):
            table.add_row(said, row["name"], estimate(row["auc"], row["auc_ci"], DIGITS), knn)
            said = knn = ""
        if said:
            table.add_row(said, DASH, DASH, knn)
    return table


def _signed(value: SeriesDifference | None) -> str | Cell:
    """`+0.012 [-0.004, 0.028]` over the simultaneous interval."""
    if value is None:
        return DASH
    said = f"{value['difference']:+.{DIGITS}f} {interval(value['ci'], DIGITS)}"
    return Cell(said, (interval(value["ci_simultaneous"], DIGITS),))


def _count(value: int | None) -> str:
    return DASH if value is None else f"{value:,}"
