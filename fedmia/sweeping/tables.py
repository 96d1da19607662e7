"""The tables of a sweep's page, and the one in the terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import rich.table

from fedmia.config.sweep import label, told
from fedmia.report.format import DASH, interval, number
from fedmia.report.tables import Cell, Row, Table
from fedmia.sweeping.rows import AttackSpread, Point, Spread, SweepReport

DIGITS = 3
MEASURES = {"auc": "AUC", "knn": "weighted kNN", "linear": "linear probe",
            "knn_after_attack": "kNN after the attack"}  # fmt: skip
MODELS = Cell("models", ("one a seed",))


def options(report: SweepReport) -> list[str]:
    """Every option that a grid varies, in order."""
    return list(dict.fromkeys(path for point in report["points"] for path in point["grid"]))


def attacks(report: SweepReport) -> Table:
    """AUC and TPR of every attack at every point, controls beside."""
    paths = options(report)
    rows = [row for point in report["points"] for row in point["attacks"]]
    controls = list(dict.fromkeys(label for row in rows for label in row["controls"]))
    head = [*paths, "attack", "mean AUC, 95 %", "least to greatest", "TPR at 1 % FPR, 95 %"]
    return Table(
        [*head, *(Cell(f"{name} control", ("mean AUC",)) for name in controls), MODELS],
        [
            Row([
                *_place(point["grid"], paths), _chosen(row), over_models(row["auc"]),
                _ends(row["auc"]), over_models(row["tpr_at_1_percent_fpr"]),
                *(_mean(row["controls"].get(name)) for name in controls), str(row["auc"]["n"]),
            ])
            for point in report["points"] for row in point["attacks"]
        ],
    )  # fmt: skip


def pairs(report: SweepReport) -> Table:
    """What each attack adds to its paired control, at every point."""
    paths = options(report)
    head = ["attack", "control", "mean difference of AUCs, 95 %", "least to greatest", "p"]
    return Table(
        [*paths, *head, "p, Holm", MODELS],
        [
            Row([
                *_place(point["grid"], paths), row["attack"], row["control"],
                signed(row["difference"]), _ends(row["difference"]), number(row["p"], DIGITS),
                number(row["p_holm"], DIGITS), str(row["difference"]["n"]),
            ])
            for point in report["points"] for row in point["pairs"]
        ],
    )  # fmt: skip


def sets(report: SweepReport) -> Table:
    """AUC of sets of images, at every point."""
    paths = options(report)
    return Table(
        [*paths, "attack", "judged", "images a set", "mean AUC, 95 %", "least to greatest",
         "less its control, 95 %", "p", "p, Holm", MODELS],
        [
            Row([
                *_place(point["grid"], paths), row["attack"], row["judged"], str(row["size"]),
                over_models(row["auc"]), _ends(row["auc"]), signed(row["difference"]),
                number(row["p"], DIGITS), number(row["p_holm"], DIGITS), str(row["auc"]["n"]),
            ])
            for point in report["points"] for row in point["sets"]
        ],
    )  # fmt: skip


def points(report: SweepReport) -> Table:
    """Probes and verdicts of every point."""
    paths, probes = options(report), [f"{name}, 95 %" for name in list(MEASURES.values())[1:]]
    return Table(
        [*paths, *probes, "verdicts", MODELS, "failed"],
        [
            Row([
                *_place(point["grid"], paths), over_models(point["knn"]),
                over_models(point["linear"]), over_models(point["knn_after_attack"]),
                verdicts(point["verdicts"]), str(point["finished"]), str(point["failed"]),
            ])
            for point in report["points"]
        ],
    )  # fmt: skip


def differences(report: SweepReport) -> Table:
    """Points that differ in one option, seed by seed."""
    return Table(
        ["option", "from", "to", "where", "of", "attack", "mean difference, 95 %", MODELS],
        [
            Row([
                row["option"], told(row["first"]), told(row["second"]),
                label(row["others"]) or DASH, MEASURES[row["measure"]], row["attack"] or DASH,
                signed(row["difference"]), str(row["difference"]["n"]),
            ])
            for row in report["differences"]
        ],
    )  # fmt: skip


def terminal(report: SweepReport) -> rich.table.Table:
    """One line a point and attack, most leaking attack of each point first."""
    table = rich.table.Table(box=None, pad_edge=False, padding=(0, 1), header_style="bold")
    for head in ("point", "attack"):
        table.add_column(head, overflow="fold")
    for head in ("mean AUC, 95 %\nbetween models", "models", "leak"):
        table.add_column(head, justify="right")
    for point in report["points"]:
        leaks = str(point["verdicts"].get("leaks", 0))
        said = label(point["grid"]) or DASH
        ordered = sorted(point["attacks"], key=lambda r: -(r["auc"]["mean"] or 0.0))
        lines = [(r["name"], over_models(r["auc"]), r["auc"]["n"]) for r in ordered]
        lines += [
            (f"{p['attack']} less {p['control']}", signed(p["difference"]), p["difference"]["n"])
            for p in point["pairs"]
        ]
        for name, value, models in lines:
            table.add_row(said, name, value, str(models), leaks)
            said = leaks = ""
    return table


def _chosen(row: AttackSpread) -> str | Cell:
    """An attack's name, under it each choice of its options with how many models led to it."""
    counts = Counter(label(choices) for choices in row["choices"].values())
    chosen = tuple(f"chosen: {options} ({models})" for options, models in counts.most_common())
    return Cell(row["name"], chosen) if chosen else row["name"]


def _place(point: Point, paths: Sequence[str]) -> list[str]:
    return [told(point[path]) if path in point else DASH for path in paths]


def over_models(value: Spread) -> str:
    """A mean, as `0.612 [0.585, 0.635]`."""
    return f"{number(value['mean'], DIGITS)} {interval(value['ci'], DIGITS)}".strip()


def signed(value: Spread) -> str:
    """A difference, as `+0.012 [-0.004, +0.028]`."""
    if value["mean"] is None:
        return DASH
    ends = [f"{end:+.{DIGITS}f}" for end in value["ci"] or ()]
    return f"{value['mean']:+.{DIGITS}f}" + (f" [{', '.join(ends)}]" if ends else "")


def _mean(value: Spread | None) -> str:
    return number(value["mean"], DIGITS) if value else DASH


def _ends(value: Spread) -> str:
    if value["n"] < 2:
        return DASH
    return f"{number(value['least'], DIGITS)} to {number(value['greatest'], DIGITS)}"


def verdicts(found: Mapping[str, int]) -> str:
    """How many models have which verdict, as `leaks 2, collapsed 1`."""
    return ", ".join(f"{code} {count}" for code, count in found.items()) or DASH
