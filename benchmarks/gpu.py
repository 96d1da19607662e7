"""What a CUDA GPU makes of fedmia's work, and of several clients at once.

Of one client: a training step beside its bare passes (encoder forward and backward on one view,
momentum encoder forward on the other), a step under DP-SGD beside an undefended one, and images a
second that `similarity` scores. Of several: images a second that 1, 2 and 4 processes train
together, each with its share of the device's memory, as `--gpus-per-client` gives it. They begin at
one moment, when all are warm.

    python benchmarks/gpu.py [--net resnet18] [--size 32] [--batch 128] [--steps 50]
        [--clients 1,2,4] [--out benchmarks/results/gpu.json]

It needs a GPU, and torch and fedmia alone; without opacus DP-SGD is left out, and said to be.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, multiprocessing

from fedmia.attacks.base import Known
from fedmia.options import registry
from fedmia.options.seeding import rng, torch_rng
from fedmia.runtime.device import client_device, count_gpus
from fedmia.runtime.environment import describe
from fedmia.ssl.augment import Augment
from fedmia.ssl.base import Recipe
from fedmia.ssl.moco import MoCo, MomentumContrast
from fedmia.ssl.train import Job, Train, make_optimizer
from fedmia.testing.material import textures
from fedmia.threat import WhiteBox

RESULTS = Path(__file__).parent / "results" / "gpu.json"
REPEATS = 3  # of which the least is taken
SCORED = 64  # images


@dataclass(frozen=True)
class Work:
    """What a client trains.

    Attributes:
        net: name of the encoder.
        size: pixels a side.
        batch: images a step.
        steps: of a round.
    """

    net: str
    size: int
    batch: int
    steps: int

    def images(self, count: int, seed: int = 0) -> Tensor:
        """uint8 (count, 3, size, size)."""
        return torch.nn.functional.interpolate(textures(count, seed), size=(self.size, self.size))

    def method(self, device: str) -> MomentumContrast:
        """An untrained MoCo."""
        backbone = registry.build("model", self.net, {}).build(3, self.size)
        recipe = Recipe((0.5,) * 3, (0.25,) * 3, self.batch)
        method = MoCo().build(backbone, recipe, torch_rng(0, "gpu"))
        method.begin_first_round()
        return method.to(device).train()

    def job(self, device: str) -> Job:
        """A round of as many epochs of one batch as it has steps."""
        method, train = self.method(device), Train(local_epochs=self.steps, batch_size=self.batch)
        return Job(
            method, make_optimizer(method, train), self.images(self.batch).numpy(), Augment(),
            train, rng(0, "gpu"), 0, self.steps, torch.device(device),
        )  # fmt: skip


def seconds(call: Callable[[], object]) -> float:
    """Seconds of one call, to the end of what it began on the device."""
    torch.cuda.synchronize()
    began = time.perf_counter()
    call()
    torch.cuda.synchronize()
    return time.perf_counter() - began


def least(prepare: Callable[[], Callable[[], object]]) -> float:
    """Least seconds of several, each of a call that is prepared anew; the first one warms up."""
    return min([seconds(prepare()) for _ in range(REPEATS + 1)][1:])


def one_client(work: Work, device: str) -> dict[str, Any]:
    """Milliseconds of a step, bare, trained and under DP-SGD, and images scored a second."""
    method = work.method(device)
    views = torch.rand(2, work.batch, 3, work.size, work.size, device=device)
    direction = torch.randn_like(method.encoder(views[0]).detach())

    def bare() -> None:
        for _ in range(work.steps):
            with torch.no_grad():
                method.key_encoder(views[1])
            method.encoder.zero_grad()
            method.encoder(views[0]).backward(direction)

    bare_ms, step_ms = (
        1e3 * least(prepare) / work.steps
        for prepare in (lambda: bare, lambda: work.job(device).run)
    )
    row = {"bare_ms": bare_ms, "step_ms": step_ms, "ratio": step_ms / bare_ms}
    if importlib.util.find_spec("opacus"):
        from fedmia.defenses.dpsgd import DPSGD

        private = least(lambda: partial(DPSGD().train, work.job(device), {}))
        row |= {"dpsgd_ms": 1e3 * private / work.steps}
        row |= {"dpsgd_ratio": row["dpsgd_ms"] / step_ms}
    known = Known(work.images(12, 1), work.images(12, 2))
    own: dict[str, Any] = {"held": known.both()[0], "device": torch.device(device)}
    view = WhiteBox(method.eval(), Augment(), seed=0, **own)
    attack, scored = registry.build("attack", "similarity", {}), work.images(SCORED, 3)
    attack.fit(view, known, rng(0, "fit"))
    row["scored_a_second"] = SCORED / least(lambda: lambda: attack.score(view, scored))
    return row


def train(work: Work, share: float, start: Any, results: Any) -> None:
    """One of several clients, in a process of its own."""
    device = client_device("cuda", share)
    if share < 1:
        torch.cuda.set_per_process_memory_fraction(share)
    work.job(device).run()
    job = work.job(device)
    start.wait()
    began = time.time()  # one clock for all
    seconds(job.run)
    results.put((began, time.time(), torch.cuda.max_memory_allocated()))


def several(work: Work, clients: int) -> dict[str, Any]:
    """Images a second of clients that share a GPU evenly, and the most memory of one."""
    context = multiprocessing.get_context("spawn")
    start, results = context.Barrier(clients), context.Queue()
    everyone = [
        context.Process(target=train, args=(work, 1 / clients, start, results))
        for _ in range(clients)
    ]
    for process in everyone:
        process.start()
    rows = [results.get(timeout=600) for _ in everyone]
    for process in everyone:
        process.join()
    wall = max(end for _, end, _ in rows) - min(began for began, _, _ in rows)
    return {
        "clients": clients,
        "images_a_second": clients * work.steps * work.batch / wall,
        "peak_mib": max(peak for *_, peak in rows) / 2**20,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--net", default="resnet18")
    parser.add_argument("--size", type=int, default=32, help="pixels a side")
    parser.add_argument("--batch", type=int, default=128, help="images a step")
    parser.add_argument("--steps", type=int, default=50, help="of a round")
    parser.add_argument("--clients", default="1,2,4", help="processes at once")
    parser.add_argument("--out", type=Path, default=RESULTS, help="JSON file to write")
    args = parser.parse_args(arguments)
    if not count_gpus():
        sys.exit("benchmarks/gpu.py needs a CUDA GPU, and torch finds none here: nothing measured")
    work = Work(args.net, args.size, args.batch, args.steps)
    alone = one_client(work, "cuda")
    print({name: round(value, 2) for name, value in alone.items()}, flush=True)
    if "dpsgd_ms" not in alone:
        print("DP-SGD was not measured: opacus is not installed", flush=True)
    together = []
    for clients in map(int, args.clients.split(",")):
        together.append(several(work, clients))
        print({name: round(value, 1) for name, value in together[-1].items()}, flush=True)
    content = {"work": asdict(work), "client": alone, "together": together, **describe()}
    args.out.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
