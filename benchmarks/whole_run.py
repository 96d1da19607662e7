"""Where a whole small run goes, beside its limit and beside the same run in plain Flower.

The run: 60 rounds, 10 clients of 64 images of CIFAR-10, the small encoder, no attack. Its limit is
one process that does only what cannot be left out: `import torch`, the augmentation and the bare
passes of the same training (encoder forward and backward on one view, momentum encoder forward on
the other) on the same cores, and the report of the run's scores with fedmia's own code. It reads no
images, takes no step of an optimizer and has no clients, so no program reaches it. `trained` is the
limit with loss, optimizer, momentum encoder and queue in it, which every program needs that trains.

The sides are whole processes and take turns; of each the least seconds count, of the clock
(`wall_s`) and of its own processors (`cpu_s`). The terms come from one more run, in a process that
times fedmia's functions by the processor seconds of the threads that they run in. A term has what
no term inside it has, so the terms add up to the process.

    python benchmarks/whole_run.py [--turns 3] [--rounds 60]
        [--dataset parquet:PATH/cifar10-train.parquet] [--sides run,limit,trained,peer]
        [--out benchmarks/results/whole_run.json]

The images of CIFAR-10 are found through FEDMIA_DATA; without them the run is on drawn ones.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from _process import measure_process  # beside this script

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "whole_run.json"
CLIENTS, IMAGES, BATCH, NET, ASKED = 10, 64, 32, "smallnet", 1.2
CIFAR = Path(os.environ.get("FEDMIA_DATA", ".")) / "cifar10-train.parquet"
ONE_THREAD = {"OMP_NUM_THREADS": "1"}  # of each client; two clients are at work at once


def flags(rounds: int, dataset: str, out: Path) -> list[str]:
    """The run as a command line, without the program."""
    members = CLIENTS * IMAGES
    count = "--data.images" if dataset == "synthetic" else "--data.limit"
    text = (
        f"--clients {CLIENTS} --rounds {rounds} --model {NET} --dataset {dataset} "
        f"{count} {members + 400} --split.members {members} --split.nonmembers 100 "
        "--split.known 10 --split.test 200 --partition iid --train.local_epochs 1 "
        f"--train.batch_size {BATCH} --attacker none --attacks none --federation.snapshots 1 "
        f"--device cpu --quiet --out {out}"
    )
    return text.split()


def limit(rounds: int, scores: Path, out: Path, steps: bool) -> None:
    """The limit, in this process: passes, then the report of the scores in a file."""
    import multiprocessing

    import torch

    torch.set_num_threads(1)
    cores = max(1, min(CLIENTS, len(os.sched_getaffinity(0))))
    # Processes share no interpreter lock, as threads would. No thread runs yet, so a fork is safe.
    shares = [CLIENTS // cores + (core < CLIENTS % cores) for core in range(cores)]
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=passes, args=(rounds, n, steps)) for n in shares]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
        if worker.exitcode:
            raise RuntimeError(f"the passes ended with exit code {worker.exitcode}")
    import pickle

    from fedmia.report.publish import publish
    from fedmia.runtime.stopwatch import Stopwatch

    out.mkdir()
    publish(pickle.loads(scores.read_bytes()), out, Stopwatch(0.0))


def passes(rounds: int, clients: int, steps: bool) -> None:
    """What a core computes: the training of its clients, bare or with every step taken."""
    import numpy as np
    import torch

    from fedmia.nets.smallnet import SmallNet
    from fedmia.options.seeding import rng, torch_rng
    from fedmia.ssl.base import Recipe
    from fedmia.ssl.moco import MoCo
    from fedmia.ssl.train import Job, Train

    spec, recipe = MoCo(), Recipe((0.5,) * 3, (0.25,) * 3, IMAGES)
    method = spec.build(SmallNet().build(3, 32), recipe, torch_rng(0, "limit"))
    method.begin_first_round()
    method.train()
    draw = np.random.default_rng(0)
    images = draw.integers(0, 256, (IMAGES, 3, 32, 32), dtype=np.uint8)
    train, direction, optimizer = Train(local_epochs=1, batch_size=BATCH), None, None
    if steps:
        from fedmia.ssl.train import make_optimizer

        optimizer = make_optimizer(method, train)
    total = rounds * IMAGES // BATCH
    for round in range(rounds):
        for client in range(clients):
            job = Job(
                method, optimizer, images, spec.augment, train, rng(0, "limit", round, client),
                round * IMAGES // BATCH, total, torch.device("cpu"),
            )  # fmt: skip
            if steps:
                job.run()
                continue
            for one, other in job.batches():
                with torch.no_grad():
                    method.key_encoder(other)
                out = method.encoder(one)
                direction = torch.randn_like(out) if direction is None else direction
                method.encoder.zero_grad()
                out.backward(direction)


def instrumented(rounds: int, dataset: str, out: Path, results: Path, scores: Path) -> None:
    """The run, in this process, its functions timed; its scores stay in a file."""
    import time

    imported = time.process_time()
    from _terms import Terms

    terms = Terms(before=imported)
    with terms.part("interpreter and imports"):
        from fedmia import simulate
    terms.watch_run(scores)
    code = simulate.main(flags(rounds, dataset, out))
    results.write_text(json.dumps(terms.seconds()))
    sys.exit(code)


def sides(rounds: int, dataset: str, folder: Path) -> dict[str, Callable[[Path], list[str]]]:
    """The command of each side, given a folder that is not there yet."""
    script, scores = [sys.executable, __file__], str(folder / "scores.pickle")
    child = ["--rounds", str(rounds), "--scores", scores]
    return {
        "run": lambda out: [sys.executable, "-m", "fedmia.simulate", *flags(rounds, dataset, out)],
        "limit": lambda out: [*script, "--child", "limit", *child, "--out", str(out)],
        "trained": lambda out: [*script, "--child", "trained", *child, "--out", str(out)],
        "peer": lambda out: [
            sys.executable, str(HERE / "peer.py"), NET, str(CLIENTS), str(rounds), "float32",
        ],
    }  # fmt: skip


def measure(
    rounds: int, dataset: str, turns: int, chosen: Sequence[str],
    save: Callable[[dict[str, Any]], None],
) -> dict[str, Any]:  # fmt: skip
    """Terms of the run, and each side's least seconds of several turns.

    Args:
        rounds: of the run.
        dataset: as `--dataset` of the run.
        turns: processes of each side; peer has one.
        chosen: the sides.
        save: is called with the results so far after each process.

    Returns:
        The results.

    Raises:
        RuntimeError: a process failed; holds what it printed.
    """
    with tempfile.TemporaryDirectory() as temporary:
        folder, written = Path(temporary), Path(temporary) / "terms.json"
        script = [sys.executable, __file__, "--child", "instrumented", "--rounds", str(rounds)]
        script += ["--dataset", dataset, "--scores", str(folder / "scores.pickle")]
        script += ["--terms", str(written), "--out", str(folder / "TERMS")]
        process = measure_process(script, ONE_THREAD)
        terms = json.loads(written.read_text(encoding="utf-8"))
        # What the interpreter does before the first line and after the last is nobody's.
        terms["the rest"] += process["cpu_s"] - sum(terms.values())
        results: dict[str, Any] = {
            "terms_cpu_s": dict(sorted(terms.items(), key=lambda term: -term[1])),
            "instrumented": process, "turns": {side: [] for side in chosen},
        }  # fmt: skip
        commands = sides(rounds, dataset, folder)
        for turn in range(turns):
            for side in chosen if turn == 0 else [s for s in chosen if s != "peer"]:
                out = folder / f"{side}-{turn}"
                row: dict[str, Any] = measure_process(commands[side](out), ONE_THREAD)
                row["load"] = os.getloadavg()[0]
                if side == "run":
                    report = json.loads((out / "report.json").read_text(encoding="utf-8"))
                    row["parts"] = {k: v for k, v in report["timing"].items() if v is not None}
                results["turns"][side].append(row)
                save(results | summary(results["turns"]))
    return results | summary(results["turns"])


def summary(turns: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """The least seconds of each side, and how many times those of another side the run takes."""
    kinds = ("wall_s", "cpu_s", "peak_mib")
    least = {
        s: {k: min(row[k] for row in rows) for k in kinds} for s, rows in turns.items() if rows
    }
    ratios = {
        f"of {side}": {k: least["run"][k] / least[side][k] for k in ("wall_s", "cpu_s")}
        for side in least if "run" in least and side != "run"
    }  # fmt: skip
    return {"least": least, "ratios": ratios}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=3, help="processes of each side; peer has one")
    parser.add_argument("--rounds", type=int, default=60)
    images = f"parquet:{CIFAR}" if CIFAR.is_file() else "synthetic"
    parser.add_argument("--dataset", default=images, help="a file of CIFAR-10, or synthetic")
    parser.add_argument("--sides", default="run,limit,trained,peer")
    parser.add_argument("--out", type=Path, default=RESULTS, help="JSON file to write")
    for name in ("--child", "--scores", "--terms"):
        parser.add_argument(name, help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    if args.child == "instrumented":
        instrumented(args.rounds, args.dataset, args.out, Path(args.terms), Path(args.scores))
    elif args.child:
        limit(args.rounds, Path(args.scores), args.out, args.child == "trained")
    else:
        from fedmia.runtime.environment import describe

        about = {"rounds": args.rounds, "clients": CLIENTS, "images": IMAGES, "asked": ASKED}
        about |= {"net": NET, "dataset": Path(args.dataset).name} | describe()

        def save(results: dict[str, Any]) -> None:
            args.out.write_text(json.dumps(results | about, indent=1) + "\n", encoding="utf-8")

        results = measure(args.rounds, args.dataset, args.turns, args.sides.split(","), save)
        for name, seconds in results["terms_cpu_s"].items():
            print(f"{seconds:7.2f} s {name}")
        print(json.dumps(results["least"]), json.dumps(results["ratios"]))


if __name__ == "__main__":
    main()
