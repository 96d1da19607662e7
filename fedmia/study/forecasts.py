"""What the settings of a study already tell before its first run."""

from __future__ import annotations

from collections.abc import Iterable

from fedmia.config.experiment import Experiment
from fedmia.data._sizes import MOST_MEMBERS


def study_forecasts(experiments: Iterable[Experiment]) -> list[str]:
    """Which defences of a study will guarantee nothing worth the name.

    No image is read: a client counts as having the mean number of images. The run itself says the
    same of its smallest client.

    Args:
        experiments: of the study's runs.

    Returns:
        One line for each defence with such settings: the first of them, and how many others.
    """
    lines = dict[str, dict[str, str]]()  # of each defence, by its settings
    for experiment in experiments:
        # Without a number the most: what it cannot guarantee, nobody's fewer images can.
        members = experiment.split.members or MOST_MEMBERS
        images = members // max(1, len(experiment.honest_clients))
        for layer in experiment.defense:
            defense = layer.build("defense")
            line = defense.forecast(images, experiment.train, experiment.federation.rounds)
            if line is not None and experiment.layer_client_ids(layer):
                lines.setdefault(layer.name, {})[f"{defense} {line}"] = line
    return [
        f"{name}: {next(iter(line_by_setting.values()))}"
        + (
            f"; of its other settings in this study, {len(line_by_setting) - 1} end likewise"
            if len(line_by_setting) > 1
            else ""
        )
        for name, line_by_setting in lines.items()
    ]
