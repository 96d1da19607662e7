"""May an alarm be raised among few clients? What benchmarks/plans/suspects_few.yaml asks.

    python benchmarks/suspects_few.py run FOLDER [--seconds N]
    python benchmarks/suspects_few.py answer [FOLDER] [--out FILE]

`run` makes the planned federations that FOLDER lacks, a file each, and begins no further one after
N seconds. `answer` judges them, by whole seeds, and says how many are there. Without FOLDER it
judges the suspicions that FILE has.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import suspects
import torch
from scipy.stats import norm, t

from fedmia.runtime.environment import describe
from fedmia.seeding import rng
from fedmia.statistics.intervals import clopper_pearson
from fedmia.statistics.suspicion import by_round, suspicions

HERE = Path(__file__).parent
PLAN = HERE / "plans" / "suspects_few.yaml"
RESULTS = HERE / "results" / "suspects_few.json"
CLIMB = "climb"
LOOKS = "calibration", "fresh", "attacked"
MOVED = 5, 6  # rounds, from which to the next the suspicion moves
STABLE = 0.5
Kept = tuple["Few", dict[str, Any]]


@dataclass(frozen=True)
class Few:
    """One planned federation."""

    seed: int
    split: str
    clients: int
    rounds: int
    kind: str

    @property
    def name(self) -> str:
        split = self.split.replace(" ", "_")
        return f"{self.seed}-{split}-{self.clients}-{self.rounds}-{self.kind}"

    @property
    def file(self) -> str:
        return f"{self.name}.json"


def seeds(plan: dict[str, Any], look: str) -> range:
    """The seeds of a look: `calibration`, `fresh` or `attacked`."""
    return range(plan[look]["first"], plan[look]["first"] + plan[look]["number"])


def of_seed(plan: dict[str, Any], look: str, seed: int, clients: int) -> list[Few]:
    """All federations of one seed of a look, of so many clients."""
    kind = CLIMB if look == "attacked" else suspects.TWIN
    lengths = sorted({*plan["lengths"].values()}) if kind == CLIMB else plan["rounds"][-1:]
    return [Few(seed, split, clients, r, kind) for split in plan["splits"] for r in lengths]


def cells(plan: dict[str, Any]) -> Iterator[Few]:
    """All that is planned, one number of clients after the other: calibration, then attacked and
    fresh federations by turns."""
    for clients in plan["clients"]:
        for seed in seeds(plan, "calibration"):
            yield from of_seed(plan, "calibration", seed, clients)
        for both in itertools.zip_longest(seeds(plan, "attacked"), seeds(plan, "fresh")):
            for look, own in zip(("attacked", "fresh"), both, strict=True):
                if own is not None:
                    yield from of_seed(plan, look, own, clients)


def federation(plan: dict[str, Any], cell: Few) -> dict[str, Any]:
    """Run one federation, and measure every update of it."""
    whole = plan["settings"]
    lengths = {"rounds": cell.rounds, "keep_updates": cell.rounds}
    lengths["attack_rounds"] = min(whole["federation"]["attack_rounds"], cell.rounds // 2)
    settings = whole | {"federation": whole["federation"] | lengths}
    sized = plan | {"clients": cell.clients, "settings": settings}
    return suspects.federation(sized, suspects.Cell(cell.seed, cell.split, 1, cell.kind))


def judged(plan: dict[str, Any], values: dict[str, Any], cell: Few) -> dict[str, Any]:
    """What is kept of a federation, by how many rounds: the suspicion of each client after the
    first; of calibration the largest alone, of a fresh one that of the last rounds, too."""
    measured = np.array(values["measured"])

    def of(part: np.ndarray) -> list[float]:
        raw = suspicions(by_round(*part), rng(0, "honest clients"))
        return [round(float(x), 3) for x in raw]

    rounds = [r for r in plan["rounds"] if of_cell(plan, cell, r)]
    suspicion = {str(r): of(measured[:, :r]) for r in rounds}
    if cell.kind == CLIMB:
        return {"attackers": values["attackers"], "suspicion": suspicion}
    if cell.seed in seeds(plan, "calibration"):
        return {"suspicion": {r: [max(each)] for r, each in suspicion.items()}}
    last = {str(r): max(of(measured[:, -r:])) for r in rounds}
    return {"suspicion": suspicion, "largest_of_last": last}


def answer(plan: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The answer to every question of the plan, of a folder's federations."""
    planned = [*cells(plan)]
    done = {c: json.loads(text) for c in planned if (text := suspects.text_of(folder / c.file))}
    by_federation = {cell.name: judged(plan, values, cell) for cell, values in done.items()}
    return {
        "planned": len(planned), "level": plan["level"], **conclude(plan, by_federation),
        "cpu_seconds": round(sum(v["seconds"] for v in done.values()), 1),
        **describe(), "by_federation": by_federation,
    }  # fmt: skip


def of_cell(plan: dict[str, Any], cell: Few, rounds: int) -> bool:
    """Whether a federation answers for so many rounds: an honest one for all."""
    return cell.kind != CLIMB or bool(plan["lengths"][rounds] == cell.rounds)


def conclude(plan: dict[str, Any], by_federation: dict[str, Any]) -> dict[str, Any]:
    """Thresholds, what they find and whom they accuse, of the suspicions of each federation."""
    of_look = {look: whole_seeds(plan, look, by_federation) for look in LOOKS}
    whole = len(seeds(plan, "calibration")) * len(plan["splits"])
    calibrated = [
        clients for clients in sorted(plan["clients"])
        if sum(c.clients == clients for c in of_look["calibration"]) == whole
    ]  # fmt: skip
    own = {
        clients: {
            look: [(c, by_federation[c.name]) for c in those if c.clients == clients]
            for look, those in of_look.items()
        }
        for clients in calibrated
    }
    rows = [_cell(plan, n, r, own[n]) for n, r in itertools.product(calibrated, plan["rounds"])]
    by_rounds = list[dict[str, Any]]()
    for rounds in plan["rounds"]:
        false = _sum([row["false"] for row in rows if row["rounds"] == rounds])
        by_rounds.append({"rounds": rounds, "false": false, "holds": false["low"] <= plan["level"]})
    holds = {row["rounds"]: row["holds"] for row in by_rounds}
    for row in rows:
        row["given"] = row["holds"] and holds[row["rounds"]] and row["worth"]
        row["says"] = "alarm" if row["given"] else "rank alone"
    return {
        "federations": len(by_federation), "by_look": {k: len(v) for k, v in of_look.items()},
        "uncalibrated": sorted({*plan["clients"]} - {*calibrated}),
        "given": sum(row["given"] for row in rows), "cells": rows, "by_rounds": by_rounds,
        "by_clients": [_clients(plan, rows, n, own[n]["fresh"]) for n in calibrated],
    }  # fmt: skip


def whole_seeds(plan: dict[str, Any], look: str, by_federation: dict[str, Any]) -> list[Few]:
    """The federations of a look; but for calibration, of seeds of which none is missing."""
    whole = [
        of_seed(plan, look, seed, clients)
        for clients in plan["clients"] for seed in seeds(plan, look)
    ]  # fmt: skip
    if look == "calibration":
        return [c for own in whole for c in own if c.name in by_federation]
    return [c for own in whole if all(c.name in by_federation for c in own) for c in own]


def _cell(
    plan: dict[str, Any], clients: int, rounds: int, own: dict[str, list[Kept]]
) -> dict[str, Any]:
    """One number of clients and rounds: its threshold, its false alarms, and what it finds."""
    at, splits = str(rounds), {split: list[float]() for split in plan["splits"]}
    for cell, one in own["calibration"]:
        splits[cell.split].append(max(one["suspicion"][at]))
    threshold = math.ceil(100 * max(map(max, splits.values()))) / 100
    found, first, accused = list[bool](), list[bool](), list[bool]()
    for cell, one in own["attacked"]:
        if of_cell(plan, cell, rounds):
            suspicion, (bad,) = np.array(one["suspicion"][at]), one["attackers"]
            found.append(bool(suspicion[bad] > threshold))
            first.append(int(suspicion.argmax()) == bad)
            accused.append(bool((np.delete(suspicion, bad) > threshold).any()))
    false = _share([max(one["suspicion"][at]) > threshold for _, one in own["fresh"]])
    power = _share(found)
    return {
        "clients": clients, "rounds": rounds, "threshold": threshold,
        "deviation": round(float(t.isf(norm.sf(threshold), clients // 2)), 1),
        "expected": round(1 / (1 + min(map(len, splits.values()))), 4),
        "largest": {split: [float(np.median(each)), max(each)] for split, each in splits.items()},
        "false": false, "holds": false["low"] <= plan["level"],
        "power": power, "worth": power["low"] > plan["level"],
        "first": _share(first), "accused": _share(accused),
        "last": _share([one["largest_of_last"][at] > threshold for _, one in own["fresh"]]),
    }  # fmt: skip


def _clients(
    plan: dict[str, Any], rows: Sequence[dict[str, Any]], clients: int, fresh: Sequence[Kept]
) -> dict[str, Any]:
    """Of a number of clients: alarms after several looks, and how far the unit moves."""
    own = [row for row in rows if row["clients"] == clients]
    suspicion = [one["suspicion"] for _, one in fresh]
    looks = [
        any(max(one[str(row["rounds"])]) > row["threshold"] for row in own) for one in suspicion
    ]
    steps = [(np.array(one[str(r)]), np.array(one[str(r + 1)])) for one in suspicion for r in MOVED]
    return {
        "clients": clients, "given": [row["rounds"] for row in own if row["given"]],
        "looks": _share(looks), "moved": _moved([abs(then - now) for now, then in steps]),
        "first_moved": _moved([abs(then - now)[[now.argmax()]] for now, then in steps]),
    }  # fmt: skip


def _moved(changes: Sequence[np.ndarray]) -> dict[str, Any]:
    """How far suspicions move by one round."""
    moved = np.concatenate([[], *changes])
    if not len(moved):
        return {"n": 0, "stable": False}
    return {
        "n": len(moved), "median": round(float(np.median(moved)), 3),
        "over_one": round(float((moved > 1).mean()), 3),
        "stable": bool(np.median(moved) <= STABLE),
    }  # fmt: skip


def _share(named: Sequence[bool]) -> dict[str, Any]:
    """How many are, with Clopper and Pearson's interval."""
    return _sum([{"n": len(named), "count": sum(named)}])


def _sum(shares: Sequence[dict[str, Any]]) -> dict[str, Any]:
    n, count = (sum(one[name] for one in shares) for name in ("n", "count"))
    low, high = clopper_pearson(count, n) if n else (0.0, 1.0)
    return {
        "count": count, "n": n, "share": round(count / max(n, 1), 4),
        "low": round(low, 4), "high": round(high, 4),
    }  # fmt: skip


def as_text(result: dict[str, Any]) -> str:
    """JSON with a line a federation."""
    rest = {name: value for name, value in result.items() if name != "by_federation"}
    lines = (f"  {json.dumps(n)}: {json.dumps(v)}" for n, v in result["by_federation"].items())
    head = json.dumps(rest, indent=1).removesuffix("\n}")
    return head + ',\n "by_federation": {\n' + ",\n".join(lines) + "\n }\n}\n"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("run", "answer"))
    parser.add_argument("folder", type=Path, nargs="?", help="of the federations' measurements")
    parser.add_argument("--seconds", type=float, default=np.inf, help="begin none after so many")
    parser.add_argument("--out", type=Path, default=RESULTS, help="JSON file to write")
    args = parser.parse_args(arguments)
    plan = suspects.load_plan(PLAN)
    if args.what == "run":
        if args.folder is None:
            parser.error("run needs FOLDER")
        torch.set_num_threads(1)
        suspects.run(cells(plan), partial(federation, plan), args.folder, args.seconds)
        return
    if args.folder is None:
        result = json.loads(args.out.read_text())
        result |= conclude(plan, result["by_federation"])
    else:
        result = answer(plan, args.folder)
    args.out.write_text(as_text(result))
    print(f"{result['federations']} of {result['planned']} federations, {result['by_look']}")
    for row in result["cells"]:
        print(f"{row['clients']} clients, {row['rounds']} rounds: over {row['threshold']:.2f} lie "
              f"{_text(row['false'])} of honest, {_text(row['power'])} of attackers, first "
              f"{_text(row['first'])}: {row['says']}")  # fmt: skip
    for row in result["by_rounds"]:
        print(f"{row['rounds']} rounds: {_text(row['false'])} of honest federations")
    for row in result["by_clients"]:
        print(f"{row['clients']} clients: at any look {_text(row['looks'])}; moves: {row['moved']}")


def _text(share: dict[str, Any]) -> str:
    return f"{share['count']}/{share['n']} [{share['low']:.2f}, {share['high']:.2f}]"


if __name__ == "__main__":
    main()
