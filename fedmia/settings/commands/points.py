"""Values of what an attacker has, at each of which every attack is scored."""

from __future__ import annotations

from fedmia.settings.errors import opt, wrong_value
from fedmia.settings.values import from_text

SWEEPS = ("known", "query_budget")  # what --sweep varies


def parse_points(text: str) -> tuple[str, tuple[int, ...]]:
    """`known=25,50` -> ("known", (25, 50)).

    Raises:
        InputError: another kind, or values that are no positive integers.
    """
    kind, equals, rest = text.partition("=")
    kind = kind.strip().replace("-", "_")
    if kind not in SWEEPS or not equals:
        raise wrong_value(opt("sweep"), text, "known=N,N,.. or query_budget=N,N,..")
    values: tuple[int, ...] = from_text(opt("sweep"), rest, tuple[int, ...])
    if not values or min(values) < (2 if kind == "known" else 1):
        raise wrong_value(opt("sweep"), text, "of positive values (known: 2 or more)")
    if len(set(values)) < len(values):
        raise wrong_value(opt("sweep"), text, "of values that differ")
    return kind, values
