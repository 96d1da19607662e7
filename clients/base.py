"""From a Flower message to a client's work and back, and what every role shares."""

from __future__ import annotations

import importlib
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedmia import registry
from fedmia.attacks.base import ActiveAttack
from fedmia.data.images import ByteArray, IntArray
from fedmia.defenses.base import Defense, Outlook
from fedmia.federation.snapshot import LocalState, StateStore, Update
from fedmia.seeding import rng, torch_rng
from fedmia.ssl.base import Recipe, SSLMethod, State
from fedmia.ssl.train import Job, Train, make_optimizer


@dataclass(frozen=True)
class Site:
    """What every client of a run is told; small, so that it travels with the app.

    Attributes:
        images_file: `.npy` of all images, memory-mapped by each worker.
        roles: role of each client, by partition id.
        parts: data set name (`members` or `placebo`) -> index arrays by partition id.
        targets: indices that the active attacker climbs, in an order without truth.
        held: indices that the attacker holds: its own images and the known ones.
        defended: partition ids under `defense`.
        total_rounds: rounds of the whole run, pre-training included, for the schedule.
    """

    seed: int
    images_file: Path
    roles: tuple[str, ...]
    parts: dict[str, tuple[IntArray, ...]]
    targets: IntArray
    held: IntArray
    model: tuple[str, dict[str, Any]]
    ssl: tuple[str, dict[str, Any]]
    train: Train
    defense: tuple[str, dict[str, Any]] | None
    defended: frozenset[int]
    attack: ActiveAttack | None
    attacker_trains: bool
    batch_norm: str
    channels: int
    size: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    total_rounds: int
    device: str
    threads: int
    stop: Any = field(default=None, compare=False)  # threading.Event of the inline backend

    def __getstate__(self) -> dict[str, Any]:
        kept = {k: v for k, v in self.__dict__.items() if k not in ("images", "stop")}
        return {**kept, "stop": None}

    @cached_property
    def images(self) -> ByteArray:
        """uint8 (N, C, H, W), read only."""
        found: ByteArray = np.load(self.images_file, mmap_mode="r")
        return found

    def method(self, client: int, images: int | None) -> SSLMethod:
        """A fresh method for a holder of `images` images; weights of the run's first model."""
        net = registry.build("model", *self.model)
        spec = registry.build("ssl", *self.ssl)
        recipe = Recipe(self.mean, self.std, images)
        generator = torch_rng(self.seed, "client-method", client)
        built: SSLMethod = spec.build(net.build(self.channels, self.size), recipe, generator)
        return built.to(self.device)

    def leaves(self, name: str) -> bool:
        """Whether the tensor leaves its client: local batch norm keeps its running statistics."""
        return self.batch_norm == "average" or ".running_" not in name

    def stopped(self) -> bool:
        """Whether the run was interrupted."""
        return self.stop is not None and self.stop.is_set()


@dataclass(frozen=True)
class Task:
    """One round's order to one client.

    Attributes:
        branch: which federation of the run (`main`, `zero`, `placebo`).
        data: which index arrays it trains on.
        craft: whether the active attacker may send a crafted state.
        options: what the strategy asks of clients, e.g. `proximal_mu`.
    """

    client: int
    round: int
    branch: str
    data: str
    craft: bool
    options: dict[str, float]


class Desk:
    """One client at work in one round: its images, its method, its memory."""

    def __init__(self, site: Site, store: StateStore, task: Task, received: State) -> None:
        self.site = site
        self.store = store
        self.task = task
        self.received = received
        self.indices = site.parts[task.data][task.client]
        self.kept = store.load(task.branch, task.client)
        self.memory: dict[str, Any] = dict(self.kept.memory) if self.kept else {}
        self.defense: Defense | None = None
        if site.defense is not None and task.client in site.defended:
            self.defense = registry.build("defense", *site.defense)

    def stream(self, name: str) -> np.random.Generator:
        """Randomness of (seed, round, partition), by name."""
        return rng(self.site.seed, name, self.task.round, self.task.client)

    @property
    def images(self) -> ByteArray:
        return self.site.images[self.indices]

    def train(self) -> tuple[State, dict[str, float], SSLMethod]:
        """Local epochs from the received weights; local state is kept for the next round."""
        method = self.site.method(self.task.client, len(self.indices))
        method.load_shared(self._start(method))
        optimizer = make_optimizer(method, self.site.train)
        self._restore(method, optimizer)
        job = self._job(method, optimizer, self.images)
        train = self.defense.train if self.defense else _run
        if self.defense is not None and self.kept is None:
            self.defense.prepare(self._outlook(), self.memory)
        metrics = train(job, self.memory)
        trained = method.shared_state()
        trained = {n: t for n, t in trained.items() if self.site.leaves(n)}
        self._keep(method, optimizer, trained)
        return trained, metrics, method

    def idle(self) -> SSLMethod:
        """A method on the received weights for a client that does not train: its negatives are
        keys of its own images."""
        method = self.site.method(self.task.client, len(self.indices))
        method.load_shared(self.received)
        method.begin_first_round()
        pixels = torch.from_numpy(self.images.copy()).to(self.site.device).float() / 255
        method.fill_bank(pixels)
        return method

    def rehearse(self, positions: IntArray) -> State:
        """Weights after a first round on the client's images at `positions`; nothing is kept."""
        method = self.site.method(self.task.client, len(positions))
        method.load_shared(self.received)
        method.begin_first_round()
        optimizer = make_optimizer(method, self.site.train)
        self._job(method, optimizer, self.images[positions]).run()
        return method.shared_state()

    def _outlook(self) -> Outlook:
        return Outlook(
            self.site.total_rounds, len(self.indices), self.rehearse, self.stream("prepare")
        )

    def _job(self, method: SSLMethod, optimizer: torch.optim.Optimizer, images: ByteArray) -> Job:
        train = self.site.train
        steps = train.local_epochs * -(-len(images) // train.batch_size)
        spec = registry.build("ssl", *self.site.ssl)
        mu = self.task.options.get("proximal_mu", 0.0)
        return Job(
            method=method,
            optimizer=optimizer,
            images=images,
            augment=spec.augment,
            train=train,
            rng=self.stream("train"),
            step=(self.task.round - 1) * steps,
            total_steps=self.site.total_rounds * steps,
            device=torch.device(self.site.device),
            proximal_mu=mu,
            stop=self.site.stopped,
        )

    def _start(self, method: SSLMethod) -> State:
        """The received weights, or FedEMA's mix of them with the client's own."""
        tau = self.task.options.get("ema_tau")
        if tau is None or self.kept is None:
            return self.received
        own = {n[4:]: t for n, t in self.kept.tensors.items() if n.startswith("own.")}
        names = [n for n in method.shared_parameters() if n in own]
        gap = torch.stack([(own[n] - self.received[n]).double().norm() for n in names]).norm()
        scale = self.memory.setdefault("ema_scale", tau / max(float(gap), 1e-12))
        mu = min(1.0, scale * float(gap))
        self.memory["ema_mu"] = mu
        return self.received | {n: mu * own[n] + (1 - mu) * self.received[n] for n in names}

    def _restore(self, method: SSLMethod, optimizer: torch.optim.Optimizer) -> None:
        if self.kept is None:
            method.begin_first_round()
            return
        tensors = self.kept.tensors
        method.load_local({n[6:]: t for n, t in tensors.items() if n.startswith("local.")})
        method.begin_round()
        buffers = {n[4:]: t for n, t in tensors.items() if n.startswith("own.")}
        if self.site.batch_norm == "local":
            running = {n: t for n, t in buffers.items() if ".running_" in n}
            method.load_shared(method.shared_state() | running)
        if self.site.train.optimizer_state == "keep":
            for i, weight in enumerate(method.trainable()):
                if f"momentum.{i}" in tensors:
                    kept = tensors[f"momentum.{i}"].to(weight.device).clone()
                    optimizer.state[weight]["momentum_buffer"] = kept

    def _keep(self, method: SSLMethod, optimizer: torch.optim.Optimizer, trained: State) -> None:
        tensors = {f"local.{n}": t for n, t in method.local_state().items()}
        if self.site.train.optimizer_state == "keep":
            for i, weight in enumerate(method.trainable()):
                kept = optimizer.state.get(weight, {}).get("momentum_buffer")
                if kept is not None:
                    tensors[f"momentum.{i}"] = kept.detach()
        if "ema_tau" in self.task.options or self.site.batch_norm == "local":
            tensors |= {f"own.{n}": t for n, t in method.shared_state().items()}
        self._tensors = tensors
        self.remember()

    def remember(self) -> None:
        """Store the local state again, with what the defence added to its memory."""
        kept = LocalState(self._tensors, self.memory)
        self.store.save(self.task.branch, self.task.client, kept)


def _run(job: Job, memory: dict[str, Any]) -> dict[str, float]:
    return job.run()


class Role(ABC):
    """What a client does with a round. One subclass a file of this package."""

    @abstractmethod
    def work(self, desk: Desk) -> tuple[State, dict[str, float]]:
        """The state to upload, and metrics."""


def load_role(name: str) -> Role:
    """The role in `clients/<name>.py`, its one class of that name."""
    module = importlib.import_module(f"clients.{name}")
    role: Role = getattr(module, name.capitalize())()
    return role


def client_app(site: Site, store: StateStore) -> ClientApp:
    """The Flower app of every client: `query` answers the roll call, `train` works a round."""
    app = ClientApp()

    @app.query()
    def roll_call(message: Message, context: Context) -> Message:
        record = MetricRecord({"client": int(context.node_config["partition-id"])})
        return Message(RecordDict({"metrics": record}), reply_to=message)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        torch.set_num_threads(site.threads)
        try:
            update = _work(site, store, message, int(context.node_config["partition-id"]))
        except Exception as error:  # the strategy says whose it was; Ray would print pages of it
            reason = f"{type(error).__name__}: {error}"
            return Message(Error(code=0, reason=reason), reply_to=message)
        return Message(_content(update), reply_to=message)

    return app


def _work(site: Site, store: StateStore, message: Message, client: int) -> Update:
    """One client's round."""
    arrays = message.content.array_records["arrays"]
    config = message.content.config_records["config"]
    received = {n: t.to(site.device) for n, t in arrays.to_torch_state_dict().items()}
    task = _task(client, config)
    began = time.perf_counter()
    desk = Desk(site, store, task, received)
    state, metrics = load_role(site.roles[client]).work(desk)
    state = {n: t for n, t in state.items() if site.leaves(n)}
    metrics = {**metrics, "began": began, "ended": time.perf_counter()}
    return Update(client, task.round, state, len(desk.indices), metrics)


def _task(client: int, config: ConfigRecord) -> Task:
    values: dict[str, Any] = dict(config)
    options = {k[4:]: float(v) for k, v in values.items() if k.startswith("opt.")}
    return Task(
        client,
        int(values["round"]),
        str(values["branch"]),
        str(values["data"]),
        bool(values["craft"]),
        options,
    )


def _content(update: Update) -> RecordDict:
    metrics = MetricRecord(
        {"client": update.client, "num-examples": update.examples, **update.metrics}
    )
    state = {n: t.detach().cpu() for n, t in update.state.items()}
    return RecordDict({"arrays": ArrayRecord(torch_state_dict=state), "metrics": metrics})
