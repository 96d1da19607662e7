"""Attackers who know a defence of training beside those who do not: EncoderMI's shadows trained
under the target's defence, and the same without it, on default federations of several seeds.

Each federation is trained once a defence, then audited by the command; the naive shadows of a seed
are trained once. Ended, it goes on where it was.

    python benchmarks/knowing.py --work DIR [--seeds 5] [--attack encodermi-v] [--shadows 1]
        [--out benchmarks/results/knowing.json]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from fedmia.report.format import estimate
from fedmia.runtime.environment import describe
from fedmia.sweeping.spread import holm, p_value, spread

RESULTS = Path(__file__).parent / "results" / "knowing.json"
# Strong enough in the trade-off to show, and not so strong that nothing leaks at all.
# The option, what the clients set it to, and what the shadows that know it do.
DEFENSES: dict[str, tuple[str, str, str] | None] = {
    "none": None,
    "dpsgd": ("noise_multiplier", "0.3", "0.3"),
    "crop-range": ("lower", "0.97", "0.97"),
    "weight-decay": ("weight_decay", "0.02", "0.02"),
    "early-stopping": ("after", "10", "67"),  # a third of 30 rounds, and of a shadow's 200 epochs
}


def done(module: str, flags: list[str], out: Path) -> dict[str, Any]:
    """The report of a command, which is run unless it has been."""
    if not (out / "report.json").exists():
        asked = [sys.executable, "-m", f"fedmia.{module}", *flags, "--quiet", "--out", str(out)]
        subprocess.run(asked, check=True, stdout=subprocess.DEVNULL)
    report: dict[str, Any] = json.loads((out / "report.json").read_text())
    return report


def cell(name: str, seed: int, asked: argparse.Namespace) -> dict[str, Any]:
    """One federation, and what both attackers read of it; the undefended one has one attacker."""
    under, own = list[str](), list[str]()
    if strength := DEFENSES[name]:
        option, theirs, ours = strength
        own = ["--defense", name, f"--defense.{option}", theirs]
        under = ["--shadow-defense", name, f"--shadow-defense.{option}", ours]
    run, cache = asked.work / f"{name}-{seed}", asked.work / "shadows"
    flags = ["--attacker", "none", "--attacks", "none", "--federation.snapshots", "1", *own]
    done("simulate", [*flags, "--seed", str(seed)], run)
    flags = ["--encoder", str(run), "--attacks", asked.attack, "--shadows", str(asked.shadows)]
    flags += ["--cache", str(cache), "--seed", str(seed), *under]
    report = done("audit", flags, asked.work / f"{name}-{seed}-audit")
    row = next(r for r in report["attacks"] if r["name"] == asked.attack)
    pair = next((p for p in report["paired"] if p["control"] == f"{asked.attack}-naive"), None)
    return {
        "defense": name, "seed": seed, "n_members": row["n_members"],
        "n_nonmembers": row["n_nonmembers"], "knn": report["utility"]["knn"],
        "naive": pair["auc_control"] if pair else row["auc"],
        "knowing": row["auc"] if pair else None,
        "difference": pair["difference"] if pair else None,
    }  # fmt: skip


def summary(cells: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row a defence: means over federations with 95 % intervals between them."""
    found = []
    for name in DEFENSES:
        own = [c for c in cells if c["defense"] == name]
        row = {key: spread(c[key] for c in own) for key in ("naive", "knowing", "knn")}
        apart = [c["difference"] for c in own if c["difference"] is not None]
        found.append(
            {"defense": name, **row, "difference": spread(apart, -1.0), "p": p_value(apart)}
        )
    for one, adjusted in zip(found, holm([row["p"] for row in found]), strict=True):
        one["p_holm"] = adjusted
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--attack", default="encodermi-v")
    parser.add_argument("--shadows", type=int, default=1)
    parser.add_argument("--out", type=Path, default=RESULTS)
    asked = parser.parse_args()
    cells = [cell(name, seed, asked) for seed in range(asked.seeds) for name in DEFENSES]
    rows = summary(cells)
    for row in rows:
        said = [estimate(row[k]["mean"], row[k]["ci"]) for k in ("naive", "knowing", "difference")]
        print(row["defense"], *said, row["p_holm"], sep=" | ")
    options = {n: list(o) if o else None for n, o in DEFENSES.items()}
    told = {"attack": asked.attack, "shadows": asked.shadows, "defenses": options}
    made = {**told, "rows": rows, "cells": cells, "environment": describe()}
    asked.out.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
