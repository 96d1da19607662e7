"""One shadow encoder: trained from the beginning or from where it was interrupted."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from fedmia.data.images import ByteArray
from fedmia.seeding import rng
from fedmia.settings.errors import InputError
from fedmia.shadows.cache import PROGRESS, DamagedShadowError, ShadowFolder
from fedmia.shadows.plan import ShadowDefense, ShadowSettings
from fedmia.ssl.base import SSLMethod, State
from fedmia.ssl.progress import load_training, training_state
from fedmia.ssl.train import Job, make_optimizer
from fedmia.untrusted.text import parse_json

Say = Callable[[str], None]  # takes a line for the user
CUT = "the audit was interrupted before it was done"


class TrainingStopped(Exception):
    """Training was interrupted; what is in the cache is not lost."""


@dataclass(frozen=True)
class TrainedShadow:
    """A finished shadow encoder, on the CPU and in evaluation mode.

    Attributes:
        method: with its own queue or bank.
        members, nonmembers: uint8 (M, C, H, W), disjoint.
        name: `shadow-0`, ..
        defense: what it was trained under: a text each, the name first.
        key: SHA-256 of all that decides its bits; empty where it is kept nowhere.
    """

    method: SSLMethod
    members: Tensor
    nonmembers: Tensor
    name: str
    defense: tuple[str, ...] = ()
    key: str = ""


class ShadowTraining:
    """One shadow to be trained, or that was.

    Args:
        settings: of all shadows.
        index: its number.
        members, nonmembers: uint8 (M, C, H, W).
        folder: where it is kept, or None.
        guard: what it is trained under, or None; an epoch is a round of it.
    """

    def __init__(
        self, settings: ShadowSettings, index: int, members: ByteArray, nonmembers: ByteArray,
        folder: ShadowFolder | None, guard: ShadowDefense | None = None,
    ) -> None:  # fmt: skip
        self.settings, self.index = settings, index
        self.members, self.nonmembers = members, nonmembers
        self.folder, self.guard = folder, guard
        self.name = f"shadow-{index}"

    def read_cached(self, file: str, say: Say) -> State | None:
        """What the cache has of it in `file`, None where that is nothing or damaged."""
        if self.folder is None:
            return None
        try:
            return self.folder.read(file)
        except DamagedShadowError as error:
            say(f"{self.name}: {error} in {self.folder.path} is damaged, training it again")
            return None

    def train(
        self,
        device: torch.device,
        every: int,
        say: Say,
        count: Callable[[int], None],
        stopped: Callable[[], bool],
    ) -> State:
        """Train it from the beginning or from its progress; its tensors.

        An epoch has a random stream of its own, so a resumed one draws what it would have drawn.

        Args:
            every: epochs between two writings of its progress.
            count: takes a number of epochs that are done.
            stopped: once it says so, it keeps saying so.

        Raises:
            TrainingStopped: `stopped` returned True.
            InputError: training diverged.
        """
        settings, folder, guard = self.settings, self.folder, self.guard
        method = settings.method(self.index, len(self.members)).to(device)
        optimizer = make_optimizer(method, settings.train)
        first, memory = self._resume(method, optimizer, say)
        count(first)
        for epoch in range(first, settings.epochs):
            if guard is not None and guard.sits_out(memory):
                count(settings.epochs - epoch)
                break
            job = self.job(device, method, optimizer, epoch, stopped)
            loss = (guard.train(job, memory) if guard is not None else job.run())["loss"]
            if stopped():
                raise TrainingStopped(CUT)
            if not math.isfinite(loss):
                raise InputError(
                    f"{self.name} diverged in epoch {epoch + 1} (its loss is {loss}); give a lower "
                    f"learning rate than {settings.train.lr}"
                )
            count(1)
            if folder is not None and (epoch + 1) % every == 0 and epoch + 1 < settings.epochs:
                about = {"epoch": torch.tensor(epoch + 1)}
                if memory:
                    about["memory"] = torch.frombuffer(
                        bytearray(json.dumps(memory).encode()), dtype=torch.uint8
                    )
                folder.write(PROGRESS, training_state(method, optimizer) | about)
        state = {n: t.cpu().contiguous() for n, t in training_state(method).items()}
        if folder is not None:
            folder.finish(state, self.members, self.nonmembers)
        return state

    def job(
        self, device: torch.device, method: SSLMethod, optimizer: Optimizer | None = None,
        epoch: int = 0, stopped: Callable[[], bool] = lambda: False,
    ) -> Job:  # fmt: skip
        """The training of one epoch.

        Args:
            device: where it trains.
            method: what is trained; changes in place.
            optimizer: of the method; None: a new one.
            epoch: its number, from 0.
            stopped: asked before each step.

        Returns:
            A job that is ready to run.
        """
        settings, train = self.settings, self.settings.train
        steps = -(-len(self.members) // train.batch_size)
        return Job(
            method=method,
            optimizer=optimizer or make_optimizer(method, train),
            images=self.members,
            augment=settings.spec.augment,
            train=train,
            rng=rng(settings.seed, "shadow", self.index, epoch),
            step=epoch * steps,
            total_steps=settings.epochs * steps,
            device=device,
            stop=stopped,
        )

    def _resume(
        self, method: SSLMethod, optimizer: torch.optim.Optimizer, say: Say
    ) -> tuple[int, dict[str, Any]]:
        """Load its progress, or begin as a client begins its first round; epochs done, and the
        defences' memory."""
        progress = self.read_cached(PROGRESS, say)
        if progress is None:
            method.begin_first_round()
            return 0, {}
        load_training(method, progress, optimizer)
        memory = parse_json(bytes(progress["memory"].tolist())) if "memory" in progress else {}
        return int(progress["epoch"]), memory

    def finish(self, state: State) -> TrainedShadow:
        """The shadow with the finished weights `state` (`shared.*`, `local.*`)."""
        method = self.settings.method(self.index, len(self.members))
        load_training(method, state)
        return TrainedShadow(
            method.eval(),
            torch.from_numpy(self.members),
            torch.from_numpy(self.nonmembers),
            self.name,
            self.settings.under,
            "" if self.folder is None else self.folder.key,
        )
