"""The rows of a trade-off: every attack of every run, from the runs' reports."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from typing import Any

from fedmia.config.experiment import Experiment
from fedmia.config.sweep import Cell
from fedmia.config.tradeoff import Trade, Tradeoff
from fedmia.report.rows import AttackRow, EpsilonRow, Report
from fedmia.sweeping.compare import by_point
from fedmia.sweeping.rows import CellRow, SweepReport
from fedmia.tradeoffs.rows import TradeRow


def rows(
    tradeoff: Tradeoff, swept: SweepReport, finished: Mapping[str, tuple[str, Report]]
) -> Iterator[TradeRow]:
    """One row an attack and run, by point, then seed.

    Args:
        swept: its cells are those of the trade-off's sweep.
        finished: key of each finished run -> its folder, and its report.
    """
    scoring = {row["name"] for _, report in finished.values() for row in report["attacks"]}
    for i, (cell, told) in enumerate(zip(by_point(tradeoff.sweep), swept["cells"], strict=True)):
        trade = tradeoff.trades[i // tradeoff.seeds]
        if cell.key in finished:
            yield from _finished(trade, cell, finished[cell.key][1])
        else:
            yield from _lost(trade, cell, told, scoring)


def spent(report: Report) -> EpsilonRow | None:
    """The largest epsilon of a defended client, or what the server's aggregation promises where no
    client defends itself; None where one states none, or where units or deltas differ."""
    stated = [c["defence"]["epsilon"] for c in report["clients"] if c["defence"] is not None]
    server: Any = report.get("aggregation")
    stated = stated or ([server["epsilon"]] if server else [])
    known = [e for e in stated if e is not None]
    alike = {(e.get("unit"), e.get("delta")) for e in known}
    if len(alike) != 1 or len(known) < len(stated):
        return None
    return max(known, key=lambda e: float("inf") if e["value"] is None else e["value"])


def _finished(trade: Trade, cell: Cell[Experiment], report: Report) -> Iterator[TradeRow]:
    epsilon = spent(report)
    found: list[tuple[str, AttackRow | None, str | None]] = [
        *((row["name"], row, None) for row in report["attacks"]),
        *((lost["attack"], None, _why(lost["reason"])) for lost in report["not_run"]),
    ]
    useful = report["utility"]
    for name, row, note in found:
        # An active attack reads the models of the attacked rounds, and is seen beside their use.
        use = (row and row["under_attack"] and useful.get("after_attack")) or useful
        yield {
            "defense": trade.defense,
            "strength": trade.strength,
            "epsilon": epsilon["value"] if epsilon else None,
            "unit": epsilon.get("unit") if epsilon else None,
            "standing": epsilon["standing"] if epsilon else None,
            "attack": name,
            "auc": row["auc"] if row else None,
            "auc_ci": row["auc_ci"] if row else None,
            "tpr": row["tpr_at_fpr"]["0.01"] if row else None,
            "knn": use["knn"],
            "knn_untrained": useful["untrained"]["knn"],
            "linear": use["linear"],
            "seconds": report["timing"].get("total_s"),
            "seed": cell.seed,
            "note": note,
        }


def _why(reason: str) -> str:
    return reason if reason.startswith("failed") else f"not run: {reason}"


def _lost(
    trade: Trade, cell: Cell[Experiment], told: CellRow, scoring: Set[str]
) -> Iterator[TradeRow]:
    """Rows of a run that failed or was not begun, of the attacks that score images elsewhere."""
    note = f"{told['state']}: {told['reason']}" if told["reason"] else told["state"]
    for name in [n for n in cell.first.attacks if n in scoring] or cell.first.attacks:
        yield {
            "defense": trade.defense, "strength": trade.strength, "epsilon": None, "unit": None,
            "standing": None, "attack": name, "auc": None, "auc_ci": None, "tpr": None, "knn": None,
            "knn_untrained": None, "linear": None, "seconds": None, "seed": cell.seed, "note": note,
        }  # fmt: skip
