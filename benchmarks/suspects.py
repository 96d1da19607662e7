"""Does the suspicion point at the client that attacks? What benchmarks/plans/suspects.yaml asks.

    python benchmarks/suspects.py run FOLDER [--seconds N]
    python benchmarks/suspects.py answer FOLDER [--out FILE] [--short]

`run` makes the planned federations that FOLDER lacks, a file each, and begins no further one after
N seconds; several may run at once. `answer` judges them; with fewer than planned it needs
`--short`, and the answer says so.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import torch
import yaml

from fedmia.cli.commands import SIMULATE
from fedmia.door.arguments import build_settings
from fedmia.evaluation.audits.suspects import PAIRS, measure_rounds, public_loss
from fedmia.federation.ledger import Ledger
from fedmia.federation.plan import make_client_context, make_plan
from fedmia.federation.rounds import FederatedRun
from fedmia.federation.train import federate
from fedmia.options.seeding import rng
from fedmia.recording.run import RunRecording
from fedmia.runtime.environment import describe
from fedmia.runtime.progress import Display
from fedmia.runtime.stopwatch import Stopwatch
from fedmia.statistics.auc import auc
from fedmia.statistics.intervals import wilson
from fedmia.statistics.suspicion import by_round, deviations, p_values, suspicions
from fedmia.threat import WhiteBox

HERE = Path(__file__).parent
PLAN = HERE / "plans" / "suspects.yaml"
RESULTS = HERE / "results" / "suspects.json"
TWIN = "honest"
OPTIONS: dict[str, dict[str, Any]] = {
    "climb": {"attacks": ["ascent"]},
    "algorithm 1": {"attacks": ["ascent-algorithm1"]},
    "hidden": {
        "attacks": ["ascent"], "attack.ascent.server": "known", "strategy": "_watched:Watched",
    },
}  # fmt: skip


@dataclass(frozen=True)
class Cell:
    """One planned federation."""

    seed: int
    split: str
    attackers: int
    kind: str

    @property
    def file(self) -> str:
        return f"{self.seed}-{self.split}-{self.attackers}-{self.kind}.json".replace(" ", "_")


class MainBranch(FederatedRun):
    """The federation itself alone: what the attacker reads is not asked here."""

    def branches(self) -> list[str]:
        return ["main"]


def load_plan(path: Path = PLAN) -> dict[str, Any]:
    plan: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return plan


def cells(plan: dict[str, Any]) -> Iterator[Cell]:
    """All that is planned: the twins of the later looks, then the others seed by seed."""
    for look in (plan["third"], plan["second"]):
        for seed in range(look["first"], look["first"] + look["number"]):
            yield from (Cell(seed, split, look["attackers"], TWIN) for split in plan["splits"])
    first, number = plan["seeds"]["first"], plan["seeds"]["number"]
    for seed in range(first, first + number):
        for split in plan["splits"]:
            for attackers in plan["attackers"]:
                for kind in (TWIN, *plan["kinds"]):
                    yield Cell(seed, split, attackers, kind)


def settings_of(plan: dict[str, Any], cell: Cell) -> Any:
    """The settings of a federation."""
    deal, clients = plan["splits"][cell.split], plan["clients"]
    attack = OPTIONS.get(cell.kind)
    options: dict[str, Any] = {
        "clients": clients, "seed": cell.seed, "malicious": cell.attackers,
        "attacker": "active" if attack else "passive", **(attack or {"attacks": "none"}),
        "split.members": plan["images_a_client"] * (clients - cell.attackers),
    }  # fmt: skip
    options |= {"partition": "iid"} if deal == "iid" else {"partition.alpha": deal}
    return build_settings(SIMULATE, plan["settings"], options)


def federation(plan: dict[str, Any], cell: Cell) -> dict[str, Any]:
    """Run one federation, and measure every update of it."""
    began = time.process_time()
    run_plan = make_plan(settings_of(plan, cell))
    with tempfile.TemporaryDirectory() as scratch:
        context = make_client_context(run_plan, Path(scratch), Event())
        run_plan = replace(run_plan, data=replace(run_plan.data, images=context.images))
        recording = RunRecording(Path(scratch) / "recording", "fedavg")
        federate(MainBranch(
            run_plan, context, Ledger(Path(scratch) / "clients"), recording, lambda state: None,
            None, Stopwatch(time.perf_counter()), Display(0, quiet=True),
        ))  # fmt: skip
        public, models = context.take(context.public), recording.models()
        method = context.method(-1, None)
        method.eval()
        view = WhiteBox(method, context.augment, seed=0, device=torch.device("cpu"), held=public)
        before = {r: models[r - 1] for r in recording.updates()}
        loss = public_loss(view, public)
        rounds, clients, measured = measure_rounds(before, recording.updates(), loss)
        last = view.of_weights(models[max(models)])
        targets = last.losses(context.take(context.targets), PAIRS, "held")
    malicious = run_plan.experiment.malicious_clients
    return {
        "rounds": rounds, "clients": clients, "images": [*map(len, run_plan.split.parts)],
        "attackers": [*malicious] if cell.kind != TWIN else [],
        "measured": [[[float(f"{x:.6g}") for x in row] for row in one] for one in measured],
        "targets_loss": float(targets.double().mean()), "seconds": time.process_time() - began,
    }  # fmt: skip


def run(plan: dict[str, Any], folder: Path, seconds: float) -> None:
    """Make what the folder lacks; a federation at work elsewhere has an empty file."""
    folder.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    for cell in cells(plan):
        if time.monotonic() - began > seconds:
            return
        path = folder / cell.file
        try:
            path.open("x").close()
        except FileExistsError:
            continue
        try:
            path.write_text(json.dumps(federation(plan, cell)))
        except BaseException:
            path.unlink()
            raise
        print(cell.file, flush=True)


def judged(values: dict[str, Any]) -> dict[str, Any]:
    """Suspicion and p of each client of a federation, and each measurement alone."""
    norms, cosines, losses = np.array(values["measured"])
    suspicion = suspicions(by_round(norms, cosines, losses))
    alone = {
        "norm": np.abs(deviations(np.log(norms))), "cosine": -deviations(cosines),
        "loss": deviations(losses),
    }  # fmt: skip
    return {
        "suspicion": suspicion,
        "p": p_values(suspicion, len(norms), True, rng(0, "suspects")),
        **{name: suspicions(one) for name, one in alone.items()},
    }  # fmt: skip


def answer(plan: dict[str, Any], folder: Path, short: bool) -> dict[str, Any]:
    """The answer to every question of the plan; p has the null of the second look."""
    planned = [*cells(plan)]
    done = {c: json.loads(text) for c in planned if (text := _text(folder / c.file))}
    if len(done) < len(planned) and not short:
        raise SystemExit(f"{len(done)} of {len(planned)} federations are there: run, or --short")
    scores = {cell: judged(values) for cell, values in done.items()}
    level = plan["level"]
    rows, alarms = [], []
    for split in plan["splits"]:
        for attackers in plan["attackers"]:
            for kind in plan["kinds"]:
                own = [
                    c for c in done if (c.split, c.attackers, c.kind) == (split, attackers, kind)
                ]
                where = {"split": split, "attackers": attackers, "kind": kind}
                rows.append(where | _row(plan, own, done, scores))
    for split in (*plan["splits"], "all"):
        twins = [c for c in done if c.kind == TWIN and split in (c.split, "all")]
        fresh = [c for c in twins if c.seed >= plan["second"]["first"]]
        first = [c for c in twins if c not in fresh]
        row = {"split": split, **_alarms([scores[c]["p"] for c in fresh], level)}
        alarms.append(row | {"first": _alarms([scores[c]["p"] for c in first], level)})
    return {
        "short": len(done) < len(planned), "federations": len(done), "planned": len(planned),
        "level": level, "works": plan["works"], "cells": rows, "alarms": alarms,
        "least_deviation": _least(plan["clients"], plan["settings"]["federation"]["rounds"], level),
        "cpu_seconds": round(sum(v["seconds"] for v in done.values()), 1),
        "by_federation": {
            c.file.removesuffix(".json"): {
                "attackers": done[c]["attackers"], "images": done[c]["images"],
                "targets_loss": round(done[c]["targets_loss"], 4),
                "suspicion": [round(float(x), 3) for x in scores[c]["suspicion"]],
                "p": [round(float(x), 5) for x in scores[c]["p"]],
            } for c in done
        }, **describe(),
    }  # fmt: skip


def _text(path: Path) -> str:
    return path.read_text() if path.is_file() else ""


def _row(
    plan: dict[str, Any], own: Sequence[Cell], done: dict[Cell, Any], scores: dict[Cell, Any]
) -> dict[str, Any]:
    """One cell: its AUC, who is named, and what is left of the attack."""
    aucs = {name: [_auc(done[c], scores[c][name]) for c in own]
            for name in ("suspicion", "norm", "cosine", "loss")}  # fmt: skip
    low, high = interval(aucs["suspicion"], plan["resamples"])
    sides = [(scores[c]["p"] <= plan["level"], done[c]["attackers"]) for c in own]
    named = [float(alarm[bad].mean()) for alarm, bad in sides]
    accused = [float(np.delete(alarm, bad).mean()) for alarm, bad in sides]
    twins = [replace(c, kind=TWIN) for c in own]
    pushes = [done[c]["targets_loss"] - done[t]["targets_loss"]
              for c, t in zip(own, twins, strict=True) if t in done]  # fmt: skip
    verdict = "works" if low >= plan["works"] else "fails" if high < plan["works"] else "undecided"
    return {
        "n": len(own), "auc": _mean(aucs["suspicion"]), "low": low, "high": high,
        "verdict": verdict, "named": _mean(named), "accused": _mean(accused),
        "first": _mean([_first(done[c], scores[c]["suspicion"]) for c in own]),
        "push": _mean(pushes), "push_interval": interval(pushes, plan["resamples"]),
        "alone": {name: _mean(values) for name, values in aucs.items() if name != "suspicion"},
    }  # fmt: skip


def _auc(values: dict[str, Any], score: Any) -> float:
    """Of a federation's attackers against its honest clients."""
    bad = values["attackers"]
    return float(auc(score[bad], np.delete(score, bad)))


def _first(values: dict[str, Any], score: Any) -> float:
    """Whether the most suspicious client is an attacker."""
    return float(int(np.argmax(score)) in values["attackers"])


def interval(values: Sequence[float], resamples: int) -> tuple[float, float]:
    """Bootstrap interval of 95 % of the mean; federations are drawn again."""
    drawn = rng(0, "bootstrap").integers(0, len(values), (resamples, len(values)))
    low, high = np.percentile(np.asarray(values)[drawn].mean(axis=1), [2.5, 97.5])
    return round(float(low), 4), round(float(high), 4)


def _alarms(ps: Sequence[Any], level: float) -> dict[str, Any]:
    """False alarms of honest federations."""
    whole = [bool((p <= level).any()) for p in ps]
    low, high = wilson(sum(whole), len(whole))
    clients = int(sum(len(p) for p in ps))
    accused = int(sum((p <= level).sum() for p in ps))
    return {
        "federations": len(ps), "with_alarm": sum(whole), "share": _mean([*map(float, whole)]),
        "low": round(low, 4), "high": round(high, 4), "holds": low <= level,
        "clients": clients, "accused": accused, "accused_share": round(accused / clients, 4),
    }  # fmt: skip


def _least(clients: int, rounds: int, level: float) -> float:
    """The suspicion from which p is at most `level`, of so many clients."""
    grid = np.arange(20 * clients).reshape(-1, clients) / clients
    ps = np.array([p_values(row, rounds, True, rng(0, "suspects")) for row in grid])
    return round(float(grid.ravel()[np.argmax(ps.ravel() <= level)]), 1)


def _mean(values: Sequence[float]) -> float:
    return round(float(np.mean(values)), 4)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("run", "answer"))
    parser.add_argument("folder", type=Path, help="of the federations' measurements")
    parser.add_argument("--seconds", type=float, default=np.inf, help="begin none after so many")
    parser.add_argument("--out", type=Path, default=RESULTS, help="JSON file to write")
    parser.add_argument("--short", action="store_true", help="answer with what is there")
    args = parser.parse_args(arguments)
    plan = load_plan()
    if args.what == "run":
        torch.set_num_threads(1)
        run(plan, args.folder, args.seconds)
        return
    result = answer(plan, args.folder, args.short)
    args.out.write_text(json.dumps(result, indent=1) + os.linesep)
    for row in result["cells"]:
        print(f"{row['kind']:12} {row['split']:12} {row['attackers']} of 10: AUC {row['auc']:.2f} "
              f"[{row['low']:.2f}, {row['high']:.2f}] {row['verdict']}, named {row['named']:.0%}, "
              f"push {row['push']:+.3f}")  # fmt: skip
    for row in result["alarms"]:
        first = row["first"]
        print(f"honest, {row['split']:12} alarms {row['with_alarm']}/{row['federations']}, "
              f"of the first seeds {first['with_alarm']}/{first['federations']}")  # fmt: skip


if __name__ == "__main__":
    main()
