"""The tables of a report: page and terminal draw the same ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from fedmia.records import ALONE
from fedmia.records.attack_rows import (
    AttackRow,
    HasAuc,
    Interval,
    OverControlRow,
    PairedRow,
    SetRow,
    ends,
)
from fedmia.records.client_rows import (
    CLIENT,
    GROUP,
    SUBJECT,
    ClientInferenceRow,
    ClientRow,
    CohortRow,
    InferenceRow,
    LeakRow,
)
from fedmia.records.defence_rows import DefenceRow
from fedmia.records.fields import Field, fields_of, row_of
from fedmia.records.group_rows import GroupLeakRow, GroupRow
from fedmia.records.rows import EncoderRow, Report, RoundRow
from fedmia.report.judgement import detected, is_reversed, leaks
from fedmia.report.selection import (
    FEW,
    has_many_clients,
    is_reading,
    most_leaking_first,
    select_clients,
    select_inferred,
    unit_of,
)
from fedmia.report.tables import (
    AUC,
    Cell,
    Head,
    Table,
    TextCell,
    columns_of,
    flat,
    head_of,
    listing,
    sentence,
    text_of,
)
from fedmia.report.words.attacks import model_of, percent, rounds_of
from fedmia.report.words.bounds import epsilon, lower_bound_text, statements
from fedmia.report.words.numbers import DASH, estimate, number, signed, subjects_of

N = TextCell("n", ("members +", "non-members"))


def auc_cell(row: HasAuc) -> str:
    """An AUC with its simultaneous interval."""
    return _unbroken(estimate(row.auc, ends(row)))


def _difference(row: OverControlRow) -> str:
    return text_of(fields_of(OverControlRow)["difference"], row)


def _number_cell(field: Field, row: AttackRow) -> str:
    return number(field.value(row))


def _unbroken(text: str) -> str:
    return text.replace(" ", "\N{NO-BREAK SPACE}")


def _sizes(row: Any) -> str:
    of = f" of {subjects}" if (subjects := subjects_of(row)) else ""
    return f"{row.n_members}+{row.n_nonmembers}{of}"


def attacks(report: Report, *, readings: bool | None = None) -> Table:
    """Attacks, most leaking first, each beside its controls, and the classifier on pixels.

    Args:
        report: of the attacks.
        readings: only further readings of other attacks, or only what is none; None: all.

    Returns:
        A row an attack.
    """
    rows = [r for r in report.attacks if readings in (None, is_reading(report, r))]
    columns: dict[Head, Cell] = {
        "attack": lambda r: (
            f"{r.name}{' *' * r.under_attack}{' !' * is_reversed(r)}"
            f"{' =' * (r.one_score is not None)}"
        )
    }
    if any(row.rounds for row in report.attacks):
        columns["model\n(round)"] = rounds_of
    columns[AUC] = auc_cell
    for label, listed in report.controls.items():
        if listed:
            columns[label] = partial(_control_cell, {row.name: row for row in listed})
    for head, name in columns_of(AttackRow).items():
        columns[head] = partial(_number_cell, fields_of(AttackRow)[str(name)])
    table = listing(most_leaking_first(rows), {**columns, N: _sizes}, leaks)
    if (pixels := report.pixels) is None or readings:
        return table
    cells: dict[Head, str] = {"attack": "pixels only", AUC: auc_cell(pixels), N: _sizes(pixels)}
    last = [cells.get(head, DASH) for head in table.head]
    return replace(table, rows=[*table.rows, last])


def _control_cell(controls: Mapping[str, AttackRow], row: AttackRow) -> str:
    return number(controls[row.name].auc) if row.name in controls else DASH


def details(report: Report) -> Table:
    """The other numbers of each attack: its 95 % interval alone, controls, decisions and rates."""
    beside = report.controls.items()

    def controls(row: AttackRow) -> TextCell:
        lines = [f"{k} {auc_cell(c)}" for k, rows in beside for c in rows if c.name == row.name]
        if over := row.over_control:
            limit = f"lower limit {signed(over.lower_limit, digits=3)}"
            lines += [f"adds {_difference(over)} to {over.control}", limit]
        return TextCell("", tuple(lines), "numbers")

    columns: dict[Head, Cell] = {
        "attack": _attack_cell,
        "AUC, 95 % alone": lambda r: _unbroken(estimate(r.auc, r.auc_ci)),
        "lower limit": lambda r: number(r.lower_limit, 3),
        "controls": controls,
        "at its threshold, 95 %": _threshold_cell,
        "TPR at an FPR of, 95 %": _tpr_cell,
    }
    if (prior := report.config.get("prior")) is not None:
        columns[f"members among those named there, prior {100 * prior:g} %"] = _prior_cell
    columns["queries"] = "queries"
    return listing(most_leaking_first(report.attacks), columns, leaks)


def _attack_cell(row: AttackRow) -> TextCell:
    """An attack: what it needs, which model it read, what it chose, where it was published."""
    chosen = ", ".join(f"{option} {value}" for option, value in row.choices.items())
    how = f"{row.access}, {row.vantage}"
    more = (how, model_of(row), chosen and f"chosen: {chosen}", row.paper)
    return TextCell(row.name, tuple(line for line in more if line))


def _labelled_value(label: str, value: float | None, ci: Interval | None) -> str:
    """`recall 0.64 [0.55, 0.72]`; a line breaks before the interval alone."""
    first, _, last = estimate(value, ci).partition(" ")
    return f"{_unbroken(f'{label} {first}')} {_unbroken(last)}".strip()


def _threshold_cell(row: AttackRow) -> TextCell:
    """A line for each number of the attack that declares a label."""
    lines = []
    for name, field in fields_of(AttackRow).items():
        other, needed = field.only
        if field.label and (not other or getattr(row, other) == needed):
            ci = next((getattr(row, part) for part, _ in field.parts), None)
            lines.append(_labelled_value(field.label, getattr(row, name), ci))
    return TextCell("", tuple(lines), "numbers")


def _tpr_cell(row: AttackRow) -> TextCell:
    """The TPR at each FPR."""
    rates, intervals = row.tpr_at_fpr, row.tpr_at_fpr_ci
    low = tuple(
        f"{_unbroken(f'{100 * float(t):g} %: too few')} non-members"
        if rates[t] is None and row.auc is not None
        else _labelled_value(f"{100 * float(t):g} %:", rates[t], intervals[t])
        for t in rates
    )
    return TextCell("", low, "numbers")


def _prior_cell(row: AttackRow) -> TextCell:
    """The precision at the prior, at each FPR that the images resolve."""
    intervals = row.precision_at_prior_ci or {}
    lines = tuple(
        f"{_unbroken(f'{100 * float(t):g} %: {percent(right)}')} "
        + _unbroken(f"[{', '.join(map(percent, intervals[t] or ()))}]")
        for t, right in (row.precision_at_prior or {}).items()
        if right is not None
    )
    return TextCell("", lines, "numbers")


def paired(report: Report) -> Table:
    """Attacks against their paired controls."""
    return listing(report.paired, columns_of(PairedRow), lambda r: (r.low or 0) > 0)


def sets(report: Report) -> Table:
    """Sets of one kind under each attack, the best told apart first, beside their controls."""

    def beside(row: SetRow) -> str | TextCell:
        lines: list[str] = []
        for c in row.controls:
            more = f"difference {signed(c.difference, c.difference_ci)}"
            lines += [f"{c.name} {estimate(c.auc, c.auc_ci)}", _unbroken(more)]
        return TextCell(lines[0], tuple(lines[1:])) if lines else DASH

    columns: dict[Head, Cell] = {
        "attack": "attack",
        head_of(SetRow, "judged"): lambda r: (
            "the set climbed alone" if r.judged == ALONE else "mean of its images' scores"
        ),
        AUC: auc_cell,
        head_of(SetRow, "controls"): beside,
        "sets": lambda r: f"{r.n_member_sets}+{r.n_nonmember_sets} of {r.size}",
    }
    return listing(sorted(report.sets, key=lambda s: -s.auc), columns)


def datasets(row: InferenceRow) -> Table:
    """One p-value a client, beside that of the untrained encoder; of many, the smallest."""
    unit = row.clients[0].whose if row.clients else CLIENT
    columns: dict[Head, Cell] = {
        unit: lambda c: c.name or str(c.client),  # a name, not a count
        **columns_of(ClientInferenceRow),
        TextCell("images", ("its own +", "others")): lambda c: f"{c.n}+{c.n_nonmembers:,}",
    }
    leaking = detected(row)
    return listing(select_inferred(row.clients), columns, lambda c: c in leaking)


def utility(report: Report) -> Table:
    """Probes of the encoder beside those of the untrained one, and of the last."""
    here, after = report.utility, report.utility_after_attack
    models = {
        _accuracy_head("accuracy, 95 %", "utility"): here,
        _accuracy_head("untrained", "utility_untrained"): report.utility_untrained,
    }
    if after is not None:
        text = f"after the attack, round {after.round}"
        models[_accuracy_head(text, "utility_after_attack")] = after
    accuracies = {
        "weighted kNN": [estimate(m.knn, m.knn_ci) for m in models.values()],
        "linear probe": [estimate(m.linear, m.linear_ci) for m in models.values()],
    }
    rows = [
        [name, *cells, f"{here.n:,}"] for name, cells in accuracies.items()
        if cells[0] != DASH
    ]  # fmt: skip
    return Table(["probe", *models, "test images"], rows)


def _accuracy_head(text: str, name: str) -> TextCell:
    """The head of the column of the accuracies in a field of the report."""
    return TextCell(text, title=sentence(f"accuracy {fields_of(Report)[name].help}"))


def clients(report: Report) -> Table:
    """Clients with their defence and epsilon, AUC and null; of many, why each is shown."""
    unit = unit_of(report)
    columns: dict[Head, Cell] = {unit: lambda c: c.name or str(c.id)}
    if unit == SUBJECT:
        columns |= _leak_columns()
        columns["AUC, 95 % alone"] = lambda c: _unbroken(estimate(c.auc, c.auc_ci))
    else:
        columns |= columns_of(ClientRow, "size", "role")
        columns["defence"] = lambda c: _defence_cell(c.defence)
        columns |= _leak_columns()
    if has_many_clients(report):
        columns["why it is listed"] = lambda c: ", ".join(c.why or ())
    return listing(select_clients(report), columns)


def titled(report: Report) -> dict[str, tuple[Field, Table]]:
    """Rows that the page shows in a section of their own, the first FEW of each: field of the
    report, as it declares them, and their table."""
    tables = {}
    for name, field in fields_of(type(report)).items():
        if field.title and (rows := getattr(report, name)):
            marks = [one for one, of in fields_of(field.record).items() if of.marks]
            marked = partial(_is_marked, marks)
            columns = {
                head: of
                for head, of in columns_of(field.record).items()
                if not (declared := fields_of(field.record)[str(of)]).optional
                or any(declared.value(row) is not None for row in rows[:FEW])
            }
            tables[name] = field, listing(rows[:FEW], columns, marked)
    return tables


def _is_marked(marks: Sequence[str], row: object) -> bool:
    return any(getattr(row, name) for name in marks)


def cohorts(report: Report) -> Table:
    """Clients by their last round: how many, their scored members, AUC and null."""
    own = columns_of(CohortRow, "cohort", "clients", "images")
    return listing(report.client_cohorts, own | _leak_columns())


def _leak_columns() -> dict[Head, Cell]:
    """Scored members, their AUC, and its null."""
    scored, null = (columns_of(LeakRow, name) for name in ("n_members", "null_auc"))
    return {**scored, AUC: auc_cell, **null}


def _defence_cell(row: DefenceRow | None) -> str | TextCell:
    """A client's defences: what they promise, what that rests on, and each of several."""
    if row is None:
        return DASH
    first, *others = (epsilon(one) + lower_bound_text(one) for one in statements(row))
    small = [one.epsilon.assumptions for one in statements(row) if one.epsilon]
    parts = tuple(epsilon(part) + lower_bound_text(part) for part in row.parts)
    return TextCell(first, (*others, *(parts if len(parts) > 1 else ()), *small))


def defended(report: Report) -> Table:
    """Defended and undefended clients: leakage by attack, and utility for their classes."""
    groups = report.defended
    nothing = row_of(GroupLeakRow, None, whose=GROUP, attack=DASH, under_attack=False, n_members=0)
    columns: dict[Head, Cell] = {
        "clients": lambda r: f"{r[0].n_clients} {r[0].group}",
        head_of(LeakRow, "n_members"): lambda r: str(r[1].n_members),
        "attack": lambda r: f"{r[1].attack}{' *' * r[1].under_attack}",
        AUC: lambda r: auc_cell(r[1]),
        head_of(LeakRow, "null_auc"): lambda r: text_of(fields_of(LeakRow)["null_auc"], r[1]),
        head_of(GroupRow, "knn"): lambda r: text_of(fields_of(GroupRow)["knn"], r[0]),
    }
    pairs = [(g, leak) for g in groups for leak in (*g.leakage, *[nothing] * (not g.leakage))]
    return listing(pairs, columns)


def rounds(report: Report) -> Table:
    """Rounds whose snapshot was scored, and the last one."""
    history = report.rounds
    columns: dict[Head, Cell] = {
        "round": lambda r: f"{r.round}{' *' * r.under_attack}",
        **columns_of(RoundRow, "loss", "knn"),
        "AUC by attack": lambda r: TextCell(
            "", tuple(f"{name} {number(auc, 3)}" for name, auc in r.leakage.items()), "grid"
        ),
    }
    scored = [r for r in history if r.leakage or r.knn is not None or r is history[-1]]
    return listing(scored, columns)


def sweep(report: Report) -> Table:
    """Every attack at every value of a sweep, by attack."""
    swept = report.sweep
    names = list(dict.fromkeys(r.attack for r in swept))
    columns: dict[Head, Cell] = {
        "attack": "attack",
        "query budget": lambda r: f"{r.value:,}",
        "known members": lambda r: DASH if r.known is None else f"{r.known:,}",
        "queries": lambda r: f"{r.scored.queries:,}" if r.scored else DASH,
        AUC: lambda r: auc_cell(r.scored) if r.scored else f"not run: {r.not_run}",
        head_of(AttackRow, "accuracy"): lambda r: number(r.scored and r.scored.accuracy),
    }
    if swept and swept[0].sweep == "known":
        columns["known members"] = columns.pop("query budget")
    return listing(sorted(swept, key=lambda r: (names.index(r.attack), r.value)), columns)


def encoder(row: EncoderRow) -> list[tuple[str, str]]:
    """What an audit understood of its encoder; names that are many are counted."""
    shapes = {o.name: "x".join(map(str, o.shape)) for o in row.outputs}
    values = {
        **vars(row), "outputs": [f"{o.name} ({o.kind}, {shapes[o.name]})" for o in row.outputs]
    }  # fmt: skip
    many = {k: f"{len(v)}, e.g. {v[0]}" for k in ("dropped", "missing") if (v := values[k])}
    return flat({**values, **many})
