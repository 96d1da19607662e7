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
    way = "return new tensors (t.clone())"
    text = f"aggregate changes the received {{}} in place; {way}"
    case.require_equal(originals[0], received, text)
    for before, after in zip(originals[1], updates, strict=True):
        text = f"aggregate changes {{}} of client {after.client}'s update in place; {way}"
        case.require_equal(before.state, after.state, text)
    case.form(got, received, "aggregate")


def aggregate_of_one_update_is_the_update(case: StrategyCase) -> None:
    """At the neutral setting; so is that of several that are equal."""
    state, where = some_state(7), case.neutral_words()
    for count, what in ((1, "one update"), (4, "equal updates")):
        for weighting in ("uniform", "examples"):
            strategy = case.neutral(weighting=weighting)
            got = strategy.aggregate(case.received, some_updates(count, state))
            case.near(got, state, f"the aggregate of {what} is not the update {where}")


def neutral_setting_averages(case: StrategyCase) -> None:
    """If there is one: the mean of all updates, each counted alike or by its images."""
    if not case.cls.neutral:
        return
    updates = some_updates()
    got, weights = case.neutral().aggregate(case.received, updates), [u.examples for u in updates]
    means = [
        {n: sum(w * u.state[n].double() for w, u in zip(shares, updates, strict=True)) / sum(shares)
         for n in got}
        for shares in ([1] * len(updates), weights)
    ]  # fmt: skip
    gaps = [max(float((got[n].double() - mean[n]).abs().max()) for n in got) for mean in means]
    text = f"the aggregate is {min(gaps):.2g} off the mean of the updates {case.neutral_words()}"
    case.must(min(gaps) <= 1e-5, text)


def aggregate_depends_on_no_order(case: StrategyCase) -> None:
    """Clients may answer in any."""
    want = case.new().aggregate(case.received, some_updates())
    got = case.new().aggregate(case.received, some_updates()[::-1])
    text = "aggregate depends on the order of the updates; give none a place of its own, and draw"
    case.near(got, want, f"{text} from rng(self.course.seed, NAME, update.round)")


def aggregate_repeats(case: StrategyCase) -> None:
    """Two rounds of one instance are those of another: they share nothing."""

    def rounds() -> State:
        strategy, state = case.new(), case.received
        for _ in range(2):
            state = strategy.aggregate(state, some_updates())
        return state

    one, other = call_under_seeds(rounds, 1, 2)
    text = (
        "two instances aggregate the same updates otherwise (see {}): state is shared or drawn "
        "globally; draw from rng(self.course.seed, NAME, update.round), and keep state in a field "
        "with init=False and a default_factory"
    )
    case.require_equal(one, other, text)


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
            f"{case.name}: no checkpoint can hold what it keeps: {error}; keep tensors by name, "
            "or what JSON holds, in each field with init=False"
        ) from None
    want = strategy.aggregate(case.received, some_updates())
    got = again.aggregate(case.received, some_updates())
    text = (
        "a strategy from a checkpoint aggregates otherwise (see {}); keep what a round leaves for"
    )
    case.require_equal(want, got, f"{text} the next in fields with init=False")


STRATEGY_CHECKS: tuple[Callable[[StrategyCase], None], ...] = (
    aggregate_keeps_its_inputs_and_their_form, aggregate_of_one_update_is_the_update,
    aggregate_depends_on_no_order, neutral_setting_averages, aggregate_repeats,
    checkpoint_holds_what_rounds_leave,
)  # fmt: skip


def check_strategy(strategy: FederatedStrategy | type[FederatedStrategy]) -> None:
    """AssertionError unless a strategy keeps what `strategies.base` says of aggregation."""
    run(STRATEGY_CHECKS, StrategyCase, strategy)
