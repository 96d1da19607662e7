"""Does the climb in a Flower app of somebody's do what our own client's does? The answer to what
benchmarks/plans/foreign_ascent.yaml asks.

    python benchmarks/foreign_ascent.py run FOLDER --dataset parquet:PATH/cifar10-train.parquet
        [--seconds N]
    python benchmarks/foreign_ascent.py answer FOLDER [--out FILE] [--short]

`run` makes the planned pairs of federations that FOLDER lacks, a file each, and begins no further
one after N seconds. The app is that of the recording's tests, `my_app`, with a network that has its
head, plain SGD, and the views of the plan; its clients go on from the model that our own server
trained first. `answer` judges them; with fewer than planned it needs `--short`.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import scipy
import torch
import yaml
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from torch import Tensor, nn
from torch.nn import functional as F

import fedmia
import fedmia.flower
from fedmia.cli.commands import SIMULATE
from fedmia.door.arguments import build_settings
from fedmia.federation.plan import Plan, make_plan
from fedmia.recording import Recording
from fedmia.runtime.environment import describe
from fedmia.ssl.base import State
from fedmia.storage.runfolder import RunFolder
from fedmia.threat.whitebox import split_in_halves
from tests.recording.apps.my_app.task import Net
from tests.recording.plain import PlainGrid

HERE = Path(__file__).parent
PLAN = HERE / "plans" / "foreign_ascent.yaml"
RESULTS = HERE / "results" / "foreign_ascent.json"
SIDES = ("foreign", "own")
PAIRS = 4  # of views over which a loss is read, as our own client reads it


class Projected(nn.Module):
    """The app's network with a head that the federation trains, too."""

    def __init__(self) -> None:
        super().__init__()
        self.module = Net()
        self.head = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 16))

    def forward(self, pixels: Tensor) -> Tensor:
        vectors: Tensor = self.head(self.module(pixels))
        return vectors


def app_parts(
    settings: Any, negatives: Tensor
) -> tuple[Callable[..., float], Callable[..., Tensor]]:
    """How the app trains, and its loss for an attacker, who has images of its own as negatives."""
    train, ssl, keys = settings.train, settings.ssl.build("ssl"), list[Tensor]()

    def views(pixels: Tensor) -> Tensor:
        return ssl.augment(pixels, torch.rand(len(pixels), ssl.augment.draws))

    def fit(net: nn.Module, images: Tensor, epochs: int) -> float:
        how = {"momentum": train.momentum, "weight_decay": train.weight_decay}
        optimizer = torch.optim.SGD(net.parameters(), train.lr, **how)
        net.train()
        for _ in range(epochs):
            for batch in images[torch.randperm(len(images))].split(train.batch_size):
                z = F.normalize(net(torch.cat([views(batch), views(batch)])), dim=1)
                alike = (z @ z.T / ssl.temperature).masked_fill(torch.eye(len(z)).bool(), -1e9)
                loss = F.cross_entropy(alike, torch.arange(len(z)).roll(len(batch)))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        return float(loss.detach())

    def loss(net: nn.Module, pixels: Tensor) -> Tensor:
        reads = not torch.is_grad_enabled()
        if reads:  # a climb keeps the keys of the model that it began with
            keys[:] = [F.normalize(net(negatives), dim=1)]
        each = []
        for _ in range(PAIRS if reads else 1):
            one, two = (F.normalize(net(views(pixels)), dim=1) for _ in range(2))
            for z, positive in ((one, two), (two, one)):
                same = (z * positive).sum(dim=1, keepdim=True)
                alike = torch.cat([same, z @ keys[0].T], dim=1) / ssl.temperature
                each.append(torch.logsumexp(alike, dim=1) - alike[:, 0])
        return 2 * torch.stack(each).mean(dim=0)  # both directions, added

    return fit, loss


def foreign(roles: Plan, first: State, out: Path) -> None:
    """The app with an attacker and its twin, from a first model, and its audit."""
    settings, split = roles.experiment, roles.cast
    images = torch.from_numpy(split.data.images)
    known = np.concatenate([split.ids("known_members"), split.ids("known_nonmembers")])
    members = np.concatenate([split.ids("scored_members"), split.ids("known_members")])
    others = np.concatenate([split.ids("scored_nonmembers"), split.ids("known_nonmembers")])
    attacker, how = len(split.parts) - 1, settings.attack["ascent"]
    held = images[np.concatenate([split.parts[attacker], known])]
    train, loss = app_parts(settings, split_in_halves(held)[0][1].float() / 255)
    rounds, clients = settings.federation.rounds, settings.federation.clients
    state = Projected().state_dict() | {n.removeprefix("backbone."): t for n, t in first.items()}

    def work(message: Message, context: Context) -> Message:
        """A round of a client, as that of my_app, whose draws differ from round to round."""
        partition, net = int(context.node_config["partition-id"]), Projected()
        net.load_state_dict(message.content["arrays"].to_torch_state_dict())
        round = int(message.content["config"]["server-round"])
        torch.manual_seed(settings.seed + 1000 * round + partition)
        pixels = images[split.parts[partition]].float() / 255
        loss = train(net, pixels, settings.train.local_epochs)
        metrics = MetricRecord({"loss": loss, "num-examples": len(pixels)})
        content = RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": metrics})
        return Message(content, reply_to=message)

    for name, steps in (("REC", how["steps"]), ("TWIN", 0)):
        mod = fedmia.flower.ascend(
            Projected, images[np.concatenate([members, others])], loss, steps=steps, lr=how["lr"],
            rounds=range(rounds - settings.attack_rounds + 1, rounds + 1), partitions=[attacker],
            notes=out / "NOTES", batch=how["batch"], seed=settings.seed,
        )  # fmt: skip
        app = ClientApp(mods=[mod, fedmia.flower.roster])
        app.train()(work)
        least = {"min_train_nodes": clients, "min_available_nodes": clients}
        with fedmia.flower.record(PlainGrid(app, clients), out / name) as grid:
            strategy = FedAvg(fraction_evaluate=0.0, **least)
            grid.final(strategy.start(grid, ArrayRecord(state), rounds + 1).arrays)
    fedmia.audit_federation(
        out / "REC", Projected, images[members], images[others], notes=str(out / "NOTES"),
        attacks=["ascent"], known=len(known) // 2, mean=0, std=1, size=32, threads=1,
        seed=settings.seed, out=out / "AUDIT", quiet=True,
    )  # fmt: skip


def numbers(folder: Path) -> dict[str, float]:
    """AUCs as an audit prints them: of the rise, of the loss after the climb, and of controls."""
    report = RunFolder(folder).report()
    aucs = {row.name: row.auc for row in report.attacks}
    pairs = {(row.attack, row.control): row.auc_control for row in report.paired}
    return {
        "rise": aucs["ascent"], "twin": pairs["ascent", "ascent-zero"],
        "level": aucs["ascent-level"], "before": pairs["ascent", "loss-before"],
        "effect": aucs["ascent"] - pairs["ascent", "ascent-zero"],
    }  # fmt: skip


def pair(plan: dict[str, Any], seed: int) -> dict[str, Any]:
    """Both federations of a seed; sets of images, which have rounds of their own, are not asked."""
    began = time.process_time()
    with (
        tempfile.TemporaryDirectory() as scratch,
        patch("fedmia.report.figures.draw.draw_all", lambda *_: {}),
        patch("fedmia.federation.plan.target_sets", lambda *_: ()),
    ):
        out, options = Path(scratch), {"seed": seed, "model": Net}
        fedmia.run_simulation(plan["settings"], out=out / "OWN", quiet=True, **options)
        roles = make_plan(build_settings(SIMULATE, plan["settings"], options))
        foreign(roles, Recording(out / "OWN" / "recording").models()[0], out)
        seconds = round(time.process_time() - began, 1)
        return {"own": numbers(out / "OWN"), "foreign": numbers(out / "AUDIT"), "seconds": seconds}


def files_of(plan: dict[str, Any], folder: Path) -> dict[int, Path]:
    """The file of each planned pair, by seed."""
    first, number = plan["seeds"]["first"], plan["seeds"]["number"]
    return {seed: folder / f"{seed}.json" for seed in range(first, first + number)}


def run(plan: dict[str, Any], folder: Path, seconds: float) -> None:
    """Make the planned pairs that the folder lacks."""
    folder.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    for seed, path in files_of(plan, folder).items():
        if time.monotonic() - began > seconds:
            return
        if not path.is_file():
            path.write_text(json.dumps(pair(plan, seed)))
            print(path.name, flush=True)


def answer(plan: dict[str, Any], folder: Path, short: bool) -> dict[str, Any]:
    """The answer to the questions of the plan."""
    files = files_of(plan, folder)
    done = {seed: json.loads(path.read_text()) for seed, path in files.items() if path.is_file()}
    if len(done) < len(files) and not short:
        raise SystemExit(f"{len(done)} of {len(files)} pairs are there: run, or --short")
    sides = {
        side: {name: interval([one[side][name] for one in done.values()], plan["level"])
               for name in ("effect", "rise", "twin", "level", "before")}
        for side in SIDES
    }  # fmt: skip
    effects = [[one[side]["effect"] for one in done.values()] for side in SIDES]
    difference = interval(np.subtract(*effects), plan["level"])
    inside = -plan["margin"] < difference["low"] and difference["high"] < plan["margin"]
    return {
        "short": len(done) < len(files), "pairs": len(done), "planned": len(files),
        "margin": plan["margin"], "level": plan["level"], "difference": difference,
        "equivalent": bool(inside), "correlation": round(float(np.corrcoef(effects)[0, 1]), 3),
        **sides, "cpu_seconds": round(sum(one["seconds"] for one in done.values()), 1),
        "by_seed": done, **describe(),
    }  # fmt: skip


def interval(values: Sequence[float], level: float) -> dict[str, float]:
    """Mean over federations, with Student's interval."""
    mean, error = float(np.mean(values)), float(np.std(values, ddof=1)) / len(values) ** 0.5
    half = float(scipy.stats.t.ppf((1 + level) / 2, len(values) - 1)) * error
    ends = {"mean": mean, "low": mean - half, "high": mean + half, "sd": error * len(values) ** 0.5}
    return {name: round(value, 4) for name, value in ends.items()}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("run", "answer"))
    parser.add_argument("folder", type=Path, help="of the pairs' numbers")
    parser.add_argument("--dataset", help="the plan's, where it lies")
    parser.add_argument("--seconds", type=float, default=np.inf, help="begin none after so many")
    parser.add_argument("--out", type=Path, default=RESULTS, help="JSON file to write")
    parser.add_argument("--short", action="store_true", help="answer with what is there")
    args = parser.parse_args(arguments)
    plan = yaml.safe_load(PLAN.read_text(encoding="utf-8"))
    if args.what == "run":
        torch.set_num_threads(1)
        logging.getLogger("flwr").setLevel(logging.ERROR)
        plan["settings"]["data"]["name"] = args.dataset or plan["settings"]["data"]["name"]
        run(plan, args.folder, args.seconds)
        return
    result = answer(plan, args.folder, args.short)
    args.out.write_text(json.dumps(result, indent=1) + os.linesep)
    for name in ("difference", *SIDES):
        print(name, result[name])
    print("equivalent" if result["equivalent"] else "not shown to be equivalent")


if __name__ == "__main__":
    main()
