"""A server by Flower's FedAvg."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

import fedmia.flower
from my_app.task import Net

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    config = context.run_config
    torch.manual_seed(0)
    strategy = FedAvg(fraction_evaluate=0.0)
    first = ArrayRecord(Net().state_dict())
    with fedmia.flower.record(grid, str(config["recording"]), updates="all") as grid:
        result = strategy.start(grid, initial_arrays=first, num_rounds=int(config["rounds"]))
        grid.final(result.arrays)
    last = {name: array.numpy() for name, array in result.arrays.items()}
    np.savez(Path(str(config["folder"])) / "final.npz", **last)
