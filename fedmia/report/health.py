"""Whether an encoder has collapsed: then that nothing leaks says nothing of the training."""

from __future__ import annotations

from fedmia.records import Health
from fedmia.records.fields import row_of
from fedmia.records.rows import HealthRow, Utility

# Mean cosines over which outputs count as all alike: where the loss is at chance, and where it does
# not tell. Untrained encoders tried here reach 0.999.
ALIKE, ALIKE_ALONE = 0.999, 0.9999
ONE = 1 - 1e-11  # outputs that differ in the last digits of float32 alone: one for all images
AT_CHANCE = 0.97  # of the loss at chance


def health_row(health: Health | None, utility: Utility) -> HealthRow | None:
    """The report's `health`.

    An encoder has collapsed where it has one output for all images. It has too where its outputs
    for different images are all alike, and its loss is at chance or a probe of it is under that of
    the untrained encoder. Outputs alike need be no more than a large common part of theirs. A loss
    under chance clears nobody: outputs that move together, away from the queue's older keys, keep
    it low for as long as the learning rate lasts.

    Args:
        health: what was measured on the encoder; None where nothing was.
        utility: probes of the encoder and of the untrained one.

    Returns:
        The row of `report.json`.
    """
    if health is None:
        return None
    alone = health.cosine >= ALIKE_ALONE and bool(probes_below_untrained(utility))
    collapsed = alone or (health.cosine >= ALIKE and is_at_chance(health)) or health.cosine >= ONE
    return row_of(HealthRow, health, collapsed=collapsed)


def is_at_chance(health: Health) -> bool:
    """Whether the training loss is that of one output for all images."""
    if health.loss is None or health.chance is None:
        return False
    return health.loss >= AT_CHANCE * health.chance


def probes_below_untrained(utility: Utility) -> list[str]:
    """The probes that do worse than on the untrained encoder, in words."""
    before = utility["untrained"]
    pairs = (
        ("kNN", utility["knn"], before["knn"]),
        ("linear probe", utility["linear"], before["linear"]),
    )
    return [
        f"{name} {now:.2f} under the untrained encoder's {then:.2f}"
        for name, now, then in pairs
        if now is not None and then is not None and now < then
    ]


def health_sentence(row: HealthRow | None, utility: Utility) -> str | None:
    """What is known of it: `outputs for different images have mean cosine 1.0000, ..`.

    Args:
        row: the report's `health`.
        utility: probes of the encoder and of the untrained one.

    Returns:
        The text, without a final stop.
    """
    if row is None:
        return None
    cosine = "that is not finite" if row["cosine"] is None else f"{row['cosine']:.4f}"
    parts = [f"outputs for different images have mean cosine {cosine}"]
    if row["loss"] is not None and row["chance"] is not None:
        parts.append(f"training loss {row['loss']:.2f} where {row['chance']:.2f} is chance")
    return ", ".join([*parts, *(probes_below_untrained(utility) if row["collapsed"] else [])])
