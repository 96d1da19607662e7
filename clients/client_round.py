"""One client at work in one round."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Iterator, Mapping
from threading import Event
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.optim import Optimizer

from clients.client_setup import ClientSetup, ClientTask
from clients.local_state import begin_training, end_training
from fedmia.data.images import IntArray
from fedmia.defenses.base import Metrics, Preparation
from fedmia.recording.branches import BRANCHES
from fedmia.seeding import rng, root
from fedmia.ssl.base import SSLMethod, State, all_finite, on_device, under
from fedmia.ssl.train import Job
from fedmia.storage.snapshot import ClientState, ExpectedRound, LocalTraining, Update
from fedmia.threat import WhiteBox

GUESSES = 8  # of honest clients' uploads at most, by an attacker who knows the server's rule


class ClientRound:
    """One client at work in one round: its images, its method, its state, its upload.

    A role calls `train`, which is `init` and the steps, or crafts an upload, or neither; `final`
    ends the round. Nothing is stored here: the client changes nothing of what it kept, and whoever
    executes the round keeps what `final` gives.

    Args:
        client_setup: what all clients of the run share.
        local_state: what the client keeps from before this round; None before its first.
        task: the order of this round.
        received: global weights of the round.
        broadcast: what the server sends beside the weights.
        halt: set when nobody waits for the client any more.
    """

    def __init__(
        self, client_setup: ClientSetup, local_state: ClientState | None, task: ClientTask,
        received: State, broadcast: State | None = None, halt: Event | None = None,
    ) -> None:  # fmt: skip
        self.client_setup, self.task, self.halt = client_setup, task, halt
        self._run = client_setup.experiment
        self.received = on_device(received, client_setup.device)
        self.broadcast = on_device(broadcast or {}, client_setup.device)
        self.indices = client_setup.branch_parts(task.branch)[task.client]
        self.first = local_state is None
        self.local_state = local_state or ClientState()
        self.memory = copy.deepcopy(self.local_state.memory)
        self.strategy = self._run.strategy.build("strategy")
        self.defense = client_setup.build_defenses(task.client)
        self._root = root(client_setup.noise_source, self._run.seed)
        self._local: LocalTraining | None = None
        self._job: Job | None = None
        self._trained: tuple[State, Mapping[str, Tensor]] | None = None
        self._crafted = False
        self._guesses: list[State] | None = None

    def stream(self, name: str) -> np.random.Generator:
        """Randomness of (seed, round, partition), by name; unseeded, of this round alone."""
        return rng(self._root, name, self.task.round, self.task.client)

    def init(self) -> Job:
        """The round's training, ready to run from the strategy's weights and its own state."""
        before, device = under("strategy.", self.local_state.tensors), self.client_setup.device
        own = {name: tensor.to(device, copy=True) for name, tensor in before.items()}
        self._local = LocalTraining(self.received, self.broadcast, own, self.memory, {})
        self._job = self._make_job(self.indices, self._local, self._take_cached())
        begin_training(self._job, self.local_state.tensors)
        if self.defense and self.first:
            self.defense.prepare(self.preparation(), self._defense_memory)
        return self._job

    def train(self) -> tuple[State, Metrics, SSLMethod]:
        """Train the local epochs, from the weights that the strategy chooses.

        Returns the weights that may leave the client, metrics, and the method.
        """
        job = self.init()
        metrics = self.defense.train(job, self._defense_memory)
        trained, staying = end_training(job, self.client_setup)
        self.note_trained(trained, staying)
        return trained, metrics, job.method

    def note_trained(self, trained: State, staying: Mapping[str, Tensor]) -> None:
        """Note what the client's training left, wherever it ran.

        Args:
            trained: weights that may leave the client.
            staying: tensors that stay with it.
        """
        self._trained = trained, staying

    def release(self, trained: State) -> tuple[State, Metrics]:
        """Pass the trained weights through the client's defences; what leaves, and metrics."""
        stream = self.stream("release")
        return self.defense.release(self.received, trained, self._defense_memory, stream)

    @property
    def sits_out(self) -> bool:
        """Whether a defence lets the client sit out the round."""
        return self.defense.sits_out(self._defense_memory)

    @property
    def _defense_memory(self) -> dict[str, Any]:
        """What the client's defences keep, by name."""
        return self.memory.setdefault("defense", {}) if self.defense else {}

    def preparation(self) -> Preparation:
        """What the client's defences know before its first round."""
        client_setup = self.client_setup
        public = client_setup.images[client_setup.public]
        stream = self.stream("prepare")
        rehearse_public = self.rehearse_public if len(public) else None
        return Preparation(
            self._run.federation.rounds, len(self.indices), self.rehearse, stream, public,
            rehearse_public, self.rehearse_alone,
        )  # fmt: skip

    def final(self, state: State, metrics: Metrics) -> tuple[Update, ClientState | None]:
        """Make the upload and the state to keep, and hand the method to the thread's next client.

        Tensors that never leave the client are cut from the upload. The upload depends on no image
        if the client neither trained nor crafted.

        Args:
            state: weights to upload.
            metrics: numbers that travel with the upload.

        Returns:
            What the client sends, and what it keeps; None: what it kept before.
        """
        sent = {n: t for n, t in state.items() if self.client_setup.is_shared(n)}
        leaving = self.defense.leaving_metrics(metrics)
        works, tensors = self._trained is not None or self._crafted, self.local_state.tensors
        if self._trained is not None:
            trained, staying = self._trained
            if self._local is not None:  # else of a stacked job: the strategy has no client's half
                leaving |= self.strategy.finish(self._local, trained, sent)
                own = {f"strategy.{n}": t for n, t in self._local.own_state.items()}
                staying = {**staying, **own}
                staying = staying if all_finite(staying.values()) else tensors
            tensors = staying
        changed = self._crafted or self.defense.adapts  # perhaps, by an attack or a defence
        if self._job is not None and not changed:
            self.client_setup.method_cache.give(self._job.method, self._job.optimizer)
        images = len(self.indices) if works else 0
        update = Update(self.task.client, self.task.round, sent, images, leaving)
        return update, ClientState(tensors, self.memory) if works else None

    @property
    def crafts(self) -> bool:
        """Whether an active attack may craft this round's upload."""
        return self.task.craft and self.client_setup.attack is not None

    def craft(self, method: SSLMethod, trained: State, batch: IntArray | None = None) -> State:
        """Let the active attack craft the upload, in a round in which it may.

        Args:
            method: the method that trained.
            trained: weights after local training.
            batch: positions among the targets that have the round to themselves; of each such round
                nothing is kept but the attack's choice.

        Returns:
            The crafted weights, or the nearest that the server's rule would let through.
        """
        attack, client_setup = self.client_setup.attack, self.client_setup
        assert attack is not None
        if not BRANCHES[self.task.branch].armed:
            attack = attack.disarmed()
        notes = self.memory.setdefault("attack", {})
        number = notes.setdefault("turn", 0)
        method.eval()  # as it is read later
        stream, tuning = self.stream("craft"), None
        if attack.together:
            stream = rng(self._run.seed, "craft", self.task.round, client_setup.fellows[0])
        if batch is not None:  # by content: no batch knows of another
            images = client_setup.images[client_setup.targets[batch]]
            digest = hashlib.sha256(images.tobytes()).hexdigest()
            stream = rng(self._run.seed, "craft-batch", self.task.round, digest)
            tuning = self.stream("tune")  # whichever batch is the first
        turn = client_setup.attack_turn(
            method, self.received, trained, number, notes, stream, round=self.task.round,
            batch=batch, tuning=tuning, passing=self._nearest_passing,
            rehearse=self._rehearse_round,
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
        client_setup, holder = self.client_setup, self.client_setup.fellows[0]
        own = client_setup.branch_parts(self.task.branch)[holder]
        stream = rng(self._run.seed, "rehearse", holder)
        pool = stream.permutation(np.concatenate([own, client_setup.known[0]]))
        honest = max(1, round(1 / client_setup.share) - len(client_setup.fellows))
        parts = np.array_split(pool, min(honest, max(1, len(pool) // max(1, len(own)))))
        sent = []
        for part in parts:
            job = self._make_job(part, self._local_anew(start))
            job.method.begin_first_round()
            job.run()
            sent.append(job.method.shared_state())
        return {name: torch.stack([one[name] for one in sent]).mean(dim=0) for name in start}

    def _nearest_passing(self, crafted: State) -> State:
        """What the server would let through that is nearest to `crafted`. The honest clients, or
        GUESSES of them, are guessed to send what trainings on random draws of the attacker's own
        images give, from a few of them to as many as it has."""
        strategy, client_setup = self.strategy, self.client_setup
        fellows = len(client_setup.fellows)
        if self._guesses is None:
            draw = rng(self._run.seed, "guess", self.task.round, client_setup.fellows[0])
            pool = client_setup.branch_parts(self.task.branch)[client_setup.fellows[0]]
            honest = max(2, round(1 / client_setup.share) - fellows)
            count = min(GUESSES, honest) if strategy.compares else 0
            sizes = [max(1, len(pool) * (i + 1) // count) for i in range(count)]
            self._guesses = [self._guess_upload(draw.choice(pool, size)) for size in sizes]
        expected = ExpectedRound(self.received, self.broadcast, self._guesses, fellows)
        return strategy.passing(crafted, expected)

    def _guess_upload(self, indices: IntArray) -> State:
        """Weights after training on the images at `indices` from where this client's own left its
        queue and momenta; nothing is kept."""
        memory = copy.deepcopy(self.memory)
        local = LocalTraining(self.received, self.broadcast, {}, memory, {})
        job = self._make_job(indices, local)
        begin_training(job, self.local_state.tensors)
        job.run()
        return job.method.shared_state()

    def idle(self) -> SSLMethod:
        """A method on the received weights, for a client that does not train.

        Its queue is that of the client's last training; before any, keys of the client's own
        images.
        """
        method = self.client_setup.method(self.task.client, len(self.indices))
        method.load_shared(self.received)
        if local := under("local.", self.local_state.tensors):
            method.load_local(on_device(local, self.client_setup.device))
        else:
            method.begin_first_round()
            method.fill_bank(self.client_setup.pixels(self.indices))
        return method

    def rehearse(self, positions: IntArray) -> State:
        """Weights after a first round on the client's images at `positions`. Nothing is kept."""
        return self._rehearse_images(self.indices[positions])

    def rehearse_public(self) -> tuple[State, State]:
        """Weights received, and weights after a first round on as many public images.

        Nothing is kept.
        """
        indices = np.resize(self.client_setup.public, len(self.indices))
        return self.received, self._rehearse_images(indices)

    def _rehearse_images(self, indices: IntArray) -> State:
        job = self._make_job(indices, self._local_anew(self.received))
        job.method.begin_first_round()
        self.defense.adapt(job, copy.deepcopy(self._defense_memory))
        job.run()
        return job.method.shared_state()

    def rehearse_alone(
        self, positions: IntArray, change: Callable[[Job], None]
    ) -> Iterator[WhiteBox]:
        """Simulate all rounds of a federation with one client, on public images.

        It starts from the run's first weights, so the result depends on no client's images. See
        `Preparation`.

        Args:
            positions: positions in the public images.
            change: changes each round's job before it trains.

        Yields:
            A view of the model after each round.
        """
        client_setup, run = self.client_setup, self._run
        images = client_setup.images[client_setup.public[positions]]
        method, optimizer = client_setup.method(self.task.client, len(images)), None
        method.load_shared(client_setup.method(-1, None).shared_state())
        method.begin_first_round()
        memory = copy.deepcopy(self._defense_memory)
        for round in range(1, run.federation.rounds + 1):
            if round > 1:
                method.begin_round()
            stream = rng(self._root, "rehearse", round, self.task.client)
            job = client_setup.job(
                method, images, round, stream, optimizer=optimizer, halt=self.halt
            )
            optimizer = job.optimizer if run.train.optimizer_state == "keep" else None
            augmentation = job.augment
            change(job)
            self.defense.train(job, memory)
            attacker_images = torch.from_numpy(images)
            yield WhiteBox(
                method, augmentation, seed=run.seed, device=job.device, held=attacker_images
            )

    def _take_cached(self) -> tuple[SSLMethod, Optimizer] | None:
        """What this thread keeps, if the client can go on with it: its own state is set
        afterwards, or, in its first round, the method becomes as one that is built for it."""
        pair = self.client_setup.method_cache.take()
        if pair is None or self.local_state.tensors:
            return pair
        anew = self.first and self.client_setup.renew(pair[0], self.task.client, len(self.indices))
        return pair if anew else None

    def _local_anew(self, start: State) -> LocalTraining:
        """The strategy's side of a client that has received `start` and keeps nothing."""
        return LocalTraining(start, self.broadcast, {}, {}, {})

    def _make_job(
        self, indices: IntArray, local: LocalTraining,
        pair: tuple[SSLMethod, Optimizer] | None = None,
    ) -> Job:  # fmt: skip
        """This round's training on the images at `indices`, from where the strategy starts.

        Args:
            local: the strategy's side of the client; is given the parameters.
            pair: a method and its optimizer; else both are built, with the client's first weights.
        """
        client_setup, task = self.client_setup, self.task
        method, optimizer = pair or (client_setup.method(task.client, len(indices)), None)
        local.weights = dict(zip(method.shared_parameters(), method.trainable(), strict=True))
        method.load_shared(self.strategy.begin(local))
        job = client_setup.job(
            method, client_setup.images[indices], task.round, self.stream("train"), task.craft,
            optimizer, self.halt,
        )  # fmt: skip
        momentum, hook = self._run.train.momentum, self.strategy.after_backward
        job.after_backward = make_backward_hook(job.optimizer, momentum, local, hook)
        return job


def make_backward_hook(
    optimizer: Optimizer,
    momentum: float,
    local: LocalTraining,
    then: Callable[[LocalTraining], None],
) -> Callable[[], None]:
    """What a job does after each backward pass.

    The hook refers neither to the job nor to the client's round. In a circle of references a
    client's weights would stay in memory until Python collects them, gigabytes later.

    Args:
        optimizer: the method's optimizer.
        momentum: momentum of SGD, in [0, 1).
        local: what the strategy knows on the client.
        then: the strategy's own hook.

    Returns:
        A hook without arguments.
    """

    def after_backward() -> None:
        local.reach += optimizer.param_groups[0]["lr"] / (1 - momentum)
        then(local)

    return after_backward
