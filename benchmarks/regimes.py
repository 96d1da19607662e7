"""Two regimes, chosen once on seeds that report nothing else: the default, which leaks weakly, and
the presets `overfit` and `overfit-cifar10`, whose encoder knows its members, as the federated paper
attacks one.

A candidate is right where on each seed, on the model of the last clean round, `similarity` has an
AUC over 0.85 and kNN lies over the untrained encoder's 95 % interval, and where the whole command,
attacks and report included, takes two minutes on two cores. Clean rounds do not depend on what the
last client does after them, so candidates are run to their end alone and without an active attack.
The record's times are of a machine with other jobs. `--only "overfit, whole"` runs a preset whole.
Ended, it goes on where it was.

    python benchmarks/regimes.py --work DIR --cifar10 PATH/cifar10-train.parquet
        [--only NAME ..] [--seeds 900 ..] [--out benchmarks/results/regimes/choice.json]
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import _process

from fedmia.report.regime import OVERFIT
from fedmia.runtime.environment import describe

OUT = Path(__file__).parent / "results" / "regimes" / "choice.json"
SEEDS = range(900, 905)
CLEAN = ["--attacker", "passive", "--attacks", "similarity"]
SHORT = [*CLEAN, "--rounds", "2", "--federation.snapshots", "1"]
# Name -> flags of a run to the last clean round, and that round.
CANDIDATES: dict[str, tuple[list[str], int]] = {
    "weak": ([*CLEAN, "--rounds", "30", "--federation.snapshots", "5"], 24),
    **{
        f"{preset}, {epochs} epochs at {rate}": (
            ["--config", preset, *SHORT, "--pretrain-epochs", epochs, "--train.lr", rate],
            2,
        )
        for preset, epochs, rate in (
            ("overfit", "600", "0.06"),
            ("overfit-cifar10", "300", "0.09"),
            ("overfit-cifar10", "360", "0.06"),
        )
    },
}
WHOLE: dict[str, tuple[list[str], int]] = {
    f"{preset}, whole": (["--config", preset], 2) for preset in ("overfit", "overfit-cifar10")
}


def run_command(flags: list[str], out: Path) -> tuple[dict[str, Any], dict[str, float]]:
    """Report and cost of a run, which is made unless it has been."""
    cost, command = out / "cost.json", [sys.executable, "-m", "fedmia.simulate", *flags]
    if not cost.exists():
        used = _process.measure_process(
            [*command, "--quiet", "--out", str(out)], {"OMP_NUM_THREADS": "1"}
        )
        cost.write_text(json.dumps(used))
    return json.loads((out / "report.json").read_text()), json.loads(cost.read_text())


def row(report: dict[str, Any], round: int, cost: dict[str, float]) -> dict[str, Any]:
    """What the choice looks at: `similarity`, and kNN beside the untrained encoder's interval."""
    at = next(r for r in report["rounds"] if r["round"] == round)
    auc, untrained = at["leakage"]["similarity"], report["utility"]["untrained"]
    return {
        "seed": report["config"]["seed"], "round": round, "similarity": auc, "knn": at["knn"],
        "untrained_knn": untrained["knn"], "untrained_knn_ci": untrained["knn_ci"],
        "overfit": auc > OVERFIT, "useful": at["knn"] > untrained["knn_ci"][1],
        "wall_s": round_s(cost["wall_s"]), "cpu_s": round_s(cost["cpu_s"]),
    }  # fmt: skip


def round_s(seconds: float) -> float:
    """To a tenth."""
    return round(seconds, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--cifar10", required=True, help="cifar10-train.parquet")
    parser.add_argument("--only", nargs="*", help="candidates to run")
    parser.add_argument("--seeds", nargs="*", type=int, default=[*SEEDS], help="of these alone")
    parser.add_argument("--out", type=Path, default=OUT)
    arguments = parser.parse_args()
    results: dict[str, Any] = {}
    for name, (flags, last) in {**CANDIDATES, **WHOLE}.items():
        own = ["--dataset", f"parquet:{arguments.cifar10}"] if "cifar10" in name else []
        for seed in arguments.seeds:
            out = arguments.work / f"{name}-{seed}".replace(", ", "-").replace(" ", "-")
            chosen = arguments.only is None or name in arguments.only
            if not (chosen or (out / "cost.json").exists()):
                continue
            report, cost = run_command([*flags, *own, "--seed", str(seed)], out)
            results.setdefault(name, {"flags": flags, "seeds": []})["seeds"].append(
                row(report, last, cost)
            )
            print(name, results[name]["seeds"][-1], flush=True)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(
        json.dumps({"bound": OVERFIT, "candidates": results, **describe()}, indent=1)
    )


if __name__ == "__main__":
    main()
