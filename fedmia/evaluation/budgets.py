"""What an attacker's means buy: attacks within a budget of queries, or with fewer known images."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from fedmia.attacks.base import Known
from fedmia.evaluation.steps.scorer import threshold_asks
from fedmia.evaluation.suite import Suite
from fedmia.records import SweepPoint
from fedmia.records.note import Note
from fedmia.rounds.base import TargetModel
from fedmia.seeding import rng
from fedmia.settings.commands.points import parse_points
from fedmia.settings.errors import InputError, opt
from fedmia.threat import BudgetError

LEAST_KNOWN = 8  # a side, below which a budget buys no attack


def allot(suite: Suite, model: TargetModel, name: str) -> Known:
    """The known images that the budget lets an attack learn from, with a note where they are fewer.

    Args:
        suite: the attacks with their scorer.
        model: the model under attack.
        name: name of the attack, as in the registry.

    Returns:
        The known images that the attack may learn from.

    Raises:
        BudgetError: it does not suffice, as `afford` says.
    """
    every, budget = suite.scorer.known, suite.attacker.budget
    try:
        known = suite.known[name] = afford(suite, model, name, every, budget)
    except InputError as error:
        raise BudgetError(str(error)) from None
    if known is not every:
        count = known.least()
        suite.notes.append(Note("few-known", {"attack": name, "budget": budget, "known": count}))
    return known


def afford(suite: Suite, model: TargetModel, name: str, known: Known, budget: int | None) -> Known:
    """As many known images as the query budget lets the attack learn from.

    The cost of fitting grows linearly with the known images: two small fits give the line.

    Args:
        suite: the attacks with their scorer.
        model: the model under attack.
        name: name of the attack, as in the registry.
        known: known members and known non-members.
        budget: None is no limit.

    Returns:
        The known images that the budget allows.

    Raises:
        InputError: the budget does not even buy LEAST_KNOWN a side.
    """
    if budget is None:
        return known
    most, images = known.least(), len(suite.scorer.candidates)
    least = min(LEAST_KNOWN, most)
    low, score = _cost(suite, model, name, first_known(known, least))
    more = min(2 * least, most)
    slope = (_cost(suite, model, name, first_known(known, more))[0] - low) / (more - least or 1)
    spent = low + score * images
    if spent > budget:
        raise InputError(
            f"{opt('query_budget', budget)}: needs at least {spent:.0f} queries for {images} "
            f"images and {least} known a side"
        )
    count = most if slope <= 0 else min(most, least + int((budget - spent) / slope))
    return known if count == most else first_known(known, count)


def _cost(suite: Suite, model: TargetModel, name: str, known: Known) -> tuple[int, int]:
    """Queries of a fit on `known` and of its threshold, and of scoring one image."""
    attack, view = suite.build(name), suite.view(model, name, known, None)
    attack.fit(view, known, rng(suite.scorer.seed, "cost", name))
    fitted = view.queries
    attack.score(view, suite.scorer.candidates[:1])
    each = view.queries - fitted
    return fitted + threshold_asks(attack) * each * len(known.both()[0]), each


def sweep(
    suite: Suite,
    model: TargetModel,
    names: Iterable[str],
    spec: str,
    say: Callable[[str], None] = lambda line: None,
) -> list[SweepPoint]:
    """Score the attacks at each value of a budget (Figs. 6 and 7 of LpLA).

    All values score the same images, and share rows. A value that is too small for an attack gives
    a point that says so.

    Args:
        suite: the attacks with their scorer.
        model: the model under attack.
        names: the attacks.
        spec: as the option `sweep` says it.
        say: prints one line.

    Returns:
        One point for each attack and value.
    """
    kind, values = parse_points(spec)
    points, listed = list[SweepPoint](), list(names)
    for value in values:
        for name in listed:
            try:
                points.append(_point(suite, model, name, kind, value))
            except Exception as error:  # as among the attacks: the other points stand
                why = suite.failures.explain(name, error)
                points.append(SweepPoint(name, kind, value, not_run=why))
        say(f"sweep: {kind} {value} done")
    return points


def _point(suite: Suite, model: TargetModel, name: str, kind: str, value: int) -> SweepPoint:
    """One attack at one value; an error where the value does not suffice for it."""
    known, budget = suite.scorer.known, suite.attacker.budget
    if kind == "query_budget":
        budget = value
    elif value > known.least():
        raise InputError(f"only {known.least()} images a side are known")
    else:
        known = first_known(known, value)
    known = afford(suite, model, name, known, budget)
    scored = partial(suite.score, model, name, known, budget)
    scores = suite.once(f"{kind}-{value}", name, scored)
    return SweepPoint(name, kind, value, known.least(), scores)


def first_known(known: Known, count: int) -> Known:
    """The first `count` known images of each side (they stand in random order, subject by subject
    where they belong to any)."""
    of = known.subjects and (known.subjects[0][:count], known.subjects[1][:count])
    return Known(known.members[:count], known.nonmembers[:count], subjects=of)
