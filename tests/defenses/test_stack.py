"""Several defences of one client: in order, each with a memory of its own, one statement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from clients.honest import Honest
from fedmia.defenses._stack import DefenseStack, check_exclusive, smallest_epsilon
from fedmia.defenses.base import Defense
from fedmia.defenses.dpsgd import DPSGD
from fedmia.defenses.gaussian import Gaussian
from fedmia.defenses.laplace import Laplace
from fedmia.options.errors import InputError
from fedmia.options.seeding import rng
from fedmia.records.privacy import ClientDefence, Epsilon
from fedmia.ssl.base import State
from fedmia.storage.snapshot import MemoryStore

LAYERS = (
    ("dpsgd", {"noise_multiplier": 1.0}, frozenset({0})),
    ("gaussian", {"scale": 0.2, "clip": 3.0}, frozenset({0})),
)


@dataclass(frozen=True)
class Times(Defense):
    """Multiplies what leaves."""

    factor: float = 2.0

    def release(self, received: State, trained: State, memory: Any, rng: Any) -> Any:
        memory["seen"] = float(trained["w"][0])
        return {n: t * self.factor for n, t in trained.items()}, {"factor": self.factor}


@dataclass(frozen=True)
class Plus(Times):
    """Adds to what leaves."""

    def release(self, received: State, trained: State, memory: Any, rng: Any) -> Any:
        memory["seen"] = float(trained["w"][0])
        return {n: t + self.factor for n, t in trained.items()}, {"added": self.factor}


@dataclass(frozen=True)
class Slower(Defense):
    """Trains in a way of its own."""

    def train(self, job: Any, memory: dict[str, Any]) -> dict[str, float]:
        memory["trained"] = True
        return {"loss": 0.5}


@dataclass(frozen=True)
class Tired(Defense):
    """Sits out every round after the first."""

    def adapt(self, job: Any, memory: dict[str, Any]) -> None:
        memory["rounds"] = memory.get("rounds", 0) + 1

    def sits_out(self, memory: dict[str, Any]) -> bool:
        return bool(memory.get("rounds"))


def test_train__one_that_defines_it_takes_the_place_of_training() -> None:
    """Wherever it stands in the order, and no other such one beside it."""
    memory: dict[str, Any] = {}
    stack = DefenseStack([("times", Times()), ("slower", Slower())])
    job: Any = None  # so that nothing else can train
    assert stack.train(job, memory) == {"loss": 0.5} and memory["slower"] == {"trained": True}
    with pytest.raises(InputError, match="dpsgd and slower exclude each other"):
        check_exclusive([("dpsgd", DPSGD()), ("slower", Slower())])


def test_release__each_sees_what_the_one_before_let_out() -> None:
    weights, memory = {"w": torch.tensor([3.0])}, dict[str, Any]()
    stack = DefenseStack([("times", Times()), ("plus", Plus(5.0))])
    sent, metrics = stack.release({}, weights, memory, rng(0))
    assert float(sent["w"]) == 11.0 and metrics == {"factor": 2.0, "added": 5.0}
    assert memory == {"times": {"seen": 3.0}, "plus": {"seen": 6.0}}
    other = DefenseStack([("plus", Plus(5.0)), ("times", Times())])
    assert float(other.release({}, weights, {}, rng(0))[0]["w"]) == 16.0


def test_desk__one_defence_in_a_stack_is_that_defence(make_desk: Any) -> None:
    """And two are the second's release of the first's training."""
    sent = []
    for layers in (LAYERS[:1], LAYERS):
        store = MemoryStore()
        client_round = make_desk("dpsgd", {}, store, defenses=layers)
        sent.append(Honest().answer(client_round).state)
        client_state = store.load("main", 0)
        assert client_state is not None and set(client_state.memory["defense"]) == {
            n for n, _, _ in layers
        }
    memory: dict[str, Any] = {}
    released, _ = Gaussian(scale=0.2, clip=3.0).release(
        client_round.received, sent[0], memory, rng(0, "release", 1, 0)
    )
    assert all(torch.equal(t, sent[1][n]) for n, t in released.items())


def test_desk__guarantees_withhold_what_rests_on_images(make_desk: Any) -> None:
    """Losses, norms and shares stay with the client; no defence sends them all."""
    client_round = make_desk("dpsgd", {}, MemoryStore(), defenses=())
    assert {"loss", "seconds"} <= set(Honest().answer(client_round).metrics)
    for layer in LAYERS:
        update = Honest().answer(make_desk("", {}, MemoryStore(), defenses=(layer,)))
        assert set(update.metrics) <= {"seconds", "noise_std", "lr"}


@pytest.mark.parametrize("turn", [1, -1])
def test_desk__one_guarantee_withholds_whatever_stands_beside_it(make_desk: Any, turn: int) -> None:
    """A defence that promises nothing opens nothing, before or after the one that does."""
    open_one = ("weight-decay", {}, frozenset({0}))
    for layer in LAYERS:
        client_round = make_desk("", {}, MemoryStore(), defenses=(layer, open_one)[::turn])
        metrics = Honest().answer(client_round).metrics
        assert not metrics.keys() & {"loss", "gradient_norm", "update_norm", "clipped"}
    alone = make_desk("", {}, MemoryStore(), defenses=(open_one,))
    assert "loss" in Honest().answer(alone).metrics


def test_desk__a_client_that_rests_sends_what_it_received(
    make_desk: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore()
    first = Honest().answer(make_desk("", {}, store, defenses=LAYERS[:1]))
    client_round = make_desk("", {}, store, 2, first.state, defenses=LAYERS[:1])
    client_state = store.load("main", 0)
    monkeypatch.setattr(DPSGD, "sits_out", lambda self, memory: "history" in memory)
    update = Honest().answer(client_round)
    assert update.examples == 0 and update.metrics == {}
    assert all(torch.equal(t, first.state[n]) for n, t in update.state.items())
    assert store.load("main", 0) is client_state


def test_statement__the_least_epsilon_of_the_best_standing() -> None:
    def part(name: str, value: float | None, standing: str) -> ClientDefence:
        return ClientDefence(name, Epsilon(value, 1e-5, 2, standing, f"{name} says."))

    loose, tight = part("a", 9.0, "guaranteed"), part("b", 4.0, "guaranteed")
    guess, none = part("c", 0.1, "heuristic"), part("d", None, "guaranteed")
    (only,) = smallest_epsilon([loose, tight, guess, none])
    assert only.value == 4.0 and only.assumptions.startswith("b says. ")
    assert "a and b and c and d" in only.assumptions
    assert [e.value for e in smallest_epsilon([guess, none])] == [0.1]
    assert smallest_epsilon([tight]) == [tight.epsilon]
    assert smallest_epsilon([ClientDefence("crop")]) == smallest_epsilon([]) == []


def test_statement__epsilons_of_units_and_deltas_are_not_compared() -> None:
    """One for each unit; of one unit those that nothing beats in epsilon and delta both."""

    def part(name: str, unit: str, value: float, delta: float) -> ClientDefence:
        stated = Epsilon(value, delta, 2, "guaranteed", f"{name} says.", unit=unit)
        return ClientDefence(name, stated)

    image, client = part("a", "image", 9.0, 1e-5), part("b", "client", 4.0, 1e-5)
    pure, worse = part("c", "client", 7.0, 0.0), part("d", "client", 8.0, 1e-6)
    lines = [(e.unit, e.value, e.delta) for e in smallest_epsilon([image, client, pure, worse])]
    assert lines == [("image", 9.0, 1e-5), ("client", 4.0, 1e-5), ("client", 7.0, 0.0)]
    (alone, *others) = smallest_epsilon([image, client, pure, worse])
    assert alone.assumptions == "a says."
    assert all("b and c and d" in e.assumptions for e in others)


def test_statement__parts_in_order(make_desk: Any) -> None:
    store = MemoryStore()
    client_round = make_desk("", {}, store, defenses=LAYERS)
    Honest().answer(client_round)
    client_state = store.load("main", 0)
    assert client_state is not None
    statement = client_round.defense.statement(client_state.memory["defense"])
    assert statement.name == "dpsgd, gaussian" and [p.name for p in statement.parts] == [
        "dpsgd",
        "gaussian",
    ]
    first, second = (p.epsilon for p in statement.parts)
    assert (statement.epsilon.unit, statement.epsilon.value) == ("image", first.value)
    assert [(e.unit, e.value) for e in statement.beside] == [("client", second.value)]
    assert DefenseStack().statement({}) is None and not DefenseStack()


class Other(Times):
    trains: ClassVar[bool] = True


def test_exclusive__two_of_a_kind() -> None:
    check_exclusive([("dpsgd", DPSGD()), ("gaussian", Gaussian()), ("times", Times())])
    with pytest.raises(InputError, match="gaussian and laplace exclude each other"):
        check_exclusive([("gaussian", Gaussian()), ("laplace", Laplace())])
    with pytest.raises(InputError, match="dpsgd and other exclude each other"):
        check_exclusive([("dpsgd", DPSGD()), ("other", Other())])


def test_preparation__contains_the_public_images(make_desk: Any) -> None:
    client_round = make_desk("", {}, MemoryStore(), defenses=LAYERS, public=np.array([1, 3]))
    assert (client_round._preparation().public == client_round.client_context.images[[1, 3]]).all()


def test_statement__says_where_its_noise_comes_from() -> None:
    """Of each part and of all together; seeded if nothing else is said."""
    history = {"history": [[1.0, 0.5, 4]], "rounds": 1, "metrics": {"lr": 0.1}}
    clip = {"rounds": 1, "scale": 0.5, "sensitivity": 1.0, "metrics": {"clipped": 1.0}}
    memory = {"dpsgd": history, "gaussian": clip}
    layers = [("dpsgd", DPSGD()), ("gaussian", Gaussian())]
    for source in ("seeded", "entropy"):
        for count in (1, 2):
            statement = DefenseStack(layers[:count], source).statement(memory)
            assert statement is not None and statement.epsilon is not None
            stated = [statement.epsilon, *statement.beside, *(p.epsilon for p in statement.parts)]
            assert [e.noise_source for e in stated if e] == [source] * (2 * count)
            assert statement.metrics == ({"lr": 0.1} if count == 1 else {"lr": 0.1, "clipped": 1.0})
    assert DefenseStack(layers).noise_source == "seeded"


def test_least__at_one_epsilon_the_smaller_delta() -> None:
    """And what has no value never stands where one has; of those without, all are kept."""

    def part(value: float | None, delta: float) -> ClientDefence:
        return ClientDefence("x", Epsilon(value, delta, 2, "guaranteed", ""))

    epsilon = smallest_epsilon([part(4.0, 1e-5), part(4.0, 1e-7), part(None, 0.0), part(5.0, 1e-6)])
    assert [(e.value, e.delta) for e in epsilon] == [(4.0, 1e-7)]
    assert [(e.value, e.delta) for e in smallest_epsilon([part(None, 1e-3)])] == [(None, 1e-3)]
