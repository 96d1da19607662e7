"""Presets of the audit's three papers: whose each value is, what comes of it, that it runs."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from fedmia import simulate
from fedmia.cli.command import parse
from fedmia.cli.commands import SIMULATE
from fedmia.cli.presets import PRESETS
from fedmia.config.compatibility import check_experiment
from fedmia.config.experiment import Experiment

FEW = (
    "--dataset digits --device cpu --quiet --rounds 2 --train.local_epochs 1 --split.members 20 "
    "--split.nonmembers 30 --split.known 8 --split.test 20 --federation.snapshots 1 "
    "--train.batch_size 8 --train.precision float32 "
)
RESNET = "--model.width 4 --size 16 "
VIT = "--model.width 12 --model.heads 3 --model.depth 4 --model.patch 2 --train.warmup_epochs 1 "
NARROW = {
    "encodermi": RESNET + "--ssl.queue 64",
    "partcrop": RESNET + "--ssl.queue 64",
    "partcrop-mae": VIT + "--ssl.decoder_width 16 --ssl.decoder_depth 1 --ssl.decoder_heads 2",
    "partcrop-dino": VIT + "--ssl.dim 8 --ssl.hidden 8 --ssl.prototypes 16",
    "lpla": RESNET + "--ssl.queue 64",
    "lpla-mocov3": RESNET + "--ssl.dim 8 --ssl.hidden 16 --train.warmup_epochs 1",
}
# (optimizer, lr, weight decay, batch, schedule, warm-up, epochs), as in papers and public code.
RECIPES = {
    "encodermi": ("sgd", 0.03, 1e-4, 256, "steps", 0, 1600),
    "partcrop": ("sgd", 0.03 * 4, 1e-4, 1024, "steps", 0, 1600),
    "partcrop-mae": ("adamw", 1.5e-4 * 4, 0.05, 1024, "cosine", 40, 1600),
    "partcrop-dino": ("adamw", 1e-4 * 4, 0.04, 1024, "cosine", 10, 1600),
    "lpla": ("sgd", 0.03, 1e-4, 256, "cosine", 0, 2000),
    "lpla-mocov3": ("lars", 0.3 * 2, 1.5e-6, 512, "cosine", 10, 2000),
}


def text(name: str) -> str:
    return (PRESETS / f"papers/{name}.yaml").read_text(encoding="utf-8")


def preset(name: str, more: str = "") -> Experiment:
    settings: Experiment = parse(
        SIMULATE, ["--config", f"papers/{name}", *shlex.split(more)]
    ).settings
    return settings


@pytest.mark.parametrize("name", NARROW)
def test_preset__says_at_each_value_whose_it_is(name: str) -> None:
    for line in text(name).splitlines():
        value, _, said = line.partition("#")
        if value.strip() and not value.rstrip().endswith(":"):
            assert said.strip().startswith(("Stated", "Public", "Here: ")), line


@pytest.mark.parametrize("name", NARROW)
def test_preset__is_the_papers_recipe_and_suits(name: str) -> None:
    experiment = preset(name)
    check_experiment(experiment)
    train, epochs = experiment.train, experiment.federation.rounds * experiment.train.local_epochs
    recipe = (train.optimizer, train.lr, train.weight_decay, train.batch_size, train.schedule)
    assert (*recipe, train.warmup_epochs, epochs) == pytest.approx(RECIPES[name])
    assert experiment.federation.clients == 1 and experiment.attacks == ()
    raised = experiment.ssl.options.get("momentum_schedule")
    assert raised == {"partcrop-dino": "cosine", "lpla-mocov3": "cosine"}.get(name)
    content = yaml.safe_load(text(name))  # what the recipe rests on is not left to defaults
    assert {"optimizer", "lr", "momentum", "weight_decay", "schedule"} <= set(content["train"])
    assert {"crop_min", "name"} <= set(content["ssl"])
    longer = {"encodermi": 65536, "partcrop": 65536, "lpla": 16384}
    if name in longer:
        spec = experiment.ssl.build("ssl")
        assert spec.keys(experiment.split.members) == longer[name]
        assert any("earlier key of its own" in n for n in spec.notes(experiment.split.members))


@pytest.mark.slow
@pytest.mark.parametrize("name", NARROW)
def test_preset__trains_a_few_steps(name: str, tmp_path: Path) -> None:
    flags = f"--config papers/{name} {FEW}{NARROW[name]} --out {tmp_path / 'RUN'}"
    assert simulate.main(shlex.split(flags)) == 0
    report: dict[str, Any] = json.loads((tmp_path / "RUN" / "report.json").read_text("utf-8"))
    losses = [row["loss"] for row in report["rounds"]]
    assert len(losses) == 2 and all(0 < loss < 100 for loss in losses)
    assert report["config"]["train"]["optimizer"] == RECIPES[name][0]
    notes = [n for n in report["notes"] if "outlasts an epoch" in n]
    assert bool(notes) == (name in ("encodermi", "partcrop", "lpla"))
