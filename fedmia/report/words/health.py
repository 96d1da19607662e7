"""Whether an encoder has collapsed, in words."""

from __future__ import annotations

from fedmia.records.rows import Report
from fedmia.report.health import probes_below_untrained
from fedmia.report.words.numbers import number

PROBES = {"knn": "kNN", "linear": "linear probe"}
USELESS = "The model gives nearly the same output for every image, so it is of no use."


def health_sentence(report: Report) -> str | None:
    """What is known of it: `outputs for different images have mean cosine 1.0000, ..`.

    Args:
        report: with its `health` and its probes.

    Returns:
        The text, without a final stop; None where nothing was measured.
    """
    if (row := report.health) is None:
        return None
    cosine = "that is not finite" if row.cosine is None else number(row.cosine, 4)
    parts = [f"outputs for different images have mean cosine {cosine}"]
    if row.loss is not None and row.chance is not None:
        parts.append(f"training loss {number(row.loss)} where {number(row.chance)} is chance")
    if row.collapsed:
        below = probes_below_untrained(report.utility, report.utility_untrained)
        parts += [
            f"{PROBES[name]} {number(now)} under the untrained encoder's {number(then)}"
            for name, (now, then) in below.items()
        ]
    return ", ".join(parts)


def collapsed_sentence(report: Report) -> str | None:
    """What an encoder that collapsed looks like; None of one that did not."""
    health = report.health
    if health is None or not health.collapsed:
        return None
    return f"Collapsed: {health_sentence(report)}."
