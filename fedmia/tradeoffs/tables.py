"""The tables of a trade-off's page, and the one in the terminal."""

from __future__ import annotations

from collections.abc import Sequence

import rich.table

from fedmia.config.sweep import told
from fedmia.records import MEANINGFUL
from fedmia.report.format import DASH, estimate, interval
from fedmia.report.tables import Cell, Row, Table
from fedmia.sweeping.rows import Spread
from fedmia.sweeping.tables import DIGITS, MODELS, over_models, signed, verdicts
from fedmia.tradeoffs.choice import COSTS
from fedmia.tradeoffs.rows import TradeAttack, TradeoffReport, TradePoint, TradeRow

NO_GUARANTEE, DAGGER = "no meaningful guarantee", "†"


def points(report: TradeoffReport) -> Table:
    """Each defence at each strength: what leaks by its best attack, what use is left."""
    return Table(
        ["defence", "epsilon at most", "best attack", Cell("mean AUC", ("95 %, simultaneous",)),
         "less undefended", "TPR at 1 % FPR, 95 %", "weighted kNN, 95 %", "over untrained",
         "less undefended", "linear probe, 95 %", "verdicts", MODELS],
        [
            Row([
                Cell(point["label"], ("on the front",) * point["front"]), epsilon(point),
                point["best"] or DASH, _auc(best_of(point)), _change(point["auc_change"]),
                over_models(best["tpr"]) if (best := best_of(point)) else DASH,
                over_models(point["knn"]), signed(point["knn_over_untrained"]),
                _change(point["knn_change"]), over_models(point["linear"]),
                verdicts(point["verdicts"]), models(point),
            ], css="leaks" * (point["label"] == report["choice"]["least"]))
            for point in report["points"]
        ],
    )  # fmt: skip


def attacks(report: TradeoffReport) -> Table:
    """AUC of every attack at every point."""
    names = list(dict.fromkeys(row["attack"] for row in report["rows"]))
    rows = []
    for point in report["points"]:
        held = {row["name"]: row for row in point["attacks"]}
        rows.append(Row([point["label"], *(_auc(held.get(name)) for name in names)]))
    return Table(["defence", *names], rows)


def groups(report: TradeoffReport) -> Table:
    """What clients that defend themselves leak, beside those of the same model that do not."""
    return Table(
        ["defence", "best attack", "mean AUC of defended clients, 95 %", "of undefended ones",
         "difference", MODELS],
        [
            Row([
                point["label"], point["best"] or DASH, over_models(held["defended"]),
                over_models(held["undefended"]), signed(held["difference"]),
                str(held["difference"]["n"]),
            ])
            for point in report["points"] if (held := point["groups"]) is not None
        ],
    )  # fmt: skip


def lost(report: TradeoffReport) -> list[tuple[str, str]]:
    """(who, why) of every row without an AUC; of equal reasons at one point one entry."""
    found: dict[tuple[str, str], list[TradeRow]] = {}
    labels = {(p["defense"], p["strength"]): p["label"] for p in report["points"]}
    for row in report["rows"]:
        if row["note"]:
            place = labels[row["defense"], row["strength"]], row["note"]
            found.setdefault(place, []).append(row)
    return [(f"{label} ({_whose(held)})", why) for (label, why), held in found.items()]


def terminal(report: TradeoffReport) -> rich.table.Table:
    """One line a point; those on the front have a star."""
    table = rich.table.Table(box=None, padding=(0, 1, 0, 0), header_style="bold")
    names = [_short(point) + " *" * point["front"] for point in report["points"]]
    longest = max((len(word) for name in names for word in name.split()), default=0)
    table.add_column("defence", min_width=longest, overflow="fold")
    for head in ("best\nattack", "mean AUC, simul-\ntaneous 95 %", "mean kNN, 95 %"):
        table.add_column(head, no_wrap=True)
    for head in ("epsilon", "models"):
        table.add_column(head, justify="right", overflow="fold")
    for point, name in zip(report["points"], names, strict=True):
        best = best_of(point)
        table.add_row(
            name,
            point["best"] or DASH,
            estimate(best["auc"]["mean"], best["auc_ci_simultaneous"]) if best else DASH,
            estimate(point["knn"]["mean"], point["knn"]["ci"]),
            epsilon(point).replace(f", {NO_GUARANTEE}", DAGGER),
            models(point),
        )
    table.caption = f"* on the front   {DAGGER} {NO_GUARANTEE}"
    if report["choice"]["least"] is not None:
        table.caption += f"\n{COSTS}"
    table.caption_justify = "left"
    return table


def _short(point: TradePoint) -> str:
    """The defence and its strength without the option's name, which fills a terminal's line."""
    given = point["strength"] is not None
    return point["defense"] + f" {told(point['strength'])}" if given else point["label"]


def best_of(point: TradePoint) -> TradeAttack | None:
    """The attack that leaks most at a point, None where none has an AUC."""
    return next((row for row in point["attacks"] if row["name"] == point["best"]), None)


def epsilon(point: TradePoint) -> str:
    """`8.1 for one image, guaranteed`, `1e+06 for one client, no meaningful guarantee`, a dash."""
    value = point["epsilon"]
    if point["standing"] is None:
        return DASH
    shown = "none" if value is None else f"{value:.3g}"
    shown += f" for one {point['unit']}" if point["unit"] else ""
    little = value is None or value > MEANINGFUL
    return f"{shown}, {NO_GUARANTEE if little else point['standing']}"


def models(point: TradePoint) -> str:
    """How many there are, and how many failed."""
    return f"{point['finished']}" + (f", {point['failed']} failed" if point["failed"] else "")


def _auc(row: TradeAttack | None) -> Cell:
    if row is None or row["auc"]["mean"] is None:
        return Cell(DASH)
    both = (row["auc"]["ci"], row["auc_ci_simultaneous"])
    return Cell(f"{row['auc']['mean']:.{DIGITS}f}", tuple(interval(i, DIGITS) for i in both if i))


def _change(value: Spread | None) -> str:
    return DASH if value is None else signed(value)


def _whose(held: Sequence[TradeRow]) -> str:
    attacks = ", ".join(dict.fromkeys(row["attack"] for row in held))
    seeds = ", ".join(str(seed) for seed in dict.fromkeys(row["seed"] for row in held))
    return f"{attacks}; seed {seeds}"
