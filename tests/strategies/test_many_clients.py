"""A round of many clients: who is asked, what waits, what a client that rests costs."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from threading import Event, get_ident

import pytest
import torch
from flwr.app import Message

from clients.app import Answer
from fedmia.federation.inline import InlineGrid
from fedmia.federation.ledger import Ledger
from fedmia.ssl.base import State
from fedmia.storage.snapshot import ClientState
from strategies.base import call_roll
from strategies.cohort import Phase, draw_cohort
from strategies.failure_policy import FailurePolicy, FederationError
from strategies.fedavg import FedAvg
from tests.flower_clients import context_of
from tests.strategies.conftest import some_state
from tests.strategies.test_rounds import drift, echo, federate, work_of


@pytest.mark.slow
def test_many_clients__few_updates_wait() -> None:
    """However late the first client is."""
    records, late = list[int](), Event()

    def reply(client: int, round: int, state: State) -> State:
        if client == 0:
            late.wait(0.5)
        records.append(client)
        return state

    federate(FedAvg(), reply=reply, clients=60, rounds=1)
    assert records.index(0) <= 16


def test_cross_device__a_client_that_is_not_drawn_costs_nothing(tmp_path: Path) -> None:
    """Of 20,000 clients 40 are drawn: no more messages, states or files than those."""
    worked, sent, threads = set[int](), list[int](), set[int]()
    store = Ledger(tmp_path, room=0)

    class Counting(InlineGrid):
        def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
            messages = list(messages)
            sent.extend(m.metadata.dst_node_id for m in messages)
            return super().push_messages(messages)

    def work(message: Message, client: int, kept: ClientState | None, halt: Event) -> Answer:
        worked.add(client + 2)
        threads.add(get_ident())
        return echo(drift)(message, context_of(client)), ClientState({"queue": torch.zeros(3)})

    clients, phase = 20_000, Phase("main", 0, 2, False, 0.001, 0)
    grid = Counting(work, clients, 2, 1, store)
    try:
        *_, last = FedAvg().rounds(grid, phase, some_state(99), FailurePolicy(clients))
    finally:
        grid.close()
    cohorts = [draw_cohort(phase, round, clients) for round in (1, 2)]
    drawn = {client + 2 for cohort in cohorts for client in cohort}
    assert sorted(last.metrics) == cohorts[1] and len(threads) <= 2
    assert len(sent) == 40 and worked == drawn == set(sent)
    assert len(list(tmp_path.iterdir())) in (len(drawn), len(drawn) - 1)  # one stays in memory


def test_call_roll__maps_partitions_to_nodes() -> None:
    grid = InlineGrid(work_of(drift), 5, 2, 1)
    try:
        nodes = call_roll(grid, 5)
        assert nodes == grid.client_nodes()
        with pytest.raises(FederationError, match="5 of 6 clients connected"):
            call_roll(grid, 6, patience=0.0)
    finally:
        grid.close()
