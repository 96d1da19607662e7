"""What every strategy's aggregation promises, as functions: `check_strategy` runs them all."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from fedmia.federation.snapshot import Update
from fedmia.seeding import torch_rng
from fedmia.ssl.base import State
from fedmia.testing.material import changed, global_seed, instance, renewed, run, sentence

if TYPE_CHECKING:  # Flower is loaded by the class that is checked
    from strategies.base import FederatedStrategy

# Options at which one client's update becomes the global model, where a strategy has them.
NEUTRAL = {"server_lr": 1.0, "beta": 0.0}


def some_state(seed: int) -> State:
    """Two random tensors."""
    draw = torch_rng(seed, "state")
    shapes = {"head.weight": (3, 4), "bias": (5,)}
    return {n: torch.randn(shape, generator=draw) for n, shape in shapes.items()}


def some_updates(count: int = 4, state: State | None = None) -> list[Update]:
    """Updates of clients that hold 3, 5, 7 .. images; all the same where `state` is given."""
    return [Update(c, 1, state or some_state(c), 3 + 2 * c, {}) for c in range(count)]


class StrategyCase:
    """A strategy, and what its checks are made of.

    Args:
        strategy: a class, taken with its defaults, or an instance, as it is.
    """

    def __init__(self, strategy: FederatedStrategy | type[FederatedStrategy]) -> None:
        self._first: FederatedStrategy = instance(strategy)
        self.name = type(self._first).__name__
        self.received = some_state(99)

    def strategy(self, **options: Any) -> FederatedStrategy:
        """A new one, with those of `options` that it has."""
        new: FederatedStrategy = renewed(self._first, **options)
        return new

    def near(self, got: State, want: State, text: str) -> None:
        """Refuse a state further than rounding from another."""
        for n, t in want.items():
            gap = float((got[n].double() - t.double()).abs().max())
            sentence(gap <= 1e-5, f"{self.name}: {text} ({n} by {gap:.2g})")


def aggregate_keeps_its_inputs_and_their_form(case: StrategyCase) -> None:
    """New tensors of the same names, shapes and types."""
    received, updates = case.received, some_updates()
    kept = copy.deepcopy((received, updates))
    got = case.strategy().aggregate(received, updates)
    wrong = changed(kept[0], received)
    sentence(wrong is None, f"{case.name}: aggregate changes the received {wrong} in place")
    for before, after in zip(kept[1], updates, strict=True):
        wrong = changed(before.state, after.state)
        text = f"{case.name}: aggregate changes {wrong} of client {after.client}'s update in place"
        sentence(wrong is None, text)
    sentence(got.keys() == received.keys(), f"{case.name}: aggregate drops or adds tensors")
    for n, t in got.items():
        right = t.shape == received[n].shape and t.dtype == received[n].dtype
        sentence(right and t.isfinite().all(), f"{case.name}: the aggregated {n} has another form")


def aggregate_of_one_update_is_the_update(case: StrategyCase) -> None:
    """At the neutral setting; so is that of several that are equal."""
    for count in (1, 4):
        for weighting in ("uniform", "examples"):
            strategy, state = case.strategy(**NEUTRAL, weighting=weighting), some_state(7)
            got = strategy.aggregate(case.received, some_updates(count, state))
            what = "one update" if count == 1 else "equal updates"
            case.near(got, state, f"the aggregate of {what} is not the update")


def aggregate_depends_on_no_order(case: StrategyCase) -> None:
    """Clients may answer in any."""
    want = case.strategy().aggregate(case.received, some_updates())
    got = case.strategy().aggregate(case.received, some_updates()[::-1])
    case.near(got, want, "aggregate depends on the order of the updates")


def aggregate_repeats(case: StrategyCase) -> None:
    """Two rounds of one instance are those of another: they share nothing."""
    runs = []
    for seed in (1, 2):
        strategy, found = case.strategy(), case.received
        with global_seed(seed):
            for _ in range(2):
                found = strategy.aggregate(found, some_updates())
        runs.append(found)
    wrong = changed(*runs)
    text = "two instances aggregate the same updates otherwise: state is shared or drawn globally"
    sentence(wrong is None, f"{case.name}: {text} ({wrong})")


STRATEGY_CHECKS: tuple[Callable[[StrategyCase], None], ...] = (
    aggregate_keeps_its_inputs_and_their_form,
    aggregate_of_one_update_is_the_update,
    aggregate_depends_on_no_order,
    aggregate_repeats,
)


def check_strategy(strategy: FederatedStrategy | type[FederatedStrategy]) -> None:
    """Check that a strategy keeps the promises of `strategies.base` about aggregation.

    Raises:
        AssertionError: one sentence that says which promise it breaks.
    """
    run(STRATEGY_CHECKS, StrategyCase, strategy)
