"""A training step beside its limit, the bare passes of its networks, in float32 and bfloat16.

The step is a client's: a round of MoCo's training divided by its steps, so augmentation, loss,
SGD, momentum encoder and queue are in it. The bare passes are the encoder forward and backward on
one view and the momentum encoder forward on the other, as many in a row as a round has steps. The
step under DP-SGD beside the undefended one, and augmentation alone, are there too. All are timed in
turn in one process and the least of several is taken; on a CPU these are the process's own seconds,
so the ratios hold where others run.

    python research/measurements/training.py [--net resnet18 --size 32] [--batch 32] [--epochs 2]
        [--repeats 5] [--device cpu] [--threads 1] [--out research/results/training.json]

Without --net a SmallNet and a ResNet-18 at 32 pixels are measured, one after the other.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedmia.data.base import Request
from fedmia.data.synthetic import Synthetic
from fedmia.defenses.dpsgd import DPSGD
from fedmia.runtime.environment import describe
from fedmia.seeding import rng, torch_rng
from fedmia.settings import registry
from fedmia.ssl.base import TrainingData
from fedmia.ssl.moco import MoCo, MomentumContrast
from fedmia.ssl.train import Job, Train, make_optimizer
from fedmia.threat import PRECISIONS

RESULTS = Path(__file__).parents[1] / "results" / "training.json"
IMAGES = 64  # of the client
CASES = (("smallnet", 32, 10, 9), ("resnet18", 32, 2, 3))  # net, side, epochs, repeats
PRIVATE = "smallnet"  # a ResNet's gradients of every image are 1.4 GB


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        return time.perf_counter()
    return time.process_time()


def seconds(call: Callable[[], object], device: torch.device) -> float:
    """Seconds of one call."""
    began = _now(device)
    call()
    return _now(device) - began


@dataclass
class Client:
    """One client's round in one precision."""

    net: str
    size: int
    batch: int
    epochs: int
    precision: str
    device: torch.device

    def __post_init__(self) -> None:
        self.spec = MoCo()
        source = Synthetic(images=IMAGES, pixels=self.size)
        self.images = source.load(Request(None, None, None, 0)).images
        self.method = self.build_method()
        self.views = next(self.job(self.method).batches())
        with torch.no_grad():
            self.direction = torch.randn_like(self.method.encoder(self.views[0]))

    def build_method(self) -> MomentumContrast:
        """An untrained method in training."""
        backbone = registry.build("model", self.net, {}).build(3, self.size)
        training_data = TrainingData((0.5,) * 3, (0.25,) * 3, IMAGES)
        method = self.spec.build(backbone, training_data, torch_rng(0, "training"))
        method.begin_first_round()
        return method.to(self.device).train()

    def job(self, method: MomentumContrast) -> Job:
        """A round of `method`, from the same stream each time."""
        train = Train(local_epochs=self.epochs, batch_size=self.batch, precision=self.precision)
        optimizer, steps = make_optimizer(method, train), self.epochs * -(-IMAGES // self.batch)
        stream, augment = rng(0, "training"), self.spec.augment
        return Job(method, optimizer, self.images, augment, train, stream, 0, steps, self.device)

    def bare(self) -> None:
        """Forward and backward of the encoder on one batch, forward of the momentum encoder."""
        low = torch.autocast(self.device.type, torch.bfloat16, enabled=self.precision == "bfloat16")
        with low:
            with torch.no_grad():
                self.method.key_encoder(self.views[1])
            out: Tensor = self.method.encoder(self.views[0])
        self.method.encoder.zero_grad()
        out.float().backward(self.direction)

    def turn(self, private: bool) -> dict[str, float]:
        """Seconds a step: bare, of a round, of its augmentation, of a round under DP-SGD."""
        job = self.job(self.build_method())
        steps = job.total_steps
        results = {
            "bare": seconds(lambda: [self.bare() for _ in range(steps)], self.device) / steps,
            "augmentation": seconds(lambda: list(job.batches()), self.device) / steps,
        }
        plain, defended = (self.job(self.build_method()) for _ in range(2))
        results["step"] = seconds(plain.run, self.device) / steps
        if private:
            results["private"] = seconds(lambda: DPSGD().train(defended, {}), self.device) / steps
        return results


def measure(
    net: str, size: int, batch: int, epochs: int, repeats: int, device: torch.device
) -> dict[str, Any]:
    """Least seconds of each kind in each precision, and their ratios."""
    clients = {p: Client(net, size, batch, epochs, p, device) for p in PRECISIONS}
    turns: dict[str, list[dict[str, float]]] = {p: [] for p in PRECISIONS}
    for _ in range(repeats):
        for precision, client in clients.items():
            turns[precision].append(client.turn(private=(net, precision) == (PRIVATE, "float32")))
    results: dict[str, Any] = {}
    for precision, rows in turns.items():
        least = {f"{kind}_s": min(row[kind] for row in rows) for kind in rows[0]}
        ratios = {"ratio": least["step_s"] / least["bare_s"]}
        if "private_s" in least:  # it trains in float32 alone
            ratios["private_ratio"] = least["private_s"] / least["step_s"]
        results[precision] = least | ratios
    return {"batch": batch, "images": IMAGES, "repeats": repeats, "precisions": results}


def table(name: str, case: dict[str, Any]) -> str:
    """What was measured, for the eye."""
    lines = [f"{name}: milliseconds of bare passes, step (of it augmentation), ratio; DP-SGD"]
    for precision, row in case["precisions"].items():
        bare, step, drawing = (1e3 * row[k] for k in ("bare_s", "step_s", "augmentation_s"))
        text = f"  {precision:10}{bare:9.1f}{step:9.1f} ({drawing:.1f}){row['ratio']:7.3f}"
        if "private_s" in row:
            text += f"; {1e3 * row['private_s']:.1f}, {row['private_ratio']:.2f} times"
        lines.append(text)
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--net", help="one encoder only, with --size")
    parser.add_argument("--size", type=int, default=32, help="pixels a side, with --net")
    parser.add_argument("--batch", type=int, default=32, help="images a step")
    parser.add_argument("--epochs", type=int, help="of a round of 64 images")
    parser.add_argument("--repeats", type=int, help="of which the least is taken")
    parser.add_argument("--out", type=Path, default=RESULTS, help="JSON file to write")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1, help="torch threads")
    args = parser.parse_args(arguments)
    torch.set_num_threads(args.threads)
    device, results = torch.device(args.device), {}
    cases = CASES if args.net is None else ((args.net, args.size, *CASES[0][2:]),)
    for net, size, epochs, repeats in cases:
        turns, length = args.repeats or repeats, args.epochs or epochs
        results[f"{net}-{size}"] = case = measure(net, size, args.batch, length, turns, device)
        sys.stdout.write(table(f"{net}-{size}", case))
        sys.stdout.flush()
    where = {"device": args.device, "threads": args.threads}
    args.out.write_text(json.dumps({"cases": results, **where, **describe()}, indent=1) + "\n")


if __name__ == "__main__":
    main()
