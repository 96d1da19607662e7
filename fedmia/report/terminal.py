"""The report in the terminal: a table, most leaking attack first, and one sentence at the end."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from fedmia.report.format import (
    by_reason,
    control_of,
    epsilon,
    estimate,
    interval,
    most_leaking_first,
    number,
    sentences,
)
from fedmia.report.rows import Report, SeedsSummary, control_sets

COLOURS = {"leaks": "red", "not-established": "green"}  # else yellow


def render(report: Report) -> RenderableType:
    """What the command line prints of a report; fits 80 columns.

    Args:
        report: what `fedmia.report.build.build_report` returned.
    """
    parts: list[RenderableType] = []
    if report["attacks"]:
        parts.append(attack_table(report))
        parts += [Text(line, style="dim") for line in legend(report)]
    for pair in report["paired"]:
        unit = " (by batch)" if pair["unit"] == "batch" else ""
        parts.append(Text(f"Paired{unit}: {pair['statement']}."))
    parts += [Text(line) for line in lines(report)]
    for names, reason in by_reason(report).items():
        parts.append(Text(f"Not run: {names}: {reason}", style="dim"))
    colour = COLOURS.get(report["verdict_code"], "yellow")
    parts.append(Panel(Text(report["verdict"], style="bold"), title="verdict", border_style=colour))
    return Group(*parts)


def attack_table(report: Report) -> Table:
    """One line an attack: AUC with its simultaneous interval, its controls, TPR, accuracy."""
    sets = [name for name, rows in control_sets(report["controls"]).items() if rows]
    table = Table(box=None, pad_edge=False, padding=(0, 1), header_style="bold")
    table.add_column("attack", overflow="fold")
    table.add_column(Text("AUC, simul-\ntaneous 95 %"), no_wrap=True)
    for label in sets:
        table.add_column(label, justify="right", overflow="fold")
    table.add_column("TPR at\n1 % FPR", justify="right")
    table.add_column("accu-\nracy", justify="right")
    table.add_column("n", justify="right")
    for row in most_leaking_first(report["attacks"]):
        ci = row["auc_ci_simultaneous"]
        leaks = ci is not None and ci[0] > 0.5
        controls = [control_of(report, label, row["name"]) for label in sets]
        table.add_row(
            Text(f"{row['name']}{' *' * row['under_attack']}", style="bold" if leaks else ""),
            Text(estimate(row["auc"], ci), style="bold red" if leaks else ""),
            *(number(c["auc"] if c else None) for c in controls),
            number(row["tpr_at_fpr"]["0.01"]),
            number(row["accuracy"]),
            f"{row['n_members']}+{row['n_nonmembers']}",
        )
    return table


def legend(report: Report) -> list[str]:
    """What the table's signs mean, as far as they occur."""
    found = ["n: scored members + non-members; accuracy at a threshold from known images."]
    if any(r["under_attack"] for r in report["attacks"]):
        found.append("* scored on the model under attack.")
    batches = [r["name"] for r in report["attacks"] if r["unit"] == "batch"]
    if batches:
        found.append(f"By batch, n counts batches, not images: {', '.join(batches)}.")
    return found


def lines(report: Report) -> list[str]:
    """Pixels, utility, clients and defences, a line each."""
    found = []
    pixels = report["controls"]["pixels"]
    if pixels is not None and pixels["auc"] is not None:
        ci = interval(pixels["auc_ci_simultaneous"])
        found.append(f"Pixels only, without the model: AUC {number(pixels['auc'])} {ci}.")
    found += [said for said in sentences(report).values() if said]
    found += [f"{row['attack']}: {row['statement']}." for row in report["dataset_inference"]]
    # Clients of one defence and one epsilon share a line.
    held: dict[str, list[int]] = {}
    for client in report["clients"]:
        if client["defence"]:
            held.setdefault(epsilon(client["defence"]), []).append(client["id"])
    for text, ids in held.items():
        found.append(f"Defended, client {', '.join(map(str, ids))}: {text}.")
    return found


def seeds_table(summary: SeedsSummary) -> Table:
    """`--seeds`: the spread of every attack's AUC over independently trained models."""
    title = f"{summary['models']} models"
    table = Table(box=None, pad_edge=False, header_style="bold", title=title, title_justify="left")
    table.add_column("attack")
    for name in ("mean AUC", "sd", "least", "greatest"):
        table.add_column(name, justify="right")
    for row in sorted(summary["attacks"], key=lambda r: -(r["auc_mean"] or 0.0)):
        values = (row["auc_mean"], row["auc_sd"], row["auc_min"], row["auc_max"])
        table.add_row(row["name"], *(number(v, 3) for v in values))
    return table
