"""Every strategy on a pretended card: the numbers of a CPU, and what of them comes to the host."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from flwr.app import Message

from clients.app import Answer, write_content
from fedmia.federation.checkpoint import BranchState, pack_branch, server_state, unpack_branch
from fedmia.federation.inline import InlineGrid
from fedmia.settings import registry
from fedmia.ssl.base import State, on_device
from fedmia.storage.arrays import tensors
from fedmia.storage.snapshot import Update, read_tensors, write_tensors
from strategies.base import FederatedStrategy
from strategies.cohort import Phase
from strategies.failure_policy import FailurePolicy, FederationError
from strategies.fedavg import FedAvg
from strategies.fedavgm import FedAvgM
from strategies.scaffold import METRIC
from tests.counts import watched
from tests.pretend_card import CARD, Watch, pretend_card
from tests.strategies.conftest import exactly, some_state

CLIENTS = 5
ROUNDS = Phase("main", 0, 3, True, 1.0, 0, 3)
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    name: (name, {}) for name in registry.names("strategy")
}
CASES |= {
    "fedavg, slow": ("fedavg", {"server_lr": 0.3, "weighting": "examples"}),
    "dp-fedavg, adaptive": ("dp-fedavg", {"adaptive": True, "canaries": 100}),
    "krum, of five": ("krum", {"malicious": 1}),
    "trimmed-mean, of none": ("trimmed-mean", {"trim": 0}),
}
# Bytes that come to the host for each update beside the one of the check, by which the server
# decides in Python: the norm of an update, its distance to the others.
NUMBERS = {"norm-clip": 8, "dp-fedavg": 8, "krum": 8, "multi-krum": 8}
Change = Callable[[int, State], State]


def unchanged(client: int, sent: State) -> State:
    return sent


def branch(case: str, state: State | None = None) -> BranchState:
    """A branch of a case before its first round."""
    name, options = CASES[case]
    strategy: FederatedStrategy = registry.build("strategy", name, options)
    return BranchState("main", 0, some_state(99) if state is None else state, strategy)


def play(
    card: Watch, at: BranchState, device: str, phase: Phase = ROUNDS, change: Change = unchanged
) -> BranchState:
    """The branch after the rounds of a phase, whose clients' updates come on a device."""

    def answer(message: Message, client: int, *rest: Any) -> Answer:
        received = tensors(message.content.array_records["arrays"])
        round: Any = message.content.config_records["config"]["server-round"]
        drift = on_device(some_state(client + 10 * round, 0.1), device)
        sent = change(client, {n: 0.9 * received[n] + t for n, t in drift.items()})
        update = Update(client, round, sent, 3 + 2 * client, {METRIC: 0.5 + client})
        return Message(write_content(replace(update, state=sent)), reply_to=message), None

    work = watched(card, answer)
    with closing(InlineGrid(work, CLIENTS, 1, 1, device=device)) as grid:
        for done in at.strategy.rounds(grid, phase, at.state, FailurePolicy(CLIENTS)):
            at.round, at.state = done.number, done.state
    return at


def round_of(number: int) -> Phase:
    """A round by itself."""
    return replace(ROUNDS, first=number - 1, last=number)


def kept(at: BranchState) -> State:
    """All tensors of the server."""
    return at.state | server_state(at.strategy)[0]


@pytest.fixture
def card() -> Any:
    with pretend_card() as watch:
        yield watch


@pytest.mark.parametrize("case", CASES)
def test_rounds__on_a_card_are_those_on_a_cpu_and_stay_there(case: str, card: Watch) -> None:
    on_cpu = play(card, branch(case), "cpu")
    assert not {"to host", "to card"} & card.take().keys()
    on_card = play(card, branch(case), CARD.type)
    counts = card.take()
    assert {t.device for t in kept(on_card).values()} == {CARD}
    assert counts["to host"] == 3 * CLIENTS * (1 + NUMBERS.get(CASES[case][0], 0))
    assert exactly(kept(on_cpu), on_device(kept(on_card), "cpu"))
    assert server_state(on_cpu.strategy)[1] == server_state(on_card.strategy)[1]


@pytest.mark.parametrize("case", ["fedavgm", "scaffold", "dp-fedavg, adaptive"])
def test_rounds__go_on_from_a_checkpoint_where_updates_come(
    case: str, card: Watch, tmp_path: Path
) -> None:
    whole, first = play(card, branch(case), "cpu"), replace(ROUNDS, last=2)
    tensors, about = pack_branch(play(card, branch(case), CARD.type, first))
    write_tensors(tensors, tmp_path / "head", about)
    again = unpack_branch(read_tensors(tmp_path / "head"), branch(case).strategy)
    assert {t.device.type for t in kept(again).values()} == {"cpu"}
    play(card, again, CARD.type, round_of(3))
    assert {t.device for t in kept(again).values()} == {CARD}
    assert exactly(kept(whole), on_device(kept(again), "cpu"))


def test_rounds__take_to_the_host_once_what_clients_elsewhere_are_sent(card: Watch) -> None:
    on_cpu, there = play(card, branch("fedavgm"), "cpu"), on_device(some_state(99), CARD)
    card.take()
    elsewhere = play(card, branch("fedavgm", there), "cpu")
    assert card.take()["to host"] == 4 * 17
    assert exactly(kept(on_cpu), kept(elsewhere))


def test_rounds__take_an_update_that_comes_on_the_host_to_the_model(card: Watch) -> None:
    def leave(client: int, sent: State) -> State:
        return on_device(sent, "cpu") if client == 1 else sent

    on_cpu, mixed = (
        play(card, branch("krum"), "cpu"),
        play(card, branch("krum"), CARD.type, change=leave),
    )
    assert exactly(on_cpu.state, on_device(mixed.state, "cpu"))


def test_reader__waits_once_for_an_update(card: Watch) -> None:
    play(card, branch("fedavg"), CARD.type)
    counts = card.take()
    assert counts["waits"] == counts["to host"] == 3 * CLIENTS


def broken(client: int, sent: State) -> State:
    """A number of the last client that is none, in its second tensor."""
    return sent | {"bias": sent["bias"] / 0} if client == CLIENTS - 1 else sent


def short(client: int, sent: State) -> State:
    return sent | {"bias": sent["bias"][1:]} if client == 1 else sent


def double(client: int, sent: State) -> State:
    return sent | {"bias": sent["bias"].double()} if client == 1 else sent


def strange(client: int, sent: State) -> State:
    return sent | {"more": sent["bias"]} if client == 1 else sent


@pytest.mark.parametrize("change", [broken, short, double, strange])
def test_reader__refuses_what_it_refuses_on_a_cpu(change: Change, card: Watch) -> None:
    sentences = Counter[str]()
    for device in ("cpu", CARD.type):
        with pytest.raises(FederationError) as caught:
            play(card, branch("median"), device, change=change)
        sentences[str(caught.value)] += 1
    assert list(sentences.values()) == [2]


class SumOnHost(FedAvg):
    """Takes each update to the host before it is added."""

    def aggregate(self, received: State, updates: Iterable[Update]) -> State:
        on_host = (replace(one, state=on_device(one.state, "cpu")) for one in updates)
        return super().aggregate(received, on_host)


class MomentumOnHost(FedAvgM):
    """Keeps its momentum on the host."""

    def aggregate(self, received: State, updates: Iterable[Update]) -> State:
        self.velocity = on_device(self.velocity, "cpu")
        return super().aggregate(received, updates)


def test_card__finds_a_sum_on_the_host_and_momentum_left_there(card: Watch) -> None:
    """What the tests above would see."""
    with pytest.raises(RuntimeError, match="on the cpu, the others on the card"):
        play(card, BranchState("main", 0, some_state(99), MomentumOnHost()), CARD.type)
    card.take()
    alone = BranchState("main", 0, some_state(99), SumOnHost())
    at = play(card, alone, CARD.type, round_of(1))
    assert card.take()["to host"] == CLIENTS * (4 * 17 + 1)
    assert {t.device.type for t in at.state.values()} == {"cpu"}
    assert isinstance(at.state["bias"], torch.Tensor)
