"""One run: data, federation, attacks, report. The order of this file is the way of the data."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from threading import Event

import numpy as np
import torch

from clients.base import Site, client_app
from fedmia import registry
from fedmia.attacks.base import ActiveAttack
from fedmia.data.images import ImageSet
from fedmia.data.split import Split, make_split
from fedmia.errors import InputError
from fedmia.federation.backends import run_inline, run_ray
from fedmia.federation.rounds import Federation
from fedmia.federation.snapshot import DiskStore, MemoryStore, SnapshotStore
from fedmia.results import RunScores
from fedmia.runtime.device import resolve_device
from fedmia.runtime.progress import Display
from fedmia.runtime.stopwatch import Stopwatch
from fedmia.scoring.score import Probes, score
from fedmia.seeding import rng, torch_rng
from fedmia.settings.experiment import Experiment
from fedmia.ssl.base import Recipe


@dataclass
class Prepared:
    """What is known before the first round: nothing of it is written to the run folder yet."""

    experiment: Experiment
    data: ImageSet
    split: Split
    active: ActiveAttack | None
    notes: list[str]


def prepare(experiment: Experiment) -> Prepared:
    """Load the data and deal the roles.

    Raises:
        InputError: missing, empty or corrupt data, or too few images.
    """
    data = experiment.data.source().load(experiment.data.request(experiment.seed))
    built = {n: registry.build("attack", n, o) for n, o in experiment.attack.items()}
    active = [a for a in built.values() if isinstance(a, ActiveAttack)]
    if len(active) > 1:
        raise InputError(
            "only one active attack can run inside one federation, got "
            f"{[n for n, a in built.items() if isinstance(a, ActiveAttack)]}"
        )
    malicious = len(experiment.malicious_clients)
    split = make_split(
        data,
        experiment.split,
        experiment.partition.build("partition"),
        experiment.federation.clients,
        malicious,
        bool(active) or experiment.attacker == "server",
        experiment.seed,
    )
    # Sizes, constants and pairs that do not suit are refused before anything is written.
    backbone = experiment.model.build("model").build(data.channels, data.size)
    recipe = Recipe(*pixel_constants(experiment, data.channels))
    spec = experiment.ssl.build("ssl")
    method = spec.build(backbone, recipe, torch_rng(experiment.seed, "trial"))
    notes = sorted({n for part in split.parts for n in spec.notes(len(part))})[:3]
    if split.duplicates_removed:
        notes.append(
            f"{split.duplicates_removed} byte-equal duplicates were removed before the "
            "images were given roles."
        )
    # A head may hold batch norm as well as the backbone, and of a plugin only the layers tell.
    running = any(".running_" in name for name in method.shared_state())
    if running and experiment.federation.batch_norm == "local":
        notes.append(
            "Batch norm is local: the global model that is scored has the running "
            "statistics of the first model, which no client ever used."
        )
    if active and not experiment.pretrain.rounds:
        notes.append(
            "Without pre-training the last model before the first crafted update is the "
            "untrained one: passive attacks have nothing to find on it."
        )
    return Prepared(experiment, data, split, active[0] if active else None, notes)


def make_site(prepared: Prepared, workdir: Path, stop: Event) -> Site:
    """What the clients are told; the images go to a file that every worker maps."""
    experiment, data, split = prepared.experiment, prepared.data, prepared.split
    file = workdir / "images.npy"
    np.save(file, data.images)
    malicious = len(experiment.malicious_clients)
    honest = experiment.federation.clients - malicious
    own = split.parts[honest:]
    candidates = np.concatenate(
        [split.scored_members, split.scored_nonmembers, split.known_members, split.known_nonmembers]
    )
    mean, std = pixel_constants(experiment, data.channels)
    defense = experiment.defense
    return Site(
        seed=experiment.seed,
        images_file=file,
        roles=("honest",) * honest + (experiment.attacker,) * malicious,
        parts={"members": split.parts, "placebo": (*split.placebo_parts, *own)},
        held=np.concatenate([*own[:1], split.known_members, split.known_nonmembers]),
        targets=rng(experiment.seed, "targets").permutation(candidates),
        model=(experiment.model.name, dict(experiment.model.options)),
        ssl=(experiment.ssl.name, dict(experiment.ssl.options)),
        train=experiment.train,
        defense=(defense.name, dict(defense.options)) if defense else None,
        defended=frozenset(experiment.defended),
        attack=prepared.active,
        attacker_trains=experiment.attacker_trains,
        batch_norm=experiment.federation.batch_norm,
        channels=data.channels,
        size=data.size,
        mean=mean,
        std=std,
        total_rounds=experiment.pretrain.rounds + experiment.federation.rounds,
        device=resolve_device(experiment.device),
        threads=experiment.threads_per_client,
        stop=stop,
    )


def pixel_constants(
    experiment: Experiment, channels: int
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation, one value a channel: the flags', else the data source's."""
    source = experiment.data.source()
    mean = experiment.data.mean or source.mean
    std = experiment.data.std or source.std
    for flag, values in (("--mean", mean), ("--std", std)):
        if len(values) not in (1, channels):
            raise InputError(f"{flag}: {len(values)} values for images of {channels} channels")
    return tuple(mean) * (channels // len(mean)), tuple(std) * (channels // len(std))


def execute(
    prepared: Prepared, out: Path | None, watch: Stopwatch, stop: Event, quiet: bool
) -> RunScores:
    """Train, attack and score. The snapshots of `main` stay in `out` where it is given.

    Raises:
        FederationError: a client failed; nothing is reported.
    """
    experiment = prepared.experiment
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fedmia-")))
        site = make_site(prepared, folder, stop)
        probes = Probes(site, prepared.data, prepared.split)
        ray = experiment.backend == "ray"
        federation = Federation(
            experiment=experiment,
            site=site,
            split=prepared.split,
            store=DiskStore(folder / "clients") if ray else MemoryStore(),
            snapshots=SnapshotStore((out or folder) / "snapshots"),
            holder=experiment.malicious_clients[0] if experiment.malicious_clients else None,
            active=prepared.active is not None,
            placebo=bool(prepared.split.placebo_parts),
            probe=probes.knn,
            watch=watch,
            stop=stop,
        )
        federation.display = stack.enter_context(Display(federation.total_rounds(), quiet))
        torch.set_num_threads(site.threads)
        federate(federation)
        scores = score(prepared, federation, probes, watch)
        for branch in ("zero", "placebo"):
            federation.snapshots.drop(branch)
        return scores


def federate(federation: Federation) -> None:
    """Run the rounds on the backend asked for."""
    experiment = federation.experiment
    app = client_app(federation.site, federation.store)
    clients, threads = experiment.federation.clients, experiment.threads_per_client
    if experiment.backend == "ray":
        run_ray(federation.run, app, clients, threads, experiment.gpus_per_client)
    else:
        run_inline(federation.run, app, clients, threads)
