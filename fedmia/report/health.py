"""Whether an encoder has collapsed: then that nothing leaks says nothing of the training."""

from __future__ import annotations

from dataclasses import replace

from fedmia.records.rows import HealthRow, UtilityRow

# Mean cosines over which outputs count as all alike: where the loss is at chance, and where it does
# not tell. Untrained encoders tried here reach 0.999.
ALIKE, ALIKE_ALONE = 0.999, 0.9999
ONE = 1 - 1e-11  # outputs that differ in the last digits of float32 alone: one for all images
AT_CHANCE = 0.97  # of the loss at chance


def health_row(
    health: HealthRow | None, utility: UtilityRow, untrained: UtilityRow
) -> HealthRow | None:
    """The report's `health`.

    An encoder has collapsed where it has one output for all images. It has too where its outputs
    for different images are all alike, and its loss is at chance or a probe of it is under that of
    the untrained encoder. Outputs alike need be no more than a large common part of theirs. A loss
    under chance clears nobody: outputs that move together, away from the queue's older keys, keep
    it low for as long as the learning rate lasts.

    Args:
        health: what was measured on the encoder; None where nothing was.
        utility: probes of the encoder.
        untrained: of the untrained one.

    Returns:
        The same, judged.
    """
    if health is None:
        return None
    if (cosine := health.cosine) is None:
        return health
    alone = cosine >= ALIKE_ALONE and bool(probes_below_untrained(utility, untrained))
    collapsed = alone or (cosine >= ALIKE and is_at_chance(health)) or cosine >= ONE
    return replace(health, collapsed=collapsed)


def is_at_chance(health: HealthRow) -> bool:
    """Whether the training loss is that of one output for all images."""
    if health.loss is None or health.chance is None:
        return False
    return health.loss >= AT_CHANCE * health.chance


def probes_below_untrained(
    utility: UtilityRow, untrained: UtilityRow
) -> dict[str, tuple[float, float]]:
    """Probes that do worse than on the untrained encoder.

    Args:
        utility: probes of the encoder.
        untrained: of the untrained one.

    Returns:
        `knn`, `linear` -> accuracy, that of the untrained encoder.
    """
    pairs = {"knn": (utility.knn, untrained.knn), "linear": (utility.linear, untrained.linear)}
    return {
        name: (now, then)
        for name, (now, then) in pairs.items()
        if now is not None and then is not None and now < then
    }
