"""Clients in Flower's simulation on Ray, one process or more."""

from __future__ import annotations

import logging
import os
from typing import Any

from flwr.app import Context
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid

from fedmia.federation.inline import ServerMain


def run_ray(
    server: ServerMain, app: ClientApp, clients: int, threads: int, gpus_per_client: float
) -> None:
    """Run `server` against Flower's simulation runtime: one Ray actor per `threads` cores.

    Raises:
        whatever `server` raises, unwrapped.
    """
    os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
    os.environ.setdefault("RAY_DEDUP_LOGS", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # or Ray prints a warning
    from flwr.serverapp import ServerApp
    from flwr.simulation import run_simulation

    logging.getLogger("flwr").setLevel(logging.ERROR)
    failure: list[BaseException] = []
    main = ServerApp()

    @main.main()
    def _(grid: Grid, context: Context) -> None:
        try:
            server(grid)
        except BaseException as error:  # handed to the caller below: Flower would only log it
            failure.append(error)

    resources: dict[str, Any] = {"num_cpus": threads, "num_gpus": gpus_per_client}
    init: dict[str, Any] = {
        "include_dashboard": False,
        "log_to_driver": False,
        "num_cpus": os.cpu_count() or 1,
    }
    run_simulation(
        main, app, clients, backend_config={"client_resources": resources, "init_args": init}
    )
    if failure:
        raise failure[0]
