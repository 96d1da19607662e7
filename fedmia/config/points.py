"""Values of what an attacker has, at each of which every attack is scored."""

from __future__ import annotations

from fedmia.options.errors import InputError, opt
from fedmia.options.values import from_text

SWEEPS = ("known", "query_budget")  # what --sweep varies


def parse_points(text: str) -> tuple[str, tuple[int, ...]]:
    """`known=25,50` -> ("known", (25, 50)).

    Raises:
        InputError: another kind, or values that are no positive integers.
    """
    kind, equals, rest = text.partition("=")
    kind = kind.strip().replace("-", "_")
    if kind not in SWEEPS or not equals:
        raise InputError(
            f"{opt('sweep')} must be known=N,N,.. or query_budget=N,N,.., got '{text}'"
        )
    values: tuple[int, ...] = from_text(opt("sweep", kind), rest, tuple[int, ...])
    if not values or min(values) < (2 if kind == "known" else 1):
        raise InputError(
            f"{opt('sweep', kind)} needs positive values (known: 2 or more), got '{rest}'"
        )
    if len(set(values)) < len(values):
        raise InputError(f"{opt('sweep', kind)}: a value is given twice in '{rest}'")
    return kind, values
