"""Does ascent add anything? A search over its settings, each against the same rounds without it.

One federation is pre-trained; every setting continues from the same state, beside a control that
continues without ascent. Printed and written: AUC of each reading with and without ascent, and
the paired difference with its 95 % interval.

    python benchmarks/ascent_search.py --seed 0 --out benchmarks/results/ascent_search.json
"""

from __future__ import annotations

import argparse
import copy
import itertools
import json
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import torch
from flwr.serverapp import Grid

from clients.app import client_app
from fedmia.attacks.ascent import Ascent
from fedmia.federation.backends import run_inline
from fedmia.federation.rounds import Federation
from fedmia.federation.run import Finished, make_site, prepare
from fedmia.federation.snapshot import MemoryStore, SnapshotStore
from fedmia.report.paired import paired_row
from fedmia.results import Pair
from fedmia.runtime.environment import describe
from fedmia.runtime.progress import Display
from fedmia.runtime.stopwatch import Stopwatch
from fedmia.scoring.snapshots import Evaluation
from fedmia.scoring.trajectories import Trajectories
from fedmia.settings.command import parse
from fedmia.settings.commands import SIMULATE
from fedmia.settings.tree import to_tree

READINGS = ("level", "rise", "recovery", "line23")
RATES = (0.003, 0.01, 0.03, 0.1)


def main() -> None:
    """Run the search and write its table."""
    ask = argparse.ArgumentParser(description=__doc__)
    ask.add_argument("--seed", default="0")
    ask.add_argument("--rounds", default="6")
    ask.add_argument("--out", type=Path)
    ask.add_argument("extra", nargs="*", help="flags of fedmia.simulate, after --")
    given = ask.parse_args()
    flags = ["--attacker", "active", "--seed", given.seed, "--rounds", given.rounds, *given.extra]
    experiment = parse(SIMULATE, flags).settings
    assert experiment is not None
    with tempfile.TemporaryDirectory() as folder:
        head = {"flags": flags, **describe(), "config": to_tree(experiment)}
        search(experiment, Path(folder), lambda rows: write(given.out, head, rows))


def write(out: Path | None, head: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    """The table so far, the largest difference first; a search that is stopped keeps its rows."""
    if out:
        out.parent.mkdir(parents=True, exist_ok=True)
        ordered = sorted(rows, key=lambda r: -r["difference"])
        out.write_text(json.dumps({**head, "rows": ordered}, indent=1) + "\n")


def settings() -> list[dict[str, Any]]:
    """Rates x steps x base, then boost, schedule and batch around the middle of them."""
    found: list[dict[str, Any]] = [
        {"lr": lr, "steps": steps, "base": base}
        for lr, steps, base in itertools.product(RATES, (1, 5), ("aggregated", "trained"))
    ]
    found += [{"lr": 0.003, "boost": b} for b in (3.0, 10.0)]
    found += [{"lr": lr, "steps": 5, "schedule": "rotate"} for lr in RATES[1:]]
    found += [{"lr": lr, "batch": 256} for lr in RATES[1:]]
    found += [{"lr": 0.01, "loss": "algorithm1"}]
    plain = {"steps": 1, "base": "aggregated", "boost": 1.0}
    plain |= {"schedule": "all", "batch": 32, "loss": "training"}
    return [{**plain, **f} for f in found]


def search(experiment: Any, folder: Path, save: Callable[[list[dict[str, Any]]], None]) -> None:
    """Hands one row a setting and reading to `save` after every setting."""
    prepared = prepare(experiment)
    site = make_site(prepared, folder, Event())
    torch.set_num_threads(site.threads)
    store, snapshots = MemoryStore(), SnapshotStore(folder / "snapshots")
    split, watch, display = prepared.split, Stopwatch(0.0), Display(0, True)
    run = Federation(experiment, site, split, store, snapshots, lambda state: None, watch, display)
    done = Finished(prepared, site, store, snapshots, run.rounds, False)
    judge = Trajectories(Evaluation(done, {"ascent": dict(experiment.attack["ascent"])}), "ascent")
    rows: list[dict[str, Any]] = []

    def explore(grid: Grid) -> None:
        first = site.method(-1, None).shared_state()
        state, strategy = run.pretrain(grid, "main", first)

        def branch(name: str) -> None:
            store.fork("main", name, len(site.roles))
            run.keep(name, run.schedule.clean, state)
            run.attacked(grid, copy.deepcopy(strategy), name, state)

        branch("zero")
        for i, setting in enumerate(settings()):
            object.__setattr__(site, "attack", replace(Ascent(), **setting))
            name = f"try-{i}"
            try:
                branch(name)
            except Exception as error:  # a diverged setting is a row of the table too
                rows.append({**setting, "reading": "-", "difference": -1.0, "failed": str(error)})
                continue
            rows.extend(compare(judge, name, setting))
            best = max(rows[-len(READINGS) :], key=lambda r: r["difference"])
            print(f"{i + 1}/{len(settings())}", best, flush=True)
            snapshots.drop(name)
            save(rows)

    run_inline(explore, client_app(site, store), len(site.roles), site.threads)


def compare(judge: Trajectories, name: str, setting: dict[str, Any]) -> list[dict[str, Any]]:
    """The readings of one branch against the same readings of `zero`."""
    rows = []
    for reading in READINGS:
        judge.evaluation.attacks["ascent"] |= {**setting, "reading": reading}
        active, control = judge.on(name), judge.on("zero", "ascent-zero")
        row = paired_row(Pair(active, control, "zero"), 1)
        found = {"auc": row["auc"], "auc_zero": row["auc_control"], "difference": row["difference"]}
        found = {name: round(value, 4) for name, value in found.items()}
        ci = [round(x, 4) for x in row["ci"]]
        rows.append({**setting, "reading": reading, **found, "ci": ci})
    return rows


if __name__ == "__main__":
    main()
