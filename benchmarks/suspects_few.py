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
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import suspects
import torch

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


def judged(values: dict[str, Any], cell: Few, rounds: Iterable[int]) -> dict[str, Any]:
    """What is kept of a federation, by how many rounds: the suspicion of each client after the
    first, and of an honest one the largest of the last."""
    measured = np.array(values["measured"])

    def of(part: np.ndarray) -> np.ndarray:
        return suspicions(by_round(*part), rng(0, "honest clients"))

    kept: dict[str, Any] = {"suspicion": {
        str(r): [round(float(x), 3) for x in of(measured[:, :r])] for r in rounds
    }}  # fmt: skip
    if cell.kind == CLIMB:
        return {"attackers": values["attackers"], **kept}
    last = {str(r): round(float(of(measured[:, -r:]).max()), 3) for r in rounds}
    return {**kept, "largest_of_last": last}


def answer(plan: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The answer to every question of the plan, of a folder's federations."""
    planned = [*cells(plan)]
    done = {c: json.loads(t) for c in planned if (t := suspects.text_of(folder / c.file))}
    by_federation = {
        cell.name: judged(values, cell, [r for r in plan["rounds"] if of_cell(plan, cell, r)])
        for cell, values in done.items()
    }
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
    looks = {look: whole_seeds(plan, look, by_federation) for look in LOOKS}
    rows = [
        _cell(plan, looks, clients, rounds, by_federation)
        for clients, rounds in itertools.product(plan["clients"], plan["rounds"])
    ]
    thresholds = {(row["clients"], row["rounds"]): row["threshold"] for row in rows}
    by_rounds = []
    for rounds in plan["rounds"]:
        named = [
            over for clients in plan["clients"]
            for over in _over(looks["fresh"], clients, [rounds], thresholds, by_federation)
        ]  # fmt: skip
        false = _share(named)
        by_rounds.append({"rounds": rounds, "false": false, "holds": false["low"] <= plan["level"]})
    holds = {row["rounds"]: row["holds"] for row in by_rounds}
    for row in rows:
        row["given"] = row["complete"] and row["holds"] and holds[row["rounds"]] and row["worth"]
    return {
        "federations": len(by_federation),
        "looks": {look: len(those) for look, those in looks.items()},
        "given": sum(row["given"] for row in rows), "cells": rows, "by_rounds": by_rounds,
        "by_clients": [
            _clients(plan, rows, looks, clients, thresholds, by_federation)
            for clients in plan["clients"]
        ],
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
    plan: dict[str, Any], looks: dict[str, list[Few]], clients: int, rounds: int,
    by_federation: dict[str, Any],
) -> dict[str, Any]:  # fmt: skip
    """One number of clients and rounds: its threshold, its false alarms, and what it finds."""
    largest: dict[str, list[float]] = {split: [] for split in plan["splits"]}
    for cell in looks["calibration"]:
        if cell.clients == clients:
            largest[cell.split].append(max(by_federation[cell.name]["suspicion"][str(rounds)]))
    fewest = min(map(len, largest.values()))
    threshold = math.ceil(100 * max(itertools.chain([0.0], *largest.values()))) / 100
    where = {(clients, rounds): threshold}
    false = _share(_over(looks["fresh"], clients, [rounds], where, by_federation))
    last = [
        by_federation[c.name]["largest_of_last"][str(rounds)] > threshold
        for c in looks["fresh"] if c.clients == clients
    ]  # fmt: skip
    attacked = [
        by_federation[c.name] for c in looks["attacked"]
        if c.clients == clients and of_cell(plan, c, rounds)
    ]  # fmt: skip
    found, first, accused = list[bool](), list[bool](), list[bool]()
    for one in attacked:
        own, (bad,) = np.array(one["suspicion"][str(rounds)]), one["attackers"]
        found.append(bool(own[bad] > threshold))
        first.append(int(own.argmax()) == bad)
        accused.append(bool((np.delete(own, bad) > threshold).any()))
    power = _share(found)
    return {
        "clients": clients, "rounds": rounds, "threshold": threshold,
        "calibration": fewest, "expected": round(1 / (fewest + 1), 4),
        "complete": fewest == plan["calibration"]["number"],
        "medians": {split: round(float(np.median(each or [0])), 2) for split, each in largest.items()},
        "false": false, "holds": false["low"] <= plan["level"],
        "power": power, "worth": power["low"] > plan["level"],
        "first": _share(first), "accused": sum(accused), "last": _share(last),
    }  # fmt: skip


def _clients(
    plan: dict[str, Any], rows: Sequence[dict[str, Any]], looks: dict[str, list[Few]],
    clients: int, thresholds: dict[tuple[int, int], float], by_federation: dict[str, Any],
) -> dict[str, Any]:  # fmt: skip
    """Of a number of clients: alarms after several looks, and how far the unit moves."""
    given = [r["rounds"] for r in rows if r["clients"] == clients and r["given"]]
    fresh = [by_federation[c.name]["suspicion"] for c in looks["fresh"] if c.clients == clients]
    moves = [abs(np.array(one[str(r + 1)]) - np.array(one[str(r)])) for one in fresh for r in MOVED]
    moved = np.concatenate([[], *moves])
    return {
        "clients": clients, "given": given,
        "looks": _share(_over(looks["fresh"], clients, plan["rounds"], thresholds, by_federation)),
        "moves": len(moved), "median_move": round(float(np.median(moved)), 3),
        "over_one": round(float((moved > 1).mean()), 3),
        "stable": bool(np.median(moved) <= STABLE),
    }  # fmt: skip


def _over(
    cells: Iterable[Few], clients: int, rounds: Sequence[int],
    thresholds: dict[tuple[int, int], float], by_federation: dict[str, Any],
) -> list[bool]:  # fmt: skip
    """Whether any client is over the threshold after any of the rounds, a federation each."""
    return [
        any(max(by_federation[c.name]["suspicion"][str(r)]) > thresholds[clients, r]
            for r in rounds)
        for c in cells if c.clients == clients
    ]  # fmt: skip


def _share(named: Sequence[bool]) -> dict[str, Any]:
    """How many are, with Clopper and Pearson's interval."""
    low, high = clopper_pearson(sum(named), len(named)) if named else (0.0, 1.0)
    share = round(float(np.mean(named)), 4) if named else 0.0
    return {
        "n": len(named), "with_alarm": sum(named), "share": share,
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
    print(f"{result['federations']} of {result['planned']} federations, {result['looks']}")
    for row in result["cells"]:
        print(f"{row['clients']} clients, {row['rounds']} rounds: over {row['threshold']:.2f} "
              f"{_text(row['false'])} of honest federations, {_text(row['power'])} of attackers, "
              f"first {_text(row['first'])}: {'alarm' if row['given'] else 'rank alone'}")  # fmt: skip
    for row in result["by_rounds"]:
        print(f"{row['rounds']} rounds: {_text(row['false'])} of honest federations")
    for row in result["by_clients"]:
        print(f"{row['clients']} clients: any look {_text(row['looks'])}, moves by "
              f"{row['median_move']}, over 1 {row['over_one']}")  # fmt: skip


def _text(share: dict[str, Any]) -> str:
    return f"{share['with_alarm']}/{share['n']} [{share['low']:.2f}, {share['high']:.2f}]"


if __name__ == "__main__":
    main()
