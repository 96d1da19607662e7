"""The report in the terminal: a table, most leaking attack first, and one sentence at the end."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from fedmia.records.attack_rows import AttackRow
from fedmia.records.fields import fields_of
from fedmia.records.rows import Report, control_sets
from fedmia.report.answers import TITLES
from fedmia.report.format import (
    control_of,
    defended_lines,
    estimate,
    group_by_reason,
    interval,
    most_leaking_first,
    number,
    rounds_of,
    sentences,
)
from fedmia.report.lowerbounds import SHOUT
from fedmia.report.verdict import leaks

COLOURS = {"leaks": "red"}  # else yellow: no other verdict is good news


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
        parts.append(Text(f"Paired: {pair['statement']}."))
    parts += [Text(line) for line in lines(report)]
    for names, reason in group_by_reason(report).items():
        parts.append(Text(f"Not run: {names}: {reason}", style="dim"))
    colour = COLOURS.get(report["verdict_code"], "yellow")
    colour = "red" if report["verdict"].startswith(SHOUT) else colour
    parts.append(Panel(Text(report["verdict"], style="bold"), title="verdict", border_style=colour))
    for key, title in TITLES.items():
        if text := report.get(key):
            plain = str(text).replace("`", "")
            parts.append(Text.assemble((f"{title}: ", "bold"), plain))
    return Group(*parts)


def attack_table(report: Report) -> Table:
    """One line an attack: AUC with its simultaneous interval, its controls, and each number that
    declares a head."""
    sets = [name for name, rows in control_sets(report["controls"]).items() if rows]
    listed = sorted(fields_of(AttackRow).values(), key=lambda f: f.place)
    declared = [field for field in listed if field.head]
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("attack", overflow="fold")
    runs = any(row["rounds"] for row in report["attacks"])
    if runs:
        table.add_column("model\n(round)", justify="right")
    table.add_column(Text("AUC, simul-\ntaneous 95 %"), no_wrap=True)
    for label in sets:
        table.add_column(label, justify="right", overflow="fold")
    for head in (*(field.head for field in declared), "n"):
        table.add_column(head, justify="right")
    for row in most_leaking_first(report["attacks"]):
        ci = row["auc_ci_simultaneous"]
        controls = [control_of(report, label, row["name"]) for label in sets]
        table.add_row(
            Text(f"{row['name']}{' *' * row['under_attack']}", style="bold" * leaks(row)),
            *[rounds_of(row)] * runs,
            Text(estimate(row["auc"], ci), style="bold red" * leaks(row)),
            *(number(c["auc"] if c else None) for c in controls),
            *(number(field.value(row)) for field in declared),
            f"{row['n_members']}+{row['n_nonmembers']}",
        )
    return table


def legend(report: Report) -> list[str]:
    """What the table's signs mean, as far as they occur."""
    shadows = any(r["threshold_source"] == "shadow" for r in report["attacks"])
    source = "known images or shadows" if shadows else "known images"
    texts = [f"n: scored members + non-members. Accuracy: at a threshold from {source}."]
    if any(r["under_attack"] for r in report["attacks"]):
        texts.append("* scored on the model under attack.")
    return texts


def lines(report: Report) -> list[str]:
    """Pixels, utility, clients and defences, a line each."""
    texts = []
    pixels = report["controls"]["pixels"]
    if pixels is not None and pixels["auc"] is not None:
        ci = interval(pixels["auc_ci_simultaneous"])
        texts.append(
            f"Classifier on pixels only, without the model: AUC {number(pixels['auc'])} {ci}."
        )
    texts += [sentence for sentence in sentences(report).values() if sentence]
    texts += [f"{row['attack']}: {row['statement']}." for row in report["dataset_inference"]]
    return texts + defended_lines(report)
