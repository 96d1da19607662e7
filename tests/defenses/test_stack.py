"""Several defences of one client: in order, each with a memory of its own, one statement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from clients.honest import Honest
from fedmia.defenses.base import Defense
from fedmia.defenses.dpsgd import DPSGD
from fedmia.defenses.gaussian import Gaussian
from fedmia.defenses.laplace import Laplace
from fedmia.defenses.stack import DefenseStack, check_exclusive, smallest_epsilon
from fedmia.federation.ledger import Ledger
from fedmia.seeding import rng
from fedmia.settings.errors import InputError
from fedmia.ssl.base import State
from tests.defenses.conftest import kept
from tests.made_up_runs import made_up_row
from tests.small_setup import settle

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
class Slower(Times):
    """Trains in a way of its own."""

    trains: ClassVar[bool] = True

    def train(self, job: Any, memory: dict[str, Any]) -> dict[str, float]:
        memory["trained"] = True
        return {"loss": 0.5}


def test_train__one_that_defines_it_takes_the_place_of_training() -> None:
    """Wherever it stands in the order."""
    memory: dict[str, Any] = {}
    stack = DefenseStack([("times", Times()), ("slower", Slower())])
    job: Any = None  # so that nothing else can train
    assert stack.train(job, memory) == {"loss": 0.5} and memory["slower"] == {"trained": True}


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
        store = Ledger()
        client_round = make_desk("dpsgd", {}, store, defense=layers)
        sent.append(settle(store, client_round, Honest().answer(client_round)).state)
        assert list(kept(store).memory["defense"]) == [name for name, _, _ in layers]
    defense, stream = Gaussian(scale=0.2, clip=3.0), rng(0, "release", 1, 0)
    released, _ = defense.release(client_round.received, sent[0], {}, stream)
    assert all(torch.equal(t, sent[1][n]) for n, t in released.items())


def test_desk__one_guarantee_withholds_whatever_stands_beside_it(make_desk: Any) -> None:
    """Losses, norms and shares stay with the client. A defence that promises nothing opens nothing,
    before or after the one that does; no defence withholds nothing."""
    open_one = ("weight-decay", {}, frozenset({0}))

    def told(*layers: Any) -> set[str]:
        at = make_desk("", {}, defense=layers)
        return set(Honest().answer(at)[0].metrics)

    for layer in LAYERS:
        for layers in ((layer,), (layer, open_one), (open_one, layer)):
            assert told(*layers) <= {"seconds", "noise_std", "lr"}
    assert {"loss", "seconds"} <= told() & told(open_one)


def test_desk__a_client_that_rests_sends_what_it_received(make_desk: Any) -> None:
    store, layers = Ledger(), (LAYERS[0], ("early-stopping", {"after": 1}, frozenset({0})))
    at = make_desk("", {}, defense=layers)
    first = settle(store, at, Honest().answer(at))
    client_round = make_desk("", {}, store, 2, first.state, defense=layers)
    client_state = kept(store)
    update = settle(store, client_round, Honest().answer(client_round))
    assert update.examples == 0 and update.metrics == {}
    assert all(torch.equal(t, first.state[n]) for n, t in update.state.items())
    assert kept(store) is client_state


def part(
    name: str, value: float | None, standing: str = "guaranteed", unit: str = "client",
    delta: float = 1e-5,
) -> Any:  # fmt: skip
    epsilon = {
        "value": value, "delta": delta, "rounds": 2, "standing": standing, "unit": unit,
        "assumptions": f"{name} says.", "noise_source": "seeded",
    }  # fmt: skip
    return made_up_row("clients.defence", name=name, epsilon=epsilon)


@pytest.mark.parametrize(
    ("parts", "kept_ones"),
    [
        # The least epsilon of the best standing; what has no value never stands where one has.
        ([part("a", 9.0), part("b", 4.0), part("c", 0.1, "heuristic"), part("d", None)], "b"),
        ([part("c", 0.1, "heuristic"), part("d", None)], "c"),
        ([part("d", None, delta=1e-3)], "d"),
        # One for each unit; of one unit those that nothing beats in epsilon and delta both.
        ([part("a", 9.0, unit="image"), part("b", 4.0), part("c", 7.0, delta=0.0),
          part("d", 8.0, delta=1e-6)], "abc"),
        # At one epsilon the smaller delta.
        ([part("a", 4.0), part("b", 4.0, delta=1e-7), part("d", None, delta=0.0),
          part("c", 5.0, delta=1e-6)], "b"),
        ([made_up_row("clients.defence", name="crop")], ""),
        ([], ""),
    ],
)  # fmt: skip
def test_statement__what_nothing_beats(parts: list[Any], kept_ones: str) -> None:
    """Of epsilons of one unit the assumptions name all."""
    smallest = smallest_epsilon(parts)
    assert [e.assumptions[0] for e in smallest] == list(kept_ones)
    for epsilon in smallest:
        own: Any = next(p for p in parts if p.name == epsilon.assumptions[0])
        assert (epsilon.value, epsilon.delta) == (own.epsilon.value, own.epsilon.delta)
        rivals = [p.name for p in parts if p.epsilon and p.epsilon.unit == epsilon.unit]
        alone = f"{own.name} says."
        assert (epsilon.assumptions == alone) == (len(rivals) == 1)
        assert len(rivals) == 1 or " and ".join(rivals) in epsilon.assumptions


def test_statement__parts_in_order(make_desk: Any) -> None:
    store = Ledger()
    client_round = make_desk("", {}, store, defense=LAYERS)
    settle(store, client_round, Honest().answer(client_round))
    statement = client_round.defense.statement(kept(store).memory["defense"])
    assert statement.name == "dpsgd, gaussian"
    assert [p.name for p in statement.parts] == ["dpsgd", "gaussian"]
    first, second = (p.epsilon for p in statement.parts)
    assert (statement.epsilon.unit, statement.epsilon.value) == ("image", first.value)
    assert [(e.unit, e.value) for e in statement.beside] == [("client", second.value)]
    assert DefenseStack().statement({}) is None and not DefenseStack()


def test_exclusive__two_of_a_kind() -> None:
    check_exclusive([("dpsgd", DPSGD()), ("gaussian", Gaussian()), ("times", Times())])
    for one, other in (("gaussian", Laplace()), ("dpsgd", Slower())):
        layers = [("gaussian", Gaussian()), ("dpsgd", DPSGD()), ("other", other)]
        with pytest.raises(InputError, match=f"{one} and other exclude each other"):
            check_exclusive(layers)


def test_preparation__contains_the_public_images(make_desk: Any) -> None:
    client_round = make_desk("", {}, defense=LAYERS, public=np.array([1, 3]))
    assert (client_round.preparation().public == client_round.client_setup.images[[1, 3]]).all()


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
