"""What every client of a run is told, and what one is asked to do in a round."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.optim import Optimizer

from clients.method_cache import MethodCache
from fedmia.attacks.base import ActiveAttack, AttackTurn, Known
from fedmia.data.images import ByteArray, IntArray
from fedmia.defenses.stack import DefenseStack
from fedmia.recording.branches import BRANCHES
from fedmia.seeding import SEEDED, torch_rng
from fedmia.settings.choices import PluginChoice
from fedmia.settings.commands.experiment import Experiment
from fedmia.settings.errors import InputError, opt
from fedmia.ssl.augment import Augment
from fedmia.ssl.base import SSLMethod, State, TrainingData, on_device
from fedmia.ssl.train import Job, Train, make_optimizer


@dataclass(frozen=True)
class ClientSetup:
    """What all clients of a run share. It is small, so that it travels with Flower's app.

    Attributes:
        experiment: the settings of the run.
        image_array: uint8 (N, C, H, W) of all images, or their `.npy`, which each worker maps.
        roles: role of each client, by partition id.
        parts: data set name (`members` or `placebo`) -> index arrays by partition id.
        targets: indices that the active attacker climbs, in an order without truth.
        held: indices of the images that the attacker holds: its own and the known ones.
        known: indices of known members and of known non-members.
        public: indices of images that are nobody's.
        attack: the active attack; None where there is none.
        sets: positions in `targets` of images that an active client acts on in a round of their
            own, where the question is about sets.
        turns: crafted rounds that the active client can expect to have.
        share: of a client's update in the mean of a round.
        channels: number of channels of an image.
        size: side of an image in pixels.
        device: where clients train.
        noise_source: of all that a client or the server draws as it works, SEEDED or ENTROPY.
        stop: set when the whole run is to end; of this process.
    """

    experiment: Experiment
    image_array: ByteArray | Path
    roles: tuple[str, ...]
    parts: dict[str, tuple[IntArray, ...]]
    targets: IntArray
    held: IntArray
    known: tuple[IntArray, IntArray]
    public: IntArray
    attack: ActiveAttack | None
    sets: tuple[IntArray, ...]
    turns: int
    share: float
    channels: int
    size: int
    device: str
    noise_source: str = SEEDED
    stop: Event | None = field(default=None, compare=False)

    def __getstate__(self) -> dict[str, Any]:
        shared = {f.name: getattr(self, f.name) for f in fields(self)}  # not of this process
        return shared | {"stop": None}

    @property
    def threads(self) -> int:
        """Threads of torch for one client."""
        return self.experiment.machine.threads_per_client

    @cached_property
    def images(self) -> ByteArray:
        """uint8 (N, C, H, W), read only."""
        array = self.image_array
        return np.load(array, mmap_mode="r") if isinstance(array, Path) else array

    @cached_property
    def public_images(self) -> ByteArray | None:
        """uint8 (N, C, H, W) of `public`, shared by this process's methods; None where empty."""
        return np.array(self.images[self.public]) if len(self.public) else None

    @cached_property
    def method_cache(self) -> MethodCache:
        """What each thread of this process keeps between its clients."""
        return MethodCache()

    @cached_property
    def role_plugins(self) -> dict[str, Any]:
        """What clients of each role do, by its name."""
        return {name: PluginChoice(name).plugin("role") for name in dict.fromkeys(self.roles)}

    @cached_property
    def augment(self) -> Augment:
        """The augmentation of the views that clients train on."""
        return self.experiment.ssl.plugin("ssl").augment

    @cached_property
    def first_method(self) -> SSLMethod:
        """A method on the run's first weights, on `device`: these are drawn once in a process. It
        stays as it is."""
        return self._build_method(None, torch_rng(self.experiment.seed, "client-method", -1))

    def method(self, client: int, images: int | None) -> SSLMethod:
        """An SSL method on the run's first weights, for one client.

        Args:
            client: partition id of the client; -1: of nobody.
            images: number of images of the client.

        Returns:
            The method on `device`. All that it draws but the weights comes from the client's own
            stream.
        """
        first = self.first_method
        state = first.state_dict()
        constants = {id(t): t for name, t in first.named_buffers() if name not in state}
        method = copy.deepcopy(first, constants)
        if self.renew(method, client, images):
            return method
        return self._build_method(images, torch_rng(self.experiment.seed, "client-method", client))

    def _build_method(self, images: int | None, generator: torch.Generator) -> SSLMethod:
        """A method of its own, every weight drawn."""
        run = self.experiment
        net, spec = run.model.plugin("model"), run.ssl.plugin("ssl")
        public = self.public_images if spec.public else None
        constants = pixel_constants(run, self.channels)
        training_data = TrainingData(*constants, images, public, run.train.batch_size)
        return spec.build(net.build(self.channels, self.size), training_data, generator).to(
            self.device
        )

    def renew(self, method: SSLMethod, client: int, images: int | None) -> bool:
        """Give a method what a client begins with, but for the weights, which it receives.

        Args:
            method: another client's, on the same network.
            client: partition id of the client.
            images: number of images of the client.

        Returns:
            False where the method has to be built anew.
        """
        return method.renew(images, torch_rng(self.experiment.seed, "client-bank", client))

    def build_defenses(self, client: int) -> DefenseStack:
        """The client's defences."""
        run = self.experiment
        own = [layer for layer in run.defense if client in run.layer_client_ids(layer)]
        layers = [(layer.name, layer.build("defense")) for layer in own]
        return DefenseStack(layers, self.noise_source)

    def is_shared(self, name: str) -> bool:
        """Whether the tensor leaves its client: local batch norm keeps its running statistics."""
        return self.experiment.federation.batch_norm == "average" or ".running_" not in name

    def job(
        self, method: SSLMethod, images: ByteArray, round: int, stream: np.random.Generator,
        attacked: bool = False, optimizer: Optimizer | None = None, halt: Event | None = None,
        build: Callable[..., Job] = Job,
    ) -> Job:  # fmt: skip
        """The local training of one round, at its place in the run's schedule.

        Args:
            method: the method to train.
            images: uint8 (N, C, H, W), those of the client.
            round: number of the round, from 1.
            stream: source of randomness.
            attacked: whether the round is one that the attacker may craft in.
            optimizer: of the method; a new one where none is given.
            halt: set when nobody waits for the training any more.
            build: makes the job of its fields, by name.

        Returns:
            A job that is ready to run.
        """
        run, train = self.experiment, self.experiment.train
        steps = train.local_epochs * -(-len(images) // train.batch_size)
        if attacked and run.federation.attacked_rate == "constant":
            train = self.attacked_training(round, len(images))
        return build(
            method=method,
            optimizer=optimizer or make_optimizer(method, train),
            images=images,
            augment=self.augment,
            train=train,
            rng=stream,
            step=(round - 1) * steps,
            total_steps=run.federation.rounds * steps,
            device=torch.device(self.device),
            stop=partial(self.is_stopped, halt),
            noise_source=self.noise_source,
        )

    def attacked_training(self, round: int, images: int) -> Train:
        """Settings of training in an attacked round: a constant rate, that of its first step,
        or of the run's where `attacked_rate` is constant.

        Args:
            round: number of the round, from 1.
            images: number of images of the client.

        Returns:
            The settings.
        """
        run, train = self.experiment, self.experiment.train
        rate = train.first_rate
        if run.federation.attacked_rate == "schedule":
            epoch = -(-images // train.batch_size)
            steps = train.local_epochs * epoch
            rate = train.rate((round - 1) * steps, run.federation.rounds * steps, epoch)
        return replace(train, schedule="constant", warmup_epochs=0.0, lr=rate)

    def attack_turn(
        self, method: SSLMethod, received: State, trained: State, number: int,
        notes: dict[str, Any], stream: np.random.Generator, *, round: int = 1,
        batch: IntArray | None = None, tuning: np.random.Generator | None = None,
        passing: Callable[[State], State] = lambda crafted: crafted,
        rehearse: Callable[[State], State] = lambda received: received,
    ) -> AttackTurn:  # fmt: skip
        """What the active attack may read and call in one crafted round.

        Args:
            method: on the weights that the attack starts from; it may change them.
            received: weights that the client received.
            trained: weights after its own training.
            number: of the crafted round, from 0.
            notes: notes of the attack, kept between rounds.
            stream: source of randomness.
            round: number of the round, from 1.
            batch: positions in `targets` that have the round to themselves.
            tuning: randomness for tuning the attack; None where it tunes nothing.
            passing: gives the nearest weights that the server would let through.
            rehearse: guesses the mean of honest uploads for given weights.

        Returns:
            What `ActiveAttack.craft` takes.
        """
        targets = self.targets if batch is None else self.targets[batch]
        own = len(self.parts["members"][self.fellows[0]])
        return AttackTurn(
            method=method,
            received=on_device(received, self.device),
            trained=on_device(trained, self.device),
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
        """Indices of the images of each client in a branch of the run."""
        return self.parts[BRANCHES[branch].images]

    def take(self, indices: IntArray) -> Tensor:
        """uint8 (N, C, H, W) of the images at `indices`."""
        return torch.from_numpy(self.images[indices])

    def pixels(self, indices: IntArray) -> Tensor:
        """float32 (N, C, H, W) in [0, 1] of the images at `indices`, on the device."""
        return self.take(indices).to(self.device).float() / 255

    def is_stopped(self, halt: Event | None = None) -> bool:
        """Whether the run was interrupted, or a client's order was given up.

        Args:
            halt: of the order, set when nobody waits for it any more.
        """
        return any(event is not None and event.is_set() for event in (self.stop, halt))


@dataclass(frozen=True)
class ClientTask:
    """What one client has to do in one round.

    Attributes:
        client: partition id of the client.
        round: number of the round, from 1.
        branch: which federation of the run (`main`, `zero`, `placebo`).
        craft: whether the active attacker may send a crafted state.
    """

    client: int
    round: int
    branch: str
    craft: bool


def pixel_constants(
    experiment: Experiment, channels: int
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each channel: from the options, else from the data source.

    Args:
        channels: number of channels of an image.

    Returns:
        Mean and standard deviation, `channels` values each.

    Raises:
        InputError: the number of values does not suit the images.
    """
    source = experiment.data.source()
    mean = experiment.data.mean or source.mean
    std = experiment.data.std or source.std
    for name, values in (("data.mean", mean), ("data.std", std)):
        if len(values) not in (1, channels):
            raise InputError(f"{opt(name)}: {len(values)} values for images of {channels} channels")
    return tuple(mean) * (channels // len(mean)), tuple(std) * (channels // len(std))
