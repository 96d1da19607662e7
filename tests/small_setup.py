"""What clients of a small run share, by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from clients.client_round import ClientRound
from clients.client_setup import ClientSetup
from fedmia.data.images import IntArray
from fedmia.settings.commands.experiment import Experiment, Layer, PluginChoice
from fedmia.settings.tree import from_tree
from fedmia.storage.snapshot import ClientState, StateStore, Update

OWN = {field.name for field in fields(ClientSetup)}
OF_FEDERATION = {"rounds", "batch_norm", "attacked_rate", "client_timeout"}
OF_MACHINE = {"clients_at_once", "device", "backend", "threads_per_client"}


def small_setup(file: Path, parts: Sequence[IntArray], /, **more: Any) -> ClientSetup:
    """Clients of these parts of the 8x8 images in `file`; `more` as `changed` takes it."""
    none = np.arange(0)
    experiment = from_tree(Experiment, {
        "attacks": ["none"], "federation": {"clients": len(parts), "rounds": 4},
        "data": {"name": "cifar10", "mean": [0.5], "std": [0.25]},
        "model": {"name": "smallnet", "width": 2}, "ssl": {"name": "moco", "dim": 4, "queue": 4},
        "train": {"local_epochs": 1, "batch_size": 2, "lr": 0.05},
    })  # fmt: skip
    setup = ClientSetup(
        experiment, file, ("honest",) * len(parts), {"members": tuple(parts)}, none, none,
        (none, none), none, None, (), 1, 1.0, 3, 8, "cpu",
    )  # fmt: skip
    return changed(setup, **more)


def changed(setup: ClientSetup, **more: Any) -> ClientSetup:
    """The same with other values, of its own fields or of its experiment's: plugins as name and
    options, defences as (name, options, clients)."""
    own = {name: more.pop(name) for name in OWN & more.keys()}
    experiment = setup.experiment
    federation = {name: more.pop(name) for name in OF_FEDERATION & more.keys()}
    for name in {"model", "ssl", "strategy"} & more.keys():
        more[name] = PluginChoice(*more[name])
    if "defense" in more:
        more["defense"] = tuple(Layer(n, o, tuple(c)) for n, o, c in more["defense"])
    machine = {name: more.pop(name) for name in OF_MACHINE & more.keys()}
    more["federation"] = replace(experiment.federation, **federation)
    more["machine"] = replace(experiment.machine, **machine)
    return replace(setup, experiment=replace(experiment, **more), **own)


def settle(store: StateStore, at: ClientRound, answer: tuple[Update, ClientState | None]) -> Update:
    """A client's upload; what it keeps goes into the store."""
    update, state = answer
    if state is not None:
        store.save(at.task.branch, at.task.client, state)
    return update
