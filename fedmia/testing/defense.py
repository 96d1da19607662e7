"""What every defence promises, as functions: `check_defense` runs them all."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable
from typing import Any

from fedmia.defenses.base import Defense, Outlook
from fedmia.errors import InputError
from fedmia.results import Epsilon
from fedmia.seeding import rng
from fedmia.ssl.augment import Augment
from fedmia.ssl.base import State
from fedmia.ssl.train import Job, Train, make_optimizer
from fedmia.testing.material import (
    CPU,
    changed,
    global_seed,
    instance,
    renewed,
    run,
    sentence,
    small_moco,
    textures,
)

# Options at which a defence does nothing, where it has them: no noise, and nothing to clip.
STRENGTHS = {"scale": 0.0, "sigma": 0.0, "noise_multiplier": 0.0}
OFF = STRENGTHS | {"epsilon": None, "clip": 1e6, "max_grad_norm": 1e6}
ROUNDS = 2


class DefenseCase:
    """A defence, and what its checks are made of: a job of few steps, received weights.

    Args:
        defense: a class, taken with its defaults, or an instance, as it is.
    """

    def __init__(self, defense: Defense | type[Defense]) -> None:
        self.defense: Defense = instance(defense)
        self.cls, self.name = type(self.defense), type(self.defense).__name__
        self.received = small_moco().shared_state()

    def job(self) -> Job:
        """Six steps of a tiny MoCo on ten images; the last batch of an epoch is short."""
        train, method = Train(local_epochs=2, batch_size=4), small_moco(images=10)
        return Job(
            method=method, optimizer=make_optimizer(method, train), images=textures(10).numpy(),
            augment=Augment(), train=train, rng=rng(0, "job"), step=0, total_steps=12, device=CPU,
        )  # fmt: skip

    def rehearse(self, positions: Any) -> State:
        """Weights that depend on which images are trained on."""
        return {n: t + 0.01 * float(positions.sum()) for n, t in self.received.items()}

    def rounds(self, count: int = ROUNDS) -> tuple[State, dict[str, Any], list[dict[str, float]]]:
        """What leaves after `count` rounds, the memory of them, and the metrics of each hook."""
        memory: dict[str, Any] = {}
        outlook = Outlook(ROUNDS, 10, self.rehearse, rng(0, "outlook"))
        self.defense.prepare(outlook, memory)
        released, metrics = self.received, []
        for turn in range(count):
            job = self.job()
            metrics.append(self.defense.train(job, memory))
            trained, stream = job.method.shared_state(), rng(0, "release", turn)
            released, more = self.defense.release(self.received, trained, memory, stream)
            metrics.append(more)
        return released, memory, metrics


def check_refuses_with_a_reason_only(case: DefenseCase) -> None:
    """By InputError, and never group norm with uncoupled losses."""
    for norm in ("group", "batch", "local"):
        for coupled in (False, True):
            try:
                case.defense.check(norm=norm, coupled=coupled)
            except InputError as error:
                text = f"{case.name}.check refuses even group norm and uncoupled losses: {error}"
                sentence(norm != "group" or coupled, text)


def release_keeps_its_input_and_its_form(case: DefenseCase) -> None:
    """New tensors of the same names, shapes and types."""
    memory: dict[str, Any] = {}
    case.defense.prepare(Outlook(ROUNDS, 10, case.rehearse, rng(0, "outlook")), memory)
    received = case.received
    trained = {n: t + 0.01 for n, t in received.items()}
    kept = [{n: t.clone() for n, t in s.items()} for s in (received, trained)]
    released, metrics = case.defense.release(received, trained, memory, rng(0, "release"))
    for what, before, after in zip(("received", "trained"), kept, (received, trained), strict=True):
        wrong = changed(before, after)
        sentence(wrong is None, f"{case.name}: release changes the {what} {wrong} in place")
    sentence(released.keys() == trained.keys(), f"{case.name}: release drops or adds tensors")
    for n, t in released.items():
        right = t.shape == trained[n].shape and t.dtype == trained[n].dtype
        sentence(right and t.isfinite().all(), f"{case.name}: the released {n} is of another form")
    numbers = all(isinstance(v, float) for v in metrics.values())
    sentence(numbers, f"{case.name}: metrics of release must be floats, got {metrics}")


def zero_strength_is_the_identity(case: DefenseCase) -> None:
    """For defences with one of the options in STRENGTHS."""
    own = {f.name for f in dataclasses.fields(case.cls)}  # type: ignore[arg-type]
    if not own & set(STRENGTHS):
        return
    off: Defense = renewed(case.defense, **OFF)
    trained = {n: t + 0.01 for n, t in case.received.items()}
    memory = DefenseCase(off).rounds()[1]
    wrong = changed(trained, off.release(case.received, trained, memory, rng(0))[0])
    text = f"{case.name}: at zero strength release is not the identity: {wrong} differs"
    sentence(wrong is None, text)
    found = off.privacy(memory)
    sentence(found is None or found.value is None, f"{case.name}: zero strength promises privacy")


def rounds_repeat_with_the_seed(case: DefenseCase) -> None:
    """To the bit, whatever the global generators hold."""
    runs = []
    for seed in (1, 1, 2):
        with global_seed(seed):
            runs.append(case.rounds()[0])
    wrong = changed(runs[0], runs[1])
    sentence(wrong is None, f"{case.name}: two runs with one seed release a different {wrong}")
    wrong = changed(runs[0], runs[2])
    sentence(wrong is None, f"{case.name} draws from the global random generators")


def training_tells_a_finite_loss(case: DefenseCase) -> None:
    """And moves the weights and the step, not the images."""
    job = case.job()
    images, memory = job.images.copy(), dict[str, Any]()
    case.defense.prepare(Outlook(ROUNDS, 10, case.rehearse, rng(0, "outlook")), memory)
    before, metrics = job.method.shared_state(), case.defense.train(job, memory)
    sentence(math.isfinite(metrics.get("loss", math.nan)), f"{case.name}: train tells no loss")
    moved = changed(before, job.method.shared_state()) is not None and job.step > 0
    sentence(moved, f"{case.name}: train leaves the weights or the step as they were")
    sentence((images == job.images).all(), f"{case.name}: train changes the client's images")


def memory_is_json(case: DefenseCase) -> None:
    """It is stored with the client's state."""
    _, memory, _ = case.rounds()
    try:
        back = json.loads(json.dumps(memory))
    except TypeError as error:
        raise AssertionError(f"{case.name}: memory must be JSON-able: {error}") from None
    same = case.defense.privacy(back) == case.defense.privacy(memory)
    sentence(same, f"{case.name}: privacy reads another statement off a stored memory")


def privacy_is_stated_and_only_grows(case: DefenseCase) -> None:
    """Round by round, with what it rests on."""
    before = 0.0
    for count in range(1, ROUNDS + 1):
        found = case.defense.privacy(case.rounds(count)[1])
        if found is None:
            continue
        right = isinstance(found, Epsilon) and found.standing in STANDINGS and found.assumptions
        sentence(right, f"{case.name}: privacy must be an Epsilon of {STANDINGS} with assumptions")
        text = f"{case.name}: privacy covers {found.rounds} rounds after {count}"
        sentence(found.rounds == count, text)
        sentence(0 <= found.delta < 1, f"{case.name}: delta must be in [0, 1), got {found.delta}")
        if found.value is not None:
            text = f"{case.name}: epsilon falls from {before:.3g} to {found.value:.3g}"
            sentence(found.value >= before, text)
            before = found.value


STANDINGS = ("guaranteed", "heuristic", "empirical")
DEFENSE_CHECKS: tuple[Callable[[DefenseCase], None], ...] = (
    check_refuses_with_a_reason_only,
    release_keeps_its_input_and_its_form,
    zero_strength_is_the_identity,
    rounds_repeat_with_the_seed,
    training_tells_a_finite_loss,
    memory_is_json,
    privacy_is_stated_and_only_grows,
)


def check_defense(defense: Defense | type[Defense]) -> None:
    """Check that a defence keeps the promises of `fedmia.defenses.base`.

    Raises:
        AssertionError: one sentence that says which promise it breaks.
    """
    run(DEFENSE_CHECKS, DefenseCase, defense)
