"""How an attack's strength grows with what the attacker has: known images, or queries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fedmia.auditing.budget import afford, first
from fedmia.auditing.harness import Audited, Harness
from fedmia.errors import InputError
from fedmia.report.metrics import attack_row
from fedmia.settings.audit import points
from fedmia.threat import BudgetError


def sweep(
    harness: Harness, found: Audited, say: Callable[[str], None], stopped: Callable[[], bool]
) -> list[dict[str, Any]]:
    """Every attack that ran, at each value: rows with kind, value, known a side and the metrics.

    All values score the same images, with views and rows shared. An attack that a value does not
    suffice for has a row that says so. (Figs. 6 and 7 of LpLA.)
    """
    kind, values = points(str(harness.views.audit.sweep))
    family = len(values) * max(len(found.attacks), 1)
    rows: list[dict[str, Any]] = []
    for value in values:
        for scored in found.attacks:
            if stopped():
                return rows
            row: dict[str, Any] = {"attack": scored.name, "sweep": kind, "value": value}
            try:
                row |= _row(harness, scored.name, kind, value, family)
            except (InputError, BudgetError) as error:
                row |= {"known": None, "not_run": harness.said(error)}
            except Exception as error:  # as among the attacks: the other rows stand
                found.failed.append(scored.name)
                row |= {
                    "known": None,
                    "not_run": f"failed: {type(error).__name__}: {harness.said(error)}",
                }
            rows.append(row)
        say(f"sweep: {kind} {value} done")
    return rows


def _row(harness: Harness, name: str, kind: str, value: int, family: int) -> dict[str, Any]:
    """One attack at one value.

    Raises:
        InputError, BudgetError: the value does not suffice for the attack, or there are fewer
            known images.
    """
    known, budget = harness.known, harness.views.audit.query_budget
    if kind == "query_budget":
        budget = value
    elif value > min(len(known.members), len(known.nonmembers)):
        raise InputError(f"only {len(known.members)} images a side are known")
    else:
        known = first(known, value)
    known = afford(harness.views, name, known, harness.scorer.candidates, budget, [])
    at = harness.kept(f"{kind}-{value}", name, known, budget)
    return {"known": len(known.members)} | attack_row(at, family) | {"not_run": None}
