"""What the settings of a study already tell before its first run."""

from __future__ import annotations

import sys

from fedmia.config.experiment import Experiment
from fedmia.config.study import Study
from fedmia.partitions.sizes import MOST_MEMBERS


def say_forecasts(settings: Study) -> None:
    """Print which defences of a study will guarantee nothing worth the name.

    No image is read: a client counts as having the mean number of images. The run itself says the
    same of its smallest client. Each defence has one line: the first such settings, and how many
    others.
    """
    lines = dict[str, dict[str, str]]()  # of each defence, by its settings
    for experiment in (cell.first for cell in settings.points):
        if not isinstance(experiment, Experiment):
            continue
        # Without a number the most: what it cannot guarantee, nobody's fewer images can.
        members = experiment.split.members or MOST_MEMBERS
        images = members // max(1, len(experiment.honest_clients))
        for layer in experiment.defense:
            defense = layer.build("defense")
            line = defense.forecast(images, experiment.train, experiment.federation.rounds)
            if line is not None and experiment.layer_client_ids(layer):
                lines.setdefault(layer.name, {})[f"{defense} {line}"] = line
    for name, by_setting in lines.items():
        first, *others = by_setting.values()
        more = f"; of its other settings in this study, {len(others)} end likewise"
        print(f"fedmia: {name}: {first}{more * bool(others)}", file=sys.stderr)
