"""An app of Flower's old API: it never holds its grid, and sends a message a client from threads.

python -m tests.recording.legacy FOLDER records it on two nodes of Ray.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Context
from flwr.client import NumPyClient
from flwr.clientapp import ClientApp
from flwr.common import ndarrays_to_parameters
from flwr.server import ServerAppComponents, ServerConfig
from flwr.server.strategy import FedAvg
from flwr.serverapp import ServerApp
from flwr.simulation import run_simulation

from fedmia.flower import record, roster
from fedmia.recording import Recording


class Client(NumPyClient):
    """It adds its partition's number to the weights."""

    def __init__(self, partition: int) -> None:
        self.partition = partition

    def fit(self, parameters: Any, config: Any) -> Any:
        return [values + self.partition for values in parameters], 10, {}

    def evaluate(self, parameters: Any, config: Any) -> Any:
        return 0.5, 10, {}


def make_client() -> ClientApp:
    def client_fn(context: Context) -> Any:
        return Client(int(context.node_config["partition-id"])).to_client()

    return ClientApp(client_fn=client_fn, mods=[roster])


def make_server(clients: int) -> ServerApp:
    return ServerApp(
        server_fn=lambda context: ServerAppComponents(
            strategy=FedAvg(
                fraction_evaluate=0.5, min_fit_clients=clients, min_available_clients=clients,
                initial_parameters=ndarrays_to_parameters([np.ones((3, 2)), np.zeros(2)]),
            ),
            config=ServerConfig(num_rounds=2),
        )
    )  # fmt: skip


def check(folder: Path, clients: int) -> None:
    """All models and updates of its two rounds are recorded, by partition."""
    recording = Recording(folder)
    assert not recording.header.names and recording.named_by == "roster"
    models = {r: float(m["1"][0]) for r, m in recording.models().items()}
    assert models == pytest.approx({r: r * (clients - 1) / 2 for r in range(3)})
    assert list(recording.updates()) == [1, 2]
    for round, sent in recording.updates().items():
        values = {c: float(s["1"][0]) for c, s in sent.items()}
        assert values == {c: models[round - 1] + c for c in range(clients)}
        assert recording.records["main"][round].examples == dict.fromkeys(range(clients), 10)


if __name__ == "__main__":
    app = record(make_server(2), Path(sys.argv[1]), updates="all")
    run_simulation(app, make_client(), 2, backend_config={"client_resources": {"num_cpus": 1}})
