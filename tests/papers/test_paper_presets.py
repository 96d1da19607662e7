"""Presets of the federated paper: each has a small twin of the same structure, which runs."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from fedmia.cli.command import parse
from fedmia.cli.commands import SIMULATE
from tests.commands import fedmia
from tests.papers.finished import papers

DATA = ("cifar10", "cifar100", "svhn")


def preset(name: str) -> Any:
    return parse(SIMULATE, ["--config", f"papers/federated-contrastive-{name}"]).settings


@pytest.mark.parametrize("data", DATA)
def test_preset__and_its_twin_have_the_papers_structure(data: str) -> None:
    whole, small = preset(data), preset(f"{data}-small")
    for one in (whole, small):
        assert one.train.lr == 0.1 and one.train.local_epochs == 10
        assert one.train.schedule == "constant" and one.federation.attacked_rate == "schedule"
        assert one.pretrain.mode == "pooled" and one.partition.name == "dirichlet"
        assert one.active_attack == "ascent-algorithm1" and "similarity" in one.attacks
        climb = one.attack["ascent-algorithm1"]
        assert (climb["lr"], climb["steps"]) == ("matched", "matched")
        assert one.attack["similarity"]["pairs"] == "top3"
        assert one.federation.rounds % one.federation.snapshots == 0  # a model every so many
        assert one.attack_rounds == one.federation.rounds // one.federation.snapshots
    assert whole.data.name == small.data.name and whole.attack == small.attack
    assert whole.federation.rounds == 10 * small.federation.rounds
    assert whole.pretrain.epochs == 10 * small.pretrain.epochs == 500
    assert small.split.members < whole.split.members and small.model.name == "smallnet"


@pytest.mark.slow
@pytest.mark.skipif("FEDMIA_DATA" not in os.environ, reason="FEDMIA_DATA is not set")
def test_small_twin__gives_the_papers_tables_and_figures(tmp_path: Path) -> None:
    file, run = Path(os.environ["FEDMIA_DATA"], "cifar10-test.parquet"), tmp_path / "RUN"
    flags = (
        f"--config papers/federated-contrastive-cifar10-small --dataset 'parquet:{file}' --device "
        "cpu --data.limit 400 --split.members 60 --split.nonmembers 80 --split.known 16 "
        "--split.test 20 --clients 4 --rounds 4 --attack-rounds 1 --federation.snapshots 2 "
        "--train.local_epochs 1 --pretrain-epochs 2 --model.width 4 --attack.similarity.views 4 "
        "--attack.combined.views 4 --attack.ascent-static.steps 2 --attack.ascent-static.lr 0.01 "
        "--quiet"
    )
    report = fedmia(f"simulate {flags}", run).report
    assert papers(f"run {run} --quiet").code == 0
    assert {p.stem for p in (run / "paper").glob("*.png")} == {f"fig-{i}" for i in range(5, 14)}
    content = json.loads((run / "paper" / "tables.json").read_text(encoding="utf-8"))
    similarity = next(a for a in report["attacks"] if a["name"] == "similarity")
    assert content["table_2"] == {key: similarity[key] for key in content["table_2"]}
    assert content["data"] == "cifar10-test" and content["round"] == 3
