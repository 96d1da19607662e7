"""What recording costs: seconds of a round and peak memory, with and without it, all updates kept.

Clients of plain Flower (`benchmarks/peer.py`) train in this process, on Ray, or on SuperNodes.
Rounds alternate between the grid itself and the recorded grid, so a slow moment of the machine
meets both; the cost (`share`) is the median of the pairs. `held_up` is the part of a round in which
it waited for its recording. Memory is that of a process of its own for each side, whose clients
answer at once: nothing else hides what recording takes.

    python benchmarks/recording.py [--only inline-resnet18,ray-smallnet]
        [--out benchmarks/results/recording.json]

Cases that are left out stay in the file as they are.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import peer  # beside this script
from _process import measure_process
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.simulation import run_simulation

from fedmia.flower import record
from fedmia.runtime.environment import describe
from tests.flower.deployed import Deployment
from tests.recording.plain import PlainGrid

RESULTS = Path(__file__).parent / "results" / "recording.json"
# Clients, images of a client, pairs of rounds after the first.
CASES = {
    "inline-smallnet": (5, 256, 12), "inline-resnet18": (2, 128, 6),
    "ray-smallnet": (2, 512, 12), "deployment-smallnet": (2, 512, 4),
}  # fmt: skip
SIDES = ("plain", "recorded")
PYPROJECT = """
[project]
name = "app"
version = "1.0.0"
dependencies = []
[tool.flwr.app]
publisher = "fedmia"
fab-include = ["*.py"]
[tool.flwr.app.components]
serverapp = "app:server"
clientapp = "app:client"
[tool.flwr.app.config]
case = ""
out = ""
"""
client, server = ClientApp(), ServerApp()


@client.train()
def _(message: Message, context: Context) -> Message:
    config = message.content["config"]
    peer.IMAGES = config["images"]
    return peer.train(config["net"], "float32", "", "cpu", message, context)


@server.main()
def _(grid: Grid, context: Context) -> None:
    out = Path(str(context.run_config["out"]))
    out.write_text(json.dumps(play(grid, str(context.run_config["case"]), out.parent)))


def echo(message: Message, context: Context) -> Message:
    """A client that answers at once."""
    metrics = MetricRecord({"num-examples": 1})
    return Message(
        RecordDict({"arrays": message.content["arrays"], "metrics": metrics}), reply_to=message
    )


def play(
    grid: Grid, case: str, scratch: Path, sides: Sequence[str] = SIDES
) -> list[dict[str, float]]:
    """Seconds of each round by side, in turns; the first round is left out."""
    clients, images, pairs = CASES[case]
    seconds, spent = list[dict[str, float]](), list[float]()
    net = case.partition("-")[2]
    while len(nodes := list(grid.get_node_ids())[:clients]) < clients:
        time.sleep(0.2)
    models = dict.fromkeys(sides, ArrayRecord(peer.Projected(net).state_dict()))
    with record(grid, scratch / "REC", updates="all") as recorded:
        grids = {"plain": grid, "recorded": recorded}
        note_seconds(recorded._recorder, spent)
        for round in range(1, pairs + 2):
            seconds.append({})
            spent.clear()
            for side in (sides, sides[::-1])[round % 2]:
                began = time.perf_counter()
                config = ConfigRecord({"server-round": round, "net": net, "images": images})
                content = RecordDict({"arrays": models[side], "config": config})
                orders = [Message(content, node, "train") for node in nodes]
                sent = [reply.content["arrays"] for reply in grids[side].send_and_receive(orders)]
                models[side] = ArrayRecord({
                    name: Array(np.asarray(sum(s[name].numpy() for s in sent) / clients))
                    for name in sent[0]
                })  # fmt: skip
                seconds[-1][side] = time.perf_counter() - began
            seconds[-1]["held_up"] = sum(spent)
    return seconds[1:]


def note_seconds(recorder: Any, spent: list[float]) -> None:
    """Note the seconds of each call of a recorder."""

    def time_of(method: Any, *values: Any) -> Any:
        began = time.perf_counter()
        result = method(*values)
        spent.append(time.perf_counter() - began)
        return result

    for name in ("see_orders", "see_replies"):
        setattr(recorder, name, partial(time_of, getattr(recorder, name)))


def on_ray(case: str, scratch: Path) -> list[dict[str, float]]:
    app, rounds = ServerApp(), list[dict[str, float]]()

    @app.main()
    def _(grid: Grid, context: Context) -> None:
        rounds.extend(play(grid, case, scratch))

    backend = {"client_resources": {"num_cpus": 1}}
    run_simulation(app, client, CASES[case][0], backend_config=backend)  # type: ignore[arg-type]
    return rounds


def deployed(case: str, scratch: Path) -> list[dict[str, float]]:
    """On a SuperLink and SuperNodes of this machine."""
    app, out = scratch / "app", scratch / "rounds.json"
    app.mkdir()
    (app / "pyproject.toml").write_text(PYPROJECT)
    code = "import recording\n\nclient = recording.client\nserver = recording.server\n"
    (app / "app.py").write_text(code)
    with Deployment(scratch) as flower:
        flower.env["PYTHONPATH"] += os.pathsep + str(Path(__file__).parent)
        flower.deploy()
        config = f"case='{case}' out='{out}'"
        flower.run(f'flwr run {app} deploy --stream -c "{config}"', "deploy")
    rounds: list[dict[str, float]] = json.loads(out.read_text())
    return rounds


RUN: dict[str, Callable[[str, Path], list[dict[str, float]]]] = {
    "inline": lambda case, scratch: play(PlainGrid(client), case, scratch),
    "ray": on_ray, "deployment": deployed,
}  # fmt: skip


def peak_memory(case: str) -> dict[str, float]:
    """MiB of a process of each side; a process counts what its parent held when it began."""
    sides = {side: [sys.executable, __file__, "--memory", case, side] for side in SIDES}
    return {side: measure_process(one)["peak_mib"] for side, one in sides.items()}


def measure(case: str, peaks: dict[str, float]) -> dict[str, Any]:
    where, _, net = case.partition("-")
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        rounds = RUN[where](case, Path(folder))
    shares = [one["recorded"] / one["plain"] - 1 for one in rounds]
    result = {
        "clients": CASES[case][0], "images": CASES[case][1], "load": os.getloadavg()[1],
        "seconds": median(one["plain"] for one in rounds), "share": median(shares),
        "held_up": median(one["held_up"] / one["plain"] for one in rounds), "rounds": rounds,
    }  # fmt: skip
    if peaks:
        size = sum(t.numel() * t.element_size() for t in peer.Projected(net).state_dict().values())
        result |= {
            "model_mib": size / 2**20, "peak_mib": peaks,
            "more_models": (peaks["recorded"] - peaks["plain"]) * 2**20 / size,
        }  # fmt: skip
    return result


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default=",".join(CASES), help="cases")
    parser.add_argument("--out", type=Path, default=RESULTS, help="JSON file to write")
    parser.add_argument("--memory", nargs=2, help="a case and a side: only its rounds")
    args = parser.parse_args(arguments)
    if args.memory:
        with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
            play(PlainGrid(echo), args.memory[0], Path(folder), args.memory[1:])
        return
    cases = json.loads(args.out.read_text())["cases"] if args.out.exists() else {}
    only = args.only.split(",")
    peaks = {case: peak_memory(case) for case in only if case.startswith("inline")}
    for case in only:
        cases[case] = one = measure(case, peaks.get(case, {}))
        print(f"{case}: {100 * one['share']:+.1f} % of {one['seconds']:.2f} s a round, "
              f"held up {100 * one['held_up']:.1f} %")  # fmt: skip
        args.out.write_text(json.dumps({"cases": cases, **describe()}, indent=1) + os.linesep)


if __name__ == "__main__":
    main()
