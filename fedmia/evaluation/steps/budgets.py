"""How an attack's strength grows with what the attacker has: known images, or queries."""

from __future__ import annotations

from collections.abc import Callable

from fedmia.config.audit import points
from fedmia.evaluation.audits.harness import Audited, Harness, afford, first
from fedmia.options.errors import InputError
from fedmia.records import Sweep, SweepPoint
from fedmia.threat import BudgetError


def sweep(
    harness: Harness, found: Audited, say: Callable[[str], None], stopped: Callable[[], bool]
) -> Sweep:
    """Every attack that ran, at each value, as far as it came.

    All values score the same images, with views and rows shared. An attack that a value does not
    suffice for has a point that says so. (Figs. 6 and 7 of LpLA.)
    """
    kind, values = points(str(harness.views.audit.sweep))
    done: list[SweepPoint] = []
    swept = Sweep(kind, values, done)
    for value in values:
        for name in (a.name for a in found.attacks if a.name in harness.views.audit.attacks):
            if stopped():
                return swept
            try:
                done.append(_point(harness, name, kind, value))
            except (InputError, BudgetError) as error:
                done.append(SweepPoint(name, value, not_run=harness.said(error)))
            except Exception as error:  # as among the attacks: the other points stand
                found.failed.append(name)
                why = f"failed: {type(error).__name__}: {harness.said(error)}"
                done.append(SweepPoint(name, value, not_run=why))
        say(f"sweep: {kind} {value} done")
    return swept


def _point(harness: Harness, name: str, kind: str, value: int) -> SweepPoint:
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
    return SweepPoint(name, value, len(known.members), at)
