"""How much of what it knows an attack can learn from within a query budget."""

from __future__ import annotations

from torch import Tensor

from fedmia.attacks.base import Known
from fedmia.auditing.views import ModelViews
from fedmia.errors import InputError, opt
from fedmia.seeding import rng

LEAST_KNOWN = 8  # a side, below which a budget buys no attack


def afford(
    views: ModelViews,
    name: str,
    known: Known,
    candidates: Tensor,
    budget: int | None,
    notes: list[str],
) -> Known:
    """As many of the known images as the query budget lets the attack learn from.

    What fitting costs grows linearly with the known images: two small fits tell the line.

    Args:
        candidates: the images to score. budget: None is no limit.
        notes: takes a line where the budget leaves fewer than `known`.

    Raises:
        InputError: the budget does not even buy LEAST_KNOWN a side.
    """
    if budget is None:
        return known
    most = min(len(known.members), len(known.nonmembers))
    least = min(LEAST_KNOWN, most)
    low, score = _cost(views, name, first(known, least), candidates)
    more = min(2 * least, most)
    slope = (_cost(views, name, first(known, more), candidates)[0] - low) / (more - least or 1)
    spent = low + score * len(candidates)
    if spent > budget:
        raise InputError(
            f"{opt('query_budget', budget)}: needs at least {spent:.0f} queries for "
            f"{len(candidates)} images and {least} known a side"
        )
    count = most if slope <= 0 else min(most, least + int((budget - spent) / slope))
    if count == most:
        return known
    notes.append(f"{name}: the query budget of {budget} leaves {count} known images a side.")
    return first(known, count)


def _cost(views: ModelViews, name: str, known: Known, candidates: Tensor) -> tuple[int, int]:
    """Queries of a fit on `known`, and of scoring one image."""
    attack, view = views.build(name), views.view("released", name, known, None)
    attack.fit(view, known, rng(views.audit.seed, "cost", name))
    fitted = view.queries
    attack.score(view, candidates[:1])
    return fitted, view.queries - fitted


def first(known: Known, count: int) -> Known:
    """The first `count` known images of each side (they stand in random order)."""
    return Known(known.members[:count], known.nonmembers[:count])
