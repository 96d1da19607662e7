"""Where clients run: in threads of this process, or in actors of a Ray cluster."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import closing

from flwr.serverapp import Grid

from clients.app import client_app
from clients.client_context import ClientContext
from fedmia.federation.inline import InlineGrid
from fedmia.runtime.cores import count_cores
from fedmia.storage.snapshot import StateStore

# Clients at once in one process on a GPU: one alone leaves it idle, and of many each waits for the
# interpreter. Of a ResNet-18 one took 179 ms alone, 153 of 4; 192 of 16 where it took 132 of 4.
GPU_WORKERS = 4
ServerMain = Callable[[Grid], None]


def run_inline(
    server: ServerMain,
    client_context: ClientContext,
    store: StateStore,
    timeout: float | None = None,
) -> None:
    """Run `server` against clients in this process, as many at once as the cores allow.

    Args:
        server: runs the rounds over a grid.
        store: local states of the clients.
        timeout: seconds a client may take; None waits forever.
    """
    logging.getLogger("flwr").setLevel(logging.ERROR)  # it logs every round of every branch
    clients = len(client_context.roles)
    most = clients if client_context.device == "cpu" else min(clients, GPU_WORKERS)
    workers = max(1, min(most, count_cores() // client_context.threads))
    grid = InlineGrid(
        lambda local_store, halt: client_app(client_context.with_halt(halt), local_store),
        clients, workers, client_context.threads, store, timeout,
    )  # fmt: skip
    with closing(grid):
        server(grid)


def run_ray(
    server: ServerMain, client_context: ClientContext, store: StateStore, cpus: float, gpus: float,
    address: str | None = None, timeout: float | None = None, device: str = "auto",
    say: Callable[[str], None] = lambda line: None,
) -> None:  # fmt: skip
    """Run `server` against actors of a Ray cluster, each of `cpus` cores and `gpus` GPUs.

    Args:
        server: runs the rounds over a grid.
        store: local states of the clients.
        cpus: CPU cores for one client.
        gpus: share of a GPU, 0 for none.
        address: of a cluster that is there, `auto` or `HOST:PORT`; None starts one here.
        timeout: seconds a client may take; None waits forever.
        device: where clients train, as the user gave it.
        say: shows a line to the user: where the clients train.

    Raises:
        InputError: Ray cannot be started or joined, or it holds no client.
    """
    os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
    logging.getLogger("flwr").setLevel(logging.CRITICAL)  # what fails is said once, in one line
    from fedmia.federation.cluster import ClientResources, RayGrid, connect, disconnect

    ours = connect(address)
    try:
        with closing(
            RayGrid(
                client_context,
                len(client_context.roles),
                ClientResources(cpus, gpus, device),
                store,
                timeout,
                say,
            )
        ) as grid:
            server(grid)
    finally:
        if ours:
            disconnect()
