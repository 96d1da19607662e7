"""Clients a second on a GPU: fedmia, the same in plain Flower (`benchmarks/peer.py`), bare passes.

MoCo with a ResNet-18 on CIFAR-10, an epoch a round in batches of 32, 10,000 images dealt to 10, 100
or 1,000 clients, of which 10, 40 and 40 train in a round. Plain Flower and fedmia on Ray train 16
clients at once on the card, fedmia inline as many as it takes. Each is one process and the sides
take turns; the first round, in which workers start, does not count. The bare passes, the limit, are
the encoder forward and backward and the momentum encoder forward on as many batches, one client
after the other, in torch's own TF32 as plain Flower. DP-SGD and bfloat16 run once, with 100
clients. Memory is the card's, over what it held before.

    python benchmarks/gpu.py CIFAR10.parquet [--repeats 3] [--out benchmarks/results/gpu.json]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from training import Client, seconds  # beside this script

from fedmia.data.base import Request
from fedmia.data.parquet import Parquet
from fedmia.runtime.environment import describe
from fedmia.threat import PRECISIONS

HERE = Path(__file__).parent
MEMBERS, BATCH, ROUNDS, AT_ONCE = 10_000, 32, 3, 16
CASES = {"10": (10, 1.0), "100": (100, 0.4), "1000": (1000, 0.04)}  # clients, those in a round
ONCE = {
    "ray": f"--backend ray --gpus-per-client {1 / AT_ONCE}",
    "bfloat16": "--train.precision bfloat16",
    "dpsgd": "--defense dpsgd",
}
SIDE = """
import json, sys
from fedmia.simulate import main
from strategies.base import FederatedStrategy
whole, seconds = FederatedStrategy.rounds, []
def rounds(*arguments, **options):
    for done in whole(*arguments, **options):
        seconds.append(done.seconds)
        yield done
FederatedStrategy.rounds = rounds
code = main(sys.argv[1:])
print("SECONDS", json.dumps(seconds))
sys.exit(code)
"""


def command(side: str, clients: int, part: float, folder: Path) -> list[str]:
    """The command line of a side."""
    if side == "peer":
        share = ("float32", str(folder / "images.npy"), str(1 / AT_ONCE), str(part))
        plain = [sys.executable, str(HERE / "peer.py"), "resnet18", str(clients), str(ROUNDS)]
        return [*plain, *share]
    flags = (
        f"--dataset npz:{folder / 'images.npz'} --clients {clients} --rounds {ROUNDS} "
        f"--federation.participation {part} --model resnet18 --split.members {MEMBERS} "
        "--split.nonmembers 300 --split.known 10 --split.test 600 --partition iid "
        f"--train.local_epochs 1 --train.batch_size {BATCH} --attacker none --attacks none "
        f"--federation.snapshots 1 --device cuda --quiet {ONCE.get(side, '')}"
    )
    out = Path(tempfile.mkdtemp(dir=folder)) / "RUN"
    return [sys.executable, "-c", SIDE, *flags.split(), "--out", str(out)]


def memory() -> int:
    """MiB of the card in use."""
    query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    return int(subprocess.run(query, capture_output=True, text=True, check=True).stdout.split()[0])


def measure(side: str, clients: int, part: float, folder: Path) -> dict[str, float]:
    """Clients a second of the rounds after the first, seconds of that, MiB of the card.

    Raises:
        RuntimeError: it failed; holds what it printed.
    """
    before, used, over = memory(), [0], threading.Event()

    def watch() -> None:
        while not over.wait(0.25):
            used.append(memory() - before)

    watcher = threading.Thread(target=watch)
    watcher.start()
    done = subprocess.run(
        command(side, clients, part, folder), capture_output=True, text=True, check=False
    )
    over.set()
    watcher.join()
    lines = [line for line in done.stdout.splitlines() if line.startswith("SECONDS")]
    if done.returncode or not lines:
        raise RuntimeError(f"{side}: {(done.stdout + done.stderr)[-2000:]}")
    first, *rest = json.loads(lines[-1].partition(" ")[2])
    rate = clients * part / median(rest)
    return {"clients_a_second": rate, "first_round_s": first, "gpu_mib": max(used)}


def bare(images: int, precision: str) -> float:
    """Clients a second of the bare passes alone."""
    device, batch = torch.device("cuda"), min(BATCH, images)
    client = Client("resnet18", 32, batch, 1, precision, device)
    client.bare()
    step = median(
        seconds(lambda: [client.bare() for _ in range(20)], device) / 20 for _ in range(5)
    )
    return 1 / (step * -(-images // batch))


def summary(name: str, sides: dict[str, list[dict[str, float]]]) -> dict[str, Any]:
    """Of all that was measured of a federation so far."""
    clients, part = CASES[name]
    rates = {s: median(row["clients_a_second"] for row in rows) for s, rows in sides.items()}
    pairs = zip(sides["inline"], sides["peer"], strict=False)
    return {
        "clients": clients, "a_round": round(clients * part), "images": MEMBERS // clients,
        "rates": rates, "sides": sides,
        "times_faster": median(a["clients_a_second"] / b["clients_a_second"] for a, b in pairs),
        "gpu_mib": {s: max(row["gpu_mib"] for row in rows) for s, rows in sides.items()},
    }  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("images", type=Path, help="CIFAR-10 as parquet")
    parser.add_argument("--repeats", type=int, default=3, help="pairs of fedmia and plain Flower")
    parser.add_argument("--commit", help="of a source that is no checkout")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "gpu.json")
    args = parser.parse_args(arguments)
    data = Parquet().load(Request(str(args.images), None, None, 0))
    results: dict[str, dict[str, Any]] = {name: {} for name in CASES}
    limits = {n: {p: bare(MEMBERS // CASES[n][0], p) for p in PRECISIONS} for n in CASES}
    print(limits, flush=True)
    about = describe() | {"at_once": AT_ONCE, "batch": BATCH}
    about["commit"] = args.commit or about["commit"]
    plan = [(name, side) for name in CASES for side in ("peer", "inline")]
    more = [(name, "ray") for name in CASES] + [("100", "bfloat16"), ("100", "dpsgd")]
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        np.save(folder / "images.npy", data.images[:MEMBERS])
        np.savez(folder / "images.npz", x=data.images.transpose(0, 2, 3, 1), y=data.labels)
        for name, side in [*plan, *more, *plan * (args.repeats - 1)]:
            row = measure(side, *CASES[name], folder)
            results[name].setdefault(side, []).append(row)
            print(name, side, row, flush=True)
            cases = {n: summary(n, s) for n, s in results.items() if "inline" in s}
            for n, one in cases.items():
                one |= {"bare": limits[n], "share": one["rates"]["inline"] / limits[n]["float32"]}
            args.out.write_text(json.dumps({"cases": cases, **about}, indent=1) + "\n")


if __name__ == "__main__":
    main()
