"""One client at work in one round."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn
from torch.optim import SGD

from clients.site import Site, Task
from fedmia import registry
from fedmia.attacks.base import Turn
from fedmia.data.images import ByteArray, IntArray
from fedmia.defenses.base import Defense, Metrics, Outlook
from fedmia.federation.local import Local
from fedmia.federation.snapshot import LocalState, StateStore, Update
from fedmia.seeding import rng
from fedmia.ssl.base import SSLMethod, State
from fedmia.ssl.train import Job, make_optimizer


class Desk:
    """A client in a round: its images, its method, its memory, its upload."""

    def __init__(
        self,
        site: Site,
        store: StateStore,
        task: Task,
        received: State,
        broadcast: State | None = None,
    ) -> None:
        self.site = site
        self.store = store
        self.task = task
        self.received = received
        self.broadcast = broadcast or {}
        self.indices = site.parts[task.data][task.client]
        self.kept = store.load(task.branch, task.client)
        self.memory: dict[str, Any] = dict(self.kept.memory) if self.kept else {}
        self.strategy = registry.build("strategy", *site.strategy)
        self.defense: Defense | None = None
        if site.defense is not None and task.client in site.defended:
            self.defense = registry.build("defense", *site.defense)
        self._trained: tuple[Local, State, State] | None = None

    def stream(self, name: str) -> np.random.Generator:
        """Randomness of (seed, round, partition), by name."""
        return rng(self.site.seed, name, self.task.round, self.task.client)

    @property
    def images(self) -> ByteArray:
        return self.site.images[self.indices]

    def train(self) -> tuple[State, Metrics, SSLMethod]:
        """Local epochs from where the strategy starts: what may leave, metrics, the method."""
        method = self.site.method(self.task.client, len(self.indices))
        local = Local(
            self.received, self.broadcast, self._own("strategy."), self.memory, _weights(method)
        )
        method.load_shared(self.strategy.begin(local))
        optimizer = make_optimizer(method, self.site.train)
        self._restore(method, optimizer)
        job = self._job(method, optimizer, self.images, local)
        if self.defense is not None and self.kept is None:
            total, count = self.site.total_rounds, len(self.indices)
            outlook = Outlook(total, count, self.rehearse, self.stream("prepare"))
            self.defense.prepare(outlook, self.memory)
        metrics = self.defense.train(job, self.memory) if self.defense else job.run()
        state = method.shared_state()
        trained = {n: t for n, t in state.items() if self.site.leaves(n)}
        staying = {f"running.{n}": t for n, t in state.items() if n not in trained}
        self._trained = local, trained, staying | self._resumed(method, optimizer)
        return trained, metrics, method

    def settle(self, state: State, metrics: Metrics) -> Update:
        """The upload of `state`, less what never leaves; the local state is stored."""
        sent = {n: t for n, t in state.items() if self.site.leaves(n)}
        if self._trained is not None:
            local, trained, tensors = self._trained
            metrics = metrics | self.strategy.finish(local, trained, sent)
            tensors |= {f"strategy.{n}": t for n, t in local.kept.items()}
            kept = LocalState(tensors, self.memory)
            self.store.save(self.task.branch, self.task.client, kept)
        return Update(self.task.client, self.task.round, sent, len(self.indices), metrics)

    def craft(self, method: SSLMethod, trained: State) -> State:
        """What the active attack uploads in place of `trained`, in rounds in which it may."""
        attack, site = self.site.attack, self.site
        if not self.task.craft or attack is None:
            return trained
        if self.task.branch == "zero":
            attack = attack.disarmed()
        turn = Turn(
            method=method.eval(),  # as it is read later
            received=self.received,
            trained=trained,
            targets=site.take(site.targets),
            held=site.take(site.held),
            number=self.task.turn,
            augment=registry.build("ssl", *site.ssl).augment,
            rng=self.stream("craft"),
        )
        return attack.craft(turn)

    def idle(self) -> SSLMethod:
        """A method on the received weights for a client that does not train: its negatives are
        keys of its own images."""
        method = self.site.method(self.task.client, len(self.indices))
        method.load_shared(self.received)
        method.begin_first_round()
        method.fill_bank(self.site.take(self.indices).to(self.site.device).float() / 255)
        return method

    def rehearse(self, positions: IntArray) -> State:
        """Weights after a first round on the client's images at `positions`; nothing is kept."""
        method = self.site.method(self.task.client, len(positions))
        local = Local(self.received, self.broadcast, {}, {}, _weights(method))
        method.load_shared(self.strategy.begin(local))
        method.begin_first_round()
        optimizer = make_optimizer(method, self.site.train)
        self._job(method, optimizer, self.images[positions], local).run()
        return method.shared_state()

    def _job(self, method: SSLMethod, optimizer: SGD, images: ByteArray, local: Local) -> Job:
        train = self.site.train
        steps = train.local_epochs * -(-len(images) // train.batch_size)

        def after_backward() -> None:
            local.reach += optimizer.param_groups[0]["lr"] / (1 - train.momentum)
            self.strategy.after_backward(local)

        return Job(
            method=method,
            optimizer=optimizer,
            images=images,
            augment=registry.build("ssl", *self.site.ssl).augment,
            train=train,
            rng=self.stream("train"),
            step=(self.task.round - 1) * steps,
            total_steps=self.site.total_rounds * steps,
            device=torch.device(self.site.device),
            after_backward=after_backward,
            stop=self.site.stopped,
        )

    def _own(self, prefix: str) -> State:
        """Kept tensors whose names begin with `prefix`, without it."""
        kept = self.kept.tensors.items() if self.kept else ()
        return {
            n.removeprefix(prefix): t.to(self.site.device) for n, t in kept if n.startswith(prefix)
        }

    def _restore(self, method: SSLMethod, optimizer: SGD) -> None:
        """Go on where the last round ended."""
        if self.kept is None:
            method.begin_first_round()
            return
        method.load_local(self._own("local."))
        method.begin_round()
        if running := self._own("running."):
            method.load_shared(method.shared_state() | running)
        momentum = self._own("momentum.")
        for i, weight in enumerate(method.trainable()):
            if str(i) in momentum:
                optimizer.state[weight]["momentum_buffer"] = momentum[str(i)].clone()

    def _resumed(self, method: SSLMethod, optimizer: SGD) -> State:
        """What `_restore` takes up in the next round, by name."""
        tensors = {f"local.{n}": t for n, t in method.local_state().items()}
        if self.site.train.optimizer_state == "keep":
            for i, weight in enumerate(method.trainable()):
                kept = optimizer.state.get(weight, {}).get("momentum_buffer")
                if kept is not None:
                    tensors[f"momentum.{i}"] = kept.detach()
        return tensors


def _weights(method: SSLMethod) -> dict[str, nn.Parameter]:
    return dict(zip(method.shared_parameters(), method.trainable(), strict=True))
