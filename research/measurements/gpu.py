"""Clients a second on a GPU: fedmia, the same in plain Flower (`peer.py`), bare passes.

MoCo on CIFAR-10, an epoch a round in batches of 32, 10,000 images dealt to 100 or to 1,000 clients,
of which 40 train in a round. Each side is one process, the sides take turns, and the first round,
in which workers start, does not count. Plain Flower and fedmia on Ray train 16 clients at once on
the card, fedmia inline as many as it takes, without checkpoints. The bare passes, the limit, are
the encoder forward and backward and the momentum encoder forward on as many batches: one client
after the other, and stacked as fedmia stacks them. They are timed in float32, which fedmia computes
in, in torch's own TF32, which plain Flower computes in, and in bfloat16. One federation also runs
with checkpoints, one a round or one a minute, on Ray, in bfloat16 and under DP-SGD, and once more
with the seconds of its parts. Memory is the card's, over what it held before.

    python research/measurements/gpu.py CIFAR10.parquet [--all] [--repeats 2] [--minutes 10]
        [--out research/results/gpu.json]

What the file holds of the same commit is not measured again, so `--minutes`, after which nothing
more is begun, lets it run in parts. `--all` is one such part of ten minutes, after the last of
which the tests of tests/gpu run; call it until it says that all is measured.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from torch.func import functional_call, vmap
from training import Client, seconds  # beside this script

from fedmia.data.base import Request
from fedmia.data.parquet import Parquet
from fedmia.runtime.environment import describe
from fedmia.ssl.stacked import client_tensors, stack_method

HERE = Path(__file__).parent
MEMBERS, BATCH, ROUNDS, AT_ONCE, A_ROUND = 10_000, 32, 4, 16, 40
CASES = {
    "resnet18-100": ("resnet18", 100),
    "resnet18-1000": ("resnet18", 1000),
    "smallnet-100": ("smallnet", 100),
    "smallnet-1000": ("smallnet", 1000),
}  # network, clients
CLOSELY = "resnet18-100"  # the federation of MORE
PART = 8.0  # minutes after which nothing more is begun, so that a part takes ten
ARITHMETIC = {"tf32": ("float32", True), "float32": ("float32", False), "bfloat16": ("bfloat16", 0)}
MORE = {
    "parts": "",
    "bfloat16": "--train.precision bfloat16",
    "dpsgd": "--defense dpsgd",
    "checkpoints": "",  # one a round
    "minute": "",  # the default: one a minute
    "ray": f"--backend ray --gpus-per-client {1 / AT_ONCE}",
}
EVERY = {"checkpoints": 0, "minute": 60}  # seconds between checkpoints
SIDES = ("peer", "inline")


@dataclass(frozen=True)
class Measurement:
    """Something to be measured, once or several times, and where it goes."""

    case: str
    kind: str
    turn: int
    run: Callable[[], dict[str, Any]]


def command(side: str, case: str, folder: Path, device: str) -> list[str]:
    """The command line of a side."""
    net, clients = CASES[case]
    part, out = A_ROUND / clients, Path(tempfile.mkdtemp(dir=folder)) / "RUN"
    if side == "peer":
        gpus = str(1 / AT_ONCE) if device == "cuda" else "0"
        plain = [sys.executable, str(HERE / "peer.py"), net, str(clients), str(ROUNDS), "float32"]
        return [*plain, str(folder / "images.npy"), gpus, str(part)]
    flags = (
        f"--dataset npz:{folder / 'images.npz'} --clients {clients} --rounds {ROUNDS} "
        f"--federation.participation {part} --model {net} --split.members {MEMBERS} "
        "--split.nonmembers 300 --split.known 10 --split.test 600 --partition iid "
        f"--train.local_epochs 1 --train.batch_size {BATCH} --attacker none --attacks none "
        f"--federation.snapshots 1 --device {device} --quiet "
        f"--checkpoint-every {EVERY.get(side, 'none')} {MORE.get(side, '')} --out {out}"
    )
    parts = ["--parts"] if side == "parts" else []
    return [sys.executable, str(HERE / "_timed_rounds.py"), *parts, *flags.split()]


def memory(device: str) -> int:
    """MiB of the card in use."""
    if device != "cuda":
        return 0
    query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    return int(subprocess.run(query, capture_output=True, text=True, check=True).stdout.split()[0])


def measure(side: str, case: str, folder: Path, device: str) -> dict[str, Any]:
    """Clients a second of the rounds after the first, seconds of that, MiB of the card.

    Raises:
        RuntimeError: it failed; holds what it printed.
    """
    before, used, over = memory(device), [0], threading.Event()

    def watch() -> None:
        while not over.wait(0.25):
            used.append(memory(device) - before)

    watcher = threading.Thread(target=watch)
    watcher.start()
    done = subprocess.run(
        command(side, case, folder, device), capture_output=True, text=True, check=False
    )
    over.set()
    watcher.join()
    said = {
        line.split()[0]: json.loads(line.partition(" ")[2])
        for line in done.stdout.splitlines()
        if line.startswith(("SECONDS", "PARTS"))
    }
    if done.returncode or "SECONDS" not in said:
        raise RuntimeError(f"{side}: {(done.stdout + done.stderr)[-2000:]}")
    first, *rest = said["SECONDS"]
    row = {
        "clients_a_second": A_ROUND / median(rest), "rounds_s": rest, "first_round_s": first,
        "gpu_mib": max(used),
    }  # fmt: skip
    return row if side != "parts" else shares(said["PARTS"], rest)


def shares(parts: dict[str, float], rounds: Sequence[float]) -> dict[str, Any]:
    """Seconds of a round by part, the longest first, and each part's share."""
    whole = sum(rounds)
    parts = {**parts, "rest": whole - sum(parts.values())}
    rows = [
        {"part": part, "seconds": spent / len(rounds), "share": spent / whole}
        for part, spent in sorted(parts.items(), key=lambda item: -item[1])
    ]
    return {"round_s": whole / len(rounds), "rows": rows}


def bare(case: str, device: str) -> dict[str, dict[str, float]]:
    """Clients a second of the bare passes alone, one after the other and stacked."""
    net, clients = CASES[case]
    images, results = MEMBERS // clients, {}
    batch = min(BATCH, images)
    steps = math.ceil(images / batch)
    for name, (precision, short) in ARITHMETIC.items():
        torch.backends.cudnn.allow_tf32 = bool(short)
        client = Client(net, 32, batch, 1, precision, torch.device(device))
        results[name] = {
            "alone": 1 / (steps * step_seconds(client.bare, device)),
            "stacked": A_ROUND / (steps * step_seconds(stacked(client), device)),
        }
    return results


def step_seconds(call: Callable[[], None], device: str) -> float:
    """Median seconds of one of several calls in a row."""
    where, times = torch.device(device), 10
    call()
    return median(seconds(lambda: [call() for _ in range(times)], where) / times for _ in range(5))


def stacked(client: Client) -> Callable[[], None]:
    """The bare passes of a round's clients in one."""
    method = stack_method(client.method, A_ROUND, client.device)
    views = [view.expand(A_ROUND, *view.shape).contiguous() for view in client.views]
    direction = client.direction.expand(A_ROUND, *client.direction.shape)
    half = client.precision == "bfloat16"

    def passes() -> None:
        with torch.autocast(client.device.type, torch.bfloat16, enabled=half):
            with torch.no_grad():
                keys: Any = method.key_encoder
                vmap(partial(functional_call, keys))(client_tensors(keys), (views[1],))
            encoder: Any = method.encoder
            out = vmap(partial(functional_call, encoder))(client_tensors(encoder), (views[0],))
        encoder.zero_grad()
        out.float().backward(direction)

    return passes


def summary(name: str, case: dict[str, Any]) -> dict[str, Any]:
    """All that was measured of a federation so far, and what follows from it."""
    net, clients = CASES[name]
    measured, limits = case["sides"], case["bare"][0] if case.get("bare") else {}
    rates = {s: median(row["clients_a_second"] for row in rows) for s, rows in measured.items()}
    result = {"net": net, "clients": clients, "a_round": A_ROUND, "images": MEMBERS // clients}
    result |= {key: case[key] for key in ("bare", "parts") if case.get(key)}
    result |= {"sides": measured, "rates": rates}
    result["gpu_mib"] = {s: max(row["gpu_mib"] for row in rows) for s, rows in measured.items()}
    result["first_round_s"] = {
        s: min(row["first_round_s"] for row in rows) for s, rows in measured.items()
    }
    if all(side in measured for side in SIDES):
        pairs = zip(measured["inline"], measured["peer"], strict=False)
        ratios = [a["clients_a_second"] / b["clients_a_second"] for a, b in pairs]
        result["times_faster"] = median(ratios)
    if "inline" in rates and limits:
        best = max(limits["float32"].values())  # of the passes in fedmia's own arithmetic
        result["of_bare"] = rates["inline"] / best
    return result


def plan(repeats: int, folder: Path, device: str) -> Iterator[Measurement]:
    """All that is to be measured, in its order."""
    for name in CASES:
        yield Measurement(name, "bare", 0, partial(bare, name, device))
    for turn in range(repeats):
        for name in CASES:
            for side in SIDES:
                yield Measurement(name, side, turn, partial(measure, side, name, folder, device))
        for side in MORE if turn == 0 else ():
            yield Measurement(CLOSELY, side, 0, partial(measure, side, CLOSELY, folder, device))


def run_tests() -> dict[str, Any]:
    """Exit code and last line of the tests that need a card."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-m",
        "gpu",
        str(HERE.parents[1] / "tests" / "gpu"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return {"code": done.returncode, "outcome": done.stdout.strip().splitlines()[-1]}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what is missing; 0 when all is there, 1 where something failed or is left."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("images", type=Path, help="CIFAR-10 as parquet")
    parser.add_argument("--repeats", type=int, default=2, help="turns of fedmia and plain Flower")
    parser.add_argument("--minutes", type=float, default=math.inf, help="then nothing is begun")
    parser.add_argument("--all", action="store_true", help="ten minutes of all, then tests/gpu")
    parser.add_argument("--only", default="", help="kinds and federations, as bare,inline")
    parser.add_argument("--device", default="cuda", help="cpu: to try the script")
    parser.add_argument("--commit", help="of a source that is no checkout")
    parser.add_argument("--out", type=Path, default=HERE.parent / "results" / "gpu.json")
    args = parser.parse_args(arguments)
    began, about = time.monotonic(), describe()
    about["commit"] = args.commit or about["commit"]
    earlier = json.loads(args.out.read_text()) if args.out.exists() else {}
    cases = earlier["cases"] if earlier.get("commit") == about["commit"] else {}
    data, left, only = Parquet().load(Request(str(args.images), None, None, 0)), 0, args.only
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        np.save(folder / "images.npy", data.images[:MEMBERS])
        np.savez(folder / "images.npz", x=data.images.transpose(0, 2, 3, 1), y=data.labels)
        for one in plan(args.repeats, folder, args.device):
            case = cases.setdefault(one.case, {"sides": {}})
            alone = one.kind in ("bare", "parts")
            rows = (case if alone else case["sides"]).setdefault(one.kind, [])
            if len(rows) > one.turn or (only and not {one.kind, one.case} & set(only.split(","))):
                continue
            if time.monotonic() - began > 60 * (PART if args.all else args.minutes):
                left += 1
                continue
            try:
                rows.append(one.run())
            except (RuntimeError, OSError) as error:
                print(f"{one.case} {one.kind} failed: {error}", flush=True)
                left += 1
                continue
            print(one.case, one.kind, json.dumps(rows[-1]), flush=True)
            for name, measured in cases.items():
                measured["sides"] = {s: r for s, r in measured["sides"].items() if r}
                cases[name] = summary(name, measured)
            settings = {"rounds": ROUNDS, "at_once": AT_ONCE, "batch": BATCH, "members": MEMBERS}
            args.out.write_text(json.dumps({"cases": cases, **settings, **about}, indent=1) + "\n")
    if args.all and not left:
        written = json.loads(args.out.read_text())
        args.out.write_text(json.dumps({**written, "tests": run_tests()}, indent=1) + "\n")
    print(f"{left} measurements are left" if left else "all is measured")
    return int(bool(left))


if __name__ == "__main__":
    sys.exit(main())
