"""Attackers who know a defence beside those who do not: EncoderMI's shadows trained under the
target's defence, and the same without it, on default federations of several seeds.

Under a defence of training a shadow is one encoder, trained by the audit. Noise on what is sent
needs somebody who sends: there a shadow is a federation like the target's, of as many images, all
of the attacker's own. Each federation is trained once, then audited by the command; the naive
shadows of a seed are trained once. Ended, it goes on where it was.

    python benchmarks/knowing.py --work DIR [--kind training|sent] [--seeds 5]
        [--attack encodermi-v] [--out benchmarks/results/knowing.json]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from fedmia.data.digits import Digits
from fedmia.evaluation.audits.runs import split_of_run
from fedmia.records.rows import Report
from fedmia.report.words.numbers import estimate
from fedmia.runtime.environment import describe
from fedmia.settings.commands.audit import Audit
from fedmia.settings.tree import from_tree
from fedmia.statistics.pvalues import holm
from fedmia.statistics.spread import p_value, spread
from fedmia.storage.runfolder import RunFolder

RESULTS = Path(__file__).parent / "results"
FILES = {"training": "knowing.json", "sent": "knowing_sent.json"}
# Strong enough in the trade-off to show, and not so strong that nothing leaks at all.
# The option, what the clients set it to, and what the shadows that know it do.
TRAINING: dict[str, tuple[str, str, str] | None] = {
    "none": None,
    "dpsgd": ("noise_multiplier", "0.3", "0.3"),
    "crop-range": ("lower", "0.97", "0.97"),
    "weight-decay": ("weight_decay", "0.02", "0.02"),
    "early-stopping": ("after", "10", "67"),  # a third of 30 rounds, and of a shadow's 200 epochs
}
# Flags of the target and of the federations that know it.
SENT: dict[str, list[str]] = {
    "none": [],
    "gaussian": ["--defense", "gaussian", "--defense.scale", "0.03"],
    "logistic": ["--defense", "logistic", "--defense.scale", "0.02"],
    "laplace": ["--defense", "laplace", "--defense.scale", "0.03"],
    "dp-fedavg": ["--strategy", "dp-fedavg", "--strategy.noise_multiplier", "0.1"],
}
DEFENSES: dict[str, list[str]] = {"training": list(TRAINING), "sent": list(SENT)}
QUIET = ["--attacker", "none", "--attacks", "none", "--federation.snapshots", "1"]
OTHERS = 300  # non-members of a shadow federation; what is left tests its encoder


def run_command(module: str, flags: list[str], out: Path) -> Report:
    """The report of a command, which is run unless it has been."""
    run = RunFolder(out)
    if not run.has_report():
        command = [sys.executable, "-m", f"fedmia.{module}", *flags, "--quiet", "--out", str(out)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return run.report()


def one_encoder(name: str, seed: int, arguments: argparse.Namespace) -> Report:
    """The audit of a federation by shadows of one trainer each."""
    under, own = list[str](), list[str]()
    if strength := TRAINING[name]:
        option, theirs, ours = strength
        own = ["--defense", name, f"--defense.{option}", theirs]
        under = ["--shadow-defense", name, f"--shadow-defense.{option}", ours]
    run = arguments.work / f"{name}-{seed}"
    run_command("simulate", [*QUIET, *own, "--seed", str(seed)], run)
    flags = ["--encoder", str(run), "--attacks", arguments.attack, "--shadows", "1", *under]
    flags += ["--cache", str(arguments.work / "shadows"), "--seed", str(seed)]
    return run_command("audit", flags, arguments.work / f"{name}-{seed}-{arguments.attack}")


def own_images(run: Path, seed: int, file: Path) -> None:
    """The attacker's own: half of the non-members of `run`, which an audit would train on too."""
    spare = split_of_run(
        from_tree(Audit, {"encoder": str(run), "shadows": 1, "seed": seed}), RunFolder(run)
    )
    pixels = spare.pixels("spare")
    labels = spare.labels.of(pixels)
    np.savez(file, x=pixels.permute(0, 2, 3, 1).numpy(), y=labels.astype(np.int64))


def federation(name: str, seed: int, arguments: argparse.Namespace) -> Report:
    """The audit of a federation by a shadow federation that knows its defence and a naive one."""
    run, images = arguments.work / f"{name}-{seed}", arguments.work / f"images-{seed}.npz"
    run_command("simulate", [*QUIET, *SENT[name], "--seed", str(seed)], run)
    if not images.exists():
        own_images(run, seed, images)
    shadows = arguments.work / f"{name}-{seed}-shadows"
    shadows.mkdir(exist_ok=True)
    for one in {name, "none"}:
        shadow_run = arguments.work / f"shadow-{one}-{seed}"
        flags = ["--config", str(RunFolder(arguments.work / f"none-{seed}").config), *SENT[one]]
        flags += ["--dataset", f"npz:{images}", "--split.nonmembers", str(OTHERS)]
        for constant in ("mean", "std"):  # the archive does not tell what its images were
            flags += [f"--data.{constant}", str(getattr(Digits, constant)[0])]
        run_command("simulate", [*flags, "--seed", str(1000 + seed)], shadow_run)
        if not (shadows / one).exists():
            (shadows / one).symlink_to(shadow_run.resolve())
    flags = [
        "--encoder",
        str(run),
        "--attacks",
        arguments.attack,
        "--shadow-encoders",
        str(shadows),
    ]
    return run_command(
        "audit", [*flags, "--seed", str(seed)], arguments.work / f"{name}-{seed}-{arguments.attack}"
    )


def cell(name: str, seed: int, arguments: argparse.Namespace) -> dict[str, Any]:
    """One federation, and what both attackers read of it; the undefended one has one attacker."""
    report = {"training": one_encoder, "sent": federation}[arguments.kind](name, seed, arguments)
    row = next(r for r in report.attacks if r.name == arguments.attack)
    pair = next((p for p in report.paired if p.control == f"{arguments.attack}-naive"), None)
    return {
        "defense": name, "seed": seed, "n_members": row.n_members,
        "n_nonmembers": row.n_nonmembers, "knn": report.utility.knn,
        "naive": pair.auc_control if pair else row.auc,
        "knowing": row.auc if pair else None,
        "difference": pair.difference if pair else None,
    }  # fmt: skip


def summary(cells: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row a defence: means over federations with 95 % intervals between them."""
    rows = []
    for name in dict.fromkeys(c["defense"] for c in cells):
        own = [c for c in cells if c["defense"] == name]
        row = {key: vars(spread(c[key] for c in own)) for key in ("naive", "knowing", "knn")}
        apart = [c["difference"] for c in own if c["difference"] is not None]
        rows.append(
            {"defense": name, **row, "difference": vars(spread(apart, -1.0)), "p": p_value(apart)}
        )
    for one, adjusted in zip(rows, holm([row["p"] for row in rows]), strict=True):
        one["p_holm"] = adjusted
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--attack", default="encodermi-v")
    parser.add_argument("--kind", choices=FILES, default="training")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    names = DEFENSES[arguments.kind]
    cells = [cell(name, seed, arguments) for seed in range(arguments.seeds) for name in names]
    rows = summary(cells)
    for row in rows:
        texts = [estimate(row[k]["mean"], row[k]["ci"]) for k in ("naive", "knowing", "difference")]
        print(row["defense"], *texts, row["p_holm"], sep=" | ")
    options = TRAINING if arguments.kind == "training" else SENT
    settings = {"attack": arguments.attack, "shadows": 1, "defenses": options}
    result = {**settings, "rows": rows, "cells": cells, "environment": describe()}
    out = arguments.out or RESULTS / FILES[arguments.kind]
    out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
