"""Settings of a study of defences: its points, its file, what is refused before anything runs."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from fedmia.cli.command import parse
from fedmia.cli.commands import SIMULATE
from fedmia.settings import registry
from fedmia.settings.errors import InputError
from fedmia.settings.options import check_limits, check_type, option_fields
from fedmia.settings.presets import PRESETS
from fedmia.settings.tree import to_tree
from fedmia.settings.yamlfile import dump
from tests.settings.conftest import built
from tests.snapshots import Snapshot

DPSGD = registry.load("defense", "dpsgd")


def test_points__are_the_runs_that_simulate_would_do() -> None:
    study = built("--defenses gaussian,fedprox,dpsgd --strengths 'gaussian=0.1,1;fedprox.mu=0.5' "
                  "--seeds 2 --seed 4 --rounds 3")  # fmt: skip
    strongest = [f"dpsgd {DPSGD.strength}={s}" for s in DPSGD.strengths]
    assert [cell.point for cell in study.points] == [
        "no defence", "gaussian scale=0.1", "gaussian scale=1.0", "fedprox mu=0.5", *strongest,
    ]  # fmt: skip
    assert [c.seed for c in study.cells] == [4] * 8 + [5] * 8
    both = "--seed 5 --rounds 3 --attacker passive --federation.snapshots 1 "
    for i, flags in enumerate(("", "--defense gaussian --defense.scale 0.1")):
        run = parse(SIMULATE, shlex.split(both + flags)).settings
        assert study.cells[8 + i].tree == to_tree(run)
    run = parse(SIMULATE, shlex.split(both + "--strategy fedprox --strategy.mu 0.5")).settings
    assert study.cells[8 + 3].tree == to_tree(run)


def test_presets__are_valid() -> None:
    """Each names so many defences at a strength, the undefended federation among them."""
    names = sorted(p.stem for p in (PRESETS / "tradeoffs").glob("*.yaml"))
    assert [len(built(f"tradeoffs/{name}").points) for name in names] == [14, 19, 4, 4]


def test_none__is_run_whether_named_or_not() -> None:
    named, not_named = (built(f"--defenses {n}dpsgd") for n in ("none,", ""))
    assert [c.key for c in named.cells] == [c.key for c in not_named.cells]


def test_defended_clients__are_those_of_the_clients_defences_alone() -> None:
    settings = built("--defenses gaussian,fedprox --strengths gaussian=1 --defended-clients 0-4")
    defended = [cell.first.defended for cell in settings.cells[:3]]
    assert defended == [(), (0, 1, 2, 3, 4), ()]


def test_defaults__give_way_to_what_is_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "e.yaml"
    file.write_text("attacker: server\nfederation: {rounds: 2}\nattacks: [similarity]\n")
    for line in (str(file), "--attacker server --rounds 2 --attacks similarity"):
        run = built(f"{line} --defenses gaussian --federation.snapshots 2").cells[0].first
        assert (run.attacker, run.federation.rounds, run.federation.snapshots) == ("server", 2, 2)
        assert run.attacks == ("similarity",)


def test_file__holds_a_whole_trade_off_and_reads_back(tmp_path: Path) -> None:
    file = tmp_path / "t.yaml"
    file.write_text(
        "attacks: [similarity]\ndefenses: [gaussian, dpsgd]\nseeds: 2\nseed: 3\n"
        "strengths: {gaussian: [0.1, 0.2], dpsgd.epsilon: [8]}\n"
    )
    settings = built(f"{file} --strengths dpsgd.epsilon=4 --train.lr 1e-3")
    assert [cell.point for cell in settings.points[1:]] == [
        "gaussian scale=0.1", "gaussian scale=0.2", "dpsgd epsilon=4.0",
    ]  # fmt: skip
    assert {c.first.train.lr for c in settings.cells} == {0.001}
    again = tmp_path / "again.yaml"
    again.write_text(dump(settings.tree()))
    assert [c.key for c in built(str(again)).cells] == [c.key for c in settings.cells]


def test_file__mistakes_name_it(tmp_path: Path, snapshot: Snapshot) -> None:
    file, said = tmp_path / "t.yaml", list[str]()
    for text in ("strengths: {gaussian: 1}", "strengths: {gaussian: [-1]}", "strengths: 3"):
        file.write_text(f"defenses: [gaussian]\n{text}\n")
        with pytest.raises(InputError) as caught:
            built(str(file))
        said.append(str(caught.value))
    snapshot("\n".join(said))


DEFENDING = [
    (kind, name)
    for kind in ("defense", "strategy")
    for name in registry.names(kind)
    if registry.load(kind, name).strength or registry.load(kind, name).strengths
]


@pytest.mark.parametrize(("kind", "name"), DEFENDING)
def test_strengths__are_values_of_the_option_that_they_are_of(kind: str, name: str) -> None:
    cls = registry.load(kind, name)
    options = {f.name: f for f, _ in option_fields(cls)}
    kinds = {f.name: kind for f, kind in option_fields(cls)}
    assert cls.strength in options and 3 <= len(set(cls.strengths)) == len(cls.strengths) <= 5
    for value in cls.strengths:
        check_type(f"{name}.strengths", value, kinds[cls.strength])
        check_limits(f"{name}.strengths", value, options[cls.strength].metadata)
