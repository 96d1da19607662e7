"""Logistic, Laplace and Gaussian noise on a release: law, clipping, composition, refusals."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from clients.honest import Honest
from fedmia.defenses._noise import ReleaseNoise
from fedmia.defenses.base import Preparation, TrainingConditions
from fedmia.defenses.gaussian import Gaussian
from fedmia.defenses.laplace import Laplace
from fedmia.defenses.logistic import Logistic
from fedmia.federation.ledger import Ledger
from fedmia.lowerbounds.gdp import epsilon_at
from fedmia.seeding import rng
from fedmia.settings.errors import InputError
from fedmia.ssl.base import State
from fedmia.ssl.moco import MoCo
from fedmia.ssl.simclr import SimCLR
from tests.defenses.conftest import kept
from tests.small_setup import settle

LAWS: list[tuple[type[ReleaseNoise], Any]] = [
    (Logistic, stats.logistic), (Laplace, stats.laplace), (Gaussian, stats.norm),
]  # fmt: skip
KINDS = [cls for cls, _ in LAWS]
States = tuple[State, State]
NONE = np.zeros((0, 1, 8, 8), np.uint8)


def flat(after: State, before: State) -> np.ndarray:
    return np.concatenate([(after[n].double() - before[n].double()).flatten() for n in after])


def preparation(rounds: int, images: int = 4) -> Preparation:
    return Preparation(rounds, images, lambda positions: {}, rng(0, "outlook"), NONE)


@pytest.mark.parametrize("cls, law", LAWS)
def test_release__noise_has_the_stated_law(cls: type[ReleaseNoise], law: Any, states: States):
    received, trained = states
    released, metrics = cls(scale=0.5, clip=1e6).release(received, trained, {}, rng(1, "noise"))
    noise = flat(released, trained)
    assert stats.kstest(noise, law(scale=0.5).cdf).pvalue > 0.01
    assert stats.kstest(noise, law(scale=0.55).cdf).pvalue < 0.01
    assert metrics["noise_std"] == pytest.approx(law(scale=0.5).std())
    assert metrics["clipped"] == 0.0
    expected = np.linalg.norm(flat(trained, received)) / np.linalg.norm(noise)
    assert metrics["signal_to_noise"] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("cls", KINDS)
def test_options__that_say_two_things_are_refused(cls: Any) -> None:
    for options, part in (
        ({"epsilon": 1.0, "scale": 1.0}, "not both"),
        ({"sensitivity": "sampled", "clip": 1.0}, "clip: 1.0, is not used"),
    ):
        with pytest.raises(InputError, match=part):
            cls(**options)


@pytest.mark.parametrize("cls", KINDS)
@pytest.mark.parametrize("clip", [0.01, 3.0])
def test_release__clips_to_c_and_keeps_the_direction(cls: Any, clip: float, states: States):
    received, trained = states
    received, trained = ({n: t.double() for n, t in s.items()} for s in states)
    released, metrics = cls(scale=0.0, clip=clip).release(received, trained, {}, rng(1, "x"))
    update, whole = flat(released, received), flat(trained, received)
    assert np.linalg.norm(update, cls.order) == pytest.approx(clip, rel=1e-9)
    assert np.allclose(update, whole * (clip / np.linalg.norm(whole, cls.order)))
    assert metrics["update_norm"] == pytest.approx(np.linalg.norm(whole, cls.order))
    assert metrics["clipped"] == 1.0


@pytest.mark.parametrize("cls", KINDS)
def test_release__any_two_data_sets_differ_by_at_most_2c(cls: Any, states: States) -> None:
    received, trained = states
    opposite = {n: 2 * received[n] - trained[n] for n in trained}
    same = [cls(scale=0.3, clip=2.0).release(received, t, {}, rng(1, "x"))[0]
            for t in (trained, opposite)]  # fmt: skip
    assert np.linalg.norm(flat(same[0], same[1]), cls.order) == pytest.approx(4.0, rel=1e-3)


def test_release__counters_and_running_statistics_are_neither_counted_nor_released() -> None:
    received = {"w": torch.zeros(3), "bn.running_var": torch.ones(3), "steps": torch.tensor(0)}
    trained = {
        "w": torch.tensor([3.0, 0.0, 4.0]),
        "bn.running_var": torch.full((3,), 9.0),
        "steps": torch.tensor(1000),
    }
    released, metrics = Gaussian(scale=0.0, clip=1e6).release(received, trained, {}, rng(0, "x"))
    assert metrics["update_norm"] == pytest.approx(5.0)
    assert torch.equal(released["w"], trained["w"])
    assert torch.equal(released["bn.running_var"], received["bn.running_var"])
    assert torch.equal(released["steps"], received["steps"])


@pytest.mark.parametrize("cls", KINDS)
@pytest.mark.parametrize("rounds", [1, 7])
def test_privacy__target_is_spent_exactly_after_the_planned_rounds(
    cls: Any, rounds: int, states: States
) -> None:
    defense, memory = cls(epsilon=3.0, clip=0.5), {}
    defense.prepare(preparation(rounds), memory)
    assert defense.privacy(memory).value == 0.0
    spent = []
    for turn in range(rounds):
        _, metrics = defense.release(*states, memory, rng(0, turn))
        memory = json.loads(json.dumps(memory))
        assert all(isinstance(v, float) and math.isfinite(v) for v in metrics.values())
        assert memory["metrics"] == metrics
        stated = defense.privacy(memory)
        assert stated.rounds == turn + 1 and stated.standing == "guaranteed"
        spent.append(stated.value)
    assert spent == sorted(spent)
    assert spent[-1] == pytest.approx(3.0, rel=1e-6)


@pytest.mark.parametrize("cls", KINDS)
def test_privacy__of_a_scale_adds_or_composes_as_one_gaussian_release_of_root_t(
    cls: Any, states: States
) -> None:
    gaussian = cls is Gaussian
    defense, memory = cls(scale=0.5, clip=0.5, **({"delta": 1e-6} if gaussian else {})), {}
    for turn in (1, 2, 3, 4):
        defense.release(*states, memory, rng(0, turn))
        stated, ratio = defense.privacy(memory), 2 * 0.5 / 0.5
        exact = epsilon_at(ratio * math.sqrt(turn), 1e-6) if gaussian else turn * ratio
        assert stated.value == pytest.approx(exact)
        assert stated.delta == (1e-6 if gaussian else 0.0)


def test_logistic__loss_ratio_is_epsilon_at_most() -> None:
    """Theorem 4.1: a shift of Delta changes the log density by at most Delta / s, and by that."""
    x = np.linspace(-200, 200, 100_001)
    ratio = stats.logistic.logpdf(x, scale=0.5) - stats.logistic.logpdf(x, loc=1.2, scale=0.5)
    assert np.abs(ratio).max() == pytest.approx(1.2 / 0.5, rel=1e-6)
    assert Logistic().spent(1.2, 0.5, 1) == pytest.approx(np.abs(ratio).max())


def test_release__epsilon_without_prepare_is_an_error(states: States) -> None:
    with pytest.raises(ValueError, match="prepare"):
        Logistic(epsilon=1.0).release(*states, {}, rng(0, "x"))


@pytest.mark.parametrize("cls", KINDS)
def test_check__averaged_batch_norm_is_refused(cls: Any) -> None:
    cls().check(TrainingConditions("group", MoCo()))
    cls().check(TrainingConditions("local", MoCo()))
    cls().check(TrainingConditions("group", SimCLR()))  # the update is clipped whole
    with pytest.raises(InputError, match="batch norm"):
        cls().check(TrainingConditions("batch", MoCo()))


@pytest.mark.parametrize("name", ["logistic", "laplace", "gaussian"])
def test_honest__the_rounds_of_the_run_reach_the_defence(name: str, make_desk: Any) -> None:
    store, received = Ledger(), None
    for round in (1, 2, 3, 4):
        client_round = make_desk(name, {"epsilon": 5.0}, store, round, received)
        update = settle(store, client_round, Honest().answer(client_round))
        received = update.state
        assert update.metrics["noise_std"] > 0
    memory = kept(store).memory["defense"]
    assert memory[name]["planned"] == 4
    stated = client_round.defense.statement(memory)
    assert stated.name == name and stated.epsilon.value == pytest.approx(5.0, rel=1e-6)
    assert all(t.isfinite().all() for t in received.values())


@pytest.mark.parametrize("cls", KINDS)
@pytest.mark.parametrize("budget", [{}, {"epsilon": 2.0}])
def test_clip__its_origin_is_said_and_later_rounds_change_neither_it_nor_the_scale(
    cls: Any, budget: dict[str, float], states: States
) -> None:
    public = replace(preparation(5), rehearse_public=lambda: states)
    length = float(np.linalg.norm(flat(states[1], states[0]), cls.order))
    fixed = cls.default_clip * 5000 ** (1 / cls.order)
    for options, seen, clip, said in (
        ({}, public, length, "the norm of an update that public images gave"),
        ({}, preparation(5), fixed, "has no public images"),
        ({"clip": 0.5}, public, 0.5, "given"),
    ):
        defense, memory = cls(**options, **budget), dict[str, Any]()
        defense.prepare(seen, memory)
        assert memory == {"planned": 5} | ({"clip": pytest.approx(clip)} if clip == length else {})
        scale = defense.scale_for(2.0, 2 * clip, 5) if budget else defense.default_scale
        for turn in (1, 2):
            defense.release(*states, memory, rng(turn))
            assert memory["rounds"] == turn and memory["scale"] == pytest.approx(scale)
            assert memory["sensitivity"] == pytest.approx(2 * clip)
        stated = defense.privacy(memory)
        assert f"C = {clip:.3g}, " in stated.assumptions and said in stated.assumptions
        assert stated.value == pytest.approx(defense.spent(2 * clip, scale, 2))


@pytest.mark.parametrize("cls", KINDS)
def test_release__a_sampled_sensitivity_clips_nothing(cls: Any, states: States) -> None:
    """As its statement says, however far the update lies over the usual C."""
    received, trained = states
    far = {n: received[n] + 1e4 * (t - received[n]) for n, t in trained.items()}
    memory: dict[str, Any] = {"planned": 2, "sensitivity": 0.3}
    released, metrics = cls(scale=0.0, sensitivity="sampled").release(received, far, memory, rng(0))
    assert all(torch.equal(released[n], t) for n, t in far.items())
    assert metrics["clipped"] == 0.0 and memory["sensitivity"] == 0.3
    defense = cls(epsilon=2.0, sensitivity="sampled", samples=7)
    defense.release(received, far, memory := {"planned": 2, "sensitivity": 0.3}, rng(0))
    stated = defense.privacy(memory)
    assert stated.standing == "empirical" and stated.unit == "image" and stated.rounds == 1
    assert "7 pairs" in stated.assumptions
    assert memory["scale"] == defense.scale_for(2.0, 0.3, 2)
    assert stated.value == pytest.approx(defense.spent(0.3, memory["scale"], 1))
