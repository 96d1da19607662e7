"""The numbers of a report by the names under which observers hear of them.

A name is declared with its number (`fedmia.records.fields.Field.log`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fedmia.records.rows import Report
from fedmia.table import Row, numbers

BY_ROUND = "round"  # the subject of what is logged by its round
OF_THE_RUN = ("attack", "pair", "utility", "utility/after_attack", "health")


def round_values(report: Report) -> Iterator[tuple[int, dict[str, float]]]:
    """(round, AUC by `leakage/ATTACK` and `layers/LAYER`) of the rounds that were evaluated."""
    rounds: dict[int, dict[str, float]] = {}
    for row, name, value in _logged_numbers(report, BY_ROUND):
        rounds.setdefault(row["round"] or 0, {})[name] = value
    yield from rounds.items()


def run_values(report: Report) -> dict[str, float]:
    """AUC of attacks and controls, the ends of the simultaneous intervals and the true-positive
    rate at 1 % of the attacks, what they add over their controls, utility and health: all numbers
    of the run that declare a name."""
    return {name: value for _, name, value in _logged_numbers(report, *OF_THE_RUN)}


def _logged_numbers(report: Report, *subjects: str) -> Iterator[tuple[Row, str, float]]:
    """(row, name, value) of the numbers of these subjects that observers hear of."""
    for field, row in numbers(report):
        value = row["value"]
        if not field.log or row["subject"] not in subjects or value is None:
            continue
        if field.key and row["target_fpr"] != float(field.key):
            continue
        ends = {"low": row["low"], "high": row["high"]}
        for template, end, known in (
            (field.log, "", value),
            *((field.log_ends, end, known) for end, known in ends.items()),
        ):
            name = _name(template, row, end)
            if name is not None and known is not None:
                yield row, name, known


def _name(template: str, row: Row, end: str) -> str | None:
    """The template filled in; None where it is empty, or names no column that the row has."""
    control = row["control"]
    parts = [part for part in (row["subject"], control) if part]
    of = "_".join(parts).replace("/", "_")
    filled = {**row, "of": of, "_control": f"_{control}" if control else "", "end": end}
    apart = "{of}" in template or "{_control}" in template
    if not template or (control and not apart) or ("{attack}" in template and not row["attack"]):
        return None
    return template.format(**filled)


def drop_missing(values: Mapping[str, float | None]) -> dict[str, float]:
    """The values that are not None."""
    return {name: value for name, value in values.items() if value is not None}
