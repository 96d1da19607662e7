"""The tables of the HTML page. Every cell is escaped here, on its way in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from fedmia.report.format import (
    DASH,
    control_of,
    epsilon,
    estimate,
    interval,
    most_leaking_first,
    number,
)

Row = Mapping[str, Any]


def table(head: Sequence[str], rows: Iterable[tuple[str, Sequence[str]]]) -> str:
    """An HTML table of escaped cells; each row is (its CSS class, its cells)."""
    lines = []
    for css, cells in rows:
        inner = "".join(_cell(c) for c in cells)
        lines.append(f'<tr class="{escape(css)}">{inner}</tr>' if css else f"<tr>{inner}</tr>")
    if not lines:
        return ""
    first = "".join(f"<th>{escape(h)}</th>" for h in head)
    body = "\n".join(lines)
    return (
        f'<div class="wide"><table><thead><tr>{first}</tr></thead>\n<tbody>{body}</tbody>'
        "</table></div>\n"
    )


def _cell(text: str) -> str:
    # The second line of a cell is its interval or its n, set smaller.
    first, _, rest = text.partition("\n")
    more = f"<br><small>{escape(rest)}</small>" if rest else ""
    css = ' class="text"' if len(text) > 60 else ""
    return f"<td{css}>{escape(first)}{more}</td>"


def _with(value: float | None, ci: Sequence[float] | None) -> str:
    return f"{number(value)}\n{interval(ci)}"


def attacks_table(report: Row) -> str:
    """Attacks, most leaking first, each with its intervals and its controls in the same line."""
    sets = [k for k, v in report["controls"].items() if isinstance(v, list) and v]
    head = ["attack", "access, vantage", "AUC, 95 %", "AUC, simultaneous"]
    head += [f"{label} control" for label in sets]
    head += ["accuracy", "precision", "recall"]
    head += [f"TPR at {t} FPR" for t in ("0.1 %", "1 %", "10 %")]
    head += ["best accuracy (oracle)", "n", "queries"]
    rows = []
    for row in most_leaking_first(report["attacks"]):
        ci = row["auc_ci_simultaneous"]
        name = row["name"] + (f"\n{row['paper']}" if row["paper"] else "")
        how = f"{row['threat']['access']}, {row['threat']['vantage']}"
        unit = "batches" if row["unit"] == "batch" else "images"
        cells = [name, how + ("\nunder attack" if row["under_attack"] else "")]
        cells += [_with(row["auc"], row["auc_ci"]), interval(ci) or DASH]
        for label in sets:
            control = control_of(report, label, row["name"])
            cells.append(_with(control["auc"], control["auc_ci_simultaneous"]) if control else DASH)
        cells += [_with(row[k], row[f"{k}_ci"]) for k in ("accuracy", "precision", "recall")]
        for t in ("0.001", "0.01", "0.1"):
            cells.append(_with(row["tpr_at_fpr"][t], row["tpr_at_fpr_ci"][t]))
        cells.append(number(row["oracle_accuracy"]))
        cells += [f"{row['n_members']} + {row['n_nonmembers']}\n{unit}", f"{row['queries']:,}"]
        rows.append(("leaks" if ci is not None and ci[0] > 0.5 else "", cells))
    return table(head, rows)


def paired_table(report: Row) -> str:
    """Attacks against their paired controls."""
    head = ["attack", "control", "unit", "difference of AUCs", "95 %", "simultaneous", ""]
    rows = [
        (
            "",
            [
                p["attack"],
                p["control"],
                p["unit"],
                DASH if p["difference"] is None else f"{p['difference']:+.3f}",
                interval(p["ci"], 3),
                interval(p["ci_simultaneous"], 3),
                p["statement"],
            ],
        )
        for p in report["paired"]
    ]
    return f"<h3>Paired on the same images</h3>{table(head, rows)}" if rows else ""


def controls_table(report: Row) -> str:
    """Every control in full; a simultaneous interval that excludes 0.5 voids the run."""
    held: list[tuple[str, Row]] = []
    for label, value in report["controls"].items():
        if isinstance(value, list):
            held += [(label, row) for row in value]
        elif value is not None:
            held.append((label, {"name": DASH, **value}))
    rows = []
    for label, row in held:
        n = f"{row['n_members']} + {row['n_nonmembers']}"
        ci = row["auc_ci_simultaneous"]
        holds = "" if ci is None else "holds 0.5" if ci[0] <= 0.5 <= ci[1] else "EXCLUDES 0.5"
        cells = [label, row["name"], estimate(row["auc"], row["auc_ci"]), interval(ci)]
        rows.append(("", [*cells, holds, n]))
    head = ["control", "attack", "AUC, 95 %", "simultaneous", "", "n"]
    return f"<h3>Controls</h3>{table(head, rows)}" if rows else ""


def utility_table(report: Row) -> str:
    """Probes of the encoder beside those of the untrained one."""
    utility, untrained = report["utility"], report["utility"]["untrained"]
    rows = [
        (
            "",
            [
                label,
                estimate(utility[key], utility[f"{key}_ci"]),
                estimate(untrained[key], untrained[f"{key}_ci"]),
                f"{utility['n']:,}",
            ],
        )
        for key, label in (("knn", "weighted kNN"), ("linear", "linear probe"))
        if utility[key] is not None
    ]
    return table(["probe", "accuracy, 95 %", "untrained encoder", "n"], rows)


def clients_table(report: Row) -> str:
    """Clients with their defence and epsilon, AUC and null."""
    head = ["client", "images", "role", "defence", "scored members", "AUC, 95 %"]
    head += ["simultaneous", "null: posing non-members"]
    rows = []
    for c in report["clients"]:
        defence = DASH
        if c["defence"]:
            spent = c["defence"]["epsilon"]
            defence = epsilon(c["defence"]) + (f"\n{spent['assumptions']}" if spent else "")
        rows.append(
            (
                "",
                [
                    str(c["id"]),
                    f"{c['size']:,}",
                    c["role"],
                    defence,
                    str(c["n_members"]),
                    estimate(c["auc"], c["auc_ci"]),
                    interval(c["auc_ci_simultaneous"]) or DASH,
                    estimate(c["null_auc"], c["null_ci"]),
                ],
            )
        )
    return table(head, rows)


def rounds_table(report: Row) -> str:
    """Rounds whose snapshot was scored, and the last one, folded away."""
    rounds = report["rounds"]
    names = list(dict.fromkeys(n for r in rounds for n in r["leakage"]))
    shown = [r for r in rounds if r["leakage"] or r["knn"] is not None or r is rounds[-1]]
    rows = [
        (
            "",
            [
                f"{r['round']}{' *' if r['under_attack'] else ''}",
                r["phase"],
                number(r["loss"], 3),
                number(r["knn"], 3),
                *(number(r["leakage"].get(n), 3) for n in names),
            ],
        )
        for r in shown
    ]
    if not rows:
        return ""
    head = ["round", "phase", "loss", "kNN", *(f"AUC, {n}" for n in names)]
    return (
        f"<details><summary>{len(rows)} of {len(rounds)} rounds in numbers (* under attack)"
        f"</summary>{table(head, rows)}</details>"
    )


def sweep_table(report: Row) -> str:
    """Every attack at every value of a sweep, by attack."""
    rows = []
    swept = report.get("sweep", ())
    kind = swept[0]["sweep"] if swept else ""
    heads = ["known a side"] if kind == "known" else ["query budget", "known a side"]
    names = list(dict.fromkeys(r["attack"] for r in swept))
    for row in sorted(swept, key=lambda r: (names.index(r["attack"]), r["value"])):
        cells = [row["attack"], f"{row['value']:,}"]
        if row["not_run"] is None:
            cells += [f"{row['known']:,}"] * (kind != "known") + [f"{row['queries']:,}"]
            cells += [estimate(row["auc"], row["auc_ci"])]
            cells += [interval(row["auc_ci_simultaneous"]) or DASH, number(row["accuracy"])]
        else:
            cells += [DASH] * (kind != "known")
            cells += [DASH, f"not run: {row['not_run']}", DASH, DASH]
        rows.append(("", cells))
    head = ["attack", *heads, "queries", "AUC, 95 %", "simultaneous", "accuracy"]
    return table(head, rows)


def definitions(values: Mapping[str, Any], before: str = "") -> str:
    """A definition list of a nested mapping, its keys dotted."""
    found = "".join(
        f"<dt>{escape(key)}</dt><dd>{escape(text)}</dd>" for key, text in flat(values, before)
    )
    return f"<dl>{found}</dl>"


def flat(values: Mapping[str, Any], before: str = "") -> Iterable[tuple[str, str]]:
    """(dotted key, text) of every leaf."""
    for key, value in values.items():
        name = f"{before}{key}"
        if isinstance(value, Mapping) and value:
            yield from flat(value, f"{name}.")
        elif isinstance(value, list | tuple):
            yield name, ", ".join(map(str, value)) or "none"
        else:
            yield name, "none" if value is None else str(value)
