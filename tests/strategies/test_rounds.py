"""Every strategy through its rounds, with clients that echo and clients that misbehave."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import fields
from functools import cache
from itertools import count
from threading import Event
from typing import Any

import pytest
import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedmia.federation.inline import InlineGrid, PendingMessage, Work, error_reply
from fedmia.seeding import rng
from fedmia.settings import registry
from fedmia.ssl.base import State, all_finite
from fedmia.storage.snapshot import Update
from strategies.base import FederatedStrategy
from strategies.cohort import Phase, draw_cohort
from strategies.failure_policy import TRIES, FailurePolicy, FederationError
from strategies.fedavg import FedAvg
from tests.clock import Clock
from tests.flower_clients import answering
from tests.strategies.conftest import exactly, some_state

NAMES = registry.names("strategy")
# An update is checked before its strategy sees it: every fault on FedAvg, one on each other.
FAULTS = ("nan", "shape", "name", "lack", "raise")
FAULTY = [(name, how) for name in NAMES for how in (FAULTS if name == "fedavg" else FAULTS[:1])]
every_fault = pytest.mark.parametrize(("name", "how"), FAULTY)
Reply = Callable[[int, int, State], State]


@cache
def course_of(name: str) -> tuple[State, Seen]:
    """Three rounds of the strategy with its defaults, of four clients that all answer well."""
    return federate(registry.build("strategy", name, {}))


class Shuffled(InlineGrid):
    """Replies come back in another order."""

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        expected = set(message_ids)
        while len(self._done) < len(expected):
            time.sleep(0.001)
        messages = list(super().pull_messages(expected))
        order = rng(0, "arrival", len(messages)).permutation(len(messages))
        return [messages[i] for i in order]


class Lossy(InlineGrid):
    """The reply of client 1 to an order never arrives."""

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        expected = set(message_ids)
        return [m for m in super().pull_messages(expected) if not ordered(m, 1)] if expected else []


def ordered(reply: Message, client: int) -> bool:
    """Whether it is the answer of `client` to an order to train."""
    metrics: Any = reply.content["metrics"]
    return "num-examples" in metrics and metrics["client"] == client


class Failing(InlineGrid):
    """The order to client 1 comes back as Flower's error message."""

    def _answer(self, order: PendingMessage) -> Any:
        if "arrays" in order.message.content and self.client(order) == 1:
            return error_reply(order.message, "out of memory"), None
        return super()._answer(order)


def echo(reply: Reply, resting: frozenset[int] = frozenset()) -> ClientApp:
    app = ClientApp()

    @app.query()
    def roll_call(message: Message, context: Context) -> Message:
        metrics = MetricRecord({"client": int(context.node_config["partition-id"])})
        return Message(RecordDict({"metrics": metrics}), reply_to=message)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        client = int(context.node_config["partition-id"])
        order: Any = message.content
        state = order["arrays"].to_torch_state_dict()
        state = reply(client, int(order["config"]["server-round"]), state)
        images = 0 if client in resting else 2 + client
        metrics = MetricRecord({"client": client, "num-examples": images, "loss": 1.0 + client})
        content = RecordDict({"arrays": ArrayRecord(torch_state_dict=state), "metrics": metrics})
        return Message(content, reply_to=message)

    return app


def drift(client: int, round: int, state: State) -> State:
    return {n: 0.9 * t + some_state(client + 7 * round)[n] for n, t in state.items()}


Seen = list[tuple[int, State, list[Update]]]


def work_of(reply: Reply, resting: frozenset[int] = frozenset()) -> Work:
    return answering(echo(reply, resting))


def federate(
    strategy: FederatedStrategy, grid_type: type[InlineGrid] = InlineGrid, reply: Reply = drift,
    clients: int = 4, rounds: int = 3, share: float = 1.0, first: int = 5,
    failure_policy: FailurePolicy | None = None, resting: frozenset[int] = frozenset(),
) -> tuple[State, Seen]:  # fmt: skip
    grid = grid_type(work_of(reply, resting), clients, 2, 1)
    calls: Seen = []
    taken: list[Update] = []
    try:
        phase = Phase("main", first, first + rounds, False, share, 0)
        members = failure_policy or FailurePolicy(clients)
        for done in strategy.rounds(grid, phase, some_state(99), members, taken.append):
            assert done.seconds >= 0 and list(done.metrics) == [u.client for u in taken]
            calls.append((done.number, {n: t.clone() for n, t in done.state.items()}, taken.copy()))
            taken.clear()
    finally:
        grid.close()
    return done.state, calls


@pytest.mark.parametrize("name", NAMES)
def test_every_strategy__aggregates_what_the_clients_sent_in_the_course_given(name: str) -> None:
    """The loop adds nothing: the same aggregation, round by round, without it."""
    (end, seen), alone = course_of(name), registry.build("strategy", name, {})
    assert [round for round, _, _ in seen] == [6, 7, 8]
    state = some_state(99)
    for round, new, ups in seen:
        assert [(u.client, u.round, u.examples, u.metrics) for u in ups] == [
            (c, round, 2 + c, {"loss": 1.0 + c}) for c in range(4)
        ]
        state = state | alone.aggregate(state, ups)
        assert exactly(state, new) and all(bool(t.isfinite().all()) for t in new.values())
    assert exactly(state, end)


@pytest.mark.parametrize("weighting", ["uniform", "examples"])
@pytest.mark.parametrize("name", NAMES)
def test_every_strategy__order_of_arrival_changes_no_bit(name: str, weighting: str) -> None:
    has = "weighting" in {f.name for f in fields(registry.load("strategy", name))}
    options = {"weighting": weighting} if has else {}
    ends = [
        federate(registry.build("strategy", name, options), grid, clients=7)[0]
        for grid in (InlineGrid, Shuffled)
    ]
    assert exactly(*ends)


@pytest.mark.parametrize("name", NAMES)
def test_every_strategy__only_the_cohort_trains(name: str) -> None:
    _, seen = federate(registry.build("strategy", name, {}), clients=5, share=0.4, rounds=4)
    for round, _, ups in seen:
        phase = Phase("main", 5, 9, False, 0.4, 0)
        assert [u.client for u in ups] == draw_cohort(phase, round, 5)
    assert len({tuple(u.client for u in ups) for _, _, ups in seen}) > 1


def test_start__names_that_no_client_sends_keep_their_value() -> None:
    """Batch norm's running statistics under the policy `local`."""
    end, _ = federate(
        FedAvg(), reply=lambda c, r, s: {"bias": s["bias"] + 1.0}, clients=2, rounds=2
    )
    assert torch.equal(end["head.weight"], some_state(99)["head.weight"])
    torch.testing.assert_close(end["bias"], some_state(99)["bias"] + 2)


@pytest.mark.parametrize("resting", [{1}, {0, 1, 2, 3}])
def test_fold__of_clients_that_rest_nothing_but_their_metrics_counts(resting: set[int]) -> None:
    """An update of no images is in no mean; of such alone the weights stay."""
    end, seen = federate(FedAvg(), resting=frozenset(resting))
    state = some_state(99)
    for _, _, ups in seen:
        assert [u.metrics for u in ups] == [{"loss": 1.0 + c} for c in range(4)]
        trained = [u for u in ups if u.client not in resting]
        state = FedAvg().aggregate(state, trained) if trained else state
    assert exactly(end, state)


def test_finite__large_values_whose_sum_is_not() -> None:
    large = torch.full((4,), 3e38)
    assert all_finite([large, -large, torch.tensor([1, 2])])
    for odd in (float("nan"), float("inf"), -float("inf")):
        assert not all_finite([large, torch.tensor([1.0, odd, 3e38])])


@pytest.mark.parametrize(
    ("grid", "words"),
    [(Lossy, r"no reply from clients \[1\]"), (Failing, "client 1 failed: out of memory")],
)
def test_reply__that_is_missing_or_an_error_names_its_client(
    grid: type[InlineGrid], words: str, clock: Clock
) -> None:
    clock.speed = 40_000.0  # an hour is over after two looks
    with pytest.raises(FederationError, match=f"round 6: {words}"):
        federate(FedAvg(), grid)


def spoiled(how: str) -> Reply:
    def reply(client: int, round: int, state: State) -> State:
        if (client, round) != (2, 7):
            return drift(client, round, state)
        if how == "raise":
            raise RuntimeError("lost")
        bad = {n: t.clone() for n, t in state.items()}
        if how in ("nan", "inf"):
            bad["bias"][3] = float(how)
        elif how == "shape":
            bad["bias"] = torch.zeros(4)
        elif how == "name":
            bad["stranger"] = torch.zeros(1)
        elif how == "lack":
            del bad["bias"]
        return bad

    return reply


MESSAGES = {
    "nan": "round 7: client 2 sent a 'bias' that is not finite",
    "inf": "round 7: client 2 sent a 'bias' that is not finite",
    "shape": "round 7: client 2 sent a 'bias'.*of another shape",
    "name": "round 7: client 2 sent unknown.*stranger",
    "lack": "round 7: client 2 sent other tensors than client 0: .*bias",
}


@pytest.mark.parametrize(
    ("name", "how"), [(n, h) for n in NAMES for h in MESSAGES if n == "fedavg" or h == "nan"]
)
def test_every_strategy__a_spoiled_update_names_its_client(name: str, how: str) -> None:
    with pytest.raises(FederationError, match=MESSAGES[how]) as raised:
        federate(registry.build("strategy", name, {}), reply=spoiled(how))
    assert ("a lower train.lr helps" in str(raised.value)) == (how in ("nan", "inf"))


def once(how: str) -> Reply:
    """A spoiled update of client 2 in round 7, the first time that it is asked."""
    bad, calls = spoiled(how), list[int]()

    def reply(client: int, round: int, state: State) -> State:
        if (client, round) == (2, 7):
            calls.append(1)
        return (bad if len(calls) == 1 else drift)(client, round, state)

    return reply


@every_fault
def test_retry__gives_the_run_that_nothing_befell(name: str, how: str) -> None:
    failure_policy, strategy = FailurePolicy(4, "retry"), registry.build("strategy", name, {})
    end, _ = federate(strategy, reply=once(how), failure_policy=failure_policy)
    assert exactly(end, course_of(name)[0])
    assert [(f.round, f.client, f.action) for f in failure_policy.faults] == [(7, 2, "retried")]


def test_retry__ends_after_its_tries() -> None:
    failure_policy = FailurePolicy(4, "retry")
    with pytest.raises(FederationError, match=rf"round 7: client 2 sent .*\({TRIES} times\)"):
        federate(FedAvg(), reply=spoiled("nan"), failure_policy=failure_policy)
    assert [f.action for f in failure_policy.faults] == ["retried"] * (TRIES - 1) + ["stopped"]


def test_retry__tries_are_those_of_one_order() -> None:
    """What befell a client in other rounds or branches, or another client, is no try of it."""
    failure_policy = FailurePolicy(4, "retry")
    for branch, round, client in (("main", 1, 2), ("main", 2, 2), ("zero", 2, 2), ("zero", 2, 3)):
        for _ in range(TRIES - 1):
            assert failure_policy.note_failure(branch, round, client, "is slow")
    with pytest.raises(FederationError, match=rf"round 2: client 3 .*\({TRIES} times\)"):
        failure_policy.note_failure("zero", 2, 3, "is slow")
    rounds = list[int]()

    def tired(client: int, round: int, state: State) -> State:
        if client == 2:
            rounds.append(round)
            if rounds.count(round) < TRIES:
                raise RuntimeError("lost")
        return drift(client, round, state)

    end, _ = federate(FedAvg(), reply=tired, failure_policy=FailurePolicy(4, "retry"))
    assert exactly(end, course_of("fedavg")[0])
    assert rounds == [round for round in (6, 7, 8) for _ in range(TRIES)]


@every_fault
def test_drop__goes_on_without_the_client(name: str, how: str) -> None:
    """In this round and in later ones: the aggregate is that of the others alone."""
    failure_policy = FailurePolicy(4, "drop")
    _, seen = federate(
        registry.build("strategy", name, {}), reply=spoiled(how), failure_policy=failure_policy
    )
    assert [[u.client for u in ups] for _, _, ups in seen] == [[0, 1, 2, 3], [0, 1, 3], [0, 1, 3]]
    assert failure_policy.gone == {2} and [f.action for f in failure_policy.faults] == ["dropped"]


def test_drop__not_whom_the_run_needs_and_not_too_many() -> None:
    """Either of two that are indispensable may go, both may not."""
    needs = lambda gone: "one stays" * (gone >= {1, 2})  # noqa: E731
    policy = FailurePolicy(4, "drop", indispensable=needs)
    for client in (1, 3):
        assert not policy.note_failure("main", 6, client, "is late")
    with pytest.raises(FederationError, match=r"round 7: client 2 .* \(one stays\)"):
        federate(FedAvg(), reply=spoiled("nan"), failure_policy=policy)
    assert policy.gone == {1, 3} and [f.action for f in policy.faults][-1] == "stopped"
    with pytest.raises(FederationError, match="round 7: 3 clients answered, at least 4"):
        federate(FedAvg(), reply=spoiled("nan"), failure_policy=FailurePolicy(4, "drop", least=4))


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["stop", "retry", "drop"])
def test_late_client__is_given_up(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its answer, when it comes, is nobody's; the round does not wait for it."""
    slept, free = list[int](), Event()

    def reply(client: int, round: int, state: State) -> State:
        if (client, round) == (2, 7) and not slept:
            slept.append(1)
            free.wait(20)
        return drift(client, round, state)

    class Impatient(InlineGrid):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given, timeout=0.3)

        def close(self) -> None:  # nor does the end: each look at the clock takes ten seconds
            monkeypatch.setattr(time, "monotonic", count(time.monotonic(), 10).__next__)
            super().close()

    failure_policy, began = FailurePolicy(4, policy), time.perf_counter()
    ends = pytest.raises(FederationError, match="client 2 failed: no answer within 0.3 s")
    try:
        with ends if policy == "stop" else nullcontext():
            end, seen = federate(FedAvg(), Impatient, reply=reply, failure_policy=failure_policy)
            assert exactly(end, course_of("fedavg")[0]) == (policy == "retry")
            assert [len(ups) for _, _, ups in seen] == ([4] * 3 if policy == "retry" else [4, 3, 3])
    finally:
        free.set()
    assert time.perf_counter() - began < 15 and len(failure_policy.faults) == 1
