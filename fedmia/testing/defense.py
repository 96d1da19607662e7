"""What every defence promises, as functions: `check_defense` runs them all."""

from __future__ import annotations

import copy
import itertools
import json
import math
from collections.abc import Callable
from functools import cached_property
from typing import Any

from fedmia.defenses.base import Defense, Preparation, TrainingConditions
from fedmia.records.privacy import UNITS, Epsilon
from fedmia.seeding import rng
from fedmia.settings.errors import InputError
from fedmia.ssl.augment import Augment
from fedmia.ssl.base import State
from fedmia.ssl.moco import MoCo
from fedmia.ssl.simclr import SimCLR
from fedmia.ssl.train import Job, Train, make_optimizer
from fedmia.testing.material import CPU, Case, call_under_seeds, changed, run, small_moco, textures
from fedmia.threat import WhiteBox

ROUNDS = 2


class DefenseCase(Case):
    """A defence, a job of few steps and received weights."""

    def __init__(self, defense: Defense | type[Defense]) -> None:
        super().__init__(defense, Defense, {})
        self.defense: Defense = self.first
        self.received = small_moco().shared_state()
        self.trained = {n: t + 0.01 for n, t in self.received.items()}

    def job(self) -> Job:
        """Six steps of a tiny MoCo on ten images; the last batch of an epoch is short."""
        train, method = Train(local_epochs=2, batch_size=4), small_moco(images=10)
        return Job(
            method=method, optimizer=make_optimizer(method, train), images=textures(10).numpy(),
            augment=Augment(), train=train, rng=rng(0, "job"), step=0, total_steps=12, device=CPU,
        )  # fmt: skip

    def prepared(self) -> dict[str, Any]:
        """The memory of a client before its first round."""
        memory: dict[str, Any] = {}
        public = textures(12, seed=2).numpy()
        preparation = Preparation(
            ROUNDS, 10, self._rehearse, rng(0, "outlook"), public,
            rehearse_alone=self._rehearse_alone,
        )  # fmt: skip
        self.defense.prepare(preparation, memory)
        return memory

    def _rehearse(self, positions: Any) -> State:
        """Weights that depend on which images are trained on."""
        return {n: t + 0.01 * float(positions.sum()) for n, t in self.received.items()}

    def _rehearse_alone(self, positions: Any, change: Callable[[Job], None]) -> Any:
        """Rounds on the public images at the positions."""
        job = self.job()
        images = textures(12, seed=2)[positions]
        job.images = images.numpy()
        for _ in range(ROUNDS):
            job.augment = Augment()
            change(job)
            job.run()
            yield WhiteBox(job.method, Augment(), seed=0, device=CPU, held=images)

    def rounds(self) -> list[tuple[State, dict[str, Any]]]:
        """Two rounds of a client: the update that leaves in each, and the memory after it."""
        memory, rounds = self.prepared(), list[tuple[State, dict[str, Any]]]()
        for turn in range(ROUNDS):
            released = self.received
            if not self.defense.sits_out(memory):
                job = self.job()
                self.defense.adapt(job, memory)
                self.defense.train(job, memory)
                trained, stream = job.method.shared_state(), rng(0, "release", turn)
                released, _ = self.defense.release(self.received, trained, memory, stream)
            rounds.append((released, copy.deepcopy(memory)))
        return rounds

    @cached_property
    def usual(self) -> list[tuple[State, dict[str, Any]]]:
        """`rounds` with the usual seed, run once."""
        return call_under_seeds(self.rounds, 1)[0]


def check_refuses_with_a_reason_only(case: DefenseCase) -> None:
    """By InputError, and never group norm with uncoupled losses."""
    for norm, ssl in itertools.product(("group", "batch", "local"), (MoCo(), SimCLR())):
        try:
            case.defense.check(TrainingConditions(norm, ssl, public=12))
        except InputError as error:
            text = (
                f".check refuses even group norm and uncoupled losses: {error}; let them pass, and "
                "test `norm` and `ssl` of its setting for what it cannot work with"
            )
            case.must(norm != "group" or ssl.coupled, text)


def release_keeps_its_input_and_its_form(case: DefenseCase) -> None:
    """New tensors of the same names, shapes and types."""
    received, trained, memory = case.received, case.trained, case.prepared()
    before = copy.deepcopy((received, trained))
    released, metrics = case.defense.release(received, trained, memory, rng(0, "release"))
    for state, original, what in (
        (received, before[0], "received"),
        (trained, before[1], "trained"),
    ):
        text = f"release changes the {what} {{}} in place; return new tensors (t.clone())"
        case.require_equal(original, state, text)
    case.form(released, case.trained, "release")
    numbers = all(isinstance(v, float) for v in metrics.values())
    text = f"metrics of release must be floats, got {metrics}; wrap each in float()"
    case.must(numbers, text)


def rounds_repeat_with_the_seed(case: DefenseCase) -> None:
    """To the bit, whatever the global generators hold."""
    (want, _), (got,) = case.usual[-1], call_under_seeds(case.rounds, 2)
    if changed(want, got[-1][0]):  # once more, to name the reason
        (again,) = call_under_seeds(case.rounds, 1)
        way = "draw from the rng of release, in train from job.rng"
        text = f"two runs with one seed release a different {{}}; {way}"
        case.require_equal(want, again[-1][0], text)
        case.must(False, f" draws from the global random generators; {way}")


def training_tells_a_finite_loss(case: DefenseCase) -> None:
    """And moves the weights and the step, not the images."""
    job, memory = case.job(), case.prepared()
    images, before = job.images.copy(), job.method.shared_state()
    metrics = case.defense.train(job, memory)
    text = 'train tells no loss; return {"loss": FLOAT}, as job.run() does'
    case.must(math.isfinite(metrics.get("loss", math.nan)), text)
    moved = changed(before, job.method.shared_state()) and job.step > 0
    text = "train leaves the weights or the step as they were; train job.method, count job.step"
    case.must(moved, f"{text} (job.run() does both)")
    text = "train changes the client's images; work on a copy of job.images"
    case.must((images == job.images).all(), text)


def memory_is_json(case: DefenseCase) -> None:
    """It is stored with the client's state."""
    _, memory = case.usual[-1]
    try:
        back = json.loads(json.dumps(memory))
    except TypeError as error:
        way = "keep numbers, text, lists and dicts in it (t.tolist(), float(x))"
        text = f"{case.name}: memory must be JSON-able: {error}; {way}"
        raise AssertionError(text) from None
    same = case.defense.privacy(back) == case.defense.privacy(memory)
    text = "privacy reads another statement off a stored memory; JSON makes tuples lists, and keys"
    case.must(same, f"{text} text: keep such in memory")


def privacy_is_stated_and_only_grows(case: DefenseCase) -> None:
    """Round by round, with what it rests on."""
    before = 0.0
    for count, (_, memory) in enumerate(case.usual, start=1):
        if (statement := case.defense.privacy(memory)) is None:
            continue
        right = (
            isinstance(statement, Epsilon)
            and statement.standing in STANDINGS
            and statement.assumptions
        )
        text = f"privacy must be an Epsilon with a standing of {STANDINGS}, and with assumptions"
        case.must(right, text)
        case.must(
            statement.unit in ("", *UNITS), f"unit must be of {UNITS}, got '{statement.unit}'"
        )
        text = f"privacy covers {statement.rounds} rounds after {count}; count each in memory"
        case.must(statement.rounds == count, f"{text}, and give Epsilon their number")
        case.must(0 <= statement.delta < 1, f"delta must be in [0, 1), got {statement.delta}")
        if statement.value is not None:
            text = (
                f"epsilon falls from {before:.3g} to {statement.value:.3g}; add up what all "
                "rounds in memory have spent"
            )
            case.must(statement.value >= before, text)
            before = statement.value


def neutral_setting_does_nothing(case: DefenseCase) -> None:
    """If there is one: what leaves is what was trained, and a defence that does not take the place
    of training leaves that alone, too."""
    if not case.cls.neutral:
        return
    off, where = DefenseCase(case.neutral()), case.neutral_words()
    defended, memory = off.rounds()[-1]
    released, _ = off.defense.release(case.received, case.trained, memory, rng(0))
    case.require_equal(case.trained, released, f"release is not the identity {where}; see {{}}")
    statement = off.defense.privacy(memory)
    case.must(statement is None or statement.value is None, f"privacy is promised {where}")
    if not off.defense.trains:
        job = case.job()
        job.run()
        text = f"training is another {where}; see {{}}"
        case.require_equal(job.method.shared_state(), defended, text)


STANDINGS = ("guaranteed", "heuristic", "empirical")
DEFENSE_CHECKS: tuple[Callable[[DefenseCase], None], ...] = (
    check_refuses_with_a_reason_only, release_keeps_its_input_and_its_form,
    rounds_repeat_with_the_seed, training_tells_a_finite_loss, memory_is_json,
    privacy_is_stated_and_only_grows, neutral_setting_does_nothing,
)  # fmt: skip


def check_defense(defense: Defense | type[Defense]) -> None:
    """AssertionError unless a defence keeps the promises of `fedmia.defenses.base`."""
    run(DEFENSE_CHECKS, DefenseCase, defense)
