"""The tables of the HTML page, as text; one template draws them all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from fedmia.records import ALONE
from fedmia.records.attack_rows import AttackRow, AucRow, Interval, Json
from fedmia.records.client_rows import ClientRow, CohortRow, InferenceRow
from fedmia.records.defence_rows import DefenceRow, GroupLeak
from fedmia.records.fields import fields_of
from fedmia.records.rows import EncoderRow, Report, UtilityRow, control_sets
from fedmia.report.datasets import detected
from fedmia.report.format import (
    DASH,
    control_of,
    epsilon,
    estimate,
    format_p,
    interval,
    lower_bound_text,
    model_of,
    most_leaking_first,
    number,
    statements,
)
from fedmia.report.selection import has_many_clients, select_clients, select_inferred
from fedmia.report.verdict import leaks


@dataclass(frozen=True)
class TextCell:
    """Text, and lines under it that are set smaller. `css`: a class of the page's style.

    Attributes:
        text: the first line.
        small: lines under it, set smaller.
        css: class of the page's style.
    """

    text: str
    small: tuple[str, ...] = ()
    css: str = ""


@dataclass(frozen=True)
class TextRow:
    """Cells in the order of the table's head; text is a cell of one line. `css`: as of a cell.

    Attributes:
        cells: one for each column; a string is a cell of one line.
        css: class of the page's style.
    """

    cells: Sequence[str | TextCell]
    css: str = ""


@dataclass(frozen=True)
class Table:
    """A head, and rows of as many cells.

    Attributes:
        head: names of the columns.
        rows: each with as many cells.
    """

    head: Sequence[str | TextCell]
    rows: Sequence[TextRow]


def _auc_cell(value: float | None, *intervals: Interval | None) -> TextCell:
    """An AUC over its intervals."""
    return TextCell(number(value), tuple(_unbroken(interval(i)) for i in intervals if i))


def _labelled_value(label: str, value: float | None, ci: Interval | None) -> str:
    """`recall 0.64 [0.55, 0.72]`; a line breaks before the interval alone."""
    return f"{_unbroken(f'{label} {number(value)}')} {_unbroken(interval(ci))}".strip()


def _unbroken(text: str) -> str:
    return text.replace(" ", "\N{NO-BREAK SPACE}")


def attacks(report: Report) -> Table:
    """Attacks, most leaking first, each with its intervals and its controls in the same row."""
    sets = [name for name, rows in control_sets(report["controls"]).items() if rows]
    head = [
        TextCell("attack", ("access, vantage, source",)),
        TextCell("AUC", ("95 %", "simultaneous")),
        *(TextCell(f"{name} control", ("simultaneous",)) for name in sets),
        TextCell("at its threshold", ("95 %",)),
        TextCell("TPR at an FPR of", ("95 %",)),
        TextCell("n", ("members + non-members",)),
    ]
    rows = []
    for row in most_leaking_first(report["attacks"]):
        controls = [control_of(report, name, row["name"]) for name in sets]
        how = f"{row['threat']['access']}, {row['threat']['vantage']}"
        chosen = ", ".join(f"{option} {value}" for option, value in row["choices"].items())
        more = (how, model_of(row), chosen and f"chosen: {chosen}", row["paper"])
        n = _unbroken(f"{row['n_members']} + {row['n_nonmembers']}")
        cells = [
            TextCell(row["name"], tuple(line for line in more if line)),
            _auc_cell(row["auc"], row["auc_ci"], row["auc_ci_simultaneous"]),
            *(
                _control_cell(row, name, c) if c else TextCell(DASH)
                for name, c in zip(sets, controls, strict=True)
            ),
            _threshold_cell(row),
            _tpr_cell(row),
            TextCell(n, ("images", f"{row['queries']:,} queries")),
        ]
        rows.append(TextRow(cells, "leaks" * leaks(row)))
    return Table(head, rows)


def _control_cell(row: AttackRow, name: str, control: AttackRow) -> TextCell:
    """A control's AUC; under the attack's own, what the attack adds to it."""
    cell, over = _auc_cell(control["auc"], control["auc_ci_simultaneous"]), row.get("over_control")
    if over is None or over["control"] != name:
        return cell
    added = f"adds {over['difference']:+.2f}", interval(over["ci"])
    return replace(cell, small=(*cell.small, " ".join(map(_unbroken, added))))


def _threshold_cell(row: AttackRow) -> TextCell:
    """A line for each number of the attack that declares a label."""
    values: Json = row
    lines = []
    for name, field in fields_of(AttackRow).items():
        other, needed = field.only
        if field.label and (not other or values[other] == needed):
            lines.append(_labelled_value(field.label, values[name], values.get(f"{name}_ci")))
    return TextCell("", tuple(lines), "numbers")


def _tpr_cell(row: AttackRow) -> TextCell:
    """The TPR at each FPR."""
    rates, ends = row["tpr_at_fpr"], row["tpr_at_fpr_ci"]
    low = tuple(
        f"{_unbroken(f'{100 * float(t):g} %: too few')} non-members"
        if rates[t] is None and row["auc"] is not None
        else _labelled_value(f"{100 * float(t):g} %:", rates[t], ends[t])
        for t in rates
    )
    return TextCell("", low, "numbers")


def paired(report: Report) -> Table:
    """Attacks against their paired controls."""
    head = ["attack", "control", "difference of AUCs", "95 %", "simultaneous", "in words"]
    rows = []
    for p in report["paired"]:
        difference = DASH if p["difference"] is None else f"{p['difference']:+.3f}"
        ends = [_unbroken(interval(ci, 3)) for ci in (p["ci"], p["ci_simultaneous"])]
        cells = [p["attack"], p["control"], difference, *ends, p["statement"]]
        rows.append(TextRow(cells))
    return Table(head, rows)


def sets(report: Report) -> Table:
    """Sets of one kind under each attack, the best told apart first, beside their controls."""
    head = ["attack", "score of a set", "AUC, 95 %", "simultaneous", "control on the same sets"]
    rows = []
    for s in sorted(report["sets"], key=lambda s: -s["auc"]):
        how = "the set climbed alone" if s["judged"] == ALONE else "mean of its images' scores"
        together = s["auc_ci_simultaneous"]
        beside: str | TextCell = DASH
        if (c := s["control"]) is not None:
            more = f"difference {c['difference']:+.2f} {interval(c['difference_ci'])}"
            beside = TextCell(f"{c['name']} {estimate(c['auc'], c['auc_ci'])}", (_unbroken(more),))
        cells = [s["attack"], how, estimate(s["auc"], s["auc_ci"]), interval(together), beside]
        n = f"{s['n_member_sets']} + {s['n_nonmember_sets']} of {s['size']}"
        rows.append(TextRow([*cells, _unbroken(n)]))
    return Table([*head, TextCell("sets", ("of members + of non-members",))], rows)


def datasets(row: InferenceRow) -> Table:
    """One p-value a client, beside that of the untrained encoder; of many, the smallest."""
    head: list[str | TextCell] = [
        "client", "p-value", "p-value, Holm",
        TextCell("difference", ("mean score of the set, minus that of non-members",)),
        TextCell("p-value, untrained", ("the same test on an untrained encoder",)),
        TextCell("images", ("of the set + non-members of its classes",)),
    ]  # fmt: skip
    rows, leaking = [], detected(row)
    for c in select_inferred(row["clients"]):
        p, together, null = map(format_p, (c["p_value"], c["p_value_holm"], c["p_value_untrained"]))
        difference = number(c["difference"], 4)
        n = _unbroken(f"{c['n']} + {c['n_nonmembers']:,}")
        cells = [str(c["client"]), p, together, difference, null, n]
        rows.append(TextRow(cells, "leaks" * (c in leaking)))
    return Table(head, rows)


def controls(report: Report) -> Table:
    """Every control in full; a simultaneous interval that excludes 0.5 voids the run."""
    labelled_rows: list[tuple[str, str, AucRow]] = [
        (label, row["name"], row)
        for label, rows in control_sets(report["controls"]).items()
        for row in rows
    ]
    if (pixels := report["controls"]["pixels"]) is not None:
        labelled_rows.append(("pixels", DASH, pixels))
    rows = []
    for label, name, row in labelled_rows:
        n = f"{row['n_members']} + {row['n_nonmembers']}"
        ci = row["auc_ci_simultaneous"]
        holds = "" if ci is None else "includes 0.5" if ci[0] <= 0.5 <= ci[1] else "EXCLUDES 0.5"
        auc = estimate(row["auc"], row["auc_ci"])
        rows.append(TextRow([label, name, auc, interval(ci), holds, n]))
    sizes = TextCell("n", ("members + non-members",))
    return Table(["control", "attack", "AUC, 95 %", "simultaneous", "result", sizes], rows)


def utility(report: Report) -> Table:
    """Probes of the encoder beside those of the untrained one, and of the last."""
    here, after = report["utility"], report["utility"]["after_attack"]
    columns: dict[str, UtilityRow] = {
        "accuracy, 95 %": here,
        "untrained encoder": here["untrained"],
    }
    if after is not None:
        columns[f"after the attack, round {after['round']}"] = after
    kinds = {
        "weighted kNN": [estimate(row["knn"], row["knn_ci"]) for row in columns.values()],
        "linear probe": [estimate(row["linear"], row["linear_ci"]) for row in columns.values()],
    }
    rows = [
        TextRow([k, *values, f"{here['n']:,}"]) for k, values in kinds.items() if values[0] != DASH
    ]
    return Table(["probe", *columns, "n"], rows)


def clients(report: Report) -> Table:
    """Clients with their defence and epsilon, AUC and null; of many, why each is shown."""
    head = ["client", "images", "role", "defence", "scored members", "AUC, 95 %"]
    head += ["simultaneous", "null: non-members posing as its members"]
    many, rows = has_many_clients(report), []
    head += ["why it is listed"] if many else []
    for one in select_clients(report):
        c = one.row
        defence = _defence_cell(c["defence"]) if c["defence"] else TextCell(DASH)
        size, n = f"{c['size']:,}", str(c["n_members"])
        cells: list[str | TextCell]
        cells = [str(c["id"]), size, c["role"], defence, n, *_leak_cells(c)]
        rows.append(TextRow([*cells, ", ".join(one.why)] if many else cells))
    return Table(head, rows)


def cohorts(report: Report) -> Table | None:
    """Clients by their last round: how many, their scored members, AUC and null."""
    if (rows := report.get("client_cohorts")) is None:
        return None
    head = ["last round", "clients", "images", "scored members", "AUC, 95 %", "simultaneous"]
    table = []
    for c in rows:
        counts = [f"{c['clients']:,}", f"{c['images']:,}", f"{c['n_members']:,}"]
        table.append(TextRow([c["cohort"], *counts, *_leak_cells(c)]))
    return Table([*head, "null: non-members posing as these members"], table)


def _leak_cells(row: ClientRow | CohortRow | GroupLeak) -> list[str]:
    """AUC, its simultaneous interval, and the null."""
    together = _unbroken(interval(row["auc_ci_simultaneous"])) or DASH
    pairs = (row["auc"], row["auc_ci"]), (row["null_auc"], row["null_ci"])
    auc, null = (_unbroken(estimate(*pair)) for pair in pairs)
    return [auc, together, null]


def _defence_cell(row: DefenceRow) -> TextCell:
    """A client's defences: what they promise, what that rests on, and each of several."""
    first, *others = (epsilon(one) + lower_bound_text(one) for one in statements(row))
    small = [one["epsilon"]["assumptions"] for one in statements(row) if one["epsilon"]]
    parts = tuple(epsilon(part) + lower_bound_text(part) for part in row["parts"])
    return TextCell(first, (*others, *(parts if len(parts) > 1 else ()), *small))


def defended(report: Report) -> Table | None:
    """Defended and undefended clients: leakage by attack, and utility for their classes."""
    if (groups_row := report["defended"]) is None:
        return None
    head = ["clients", "scored members", "attack", "AUC, 95 %", "simultaneous"]
    head += ["null: posing non-members", "kNN for their classes"]
    rows = []
    for group in groups_row["groups"]:
        who = f"{group.get('n_clients', len(group['clients']))} {group['group']}"
        knn = estimate(group["knn"], group["knn_ci"])
        n = str(group["n_members"])
        for i, leak in enumerate(group["leakage"]):
            name = f"{leak['attack']}{' *' if leak['under_attack'] else ''}"
            first = ["", "", ""] if i else [who, n, knn]
            rows.append(TextRow([*first[:2], name, *_leak_cells(leak), first[2]]))
        if not group["leakage"]:
            rows.append(TextRow([who, n, DASH, DASH, DASH, DASH, knn]))
    return Table(head, rows)


def rounds(report: Report) -> Table:
    """Rounds whose snapshot was scored, and the last one."""
    history, rows = report["rounds"], []
    for r in history:
        if r["leakage"] or r["knn"] is not None or r is history[-1]:
            name = f"{r['round']}{' *' if r['under_attack'] else ''}"
            aucs = tuple(f"{n} {number(auc, 3)}" for n, auc in r["leakage"].items())
            numbers = [number(r["loss"], 3), number(r["knn"], 3)]
            phase = "attacked" if r["under_attack"] else "clean"
            rows.append(TextRow([name, phase, *numbers, TextCell("", aucs, "grid")]))
    return Table(["round", "phase", "loss", "kNN", "AUC by attack"], rows)


def sweep(report: Report) -> Table:
    """Every attack at every value of a sweep, by attack."""
    swept = report.get("sweep", [])
    known = bool(swept) and swept[0]["sweep"] == "known"
    names = list(dict.fromkeys(r["attack"] for r in swept))
    rows = []
    for row in sorted(swept, key=lambda r: (names.index(r["attack"]), r["value"])):
        if row["not_run"] is None:
            cells = [f"{row['known']:,}", f"{row['queries']:,}"]
            cells += [estimate(row["auc"], row["auc_ci"])]
            cells += [interval(row["auc_ci_simultaneous"]) or DASH, number(row["accuracy"])]
        else:
            cells = [DASH, DASH, f"not run: {row['not_run']}", DASH, DASH]
        rows.append(TextRow([row["attack"], f"{row['value']:,}", *cells[known:]]))
    heads = ["known members"] if known else ["query budget", "known members"]
    return Table(["attack", *heads, "queries", "AUC, 95 %", "simultaneous", "accuracy"], rows)


def encoder(row: EncoderRow) -> list[tuple[str, str]]:
    """What an audit understood of its encoder; names that are many are counted."""
    shapes = {o["name"]: "x".join(map(str, o["shape"])) for o in row["outputs"]}
    outputs = [f"{o['name']} ({o['kind']}, {shapes[o['name']]})" for o in row["outputs"]]
    values: Json = {**row, "outputs": outputs}
    many = {k: f"{len(v)}, e.g. {v[0]}" for k in ("dropped", "missing") if (v := values[k])}
    return flat({**values, **many})


def flat(values: Json, before: str = "") -> list[tuple[str, str]]:
    """(dotted key, text) of every leaf of a nested mapping.

    Args:
        values: a nested mapping.
        before: prefix of every key.

    Returns:
        Key and text of each leaf, in order.
    """
    leaves: list[tuple[str, str]] = []
    for key, value in values.items():
        name = f"{before}{key}"
        if isinstance(value, Mapping) and value:
            leaves += flat(value, f"{name}.")
        elif isinstance(value, list | tuple):
            leaves.append((name, ", ".join(map(str, value)) or "none"))
        else:
            leaves.append((name, "none" if value is None else str(value)))
    return leaves
