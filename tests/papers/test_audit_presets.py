"""Presets of the four papers beside the federated one: what comes of them, that they run."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmia.attacks.fe_mi import RECIPES as RECIPES_OF_FE_MI
from fedmia.attacks.sd_mi import choose_anchors
from fedmia.cli.command import parse
from fedmia.cli.commands import COMMANDS, SIMULATE
from fedmia.settings import registry
from tests.commands import fedmia
from tests.papers.plans import plan

FEW = (
    "--dataset digits --device cpu --quiet --rounds 2 --train.local_epochs 1 --split.members 20 "
    "--split.nonmembers 30 --split.known 8 --split.test 20 --federation.snapshots 1 "
    "--train.batch_size 8 --train.precision float32 "
)
# Flags that make a preset small, by network and by method.
VIT = "--model.width 12 --model.heads 3 --model.depth 4 --model.patch 2 "
DECODER = "--ssl.decoder_width 16 --ssl.decoder_depth 1 --ssl.decoder_heads 2 "
TEACHER = "--ssl.dim 8 --ssl.hidden 8 --ssl.prototypes 16"
NARROW = {
    "moco": "--ssl.queue 64", "simclr": "", "mae": DECODER, "saim": "--ssl.decoder_depth 2",
    "cae": DECODER + "--ssl.regressor_depth 1", "dino": TEACHER, "ibot": TEACHER,
    "swav": "--ssl.dim 8 --ssl.hidden 16 --ssl.prototypes 12",
    "vicreg": "--ssl.dim 8 --ssl.hidden 16", "mocov3": "--ssl.dim 8 --ssl.hidden 16",
}  # fmt: skip
# (optimizer, lr, weight decay, batch, schedule, warm-up, epochs), as in papers and public code.
RECIPES = {
    "encodermi": ("sgd", 0.03, 1e-4, 256, "steps", 0, 1600),
    "partcrop": ("sgd", 0.03 * 4, 1e-4, 1024, "steps", 0, 1600),
    "partcrop-mae": ("adamw", 1.5e-4 * 4, 0.05, 1024, "cosine", 40, 1600),
    "partcrop-cae": ("adamw", 1.5e-3 / 2, 0.05, 1024, "cosine", 10, 1600),
    "partcrop-dino": ("adamw", 1e-4 * 4, 0.04, 1024, "cosine", 10, 1600),
    "partcrop-ibot": ("adamw", 5e-4 * 4, 0.04, 1024, "cosine", 10, 1600),
    "partcrop-saim": ("adamw", 2e-4 * 4, 0.5, 1024, "cosine", 30, 1600),
    "partcrop-mae-long": ("adamw", 1.5e-4 * 16, 0.05, 4096, "cosine", 40, 800),
    "partcrop-swav": ("lars", 4.8 / 4, 1e-6, 1024, "cosine", 10, 1600),
    "partcrop-vicreg": ("lars", 0.2 * 4, 1e-6, 1024, "cosine", 10, 1600),
    "partcrop-imagenet-moco": ("sgd", 0.03, 1e-4, 256, "steps", 0, 200),
    "partcrop-imagenet-mae": ("adamw", 1.5e-4 * 16, 0.05, 4096, "cosine", 40, 800),
    "partcrop-imagenet-dino": ("adamw", 5e-4 * 4, 0.04, 1024, "cosine", 10, 100),
    "logistic-cifar10": ("adamw", 1e-3, 0.0, 500, "constant", 0, 20),
    "lpla": ("sgd", 0.03, 1e-4, 256, "cosine", 0, 2000),
    "lpla-mocov1": ("sgd", 0.03, 1e-4, 256, "steps", 0, 2000),
    "lpla-mocov3-vit": ("adamw", 1.5e-4 * 2, 0.1, 512, "cosine", 40, 2000),
    "lpla-mocov3": ("lars", 0.3 * 2, 1.5e-6, 512, "cosine", 10, 2000),
}
# (last rate, last weight decay, clipping) by method: official code.
RECIPE_ENDS = {"dino": (1e-6, 0.4, 3.0), "ibot": (1e-6, 0.4, 3.0), "cae": (1e-5, None, 3.0),
               "swav": (0.0048 / 4, None, None), "vicreg": (0.8e-3, None, None)}  # fmt: skip


def preset(name: str, more: str = "") -> Any:
    return parse(SIMULATE, ["--config", f"papers/{name}", *shlex.split(more)]).settings


@pytest.mark.parametrize("name", RECIPES)
def test_preset__is_the_papers_recipe_and_suits(name: str) -> None:
    experiment = preset(name)
    train, epochs = experiment.train, experiment.federation.rounds * experiment.train.local_epochs
    recipe = (train.optimizer, train.lr, train.weight_decay, train.batch_size, train.schedule)
    assert (*recipe, train.warmup_epochs, epochs) == pytest.approx(RECIPES[name])
    assert experiment.federation.clients == 1 and experiment.attacks == ()
    raised = experiment.ssl.options.get("momentum_schedule") == "cosine"
    assert raised == any(method in name for method in ("dino", "ibot", "mocov3"))
    if experiment.ssl.name in ("moco", "mocov2"):
        assert experiment.model.options["norm"] == "split"
        spec = experiment.ssl.build("ssl")
        assert spec.keys(20_000) == (16384 if "lpla" in name else 65536)
    ends = (train.lr_end, train.weight_decay_end, train.clip_grad)
    assert ends == RECIPE_ENDS.get(experiment.ssl.name, (0.0, None, None))


def test_partcrop__has_the_papers_images() -> None:
    """50,000 members of CIFAR-100's 60,000, the others non-members but for those of the probes."""
    for name in ("", "-mae", "-dino", "-swav", "-vicreg"):
        experiment = preset(f"partcrop{name}")
        split, data = experiment.split, experiment.data
        assert (data.name, data.options["subset"]) == ("cifar100", "all")
        assert split.members == 50_000 and (split.nonmembers, split.test) == (9000, 900)
        assert split.known == 5000
    more = "--dataset tinyimagenet:X --data.subset all --split.members 100000"
    assert preset("partcrop", more).data.options == {"subset": "all"}


def test_mocov3_vit__is_the_public_recipe() -> None:
    experiment = preset("lpla-mocov3-vit")
    own = experiment.ssl.options
    assert own["freeze_embed"] and own["predictor_norm"] and own["layers"] == 3
    assert (own["temperature"], own["momentum"], own["hidden"]) == (0.2, 0.99, 4096)
    assert experiment.model.options["heads"] == 12
    assert not preset("lpla-mocov3").ssl.options["freeze_embed"]


def test_audit_of_lpla__has_the_papers_attacks() -> None:
    audit, run = audit_of("lpla"), preset("lpla")
    assert (audit.split.known, audit.split.limit) == (
        2000,
        8000,
    ) and run.split.nonmembers == 8000 + 3000
    built = {n: registry.build("attack", n, audit.attack[n]) for n in audit.attacks}
    encodermi, sd, fe, lpla = (built[n] for n in ("encodermi-v", "sd-mi", "fe-mi", "lpla"))
    assert (encodermi.fit_on, encodermi.epochs, encodermi.views) == ("known", 200, 10)
    assert encodermi.batch_size == 128 and not encodermi.asks_shadows()
    assert (sd.anchors, sd.distance, sd.selector) == (2000, "euclidean", True)
    assert sd.steps == fe.steps == 0 and lpla.p == 2  # no epoch is cut
    assert RECIPES_OF_FE_MI[fe.recipe][1].limit_epochs(4000, fe.steps) == 500
    known = np.repeat([1, 0], 3000)  # of the run, for the paper's 4,000 beside the anchors
    assert run.split.known == 3000
    assert (~choose_anchors(known, sd.anchors, np.random.default_rng(0))).sum() == 4000


def test_audits_of_the_others__have_the_papers_attacks() -> None:
    audit = audit_of("encodermi")
    assert audit.shadow.count == 1 and audit.shadow.training["epochs"] == 1600
    for name in ("encodermi-v", "encodermi-s"):
        own = audit.attack[name]
        assert (own["epochs"], own["rate"], own["views"]) == (300, 1e-4, 10)
    audit = audit_of("partcrop")
    assert audit.split.known == 5000 and audit.attack["partcrop"]["crops"] == 128
    audit = audit_of("partcrop-imagenet")
    assert audit.split.known == audit.split.limit == 5000


@pytest.mark.parametrize(
    ("name", "data", "size", "pairs"),
    [("cifar10", "parquet:cifar10-train.parquet", 10_000, 500),
     ("cifar100", "parquet:cifar100-train.parquet", 10_000, 500), ("stl10", "stl10", 3250, 250)],
)  # fmt: skip
def test_heads__are_of_table_1(name: str, data: str, size: int, pairs: int) -> None:
    """Of the paper's table here, whose head is its preset."""
    (head,) = (
        cell.jobs[0].tree
        for cell in plan("logistic-table-1", "paper")
        if cell.column == "1-norm" and cell.row.replace("-", "").lower() == name
    )
    assert (head["data"]["name"], head["images"], head["samples"]) == (data, size, pairs)
    assert head["delta"] == 1e-5
    assert head["mechanisms"] == ["logistic", "laplace", "gaussian-classical"]
    assert (head["epochs"], head["batch_size"], head["hidden"]) == (20, 25, 0)
    run = preset(f"logistic-{name}")
    assert run.split.members == (98_000 if name == "stl10" else 40_000)
    assert run.ssl.name == "simclr" and run.ssl.options["temperature"] == 0.1


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["encodermi", "partcrop-mae", "partcrop-cae", "partcrop-dino", "partcrop-ibot", "partcrop-saim",
     "partcrop-swav", "partcrop-vicreg", "lpla-mocov3-vit", "partcrop-imagenet-moco",
     "logistic-cifar10"],
)  # fmt: skip
def test_preset__trains_a_few_steps(name: str, tmp_path: Path) -> None:
    """One of each method, and of each network."""
    whole = preset(name)
    network = VIT if whole.model.name.startswith("vit") else "--model.width 4 --size 16 "
    flags = f"simulate --config papers/{name} {FEW} {network} {NARROW[whole.ssl.name]}"
    if "stem" in whole.model.options:
        flags += " --model.stem cifar"
    if whole.train.warmup_epochs:
        flags += " --train.warmup_epochs 1"
    report = fedmia(flags, tmp_path / "RUN").report
    losses = [row["loss"] for row in report["rounds"]]
    assert len(losses) == 2 and all(0 < loss < 100 for loss in losses)
    assert report["config"]["train"]["optimizer"] == RECIPES[name][0]
    notes = [n for n in report["notes"] if "outlasts an epoch" in n]
    assert bool(notes) == (whole.ssl.name == "moco")


def audit_of(name: str) -> Any:
    return parse(COMMANDS["audit"], ["--config", f"papers/audits/{name}"]).settings
