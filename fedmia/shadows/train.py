"""Train a plan's shadow encoders, several side by side, and keep what is finished."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path

import numpy as np
import torch

from fedmia.data.images import IntArray
from fedmia.records.note import Note
from fedmia.runtime.cores import count_cores
from fedmia.settings.errors import InputError
from fedmia.shadows._one import CUT, ShadowTraining, TrainedShadow, TrainingStopped
from fedmia.shadows.cache import ENCODER, ShadowFolder, describe_shadow, key_of
from fedmia.shadows.draw import ImagePool, Pixels, as_bytes, content_digest
from fedmia.shadows.plan import (
    ShadowDefense,
    ShadowPlan,
    ShadowSettings,
    TargetTraining,
    build_settings,
)
from fedmia.ssl.base import State
from fedmia.ssl.footprint import training_bytes

__all__ = [
    "CUT", "TrainedShadow", "TrainingStopped", "shadow_bytes", "shadow_notes", "train_shadows",
]  # fmt: skip

SAVES = 10  # of a shadow's progress, in all its epochs


def train_shadows(
    plan: ShadowPlan,
    target: TargetTraining,
    pool: Pixels,
    candidates: Pixels | None,
    subjects: IntArray | None = None,
    *,
    device: torch.device,
    cache: Path | None = None,
    say: Callable[[str], None] = lambda line: None,
    progress: Callable[[int, int], None] | None = None,
    stop: Callable[[], bool] = lambda: False,
    workers: int | None = None,
) -> list[TrainedShadow]:
    """The plan's shadow encoders, from the cache where it has them, else trained.

    On a CPU each has one thread of torch; the bits depend neither on how many shadows are trained
    side by side nor on interruptions.

    Args:
        plan: what the attacker knows and chooses.
        target: what there is to know of the target's training.
        pool: uint8 (N, C, H, W), the attacker's shadow images.
        candidates: uint8 (M, C, H, W), the images under attack: kept out of every shadow, or
            (`online`) put into half of them.
        subjects: of pool and candidates `(N + M,)`, such as patients, which are drawn whole; None:
            each image is its own.
        device: where the shadows train.
        cache: folder of finished and of unfinished shadows, or None to keep nothing.
        say: takes a line for the user.
        progress: takes the epochs done and to do, over all shadows; called from any thread.
        stop: asked before each step, from any thread.
        workers: shadows side by side (none: as many as there are cores; one on a GPU).

    Returns:
        the shadows in the plan's order.

    Raises:
        InputError: too few images, an unknown plugin, claimed knowledge that `target` lacks, images
            that do not fit the encoder, a learning rate at which training diverges.
        TrainingStopped: `stop` said so.
    """
    settings = build_settings(plan, target)
    ground = ImagePool(pool, candidates, subjects)
    shadows = _trainings(plan, target.guard, settings, ground, pool, candidates, device, cache)
    if ground.attacked and not plan.online:
        say(f"shadow images: {ground.attacked} left out, as they are among those under attack")
    if ground.repeated:
        say(f"shadow images: {ground.repeated} left out, as they repeat another")
    done: dict[int, State] = {}
    for s in shadows:
        if (state := s.read_cached(ENCODER, say)) is not None and s.folder is not None:
            s.folder.describe(s.members, s.nonmembers)
            done[s.index] = state
    if done:
        say(f"{len(done)} of {len(shadows)} shadow encoders found in the cache")
    counter = _Counter(progress, plan.epochs * len(done), plan.epochs * len(shadows))
    halt = threading.Event()

    def stopped() -> bool:
        if not halt.is_set() and stop():
            halt.set()  # all threads see the same answer from here on
        return halt.is_set()

    every = math.ceil(plan.epochs / SAVES)
    if workers is None:
        workers = 1 if device.type != "cpu" else count_cores()
    threadpool = ThreadPoolExecutor(workers, "shadow", torch.set_num_threads, (1,))
    try:
        running = {
            s.index: threadpool.submit(s.train, device, every, say, counter.add, stopped)
            for s in shadows
            if s.index not in done
        }
        for future in wait(running.values(), return_when=FIRST_EXCEPTION).done:
            future.result()  # raises what one of them raised
        done |= {index: future.result() for index, future in running.items()}
    finally:  # an error or Ctrl-C ends the others at their next step
        halt.set()
        threadpool.shutdown(wait=True, cancel_futures=True)
    return [s.finish(done[s.index]) for s in shadows]


def shadow_notes(
    plan: ShadowPlan, target: TargetTraining, pool: Pixels, candidates: Pixels | None,
    subjects: IntArray | None = None,
) -> list[Note]:  # fmt: skip
    """What the reader should know of how the plan's shadows are trained, as of a queue that is cut;
    arguments and errors as of `train_shadows`, which trains them.

    Args:
        plan: what the attacker knows and chooses.
        target: what there is to know of the target's training.
        pool: the attacker's shadow images, uint8 (N, C, H, W).
        candidates: the images under attack, uint8 (M, C, H, W), or None.
        subjects: as of `train_shadows`.

    Returns:
        The notes, possibly none.
    """
    members = ImagePool(pool, candidates, subjects).draw(plan)[0][0]
    notes = build_settings(plan, target).spec.notes(len(members))
    return [Note("shadow-training", {"note": one}) for one in notes]


def shadow_bytes(
    plan: ShadowPlan, target: TargetTraining, pool: Pixels, candidates: Pixels | None,
    subjects: IntArray | None, device: torch.device,
) -> dict[str, int]:  # fmt: skip
    """Bytes of one of the plan's shadows in training, by part; arguments and errors as of
    `train_shadows`, which trains them.

    Args:
        plan: what the attacker knows and chooses.
        target: what there is to know of the target's training.
        pool: the attacker's shadow images, uint8 (N, C, H, W).
        candidates: the images under attack, uint8 (M, C, H, W), or None.
        subjects: as of `train_shadows`.
        device: where the shadows train.

    Returns:
        As `fedmia.ssl.footprint.training_bytes`; its `images` are members and non-members.
    """
    settings = build_settings(plan, target)
    one = _trainings(
        plan, None, settings, ImagePool(pool, candidates, subjects), pool, candidates, device, None
    )[0]
    parts = training_bytes(one.job(device, settings.method(0, len(one.members)).to(device)))
    return {**parts, "images": one.members.nbytes + one.nonmembers.nbytes}


def _trainings(
    plan: ShadowPlan,
    guard: ShadowDefense | None,
    settings: ShadowSettings,
    ground: ImagePool,
    pool: Pixels,
    candidates: Pixels | None,
    device: torch.device,
    cache: Path | None,
) -> list[ShadowTraining]:
    images = as_bytes(pool, "shadow images")
    if images.shape[1:] != (settings.channels, settings.size, settings.size):
        raise InputError(
            f"shadow images are {images.shape[1:]}, the target takes "
            f"{(settings.channels, settings.size, settings.size)}"
        )
    if plan.online and candidates is not None:
        images = np.concatenate([images, as_bytes(candidates, "images under attack")])
    trainings = []
    for index, (inside, outside) in enumerate(ground.draw(plan)):
        folder, members, nonmembers = None, images[inside], images[outside]
        if cache is not None:
            content = content_digest(members, nonmembers)
            description = describe_shadow(settings, index, content, device)
            folder = ShadowFolder(cache / key_of(description), description)
        trainings.append(ShadowTraining(settings, index, members, nonmembers, folder, guard))
    # What cannot be built says so before anything trains.
    settings.method(0, len(trainings[0].members))
    return trainings


class _Counter:
    """Epochs done, counted from several threads."""

    def __init__(self, report: Callable[[int, int], None] | None, done: int, total: int) -> None:
        self._report, self._done, self._total = report, done, total
        self._lock = threading.Lock()
        self.add(0)

    def add(self, epochs: int) -> None:
        with self._lock:
            self._done += epochs
            if self._report is not None:
                self._report(self._done, self._total)
