"""Canaries: planted violations are found, an honest mechanism is not blamed, training is apart."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import opacus.optimizers
import pytest
import torch
from scipy.stats import norm

from fedmia.defenses import canaries
from fedmia.defenses.accounting import noise_for
from fedmia.defenses.canaries import AuditedSteps
from fedmia.defenses.dpsgd import DPSGD
from fedmia.defenses.gaussian import Gaussian
from fedmia.defenses.laplace import Laplace
from fedmia.defenses.logistic import Logistic
from fedmia.seeding import rng
from fedmia.settings.errors import InputError
from tests.made_up_runs import made_up_row, stated_epsilon

HONEST = opacus.optimizers.DPOptimizer
MakeJob = Callable[..., Any]


class Quarter(HONEST):
    """Draws a quarter of the noise that it was asked for."""

    def add_noise(self) -> None:
        self.noise_multiplier /= 4
        super().add_noise()
        self.noise_multiplier *= 4


class Unclipped(HONEST):
    """Sums gradients as they are."""

    def clip_and_accumulate(self) -> None:
        asked, self.max_grad_norm = self.max_grad_norm, 1e9
        super().clip_and_accumulate()
        self.max_grad_norm = asked


def shown(told: Any) -> float:
    """The lower bound that a report shows of a statement."""
    bound: float = stated_epsilon(told).lower_bound.value
    return bound


def audited(make_moco: Any, make_job: MakeJob, rounds: int = 1, **more: Any) -> tuple[Any, Any]:
    """The statement after `rounds` of one step each on full batches, and the memory."""
    defense, memory = DPSGD(**{"epsilon": 1.0, "canaries": 1000, **more}), dict[str, Any]()
    for turn in range(rounds):
        job = make_job(
            make_moco().train(), seed=turn, local_epochs=1, batch_size=12,
            more={"total_steps": rounds},
        )  # fmt: skip
        defense.train(job, memory)
    return defense.privacy(memory), memory


@pytest.mark.parametrize(("optimizer", "found"), [(HONEST, 0), (Quarter, 1), (Unclipped, 1)])
def test_dpsgd__a_planted_violation_of_epsilon_1_is_found(
    optimizer: Any, found: int, make_moco: Any, make_job: MakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted in what images and canaries share: the optimizer."""
    monkeypatch.setattr(opacus.optimizers, "DPOptimizer", optimizer)
    told, _ = audited(make_moco, make_job)
    assert 0.99 < told.value <= 1
    assert (shown(told) > told.value) == bool(found)


def test_dpsgd__epsilon_of_one_round_for_many_is_found(make_moco: Any, make_job: MakeJob) -> None:
    noise = 4.0  # of one step, epsilon 1
    told, memory = audited(make_moco, make_job, 9, epsilon=None, noise_multiplier=noise)
    assert told.value > 3 > shown(told)
    memory["history"][0][2] = 1
    forgetful: Any = DPSGD(noise_multiplier=noise).privacy(memory)
    assert 0.9 < forgetful.value < 1.1 < shown(forgetful)


def test_dpsgd__training_meets_no_canary(make_moco: Any, make_job: MakeJob) -> None:
    """Bit for bit, the stream of its randomness too; what is kept goes through JSON."""
    jobs, memories = [], []
    for count in (0, 100):
        job, memory = make_job(make_moco().train()), dict[str, Any]()
        DPSGD(noise_multiplier=1.0, canaries=count).train(job, memory)
        jobs.append(job)
        memories.append(memory)
    plain, watched = (job.method.state_dict() for job in jobs)
    assert all(torch.equal(t, watched[n]) for n, t in plain.items())
    assert jobs[0].rng.random() == jobs[1].rng.random()
    assert not any(hasattr(w, "grad_sample") for w in jobs[1].method.parameters())
    kept = memories[1].pop("canaries")
    assert memories[0] == memories[1] and len(kept["in"]) == len(kept["scores"]) == 100
    assert json.loads(json.dumps(kept)) == kept


def test_scores__do_not_depend_on_physical_batches_and_split_over_runs(
    make_moco: Any, make_job: MakeJob
) -> None:
    """Little noise, drawn once a step, shows every canary of every batch; a thousand share a run,
    whatever comes after them."""
    job, steps = make_job(make_moco(dim=1024).train()), AuditedSteps(0.1, 2.0, 1.0, 6.0, 3)
    inside = rng(0, "coins").random(1040) < 0.9
    weights = sum(w.numel() for w in job.method.trainable())
    assert inside[:1000].sum() * weights > 2 * canaries.NUMBERS
    scores = steps.score(job, inside, rng(1, "audit"))
    assert len(scores) == 1040 and ((scores > 0) == inside).all()
    first, sign = scores[:1000], np.where(inside[:1000], 1, -1)
    assert (first * sign).mean() == pytest.approx(3 / (2 * 0.1**2), rel=0.1)
    assert (steps.score(job, inside[:1000], rng(1, "audit")) == first).all()


def test_likelihood__equals_the_densities() -> None:
    outputs, rate = np.linspace(-3, 4, 9), 0.2
    bare = np.array([0.7, -0.7])
    want = np.log((1 - rate) + rate * norm.pdf(outputs, 1, 0.7) / norm.pdf(outputs, 0, 0.7))
    assert canaries.log_likelihood_ratio(outputs, bare, rate) == pytest.approx(want)
    assert np.isfinite(canaries.log_likelihood_ratio(outputs, 0 * bare, rate)).all()


@pytest.mark.parametrize(("rate", "audit"), [(0.1, "one-run"), (1.0, "one-run-gdp")])
def test_dpsgd__canaries_enter_steps_at_the_rate_of_images(
    rate: float, audit: str, make_moco: Any, make_job: MakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sound DP-SGD on a tenth of the images a step: so many canaries a step are in, and what they
    show lies under the accountant's epsilon."""
    taken = list[int]()

    class Counting(HONEST):
        def clip_and_accumulate(self) -> None:
            taken.append(len(self.grad_samples[0]))
            super().clip_and_accumulate()

    monkeypatch.setattr(opacus.optimizers, "DPOptimizer", Counting)
    job, inside = make_job(make_moco().train()), rng(0, "coins").random(400) < 0.5
    steps = AuditedSteps(noise_for(1.0, 1e-5, rate, 20, "rdp"), 1.0, rate, 40.0, 20)
    scores = steps.score(job, inside, rng(1, "audit"))
    assert len(taken) % 20 == 0
    assert sum(taken) / inside.sum() / 20 == pytest.approx(rate, rel=0.1)
    memory = {"canaries": {"in": inside, "scores": scores}}
    guesses = canaries.guess_canaries(memory, audit)
    assert guesses is not None
    told = made_up_row("clients.defence.epsilon", delta=1e-5, noise_source="seeded")
    assert shown(replace(told, lower_bound=guesses)) < 1.0


@pytest.mark.parametrize(
    ("cls", "epsilon", "part", "canaries"),
    [(Gaussian, 1.0, 4, 400), (Laplace, 1.0, 4, 400), (Logistic, 1.0, 4, 400),
     (Gaussian, 1.0, 2, 1000), (Gaussian, 4.0, 2, 1000)],
)  # fmt: skip
def test_release__a_part_of_the_noise_is_found(
    cls: Any, epsilon: float, part: int, canaries: int
) -> None:
    """A quarter of any; of a Gaussian, each of whose canaries has a run of known law, a half."""
    state, bounds = {"weight": torch.zeros(3)}, []
    for divisor in (1, part):
        defense, memory = cls(epsilon=epsilon, canaries=canaries), {"planned": 1}
        cls(epsilon=epsilon).release(state, state, memory, rng(0, "first"))
        memory["rounds"], memory["scale"] = 0, memory["scale"] / divisor
        defense.release(state, state, memory, rng(0, "release"))
        stated = defense.privacy(memory)
        assert stated.lower_bound.canaries == canaries and stated.unit == "client"
        bounds.append(shown(replace(stated, value=epsilon)))
    assert bounds[0] < epsilon < bounds[1]


def test_release__the_update_that_leaves_is_the_same() -> None:
    received, trained = {"weight": torch.zeros(3)}, {"weight": torch.ones(3)}
    sent = [
        Gaussian(canaries=canaries).release(received, trained, {"planned": 1}, rng(0, "r"))[0]
        for canaries in (0, 100)
    ]
    assert torch.equal(sent[0]["weight"], sent[1]["weight"])


def test_options__name_what_cannot_be_audited() -> None:
    with pytest.raises(InputError, match="Laplace: option canaries: .*, need sensitivity 'clip'"):
        Laplace(sensitivity="sampled", canaries=100)
    for cls, few in itertools.product((DPSGD, Gaussian), (-1, 99)):
        with pytest.raises(InputError, match=rf"{cls.__name__}: option canaries.* {few}"):
            cls(canaries=few)
    silent: Any = DPSGD(noise_multiplier=1.0).privacy({})
    assert silent.lower_bound is None and silent.value == 0


@pytest.mark.parametrize(
    ("inside", "correct"),
    [(range(50, 100), (4, 34, 70)), (range(50), (0, 0, 0)), (range(100), (2, 17, 35)),
     ((), (2, 17, 35)), (range(97, 100), (4, 20, 38)), (range(2, 100), (4, 19, 37))],
)  # fmt: skip
def test_guessed__the_surest_on_both_sides(inside: Any, correct: tuple[int, ...]) -> None:
    """Of 100 canaries with the scores 0 to 99: 2, 17 and 35 highest in, as many lowest out."""
    told = [int(i in inside) for i in range(100)]
    memory = {"canaries": {"in": told, "scores": [float(i) for i in range(100)]}}
    guesses = canaries.guess_canaries(memory)
    assert guesses is not None and (guesses.canaries, guesses.audit) == (100, "one-run")
    assert (guesses.guesses, guesses.correct) == ([4, 34, 70], [*correct])
    signed = {"canaries": {"in": told, "scores": [i - 30.0 for i in range(100)]}}
    guesses = canaries.guess_canaries(signed, "own-runs-gdp")
    right = sum((i > 30) == bool(told[i]) for i in range(100))
    assert guesses is not None and (guesses.guesses, guesses.correct) == ([100], [right])
    assert canaries.guess_canaries({}) is None


def test_coins__are_thrown_once_and_scores_add() -> None:
    memory: dict[str, Any] = {}
    first, again = (canaries.draw_coins(memory, 400, rng(seed)) for seed in (0, 1))
    assert 150 < first.sum() < 250 and first.tolist() == again.tolist()
    for _ in range(3):
        canaries.add_scores(memory, np.arange(400.0))
    assert memory["canaries"]["scores"] == [3.0 * i for i in range(400)]
    json.dumps(memory)
