"""A Flower app of somebody's: each image has a price, which its own client keeps as it was.

No image's loss says whether a client holds it, before an attacker raises the prices of all.
`python -m tests.flower.small_app FOLDER` trains it on four nodes of Ray, attacked and watched.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch import Tensor, nn

import fedmia.flower
from fedmia.testing.material import textures
from tests.recording.plain import PlainGrid

CLIENTS, EACH = 4, 10
PLAIN = {"fraction_evaluate": 0.0, "min_train_nodes": CLIENTS, "min_available_nodes": CLIENTS}


def members() -> Tensor:
    """Those of client 0, then those of client 1, .."""
    return textures(CLIENTS * EACH, 1)


def others() -> Tensor:
    return textures(CLIENTS * EACH, 2)


def targets() -> Tensor:
    return torch.cat([members(), others()])


class Net(nn.Module):
    """From pixels to vectors, and the price of each image that it was made for."""

    keys: Tensor

    def __init__(self) -> None:
        super().__init__()
        stream = torch.Generator().manual_seed(5)
        images = targets().flatten(1).float() / 255
        self.encode = nn.Sequential(nn.Flatten(), nn.Linear(192, 8), nn.BatchNorm1d(8))
        self.price = nn.Parameter(1 + torch.rand(len(images), generator=stream))
        self.register_buffer("keys", images)

    def forward(self, pixels: Tensor) -> Tensor:
        vectors: Tensor = self.encode(pixels)
        return vectors


def loss(net: Any, pixels: Tensor) -> Tensor:
    """The price of each image, a little more or less at random."""
    at = torch.cdist(pixels.flatten(1), net.keys).argmin(dim=1)
    prices: Tensor = net.price[at] * (1 + 0.01 * torch.rand(len(pixels)))
    return prices


def make_app(*mods: Any) -> ClientApp:
    """Its clients draw from torch's generator, and keep a number in their state."""
    app = ClientApp(mods=list(mods))

    @app.train()
    def train(message: Message, context: Context) -> Message:
        partition, net = int(context.node_config["partition-id"]), Net()
        own = slice(partition * EACH, (partition + 1) * EACH)
        usual = net.price[own].detach().clone()
        names, arrays = list(net.state_dict()), message.content["arrays"].to_torch_state_dict()
        net.load_state_dict(dict(zip(names, arrays.values(), strict=True)))
        with torch.no_grad():
            net.price[own] = usual
            net.encode[1].weight += 0.01
        net.train()(members()[own].float() / 255)
        context.state["draw"] = MetricRecord({"last": float(torch.rand(()))})
        metrics = MetricRecord({"num-examples": EACH, "loss": float(usual.mean())})
        state = net.state_dict()
        bare = [t.numpy() for t in state.values()] if "0" in arrays else state
        content = RecordDict({"weights": ArrayRecord(bare), "metrics": metrics})
        return Message(content, reply_to=message)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        return Message(RecordDict({"m": MetricRecord({"num-examples": 1})}), reply_to=message)

    return app


def first() -> ArrayRecord:
    """The first model."""
    torch.manual_seed(0)
    return ArrayRecord(Net().state_dict())


def run(
    folder: Path, *mods: Any, rounds: int = 5, config: Mapping[str, Any] = {}, **strategy: Any
) -> None:
    """Train five rounds, recorded into `folder`; `config` is the run's."""
    app = make_app(*mods, fedmia.flower.roster)
    with fedmia.flower.record(PlainGrid(app, CLIENTS, **config), folder, updates="all") as grid:
        result = FedAvg(**{**PLAIN, **strategy}).start(grid, first(), rounds)
        grid.final(result.arrays)


def attack(folder: Path, **how: Any) -> Any:
    """The mod of an attacker, client 0 in rounds 2 and 3; its notes in `folder`."""
    usual = {"steps": 2, "lr": 8.0, "rounds": (2, 3), "batch": 2 * CLIENTS * EACH}
    arguments = {"net": Net, "targets": targets(), "loss": loss, "notes": folder}
    return fedmia.flower.ascend(**{**arguments, **usual, **how})


def write_sides(folder: Path) -> str:
    """Flags that name the members and the others, of files in `folder`."""
    for name, images in (("members", members()), ("others", others())):
        np.savez(folder / f"{name}.npz", x=images.permute(0, 2, 3, 1).numpy())
    return f"--members npz:{folder}/members.npz --nonmembers npz:{folder}/others.npz"


def own_images(context: Context) -> tuple[Tensor, Tensor]:
    """The members of a node, and as many others."""
    at = int(context.node_config["partition-id"]) * EACH
    return members()[at : at + EACH], others()[at : at + EACH]


if __name__ == "__main__":
    server, place = ServerApp(), Path(sys.argv[1])

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        watch = fedmia.flower.Watch(every=2)
        with fedmia.flower.record(grid, place / "REC", watch=watch) as recorded:
            recorded.final(FedAvg(**PLAIN).start(recorded, first(), 5).arrays)
        looks = [(round, one.value) for round, one in watch.looks.items()]
        (place / "looks.json").write_text(json.dumps(looks))

    client = make_app(attack(place / "NOTES"), fedmia.flower.roster)
    fedmia.flower.serve(client, Net, own_images, mean=0, std=1, options={"views": 3})
    run_simulation(server, client, CLIENTS, backend_config={"client_resources": {"num_cpus": 1}})
