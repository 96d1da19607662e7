"""What every strategy's aggregation promises, as functions: `check_strategy` runs them all."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from fedmia.seeding import torch_rng
from fedmia.settings import Options
from fedmia.ssl.base import State
from fedmia.storage.snapshot import Update
from fedmia.testing.material import Case, call_under_seeds, run

if TYPE_CHECKING:  # Flower is loaded by the class that is checked
    from strategies.base import FederatedStrategy

# Options at which one client's update becomes the global model, where a strategy has them.
NEUTRAL = {"server_lr": 1.0, "beta": 0.0, "noise_multiplier": 0.0, "clip": 1e9}


def some_state(seed: int) -> State:
    """Two random tensors."""
    draw = torch_rng(seed, "state")
    shapes = {"head.weight": (3, 4), "bias": (5,)}
    return {n: torch.randn(shape, generator=draw) for n, shape in shapes.items()}


def some_updates(count: int = 4, state: State | None = None) -> list[Update]:
    """Updates of clients that hold 3, 5, 7 .. images; all the same where `state` is given.

    Args:
        count: number of clients.
        state: weights that all send; None: random ones.

    Returns:
        the updates.
    """
    return [Update(c, 1, state or some_state(c), 3 + 2 * c, {}) for c in range(count)]


class StrategyCase(Case):
    """A strategy, and the weights that its clients received."""

    def __init__(self, strategy: FederatedStrategy | type[FederatedStrategy]) -> None:
        super().__init__(strategy, Options, {})
        self.received = some_state(99)

    def near(self, got: State, want: State, text: str) -> None:
        """Refuse a state further than rounding from another.

        Args:
            got: tensors by name.
            want: tensors to compare with.
            text: sentence of the error.
        """
        for n, t in want.items():
            gap = float((got[n].double() - t.double()).abs().max())
            self.must(gap <= 1e-5, f"{text} ({n} by {gap:.2g})")


def aggregate_keeps_its_inputs_and_their_form(case: StrategyCase) -> None:
    """New tensors of the same names, shapes and types."""
    received, updates = case.received, some_updates()
    originals = copy.deepcopy((received, updates))
    got = case.new().aggregate(received, updates)
    case.require_equal(originals[0], received, "aggregate changes the received {} in place")
    for before, after in zip(originals[1], updates, strict=True):
        text = f"aggregate changes {{}} of client {after.client}'s update in place"
        case.require_equal(before.state, after.state, text)
    case.form(got, received, "aggregate")


def aggregate_of_one_update_is_the_update(case: StrategyCase) -> None:
    """At the neutral setting; so is that of several that are equal."""
    state = some_state(7)
    for count, what in ((1, "one update"), (4, "equal updates")):
        for weighting in ("uniform", "examples"):
            strategy = case.new(**NEUTRAL, weighting=weighting)
            got = strategy.aggregate(case.received, some_updates(count, state))
            case.near(got, state, f"the aggregate of {what} is not the update")


def aggregate_depends_on_no_order(case: StrategyCase) -> None:
    """Clients may answer in any."""
    want = case.new().aggregate(case.received, some_updates())
    got = case.new().aggregate(case.received, some_updates()[::-1])
    case.near(got, want, "aggregate depends on the order of the updates")


def aggregate_repeats(case: StrategyCase) -> None:
    """Two rounds of one instance are those of another: they share nothing."""

    def rounds() -> State:
        strategy, state = case.new(), case.received
        for _ in range(2):
            state = strategy.aggregate(state, some_updates())
        return state

    text = "two instances aggregate the same updates otherwise: state is shared or drawn globally"
    one, other = call_under_seeds(rounds, 1, 2)
    case.require_equal(one, other, f"{text} ({{}})")


def checkpoint_holds_what_rounds_leave(case: StrategyCase) -> None:
    """A strategy that a checkpoint brought back aggregates as the one that it was written of."""
    from fedmia.federation.checkpoint import restore_server, server_state

    strategy, again = case.new(), case.new()
    for _ in range(2):
        strategy.aggregate(case.received, some_updates())
    try:
        restore_server(again, *server_state(strategy))
    except TypeError as error:
        raise AssertionError(
            f"{case.name}: no checkpoint can hold what it keeps: {error}"
        ) from None
    want = strategy.aggregate(case.received, some_updates())
    got = again.aggregate(case.received, some_updates())
    case.require_equal(want, got, "a strategy from a checkpoint aggregates otherwise ({})")


STRATEGY_CHECKS: tuple[Callable[[StrategyCase], None], ...] = (
    aggregate_keeps_its_inputs_and_their_form, aggregate_of_one_update_is_the_update,
    aggregate_depends_on_no_order, aggregate_repeats, checkpoint_holds_what_rounds_leave,
)  # fmt: skip


def check_strategy(strategy: FederatedStrategy | type[FederatedStrategy]) -> None:
    """AssertionError unless a strategy keeps what `strategies.base` says of aggregation."""
    run(STRATEGY_CHECKS, StrategyCase, strategy)
