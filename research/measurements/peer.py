"""The same federation in plain Flower: torchvision's transforms, a DataLoader, `run_simulation`.

What one would write from Flower's and torchvision's own examples: each client is a task of
Ray's, builds its model, draws two views of each image one by one, trains MoCo for an epoch, and
keeps its momentum encoder and its queue in Flower's context. `federation.py` runs it,
`gpu.py` with images (.npy, uint8), a client's share of a GPU and that of the clients in
a round:

    python research/measurements/peer.py NET CLIENTS ROUNDS PRECISION [IMAGES GPUS PARTICIPATION]
"""

from __future__ import annotations

import copy
import sys
import time
from typing import Any

import flwr as fl
import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

from fedmia.settings import registry

IMAGES, BATCH, QUEUE, DIM = 64, 32, 32, 128
LR, MOMENTUM, TEMPERATURE = 0.06, 0.99, 0.1


class Pairs(Dataset[tuple[Tensor, Tensor]]):
    """Two views of each image of a client."""

    def __init__(self, client: int, clients: int, file: str) -> None:
        draw = np.random.default_rng(client)
        images = draw.integers(0, 256, (IMAGES, 3, 32, 32), dtype=np.uint8)
        if file:
            images = np.load(file, mmap_mode="r")[client::clients].copy()
        self.images = torch.from_numpy(images)
        self.transform = v2.Compose([
            v2.RandomResizedCrop(32, scale=(0.2, 1.0), antialias=True),
            v2.RandomHorizontalFlip(),
            v2.RandomApply([v2.ColorJitter(0.4, 0.4, 0.4, 0.1)], p=0.8),
            v2.RandomGrayscale(0.2),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize((0.5,) * 3, (0.25,) * 3),
        ])  # fmt: skip

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, at: int) -> tuple[Tensor, Tensor]:
        return self.transform(self.images[at]), self.transform(self.images[at])


class Projected(nn.Module):
    """The backbone that fedmia's run has, pooled and projected."""

    def __init__(self, net: str) -> None:
        super().__init__()
        self.backbone = registry.build("model", net, {}).build(3, 32)
        with torch.no_grad():
            width = self.pooled(torch.zeros(2, 3, 32, 32)).shape[1]
        self.head = nn.Linear(width, DIM)

    def pooled(self, images: Tensor) -> Tensor:
        maps: Tensor = self.backbone(images)
        return maps.mean((2, 3)) if maps.ndim == 4 else maps

    def forward(self, images: Tensor) -> Tensor:
        return functional.normalize(self.head(self.pooled(images)), dim=1)


def train(
    net: str, precision: str, file: str, device: str, message: Message, context: Context
) -> Message:
    """A client's epoch of MoCo."""
    torch.set_num_threads(1)
    query = Projected(net)
    query.load_state_dict(message.content.array_records["arrays"].to_torch_state_dict())
    query.to(device)
    key = copy.deepcopy(query)
    queue = functional.normalize(torch.randn(QUEUE, DIM), dim=1)
    if "key" in context.state.array_records:
        key.load_state_dict(context.state.array_records["key"].to_torch_state_dict())
        queue = context.state.array_records["queue"].to_torch_state_dict()["queue"]
    queue = queue.to(device)
    optimizer = torch.optim.SGD(query.parameters(), LR, momentum=0.9, weight_decay=5e-4)
    config = context.node_config
    pairs = Pairs(int(config["partition-id"]), int(config["num-partitions"]), file)
    loader = DataLoader(pairs, BATCH, shuffle=True, drop_last=not file)
    losses = []
    for one, other in loader:
        one, other = one.to(device), other.to(device)
        with torch.autocast(device, torch.bfloat16, enabled=precision == "bfloat16"):
            queries = query(one)
            with torch.no_grad():
                known = key(other)
        queries, known = queries.float(), known.float()
        logits = torch.cat([(queries * known).sum(1, keepdim=True), queries @ queue.T], 1)
        loss = functional.cross_entropy(
            logits / TEMPERATURE, torch.zeros(len(queries), dtype=torch.long, device=device)
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for slow, fast in zip(key.parameters(), query.parameters(), strict=True):
                slow.lerp_(fast, 1 - MOMENTUM)
        queue = torch.cat([queue[len(known) :], known])
        losses.append(float(loss))
    context.state["key"] = ArrayRecord(key.state_dict())
    context.state["queue"] = ArrayRecord({"queue": queue})
    metrics = MetricRecord({"loss": float(np.mean(losses)), "num-examples": len(pairs)})
    content = RecordDict({"arrays": ArrayRecord(query.state_dict()), "metrics": metrics})
    return Message(content, reply_to=message)


class Timed(FedAvg):
    """Flower's own, which notes when each round is aggregated."""

    ends: list[float]

    def aggregate_train(self, server_round: int, replies: Any) -> Any:
        result = super().aggregate_train(server_round, replies)
        self.ends.append(time.perf_counter())
        return result


def main() -> None:
    net, clients, rounds, precision = sys.argv[1], *map(int, sys.argv[2:4]), sys.argv[4]
    file, gpus, part = sys.argv[5:8] if len(sys.argv) > 5 else ("", "0", "1")
    device, seconds = "cuda" if float(gpus) else "cpu", list[float]()
    client, server, ended = ClientApp(), ServerApp(), list[float]()

    @client.train()
    def _(message: Message, context: Context) -> Message:
        return train(net, precision, file, device, message, context)

    @server.main()
    def _(grid: Grid, context: Context) -> None:
        strategy = Timed(
            fraction_train=float(part), fraction_evaluate=0.0, min_available_nodes=clients
        )
        seconds.append(time.perf_counter())
        strategy.ends = seconds
        result = strategy.start(
            grid=grid, initial_arrays=ArrayRecord(Projected(net).state_dict()),
            num_rounds=rounds, train_config=ConfigRecord(), timeout=600.0,
        )  # fmt: skip
        losses = result.train_metrics_clientapp
        ended.append(float(list(losses.values())[-1]["loss"]))

    began = time.perf_counter()
    resources = {"num_cpus": 1, "num_gpus": float(gpus)}
    fl.simulation.run_simulation(
        server, client, clients, backend_config={"client_resources": resources}
    )
    print("SECONDS", np.diff(seconds).tolist())
    print(f"loss {ended[0]:.3f} after {rounds} rounds, {time.perf_counter() - began:.1f} s")


if __name__ == "__main__":
    main()
