"""What every client of a run is told, and what one is asked to do in a round."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.optim import Optimizer

from clients.method_cache import MethodCache
from fedmia.attacks.base import ActiveAttack, CraftContext, Known
from fedmia.data.images import ByteArray, IntArray
from fedmia.defenses._stack import DefenseStack
from fedmia.options import registry
from fedmia.options.seeding import SEEDED, torch_rng
from fedmia.ssl.augment import Augment
from fedmia.ssl.base import Recipe, SSLMethod, State
from fedmia.ssl.train import Job, Train, make_optimizer


@dataclass(frozen=True)
class ClientContext:
    """What every client of a run is told; small, so that it travels with the app.

    Attributes:
        images_file: `.npy` of all images, memory-mapped by each worker.
        roles: role of each client, by partition id.
        parts: data set name (`members` or `placebo`) -> index arrays by partition id.
        targets: indices that the active attacker climbs, in an order without truth.
        held: indices of the images that the attacker holds: its own and the known ones.
        known: indices of known members and of known non-members.
        public: indices of images that are nobody's.
        defenses: name, options and partition ids of each defence, in the order in which they act.
        sets: positions in `targets` of images that an active client acts on in a round of their
            own, where the question is about sets.
        turns: crafted rounds that the active client can expect to have.
        share: of a client's update in the mean of a round.
        attacked_rate: honest clients' learning rate in attacked rounds: `schedule`, or `constant`,
            their first.
        total_rounds: federated rounds of the whole run, for the schedule.
        noise_source: of all that a client or the server draws as it works, SEEDED or ENTROPY.
    """

    seed: int
    images_file: Path
    roles: tuple[str, ...]
    parts: dict[str, tuple[IntArray, ...]]
    targets: IntArray
    held: IntArray
    known: tuple[IntArray, IntArray]
    model: tuple[str, dict[str, Any]]
    ssl: tuple[str, dict[str, Any]]
    strategy: tuple[str, dict[str, Any]]
    train: Train
    public: IntArray
    defenses: tuple[tuple[str, dict[str, Any], frozenset[int]], ...]
    attack: ActiveAttack | None
    sets: tuple[IntArray, ...]
    turns: int
    share: float
    attacked_rate: str
    attacker_trains: bool
    batch_norm: str
    channels: int
    size: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    total_rounds: int
    device: str
    threads: int
    noise_source: str = SEEDED
    stop: Event | None = field(default=None, compare=False)  # of the run, in this process
    halt: Event | None = field(default=None, compare=False)  # of one order

    def __getstate__(self) -> dict[str, Any]:
        own = ("images", "public_images", "method_cache", "stop", "halt")  # of this process
        kept = {k: v for k, v in self.__dict__.items() if k not in own}
        return {**kept, "stop": None, "halt": None}

    @cached_property
    def images(self) -> ByteArray:
        """uint8 (N, C, H, W), read only."""
        found: ByteArray = np.load(self.images_file, mmap_mode="r")
        return found

    @cached_property
    def public_images(self) -> ByteArray | None:
        """uint8 (N, C, H, W) of `public`, which all methods of this process share; None: none."""
        return np.array(self.images[self.public]) if len(self.public) else None

    @cached_property
    def method_cache(self) -> MethodCache:
        """What each thread of this process keeps between its clients."""
        return MethodCache()

    @cached_property
    def augment(self) -> Augment:
        """The recipe of the views that clients train on."""
        found: Augment = registry.build("ssl", *self.ssl).augment
        return found

    def method(self, client: int, images: int | None) -> SSLMethod:
        """A fresh method for a holder of `images` images; weights of the run's first model."""
        net = registry.build("model", *self.model)
        spec = registry.build("ssl", *self.ssl)
        public = self.public_images if spec.public else None
        recipe = Recipe(self.mean, self.std, images, public, self.train.batch_size)
        generator = self._drawing(client)
        built: SSLMethod = spec.build(net.build(self.channels, self.size), recipe, generator)
        return built.to(self.device)

    def renew(self, method: SSLMethod, client: int, images: int) -> bool:
        """Make another client's method what `method` would build; False where that cannot be."""
        return self.device == "cpu" and method.renew(images, self._drawing(client))

    def _drawing(self, client: int) -> torch.Generator:
        return torch_rng(self.seed, "client-method", client)

    def build_defenses(self, client: int) -> DefenseStack:
        """The client's defences."""
        own = [(name, options) for name, options, clients in self.defenses if client in clients]
        layers = [(n, registry.build("defense", n, options)) for n, options in own]
        return DefenseStack(layers, self.noise_source)

    def is_shared(self, name: str) -> bool:
        """Whether the tensor leaves its client: local batch norm keeps its running statistics."""
        return self.batch_norm == "average" or ".running_" not in name

    def job(
        self, method: SSLMethod, images: ByteArray, round: int, stream: np.random.Generator,
        attacked: bool = False, optimizer: Optimizer | None = None,
    ) -> Job:  # fmt: skip
        """The training of `method` on `images` in `round`, at its place in the run's schedule.

        Args:
            optimizer: of the method, without any state; a new one where none is given.
        """
        train = self.train
        steps = train.local_epochs * -(-len(images) // train.batch_size)
        if attacked and self.attacked_rate == "constant":
            train = self.attacked_training(round, len(images))
        return Job(
            method=method,
            optimizer=optimizer or make_optimizer(method, train),
            images=images,
            augment=self.augment,
            train=train,
            rng=stream,
            step=(round - 1) * steps,
            total_steps=self.total_rounds * steps,
            device=torch.device(self.device),
            stop=self.is_stopped,
            noise_source=self.noise_source,
        )

    def attacked_training(self, round: int, images: int) -> Train:
        """How a client of `images` images trains in attacked `round`, at a constant rate: that at
        which the round begins."""
        train, rate = self.train, self.train.first_rate
        if self.attacked_rate == "schedule":
            epoch = -(-images // train.batch_size)
            steps = train.local_epochs * epoch
            rate = train.rate((round - 1) * steps, self.total_rounds * steps, epoch)
        return replace(train, schedule="constant", warmup_epochs=0.0, lr=rate)

    def craft_context(
        self, method: SSLMethod, received: State, trained: State, number: int,
        notes: dict[str, Any], stream: np.random.Generator, *, round: int = 1,
        batch: IntArray | None = None, tuning: np.random.Generator | None = None,
        passing: Callable[[State], State] = lambda crafted: crafted,
        rehearse: Callable[[State], State] = lambda received: received,
    ) -> CraftContext:  # fmt: skip
        """What the active attack has at hand in crafted round `number`, the run's `round`.

        Args:
            batch: positions in `targets` that have the round to themselves.
        """
        targets = self.targets if batch is None else self.targets[batch]
        own = len(self.parts["members"][self.fellows[0]])
        return CraftContext(
            method=method,
            received=received,
            trained=trained,
            targets=self.take(targets),
            held=self.take(self.held),
            known=Known(*map(self.take, self.known)),
            number=number,
            turns=self.turns,
            share=min(1.0, self.share * len(self.fellows)),
            notes=notes,
            augment=self.augment,
            rng=stream,
            train=self.attacked_training(round, own),
            tuning=tuning,
            alone=batch is not None,
            passing=passing,
            rehearse=rehearse,
        )

    @property
    def fellows(self) -> tuple[int, ...]:
        """Clients that upload one and the same state, the first of which the attacker reads
        through: the malicious ones where they act together, else that one alone."""
        mine = [c for c, role in enumerate(self.roles) if role == self.roles[-1]]
        together = self.attack is not None and self.attack.together
        return tuple(mine) if together else tuple(mine[:1])

    def branch_parts(self, branch: str) -> tuple[IntArray, ...]:
        """Indices of the images that clients train on in a branch of the run."""
        return self.parts["placebo" if branch == "placebo" else "members"]

    def take(self, indices: IntArray) -> Tensor:
        """uint8 (N, C, H, W) of the images at `indices`."""
        return torch.from_numpy(self.images[indices])

    def pixels(self, indices: IntArray) -> Tensor:
        """The same in [0, 1] on the device."""
        return self.take(indices).to(self.device).float() / 255

    def is_stopped(self) -> bool:
        """Whether the run was interrupted, or nobody waits for this client any more."""
        return any(event is not None and event.is_set() for event in (self.stop, self.halt))

    def with_halt(self, event: Event) -> ClientContext:
        """The same site for one client's order, given up when `event` is set."""
        _ = (
            self.images,
            self.public_images,
            self.method_cache,
            self.augment,
        )  # what all orders share
        own = object.__new__(
            ClientContext
        )  # `copy.copy` would leave out what stays in this process
        own.__dict__.update(self.__dict__, halt=event)
        return own


@dataclass(frozen=True)
class RoundTask:
    """One round's order to one client.

    Attributes:
        branch: which federation of the run (`main`, `zero`, `placebo`).
        craft: whether the active attacker may send a crafted state.
    """

    client: int
    round: int
    branch: str
    craft: bool
