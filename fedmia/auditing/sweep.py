"""How an attack's strength grows with what the attacker has: known images, or queries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fedmia.auditing.harness import Audited, Harness, first
from fedmia.errors import InputError
from fedmia.report.metrics import attack_row
from fedmia.threat import BudgetError
from fedmia.values import from_text

KINDS = ("known", "query_budget")


def points(text: str) -> tuple[str, tuple[int, ...]]:
    """`known=25,50` -> ("known", (25, 50)).

    Raises:
        InputError: another kind, or values that are no positive integers.
    """
    kind, equals, rest = text.partition("=")
    kind = kind.strip().replace("-", "_")
    if kind not in KINDS or not equals:
        raise InputError(f"--sweep must be known=N,N,.. or query_budget=N,N,.., got '{text}'")
    values: tuple[int, ...] = from_text("--sweep", rest, tuple[int, ...])
    if not values or min(values) < (2 if kind == "known" else 1):
        raise InputError(f"--sweep {kind} needs positive values (known: 2 or more), got '{rest}'")
    return kind, values


def sweep(
    harness: Harness, found: Audited, say: Callable[[str], None], stopped: Callable[[], bool]
) -> list[dict[str, Any]]:
    """Every attack that ran, at each value: rows with kind, value, known a side and the metrics.

    All values score the same images, with views and rows shared. An attack that a value does not
    suffice for has a row that says so. (Figs. 6 and 7 of LpLA.)
    """
    kind, values = points(str(harness.audit.sweep))
    family = len(values) * max(len(found.attacks), 1)
    rows: list[dict[str, Any]] = []
    for value in values:
        for scored in found.attacks:
            if stopped():
                return rows
            row: dict[str, Any] = {"attack": scored.name, "sweep": kind, "value": value}
            try:
                if kind == "known":
                    known, budget = first(harness.known, value), harness.audit.query_budget
                    if value > len(harness.known.members):
                        raise InputError(f"only {len(harness.known.members)} images a side known")
                else:
                    budget = value
                    known = harness.afford(scored.name, [], budget)
                row["known"] = len(known.members)
                at = harness.score("released", scored.name, known, budget)
                row |= attack_row(at, family) | {"not_run": None}
            except (InputError, BudgetError) as error:
                row |= {"known": None, "not_run": " ".join(str(error).split())}
            rows.append(row)
        say(f"sweep: {kind} {value} done")
    return rows
