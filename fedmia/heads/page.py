"""`head.html`: one page without scripts; the tables of it and of the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import rich.table

from fedmia.heads.compare import ATTACKS
from fedmia.heads.rows import AttackRow, HeadReport, HeadRow
from fedmia.report.format import DASH, interval, number
from fedmia.report.page import picture, templates
from fedmia.report.tables import Cell, Row, Table, flat
from fedmia.sweeping.rows import Spread

DIGITS = 3
CAPTIONS: Mapping[str, str] = {
    "fig-1": "As Fig. 1 of the paper: utility loss by epsilon, mean over heads with its 95 % band. "
    "Grey: no meaningful guarantee.",
    "fig-2": "As Fig. 2 of the paper: accuracy of the attack by epsilon (top), and against the "
    "utility loss at the same epsilon (bottom). Left the paper's attacker; right one that trains "
    "on shadow heads under the same noise. Line: without noise.",
}


def page(report: HeadReport, figures: Mapping[str, bytes]) -> str:
    """The whole HTML document.

    Args:
        report: every string in it is escaped.
        figures: name -> PNG.
    """
    return templates().get_template("head.j2").render(
        report=report,
        tables={"settings": settings(report), "controls": controls(report)},
        pictures={name: picture(CAPTIONS[name], png) for name, png in figures.items()},
        attacks=list(ATTACKS.items()),
        about={"Settings": flat(report["config"]), "Versions": flat(report["versions"])},
    )  # fmt: skip


def settings(report: HeadReport) -> Table:
    """Every setting: what it promises, what it costs, what each attack finds."""
    head = ["noise", "epsilon", "scale", "utility loss, 95 %"]
    return Table(
        [*head, *(Cell(name, ("AUC", "simultaneous", "accuracy, 95 %", "TPR at 1 % FPR"))
                  for name in ATTACKS)],
        [
            Row([
                row["mechanism"] or "none", _epsilon(row),
                number(row["scale"]["mean"], DIGITS), _estimate(row["utility_loss"]),
                *_attacks(row["attacks"]),
            ])
            for row in report["rows"]
        ],
    )  # fmt: skip


def controls(report: HeadReport) -> Table:
    """Where nothing of the encoder, or of the images, can leak."""
    found = report["controls"]
    return Table(
        ["control", "utility, 95 %", *ATTACKS],
        [
            Row([
                Cell("untrained encoder", ("heads without noise: they leak by themselves",)),
                _estimate(found["untrained"]["utility"]), *_attacks(found["untrained"]["attacks"]),
            ]),
            Row([
                Cell("placebo", ("a head that saw none of the images",)),
                DASH, *_attacks(found["placebo"]),
            ]),
        ],
    )  # fmt: skip


def terminal(report: HeadReport) -> rich.table.Table:
    """One line a setting, which fits 80 columns."""
    table = rich.table.Table(box=None, pad_edge=False, padding=(0, 1), header_style="bold")
    table.add_column("noise")
    for name in ("epsilon", "utility\nloss", *(n.replace("-", "-\n") for n in ATTACKS)):
        table.add_column(name, justify="right")
    for row in report["rows"]:
        mark = "" if row["meaningful"] or row["epsilon"] is None else " *"
        epsilon = DASH if row["epsilon"] is None else f"{row['epsilon']:g}{mark}"
        aucs = {a["name"]: number(a["auc"]["mean"]) for a in row["attacks"]}
        loss = number(row["utility_loss"]["mean"])
        held = [aucs.get(name, DASH) for name in ATTACKS]
        table.add_row(row["mechanism"] or "none", epsilon, loss, *held)
    return table


def _epsilon(row: HeadRow) -> Cell:
    if row["epsilon"] is None:
        return Cell(DASH, ("nothing is promised",))
    standing = str(row["standing"]) if row["meaningful"] else "no meaningful guarantee"
    delta = (f"delta {row['delta']:g}",) if row["delta"] else ()
    shown = (f"at least {b['value']:.2f} by canaries",) if (b := row["lower_bound"]) else ()
    return Cell(f"{row['epsilon']:g} for one {row['unit']}", (*delta, standing, *shown))


def _estimate(held: Spread) -> Cell:
    return Cell(number(held["mean"]), (interval(held["ci"]),))


def _attacks(rows: Sequence[AttackRow]) -> list[Cell | str]:
    by_name = {row["name"]: row for row in rows}
    return [_attack(by_name[name]) if name in by_name else DASH for name in ATTACKS]


def _attack(row: AttackRow) -> Cell:
    ci, right = row["auc_ci_simultaneous"], row["accuracy"]
    lines = [interval(ci)]
    if right["mean"] is not None:
        lines.append(f"accuracy {number(right['mean'])} {interval(right['ci'])}")
    lines.append(f"TPR {number(row['tpr_at_1_percent_fpr']['mean'], DIGITS)}")
    return Cell(number(row["auc"]["mean"]), tuple(lines))
