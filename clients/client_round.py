"""One client at work in one round."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch.optim import Optimizer

from clients.client_context import ClientContext, RoundTask
from fedmia.data.images import IntArray
from fedmia.defenses.base import Metrics, PreparationContext
from fedmia.options import registry
from fedmia.options.seeding import rng, root
from fedmia.ssl.base import SSLMethod, State, under
from fedmia.ssl.optimizers import held, restore
from fedmia.ssl.train import Job
from fedmia.storage.snapshot import ClientState, StateStore, StrategyContext, Update
from fedmia.threat import WhiteBox

GUESSES = 8  # of honest clients' uploads at most, by an attacker who knows the server's rule


@dataclass
class ClientRound:
    """A client in a round: its images, its method, its memory, its upload."""

    client_context: ClientContext
    store: StateStore
    task: RoundTask
    received: State
    broadcast: State = field(default_factory=dict)

    def __post_init__(self) -> None:
        client_context, task = self.client_context, self.task
        self.indices = client_context.branch_parts(task.branch)[task.client]
        self.kept = self.store.load(task.branch, task.client)
        self.memory: dict[str, Any] = dict(self.kept.memory) if self.kept else {}
        self.strategy = registry.build("strategy", *client_context.strategy)
        self.defense = client_context.build_defenses(task.client)
        self._root = root(client_context.noise_source, client_context.seed)
        self._trained: tuple[StrategyContext, State, State] | None = None
        self._job_done: Job | None = None
        self._crafted = False
        self._guesses: list[State] | None = None

    def stream(self, name: str) -> np.random.Generator:
        """Randomness of (seed, round, partition), by name; unseeded, of this desk alone."""
        return rng(self._root, name, self.task.round, self.task.client)

    def train(self) -> tuple[State, Metrics, SSLMethod]:
        """Local epochs from where the strategy starts: what may leave, metrics, the method."""
        pair = self._taken()
        job, local = self._job(self.indices, self._own("strategy."), self.memory, pair)
        method = job.method
        self._restore(method, job.optimizer)
        if self.defense and self.kept is None:
            self.defense.prepare(self._outlook(), self._defended)
        metrics = self.defense.train(job, self._defended)
        state = method.shared_state()
        trained = {n: t for n, t in state.items() if self.client_context.is_shared(n)}
        staying = {f"running.{n}": t for n, t in state.items() if n not in trained}
        self._trained = local, trained, staying | self._resumed(method, job.optimizer)
        self._job_done = job
        return trained, metrics, method

    def release(self, trained: State) -> tuple[State, Metrics]:
        """What the client's defences let out of the weights that it trained, and metrics."""
        stream = self.stream("release")
        return self.defense.release(self.received, trained, self._defended, stream)

    @property
    def sits_out(self) -> bool:
        """Whether a defence has the client sit out the round."""
        return self.defense.sits_out(self._defended)

    @property
    def _defended(self) -> dict[str, Any]:
        """What the client's defences keep, by name."""
        held: dict[str, Any] = self.memory.setdefault("defense", {}) if self.defense else {}
        return held

    def _outlook(self) -> PreparationContext:
        """What the client's defences know before its first round."""
        client_context, public = (
            self.client_context,
            self.client_context.images[self.client_context.public],
        )
        stream = self.stream("prepare")
        rehearse_public = self.rehearse_public if len(public) else None
        return PreparationContext(
            client_context.total_rounds, len(self.indices), self.rehearse, stream, public,
            rehearse_public,
            self.rehearse_alone,
        )  # fmt: skip

    def finish_round(self, state: State, metrics: Metrics) -> Update:
        """The upload of `state`, less what never leaves; the local state is stored, and the method
        that trained is the next client's of this thread.

        It rests on no image if the client neither trained nor crafted.
        """
        sent = {n: t for n, t in state.items() if self.client_context.is_shared(n)}
        told = self.defense.leaving_metrics(metrics)
        works, tensors = self._trained is not None or self._crafted, self._before
        if self._trained is not None:
            local, trained, staying = self._trained
            told |= self.strategy.finish(local, trained, sent)
            staying |= {f"strategy.{n}": t for n, t in local.kept.items()}
            if all(bool(t.isfinite().all()) for t in staying.values()):  # else as if it had rested
                tensors = staying
        if works:
            kept = ClientState(tensors, self.memory)
            self.store.save(self.task.branch, self.task.client, kept)
        changed = self._crafted or self.defense.adapts  # perhaps, by an attack or a defence
        if self._job_done is not None and not changed:
            self.client_context.method_cache.give(self._job_done.method, self._job_done.optimizer)
        images = len(self.indices) if works else 0
        return Update(self.task.client, self.task.round, sent, images, told)

    @property
    def crafts(self) -> bool:
        """Whether an active attack may craft this round's upload."""
        return self.task.craft and self.client_context.attack is not None

    def craft(self, method: SSLMethod, trained: State, batch: IntArray | None = None) -> State:
        """What the active attack uploads in place of `trained`, in a round in which it may.

        Args:
            batch: positions among the targets that have the round to themselves; of each such
                round nothing is kept but the attack's choice.
        """
        attack, client_context = self.client_context.attack, self.client_context
        assert attack is not None
        if self.task.branch == "zero":
            attack = attack.disarmed()
        notes = self.memory.setdefault("attack", {})
        number = notes.setdefault("turn", 0)
        method.eval()  # as it is read later
        stream, tuning = self.stream("craft"), None
        if attack.together:
            stream = rng(client_context.seed, "craft", self.task.round, client_context.fellows[0])
        if batch is not None:  # by content: no batch knows of another
            digest = hashlib.sha256(
                client_context.images[client_context.targets[batch]].tobytes()
            ).hexdigest()
            stream = rng(client_context.seed, "craft-batch", self.task.round, digest)
            tuning = self.stream("tune")  # whichever batch is the first
        turn = client_context.craft_context(
            method, self.received, trained, number, notes, stream, round=self.task.round,
            batch=batch, tuning=tuning, passing=self._passing, rehearse=self._rehearse_round,
        )  # fmt: skip
        crafted = attack.craft(turn)
        if batch is None:
            notes["turn"] += 1
            self._crafted = True
        return crafted

    def _rehearse_round(self, start: State) -> State:
        """The mean of what honest clients would send back for `start`, as guessed from trainings on
        the attacker's own images and the known members, dealt to clients as large as its own.

        Each begins anew: with the attacker's momentum and queue they would all train on its images.
        """
        client_context, holder = self.client_context, self.client_context.fellows[0]
        own, stream = (
            client_context.branch_parts(self.task.branch)[holder],
            rng(client_context.seed, "rehearse", holder),
        )
        pool = stream.permutation(np.concatenate([own, client_context.known[0]]))
        honest = max(1, round(1 / client_context.share) - len(client_context.fellows))
        parts = np.array_split(pool, min(honest, max(1, len(pool) // max(1, len(own)))))
        sent = []
        for part in parts:
            job, _ = self._job(part, {}, {}, start=start)
            job.method.begin_first_round()
            job.run()
            sent.append(job.method.shared_state())
        return {name: torch.stack([one[name] for one in sent]).mean(dim=0) for name in start}

    def _passing(self, crafted: State) -> State:
        """What the server would let through that is nearest to `crafted`. The honest clients, or
        GUESSES of them, are guessed to send what trainings on random draws of the attacker's own
        images give, from a few of them to as many as it has."""
        strategy, client_context, fellows = (
            self.strategy,
            self.client_context,
            len(self.client_context.fellows),
        )
        if self._guesses is None:
            draw = rng(client_context.seed, "guess", self.task.round, client_context.fellows[0])
            pool = client_context.branch_parts(self.task.branch)[client_context.fellows[0]]
            honest = max(2, round(1 / client_context.share) - fellows)
            count = min(GUESSES, honest) if strategy.compares else 0
            sizes = [max(1, len(pool) * (i + 1) // count) for i in range(count)]
            self._guesses = [self._guess(draw.choice(pool, size)) for size in sizes]
        told = self.broadcast
        passed: State = strategy.passing(self.received, crafted, told, self._guesses, fellows)
        return passed

    def _guess(self, indices: IntArray) -> State:
        """Weights after training on the images at `indices` from where this client's own left its
        queue and momenta; nothing is kept."""
        job, _ = self._job(indices, {}, copy.deepcopy(self.memory))
        self._restore(job.method, job.optimizer)
        job.run()
        return job.method.shared_state()

    def idle(self) -> SSLMethod:
        """A method on the received weights for a client that does not train: its bank as its last
        training left it, or, before any, keys of its own images."""
        method = self.client_context.method(self.task.client, len(self.indices))
        method.load_shared(self.received)
        if local := self._own("local."):
            method.load_local(local)
        else:
            method.begin_first_round()
            method.fill_bank(self.client_context.pixels(self.indices))
        return method

    def rehearse(self, positions: IntArray) -> State:
        """Weights after a first round on the client's images at `positions`; nothing is kept."""
        return self._rehearsed(self.indices[positions])

    def rehearse_public(self) -> tuple[State, State]:
        """Weights received, and after a first round on as many public images; nothing is kept."""
        return self.received, self._rehearsed(
            np.resize(self.client_context.public, len(self.indices))
        )

    def _rehearsed(self, indices: IntArray) -> State:
        job, _ = self._job(indices, {}, {})
        job.method.begin_first_round()
        self.defense.adapt(job, copy.deepcopy(self._defended))
        job.run()
        return job.method.shared_state()

    def rehearse_alone(
        self, positions: IntArray, change: Callable[[Job], None]
    ) -> Iterator[WhiteBox]:
        """All rounds of a federation of one on public images; see `Outlook`.

        Nothing that rests on anybody's images goes in: it starts from the run's first weights.
        """
        client_context, images = (
            self.client_context,
            self.client_context.images[self.client_context.public[positions]],
        )
        method, optimizer = client_context.method(self.task.client, len(images)), None
        method.load_shared(client_context.method(-1, None).shared_state())
        method.begin_first_round()
        memory = copy.deepcopy(self._defended)
        for round in range(1, client_context.total_rounds + 1):
            if round > 1:
                method.begin_round()
            stream = rng(self._root, "rehearse", round, self.task.client)
            job = client_context.job(method, images, round, stream, optimizer=optimizer)
            optimizer = job.optimizer if client_context.train.optimizer_state == "keep" else None
            recipe = job.augment
            change(job)
            self.defense.train(job, memory)
            held = torch.from_numpy(images)
            yield WhiteBox(method, recipe, seed=client_context.seed, device=job.device, held=held)

    def _taken(self) -> tuple[SSLMethod, Optimizer] | None:
        """What this thread keeps, if the client can go on with it: its own state is set
        afterwards, or, in its first round, the method becomes as one that is built for it."""
        pair = self.client_context.method_cache.take()
        if pair is None or self._before:
            return pair
        anew = self.kept is None and self.client_context.renew(
            pair[0], self.task.client, len(self.indices)
        )
        return pair if anew else None

    def _job(
        self, indices: IntArray, kept: State, memory: dict[str, Any],
        pair: tuple[SSLMethod, Optimizer] | None = None, start: State | None = None,
    ) -> tuple[Job, StrategyContext]:  # fmt: skip
        """This round's training on the images at `indices`, from where the strategy starts.

        Args:
            pair: a method and its optimizer; else both are built, with the client's first weights.
            start: in place of the weights received.
        """
        client_context = self.client_context
        method, optimizer = pair or (client_context.method(self.task.client, len(indices)), None)
        weights = dict(zip(method.shared_parameters(), method.trainable(), strict=True))
        received = self.received if start is None else start
        local = StrategyContext(received, self.broadcast, kept, memory, weights)
        method.load_shared(self.strategy.begin(local))
        task = self.task
        stream = self.stream("train")
        images = client_context.images[indices]
        job = client_context.job(method, images, task.round, stream, task.craft, optimizer)

        job.after_backward = after_each(
            job.optimizer, client_context.train.momentum, local, self.strategy.after_backward
        )
        return job, local

    @property
    def _before(self) -> State:
        """Tensors that the client kept from before this round."""
        return self.kept.tensors if self.kept else {}

    def _own(self, prefix: str) -> State:
        """Those whose names begin with `prefix`, without it."""
        return {n: t.to(self.client_context.device) for n, t in under(prefix, self._before).items()}

    def _restore(self, method: SSLMethod, optimizer: Optimizer) -> None:
        """Go on where the last round ended."""
        if not self._before:
            method.begin_first_round()
            return
        method.load_local(self._own("local."))
        method.begin_round()
        if running := self._own("running."):
            method.load_shared(method.shared_state() | running)
        restore(optimizer, method.trainable(), self._own("optimizer."))

    def _resumed(self, method: SSLMethod, optimizer: Optimizer) -> State:
        """What `_restore` takes up in the next round, by name."""
        tensors = {f"local.{n}": t for n, t in method.local_state().items()}
        if self.client_context.train.optimizer_state == "keep":
            kept = held(optimizer, method.trainable())
            tensors |= {f"optimizer.{n}": t for n, t in kept.items()}
        return tensors


def after_each(
    optimizer: Optimizer,
    momentum: float,
    local: StrategyContext,
    then: Callable[[StrategyContext], None],
) -> Callable[[], None]:
    """What a job does after each backward pass. It knows neither the job nor the desk: in a circle
    of references a client's weights would stay until Python looks for such, gigabytes later."""

    def after_backward() -> None:
        local.reach += optimizer.param_groups[0]["lr"] / (1 - momentum)
        then(local)

    return after_backward
