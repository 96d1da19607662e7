"""What the settings of a study already tell before its first run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from fedmia.config.experiment import Experiment
from fedmia.config.plugin_lists import address_layer
from fedmia.config.study import Study
from fedmia.data._sizes import MOST_MEMBERS
from fedmia.options.errors import Spelling, format_error

Respell = Callable[[str, Spelling], Spelling]  # of a defence's name and the spelling of a run
PATH = "defense."


def study_forecasts(
    experiments: Iterable[Experiment], respell: Respell = lambda _, spelling: spelling
) -> list[str]:
    """Which defences of a study will guarantee nothing worth the name.

    No image is read: a client counts as having the mean number of images. The run itself says the
    same of its smallest client.

    Args:
        experiments: of the study's runs.
        respell: how the study spells the options of a defence.

    Returns:
        One line for each defence with such settings: the first of them, and how many others.
    """
    lines = dict[str, dict[str, str]]()  # of each defence, by its settings
    for experiment in experiments:
        # Without a number the most: what it cannot guarantee, nobody's fewer images can.
        members = experiment.split.members or MOST_MEMBERS
        images = members // max(1, len(experiment.honest_clients))
        names = [layer.name for layer in experiment.defense]
        for layer in experiment.defense:
            defense = layer.build("defense")
            line = defense.forecast(images, experiment.train, experiment.federation.rounds)
            if line is not None and experiment.layer_client_ids(layer):
                line = address_layer(line, "defense", layer.name, names)
                line_by_setting = lines.setdefault(layer.name, {})
                line_by_setting[f"{defense} {line}"] = format_error(
                    line, respell(layer.name, experiment.spelling)
                )
    return [
        f"{name}: {next(iter(line_by_setting.values()))}"
        + (
            f"; of its other settings in this study, {len(line_by_setting) - 1} end likewise"
            if len(line_by_setting) > 1
            else ""
        )
        for name, line_by_setting in lines.items()
    ]


def respell_for(study: Study) -> Respell:
    """How a study takes the options of a defence that it compares.

    Args:
        study: its settings.

    Returns:
        A comparison of defences takes them as strengths (`--strengths dpsgd.epsilon=8`), a study
        over the defences with what varies (`--over defense.epsilon=8`), any other as a run does.
    """
    if study.defenses:
        return lambda name, spelling: partial(_within, "strengths", f"{name}.", spelling)
    if any("defense" in grid for grid in study.over):
        return lambda _, spelling: partial(_within, "over", PATH, spelling)
    return lambda _, spelling: spelling


def _within(option: str, before: str, spelling: Spelling, path: str, value: str | None) -> str:
    """An option of a defence as an entry of an option of the study."""
    if not path.startswith(PATH):
        return spelling(path, value)
    entry = before + path.removeprefix(PATH)
    return spelling(option, entry if value is None else f"{entry}={value}")
