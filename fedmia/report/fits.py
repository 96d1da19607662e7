"""Which intervals are of one fit: the sentence on attacks that learn from known images."""

from __future__ import annotations

from collections.abc import Sequence

from fedmia.records.attack_rows import AttackRow


def fits_sentence(rows: Sequence[AttackRow]) -> str | None:
    """Attacks by the number of known images that they learnt from; None where none did."""
    by_size: dict[int, list[str]] = {}
    for row in rows:
        if (size := row.fitted_on) is not None:
            by_size.setdefault(size, []).append(row.name)
    if not by_size:
        return None
    fitted = "; ".join(f"{', '.join(names)} on {size:,}" for size, names in by_size.items())
    return (
        f"Fitted on known images: {fitted}. Intervals are of these fits: another draw of the "
        "known images gives other AUCs, which they need not hold."
    )
