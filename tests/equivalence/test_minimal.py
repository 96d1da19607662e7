"""examples/minimal.py, which imports nothing of fedmia, ends with the AUC that fedmia reports."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from fedmia import open_run
from fedmia.data.digits import Digits
from fedmia.seeding import rng, torch_rng
from fedmia.settings.commands.experiment import Experiment
from fedmia.ssl.augment import content_uniforms
from fedmia.ssl.base import TrainingData
from tests.pages.reading import ROOT, blocks, script, text_of
from tests.small_runs import ran

minimal = script("minimal", "examples")
FILE, PAGE = ROOT / "examples" / "minimal.py", "docs/concepts/how_it_works.md"
CLIENTS, ROUNDS, EPOCHS, BATCH, VIEWS, SEED = 3, 2, 10, 6, 8, 1
FLAGS = (
    f"--clients {CLIENTS} --rounds {ROUNDS} --seed {SEED} --device cpu --quiet --model.width 4 "
    "--partition iid --split.members 48 --split.nonmembers 108 --split.known 8 --split.test 20 "
    f"--train.local_epochs {EPOCHS} --train.batch_size {BATCH} --train.lr {minimal.RATE} "
    "--train.weight_decay 0 --train.schedule constant --train.optimizer_state reset "
    f"--ssl.momentum {minimal.MOMENTUM} --ssl.temperature {minimal.TEMPERATURE} --ssl.key reset "
    f"--ssl.queue_policy reset --attacks similarity --attack.similarity.views {VIEWS} "
    "--federation.placebo false"
)


def test_minimal__ends_with_the_auc_that_fedmia_reports(tmp_path: Path) -> None:
    """Of the same images; first weights, queues, orders and views are drawn as fedmia does."""
    (row,) = ran(FLAGS, tmp_path / "RUN")["attacks"]
    run = open_run(tmp_path / "RUN")
    cast, settings = run.images, run.settings
    assert isinstance(settings, Experiment)
    ssl = settings.ssl.plugin("ssl")

    def draw_queue(client: int, images: int) -> Tensor:
        stream = torch_rng(SEED, "client-bank", client)
        return F.normalize(torch.randn(images // 2, ssl.dim, generator=stream), dim=1)

    def draw_batches(pixels: Tensor, draw: np.random.Generator) -> Iterator[tuple[Tensor, ...]]:
        for _ in range(EPOCHS):
            order = draw.permutation(len(pixels))
            u = torch.from_numpy(draw.random((2, len(pixels), ssl.augment.draws), np.float32))
            yield from zip(
                *(ssl.augment(pixels[order], one).split(BATCH) for one in u), strict=True
            )

    def draw_views(images: Tensor) -> Tensor:
        u = torch.from_numpy(content_uniforms(images, SEED, VIEWS, ssl.augment.draws))
        views = ssl.augment((images / 255).repeat_interleave(VIEWS, dim=0), u.flatten(0, 1))
        return views.unflatten(0, (len(images), VIEWS))

    network, stream = settings.model.plugin("model"), torch_rng(SEED, "client-method", -1)
    recipe = TrainingData(Digits.mean, Digits.std)
    model = ssl.build(network.build(1, 8), recipe, stream).encoder
    parts = [cast.client_images(client) / 255 for client in range(CLIENTS)]
    for round in range(1, ROUNDS + 1):
        streams = [rng(SEED, "train", round, client) for client in range(CLIENTS)]
        queues = [draw_queue(client, len(part)) for client, part in enumerate(parts)]
        batches = map(draw_batches, parts, streams)
        minimal.train_round(model, zip(queues, batches, strict=True))
    weights = run.encoder(round=ROUNDS).state_dict()
    assert all(torch.equal(weights[name], own) for name, own in model.state_dict().items())
    sides = [draw_views(cast.pixels(f"scored_{kind}")) for kind in ("members", "nonmembers")]
    estimate = minimal.auc_with_limits(*(minimal.similarity(model, views) for views in sides))
    assert [round_(x) for x in estimate] == [row["auc"], *row["auc_ci"]]
    assert row["auc_ci"] == [row["low"], row["high"]]  # of one attack alone


def round_(number: Tensor) -> float:
    """As report.json has it."""
    return round(float(number), 6)


def test_minimal__is_short_and_needs_torch_alone() -> None:
    text = FILE.read_text(encoding="utf-8")
    modules = {
        name.partition(".")[0]
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([node.module] if isinstance(node, ast.ImportFrom) else
                     [alias.name for alias in node.names])
    }  # fmt: skip
    assert modules == {"copy", "torch"} and len(text.splitlines()) <= 80


@pytest.mark.slow(seconds=40)
def test_minimal__prints_what_the_page_shows() -> None:
    """Another processor moves the second digit."""
    done = subprocess.run([sys.executable, str(FILE)], capture_output=True, text=True, check=True)
    (shown,) = blocks(text_of(PAGE), "text")
    number = r"\d\.\d\d"
    assert re.sub(number, "", done.stdout) == re.sub(number, "", shown)
    printed, quoted = ([float(x) for x in re.findall(number, t)] for t in (done.stdout, shown))
    assert printed == pytest.approx(quoted, abs=0.05) and printed[-2] > 0.7
    assert text_of(PAGE).count(shown.split("AUC ")[-1].strip()) == 2  # its answer, and the output
