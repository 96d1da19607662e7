"""Settings of a sweep: its cells, its file, and what is refused before anything runs."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from fedmia.cli.command import parse
from fedmia.cli.commands import SIMULATE, SWEEP
from fedmia.cli.presets import PRESETS
from fedmia.config.sweep import Sweep, label
from fedmia.config.tree import to_tree
from fedmia.options.errors import InputError
from fedmia.options.yamlfile import dump
from fedmia.study.folder import LONGEST, names
from tests.snapshots import Snapshot


def built(line: str) -> Sweep:
    settings = parse(SWEEP, shlex.split(line)).settings
    assert isinstance(settings, Sweep)
    return settings


def test_cells__are_the_runs_that_simulate_would_do() -> None:
    settings = built("smoke --grid strategy=fedavg,fedprox --grid train.lr=1e-2,0.1 --seeds 2 "
                  "--seed 4 --rounds 3")  # fmt: skip
    assert [(c.grid["strategy"], c.grid["train.lr"], c.seed) for c in settings.cells] == [
        (s, lr, i) for i in (4, 5) for s in ("fedavg", "fedprox") for lr in (0.01, 0.1)
    ]
    flags = "--config smoke --seed 5 --rounds 3 --strategy fedprox --train.lr 0.1"
    assert settings.cells[-1].tree == to_tree(parse(SIMULATE, shlex.split(flags)).settings)
    assert label(settings.cells[-1].grid) == "strategy=fedprox, train.lr=0.1"


def test_cells__take_the_defaults_of_what_the_grid_chooses() -> None:
    """Another method brings its own learning rate, as it does for `simulate`."""
    moco, simclr = built("--grid ssl=moco,simclr").cells
    assert simclr.first == parse(SIMULATE, ["--ssl", "simclr"]).settings
    assert simclr.first.train.lr != moco.first.train.lr


def test_grid__values_of_every_kind() -> None:
    lists = built("--attacker passive --grid 'attacks=similarity;similarity,internal'")
    assert [c.first.attacks for c in lists.cells] == [
        ("similarity",), ("similarity", "internal"),
    ]  # fmt: skip
    none = built("--grid defense=none,gaussian")
    assert [c.grid["defense"] for c in none.cells] == [None, "gaussian"]
    views = built("--grid attack.similarity.views=3,4 --attacks similarity")
    assert [c.first.attack["similarity"]["views"] for c in views.cells] == [3, 4]


def test_file__holds_a_whole_sweep_and_reads_back(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text("federation: {rounds: 2, clients: 4}\n")
    file = tmp_path / "sweep.yaml"
    file.write_text(
        "base: base.yaml\nattacks: none\nfederation: {clients: 5}\nseeds: 2\ngrid:\n"
        "  - {strategy: [fedavg, fedprox]}\n  - {strategy: [fedprox], strategy.mu: [1, 2]}\n"
    )
    settings = built(str(file))
    assert len(settings.cells) == 8
    assert {(c.first.federation.clients, c.first.federation.rounds)
            for c in settings.cells} == {(5, 2)}  # fmt: skip
    more = built(f"{file} --grid partition.alpha=0.1,1 --train.lr 1e-3")
    assert len(more.cells) == 16 and more.cells[0].first.train.lr == 0.001
    again = tmp_path / "again.yaml"
    again.write_text(dump(more.tree()))
    assert [c.key for c in built(str(again)).cells] == [c.key for c in more.cells]


FILES = (
    "grid: {strateg: [fedavg]}", "grid: {strategy: fedavg}", "grid: 3",
    "grid: {strategy.mu: [1]}", "seed: x", "sead: 3", "base: e.yaml", "base: nothing",
)  # fmt: skip


def test_file__mistakes_name_it(tmp_path: Path, snapshot: Snapshot) -> None:
    file, said = tmp_path / "e.yaml", list[str]()
    for text in FILES:
        file.write_text(text)
        with pytest.raises(InputError) as caught:
            built(str(file))
        said.append(f"{text}\n  {str(caught.value).partition(' (')[0]}")
    snapshot("\n".join(said))
    with pytest.raises(InputError, match="e.yaml: unknown option grid"):
        file.write_text("grid: {strategy: [fedavg]}")
        parse(SIMULATE, ["--config", str(file)])


def test_names__are_readable_and_each_another() -> None:
    cell_names = names(built("--grid dataset=npz:/a/b,npz:/a=b --seeds 2").cells)
    assert len(set(cell_names.values())) == 4 and all("/" not in n for n in cell_names.values())
    assert all(len(n) < LONGEST + 30 for n in cell_names.values())
    (plain,) = names(built("--grid strategy=fedprox").cells).values()
    assert plain == "strategy=fedprox_seed=0"
    listed = names(built("--grid ssl.operations=crop;crop,flip --dataset synthetic").cells)
    assert set(listed.values()) == {f"ssl.operations={v}_seed=0" for v in ("crop", "crop+flip")}


@pytest.mark.parametrize("name", sorted(p.stem for p in (PRESETS / "sweeps").glob("*.yaml")))
def test_presets__are_valid(name: str) -> None:
    cells = len(built(f"sweeps/{name}").cells)
    assert cells == 1 if name == "ascent-resnet18" else cells > 1  # that one is asked once
