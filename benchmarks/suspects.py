"""Does the suspicion point at the client that attacks? What benchmarks/plans/suspects.yaml asks.

    python benchmarks/suspects.py run FOLDER [--seconds N]
    python benchmarks/suspects.py answer [FOLDER] [--out FILE] [--short]

`run` makes the planned federations that FOLDER lacks, a file each, and begins no further one after
N seconds; several may run at once. `answer` judges them; with fewer than planned it needs
`--short`, and the answer says so. Without FOLDER it judges the suspicions that FILE has.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any, Protocol

import numpy as np
import torch
import yaml

from fedmia.cli.commands import SIMULATE
from fedmia.door.arguments import build_settings
from fedmia.evaluation.audits.suspects import PAIRS, measure_rounds, public_loss
from fedmia.federation.ledger import Ledger
from fedmia.federation.plan import make_client_setup, make_plan
from fedmia.federation.rounds import FederatedRun
from fedmia.federation.train import federate
from fedmia.recording.writer import RecordingWriter
from fedmia.runtime.environment import describe
from fedmia.runtime.progress import Display
from fedmia.runtime.stopwatch import Stopwatch
from fedmia.seeding import rng
from fedmia.statistics.auc import auc
from fedmia.statistics.intervals import clopper_pearson, mean_interval
from fedmia.statistics.spread import spread
from fedmia.statistics.suspicion import by_round, deviations, suspicions
from fedmia.threat import WhiteBox

HERE = Path(__file__).parent
PLAN = HERE / "plans" / "suspects.yaml"
RESULTS = HERE / "results" / "suspects.json"
TWIN = "honest"
WHERE = "split", "attackers", "kind"  # of a cell
OPTIONS: dict[str, dict[str, Any]] = {
    "climb": {"attacks": ["ascent"]},
    "algorithm 1": {"attacks": ["ascent-algorithm1"]},
    "hidden": {
        "attacks": ["ascent"], "attack.ascent.server": "known", "strategy": "_watched:Watched",
    },
}  # fmt: skip


class Named(Protocol):
    """What has a file of its own."""

    @property
    def file(self) -> str: ...


@dataclass(frozen=True)
class Cell:
    """One planned federation."""

    seed: int
    split: str
    attackers: int
    kind: str

    @property
    def name(self) -> str:
        return f"{self.seed}-{self.split}-{self.attackers}-{self.kind}".replace(" ", "_")

    @property
    def file(self) -> str:
        return f"{self.name}.json"


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
    attack, settings = OPTIONS.get(cell.kind), plan["settings"]
    if not attack:  # what only an attack reads is refused without one
        whole = settings["federation"]
        settings = settings | {
            "federation": {name: whole[name] for name in whole if name != "attack_rounds"}
        }
    options: dict[str, Any] = {
        "clients": clients, "seed": cell.seed, "malicious": cell.attackers,
        "attacker": "active" if attack else "passive", **(attack or {"attacks": "none"}),
        "split.members": plan["images_a_client"] * (clients - cell.attackers),
    }  # fmt: skip
    options |= {"partition": "iid"} if deal == "iid" else {"partition.alpha": deal}
    return build_settings(SIMULATE, settings, options)


def federation(plan: dict[str, Any], cell: Cell) -> dict[str, Any]:
    """Run one federation, and measure every update of it."""
    began = time.process_time()
    run_plan = make_plan(settings_of(plan, cell))
    with tempfile.TemporaryDirectory() as scratch:
        setup = make_client_setup(run_plan, Path(scratch), Event())
        data = replace(run_plan.cast.data, images=setup.images)
        run_plan = replace(run_plan, cast=run_plan.cast.with_data(data))
        recording = RecordingWriter(Path(scratch) / "recording")
        federate(MainBranch(
            run_plan, setup, Ledger(Path(scratch) / "clients"), recording, lambda state: None,
            None, Stopwatch(time.perf_counter()), Display(0, quiet=True),
        ))  # fmt: skip
        public, models = setup.take(setup.public), recording.models()
        method = setup.method(-1, None)
        method.eval()
        view = WhiteBox(method, setup.augment, seed=0, device=torch.device("cpu"), held=public)
        before = {r: models[r - 1] for r in recording.updates()}
        loss = public_loss(view, public)
        rounds, clients, measured = measure_rounds(before, recording.updates(), loss)
        last = view.of_weights(models[max(models)])
        targets = last.losses(setup.take(setup.targets), PAIRS, "held")
    malicious = run_plan.experiment.malicious_clients
    return {
        "rounds": rounds, "clients": clients, "images": [*map(len, run_plan.cast.parts)],
        "attackers": [*malicious] if cell.kind != TWIN else [],
        "measured": [[[float(f"{x:.6g}") for x in row] for row in one] for one in measured],
        "targets_loss": float(targets.double().mean()), "seconds": time.process_time() - began,
    }  # fmt: skip


def run(
    planned: Iterable[Named], make: Callable[[Any], dict[str, Any]], folder: Path, seconds: float
) -> None:
    """Make what the folder lacks; a federation at work elsewhere has an empty file."""
    folder.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    for cell in planned:
        if time.monotonic() - began > seconds:
            return
        path = folder / cell.file
        try:
            path.open("x").close()
        except FileExistsError:
            continue
        try:
            path.write_text(json.dumps(make(cell)))
        except BaseException:
            path.unlink()
            raise
        print(cell.file, flush=True)


def judged(values: dict[str, Any]) -> dict[str, Any]:
    """What is kept of a federation: the suspicion of each client."""
    suspicion = suspicions(by_round(*np.array(values["measured"])), rng(0, "honest clients"))
    return {
        "attackers": values["attackers"], "images": values["images"],
        "targets_loss": round(values["targets_loss"], 4),
        "suspicion": [round(float(x), 3) for x in suspicion],
    }  # fmt: skip


def aucs_alone(values: dict[str, Any]) -> dict[str, float]:
    """The AUC of each measurement alone."""
    norms, cosines, losses = np.array(values["measured"])
    alone = {
        "norm": np.abs(deviations(np.log(norms))), "cosine": -deviations(cosines),
        "loss": deviations(losses),
    }  # fmt: skip
    return {n: _auc(values, suspicions(one, rng(0, n))) for n, one in alone.items()}


def answer(plan: dict[str, Any], folder: Path, short: bool) -> dict[str, Any]:
    """The answer to every question of the plan, of a folder's federations."""
    planned = [*cells(plan)]
    done = {c: json.loads(text) for c in planned if (text := text_of(folder / c.file))}
    if len(done) < len(planned) and not short:
        raise SystemExit(f"{len(done)} of {len(planned)} federations are there: run, or --short")
    by_federation = {cell.name: judged(values) for cell, values in done.items()}
    conclusion = conclude(plan, by_federation)
    for row in conclusion["cells"]:
        alone = [aucs_alone(v) for c, v in done.items()
                 if (c.split, c.attackers, c.kind) == tuple(row[k] for k in WHERE)]  # fmt: skip
        row["alone"] = {name: _mean([one[name] for one in alone]) for name in alone[0]}
    return {
        "short": len(done) < len(planned), "federations": len(done), "planned": len(planned),
        "level": plan["level"], "works": plan["works"], **conclusion,
        "cpu_seconds": round(sum(v["seconds"] for v in done.values()), 1),
        "by_federation": by_federation, **describe(),
    }  # fmt: skip


def conclude(plan: dict[str, Any], by_federation: dict[str, Any]) -> dict[str, Any]:
    """The cells and the alarm, of the suspicions of each federation."""
    done = {c: by_federation[c.name] for c in cells(plan) if c.name in by_federation}
    twins = {c: np.array(v["suspicion"]) for c, v in done.items() if c.kind == TWIN}
    alarm, rows = measure_alarm(plan, twins), []
    for split, attackers, kind in itertools.product(
        plan["splits"], plan["attackers"], plan["kinds"]
    ):
        own = [c for c in done if (c.split, c.attackers, c.kind) == (split, attackers, kind)]
        where = dict(zip(WHERE, (split, attackers, kind), strict=True))
        rows.append(where | _row(plan, own, done, alarm["threshold"]))
    return {"cells": rows, "alarm": alarm}


def text_of(path: Path) -> str:
    """What a file holds; nothing of one that is missing."""
    return path.read_text() if path.is_file() else ""


def _row(
    plan: dict[str, Any], own: Sequence[Cell], done: dict[Cell, Any], threshold: float
) -> dict[str, Any]:
    """One cell: its AUC, who is named, and what is left of the attack."""
    aucs = [_auc(done[c], done[c]["suspicion"]) for c in own]
    low, high = mean_interval(aucs)
    sides = [(np.array(done[c]["suspicion"]) > threshold, done[c]["attackers"]) for c in own]
    named = [float(alarm[bad].mean()) for alarm, bad in sides]
    named_low, named_high = mean_interval(named)
    accused = [float(np.delete(alarm, bad).mean()) for alarm, bad in sides]
    twins = [replace(c, kind=TWIN) for c in own]
    pushes = [done[c]["targets_loss"] - done[t]["targets_loss"]
              for c, t in zip(own, twins, strict=True) if t in done]  # fmt: skip
    verdict = "works" if low >= plan["works"] else "fails" if high < plan["works"] else "undecided"
    return {
        "n": len(own), "auc": _mean(aucs), "low": round(low, 4), "high": round(high, 4),
        "verdict": verdict, "named": _mean(named), "named_low": round(named_low, 4),
        "named_high": round(named_high, 4), "accused": _mean(accused),
        "with_alarm": sum(share > 0 for share in named),
        "first": _mean([_first(done[c], done[c]["suspicion"]) for c in own]),
        "push": _mean(pushes), "push_interval": spread(pushes, -math.inf, math.inf)["ci"],
    }  # fmt: skip


def _auc(values: dict[str, Any], score: Any) -> float:
    """Of a federation's attackers against its honest clients."""
    bad = values["attackers"]
    return float(auc(np.asarray(score)[bad], np.delete(score, bad)))


def _first(values: dict[str, Any], score: Any) -> float:
    """Whether the most suspicious client is an attacker."""
    return float(int(np.argmax(score)) in values["attackers"])


def measure_alarm(plan: dict[str, Any], twins: dict[Cell, Any]) -> dict[str, Any]:
    """The threshold of an alarm, and who is named among honest clients, step by step as planned."""
    starts = 0, plan["second"]["first"], plan["third"]["first"], math.inf
    first, second, third = (
        {cell: s for cell, s in twins.items() if start <= cell.seed < end}
        for start, end in itertools.pairwise(starts)
    )
    steps = [_step(plan, first, second)]
    again = steps[0]["check"][-1]["with_alarm"] > 1
    steps.append(
        _step(plan, first | second, third) if again else _step(plan, first, second | third)
    )
    return {
        "clients": plan["clients"], "rounds": plan["settings"]["federation"]["rounds"],
        "threshold": steps[1]["threshold"], "steps": steps,
    }  # fmt: skip


def _step(plan: dict[str, Any], known: dict[Cell, Any], fresh: dict[Cell, Any]) -> dict[str, Any]:
    """The threshold of some honest federations, that of the worst split, checked on others."""
    splits, check = list[dict[str, Any]](), list[dict[str, Any]]()
    for split in plan["splits"]:
        largest = [s.max() for cell, s in known.items() if cell.split == split]
        splits.append({"split": split, **_threshold(largest, plan["level"])})
    threshold = max(row["threshold"] for row in splits)
    for split in (*plan["splits"], "all"):
        named = [s > threshold for cell, s in fresh.items() if split in (cell.split, "all")]
        check.append({"split": split, **_alarms(named, plan["level"])})
    return {"federations": len(known), "splits": splits, "threshold": threshold, "check": check}


def _threshold(largest: Sequence[float], level: float) -> dict[str, Any]:
    """Over it at most `level` of the next federations are expected, or as few as their number can
    bound; rounded up."""
    place = max(1, int(level * (len(largest) + 1)))
    return {
        "federations": len(largest), "expected": round(place / (len(largest) + 1), 4),
        "median": round(float(np.median(largest)), 2),
        "threshold": math.ceil(100 * sorted(largest)[-place]) / 100,
    }  # fmt: skip


def _alarms(named: Sequence[Any], level: float) -> dict[str, Any]:
    """False alarms of honest federations; `named` has a truth value a client."""
    whole = [bool(one.any()) for one in named]
    low, high = clopper_pearson(sum(whole), len(whole))
    return {
        "federations": len(named), "with_alarm": sum(whole), "share": _mean([*map(float, whole)]),
        "low": round(low, 4), "high": round(high, 4), "holds": low <= level,
        "clients": sum(map(len, named)), "accused": int(sum(one.sum() for one in named)),
    }  # fmt: skip


def _mean(values: Sequence[float]) -> float:
    return round(float(np.mean(values)), 4)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("run", "answer"))
    parser.add_argument("folder", type=Path, nargs="?", help="of the federations' measurements")
    parser.add_argument("--seconds", type=float, default=np.inf, help="begin none after so many")
    parser.add_argument("--out", type=Path, default=RESULTS, help="JSON file to write")
    parser.add_argument("--short", action="store_true", help="answer with what is there")
    args = parser.parse_args(arguments)
    plan = load_plan()
    if args.what == "run":
        if args.folder is None:
            parser.error("run needs FOLDER")
        torch.set_num_threads(1)
        run(cells(plan), partial(federation, plan), args.folder, args.seconds)
        return
    if args.folder is None:
        result = json.loads(args.out.read_text())
        alone = {tuple(row[k] for k in WHERE): row["alone"] for row in result["cells"]}
        result |= conclude(plan, result["by_federation"])
        for row in result["cells"]:
            row["alone"] = alone[tuple(row[k] for k in WHERE)]
    else:
        result = answer(plan, args.folder, args.short)
    args.out.write_text(json.dumps(result, indent=1) + os.linesep)
    for row in result["cells"]:
        print(f"{row['kind']:12} {row['split']:12} {row['attackers']} of 10: AUC {row['auc']:.2f} "
              f"[{row['low']:.2f}, {row['high']:.2f}] {row['verdict']}, named {row['named']:.0%}, "
              f"push {row['push']:+.3f}")  # fmt: skip
    print(f"threshold {result['alarm']['threshold']}")
    for row in (r for step in result["alarm"]["steps"] for r in step["check"]):
        print(f"honest, {row['split']:12} alarms {row['with_alarm']}/{row['federations']}")


if __name__ == "__main__":
    main()
