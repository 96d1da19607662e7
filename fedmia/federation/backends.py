"""Where clients run: in threads of this process, or in actors of a Ray cluster."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import closing
from functools import partial

from flwr.serverapp import Grid

from clients.app import answer, together_app
from clients.client_group import count_together
from clients.client_setup import ClientSetup
from fedmia.federation.inline import InlineGrid
from fedmia.runtime.cores import count_cores
from fedmia.runtime.threads import limit_threads
from fedmia.storage.snapshot import StateStore

# Clients at once in one process on a GPU: one alone leaves it idle, and of many each waits for the
# interpreter. Of a ResNet-18 one took 179 ms alone, 153 of 4; 192 of 16 where it took 132 of 4.
GPU_WORKERS = 4
ServerMain = Callable[[Grid], None]


def count_workers(client_setup: ClientSetup, at_once: int) -> int:
    """How many threads of this process train clients.

    Args:
        client_setup: what all clients of the run share.
        at_once: clients in one pass.

    Returns:
        At least 1.
    """
    gpu_workers = GPU_WORKERS if at_once == 1 else 1  # one pass of many fills it
    clients = len(client_setup.roles)
    most = clients if client_setup.device == "cpu" else min(clients, gpu_workers)
    return max(1, min(most, count_cores() // client_setup.threads))


def run_inline(
    server: ServerMain, client_setup: ClientSetup, store: StateStore,
    say: Callable[[str], None] = lambda line: None,
) -> None:  # fmt: skip
    """Run `server` against clients in this process, as many at once as the cores allow.

    Args:
        server: runs the rounds over a grid.
        store: local states of the clients.
        say: shows a line to the user: why clients that should train in one pass do not.
    """
    logging.getLogger("flwr").setLevel(logging.ERROR)  # it logs every round of every branch
    clients, threads = len(client_setup.roles), client_setup.threads
    at_once, reason = count_together(client_setup)
    if reason:
        say(f"clients train one after the other: {reason}")
    workers = count_workers(client_setup, at_once)
    grid = InlineGrid(
        partial(answer, client_setup),
        clients, workers, threads, store, client_setup.experiment.federation.client_timeout,
        together_app(client_setup) if at_once > 1 else None, at_once, say,
        client_setup.device,
    )  # fmt: skip
    # What clients on a GPU leave idle adds up what they send.
    free = threads if client_setup.device == "cpu" else max(threads, count_cores() // 2)
    with closing(grid), limit_threads(free):
        server(grid)


def run_ray(
    server: ServerMain, client_setup: ClientSetup, store: StateStore, say: Callable[[str], None]
) -> None:
    """Run `server` against actors of a Ray cluster.

    Args:
        server: runs the rounds over a grid.
        store: local states of the clients.
        say: shows a line to the user: where the clients train.

    Raises:
        InputError: Ray cannot be started or joined, or it holds no client.
    """
    os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
    logging.getLogger("flwr").setLevel(logging.CRITICAL)  # what fails is said once, in one line
    from fedmia.federation.cluster import ClientResources, RayGrid, connect, disconnect

    run, clients = client_setup.experiment, len(client_setup.roles)
    machine = run.machine
    cpus = machine.cpus_per_client or machine.threads_per_client
    share = ClientResources(cpus, machine.gpus_per_client, machine.device)
    ours, timeout = connect(machine.ray_address), run.federation.client_timeout
    try:
        with closing(RayGrid(client_setup, clients, share, store, timeout, say)) as grid:
            server(grid)
    finally:
        if ours:
            disconnect()
