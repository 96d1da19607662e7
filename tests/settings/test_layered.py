"""Several defences: every way to say them is one list, and the round trip is exact."""

from __future__ import annotations

from typing import Any

import pytest

from fedmia.cli.command import parse
from fedmia.cli.commands import SIMULATE
from fedmia.settings.commands.compatibility import check_experiment
from fedmia.settings.commands.experiment import Experiment
from fedmia.settings.errors import InputError
from fedmia.settings.tree import flatten, from_tree, to_tree
from fedmia.settings.yamlfile import dump


def told(experiment: Experiment) -> list[tuple[str, tuple[int, ...]]]:
    """Each defence with the clients that apply it."""
    return [(one.name, experiment.layer_client_ids(one)) for one in experiment.defense]


def flags(line: str) -> Experiment:
    settings: Experiment = parse(SIMULATE, line.split()).settings
    return settings


BOTH = [("dpsgd", (0, 1)), ("gaussian", (0, 1))]


@pytest.mark.parametrize(
    "tree",
    [
        "dpsgd,gaussian",
        ["dpsgd", "gaussian"],
        [{"name": "dpsgd"}, "gaussian"],
        {"name": "dpsgd, gaussian"},
        {"name": "dpsgd,gaussian", "dpsgd": {"noise_multiplier": 0.3}},
    ],
    ids=str,
)
def test_defense__short_for_a_list(tree: Any) -> None:
    experiment = from_tree(Experiment, {"defense": tree, "defended_clients": [1, 0]})
    assert told(experiment) == BOTH
    assert from_tree(Experiment, to_tree(experiment)) == experiment
    flat = flatten(Experiment, to_tree(experiment))
    assert flatten(Experiment, flat) == flat and from_tree(Experiment, flat) == experiment


def test_defense__options_of_each_and_of_a_single_one() -> None:
    experiment = flags(
        "--defense dpsgd,gaussian --defense.dpsgd.epsilon 8 --defense.gaussian.scale 2"
    )
    assert [(one.options["epsilon"], one.options.get("scale")) for one in experiment.defense] == [
        (8.0, None), (None, 2.0),
    ]  # fmt: skip
    single = flags("--defense dpsgd --defense.epsilon 8")
    assert single == flags("--defense dpsgd --defense.dpsgd.epsilon 8")
    assert single.defense[0].options["epsilon"] == 8.0


def test_defense__its_own_clients_come_before_those_of_all() -> None:
    tree = {
        "defense": [{"name": "dpsgd", "clients": "0-2,5"}, {"name": "gaussian"}],
        "defended_clients": [7],
    }
    experiment = from_tree(Experiment, tree)
    assert told(experiment) == [("dpsgd", (0, 1, 2, 5)), ("gaussian", (7,))]
    assert experiment.defended == (0, 1, 2, 5, 7)


def test_defense__one_twice_for_other_clients_at_another_strength() -> None:
    one, other = ({"name": "dpsgd", "epsilon": e, "clients": [c]} for e, c in ((1, 0), (8, 1)))
    check_experiment(from_tree(Experiment, {"defense": [one, other]}))
    with pytest.raises(InputError, match="given twice to client 0"):
        check_experiment(from_tree(Experiment, {"defense": [one, {**other, "clients": [0]}]}))


def test_defense__flags_over_a_file(tmp_path: Any) -> None:
    """Options without a name change those of the file; a name keeps what the file says of it."""
    file = tmp_path / "two.yaml"
    layers = [{"name": "dpsgd", "epsilon": 8, "clients": [0]}, {"name": "gaussian", "clients": [1]}]
    file.write_text(dump({"defense": layers}))
    experiment = flags(f"--config {file} --defense.gaussian.scale 3")
    assert told(experiment) == [("dpsgd", (0,)), ("gaussian", (1,))]
    assert experiment.defense[1].options["scale"] == 3.0
    assert told(flags(f"--config {file} --defense dpsgd")) == [("dpsgd", (0,))]
    assert flags(f"--config {file} --defense none").defense == ()
