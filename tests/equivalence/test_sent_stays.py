"""What is sent is not copied inside a process, so nobody may change it: not the clients who receive
a model, not the client who sent an update and trains on, not the server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clients import app
from clients.client_setup import ClientSetup
from fedmia.federation import backends
from fedmia.federation.checkpoint import BranchState
from fedmia.federation.rounds import FederatedRun
from fedmia.ssl.base import State
from fedmia.storage.arrays import tensors
from strategies.base import FinishedRound
from strategies.cohort import Phase

from .conftest import ACTIVE, federated, planned, same

PASSIVE = "--attacks similarity --attack.similarity.views 4 "


@pytest.mark.parametrize(
    "flags",
    [
        ACTIVE + "--strategy scaffold --defense gaussian --defended-clients 2 ",
        PASSIVE + "--strategy fedavgm --clients-at-once 4 ",
        *(
            pytest.param(flags, marks=pytest.mark.slow)
            for flags in (
                ACTIVE + "--strategy krum --clients 5 ",
                ACTIVE + "--strategy dp-fedavg ",
                ACTIVE + "--strategy trimmed-mean --defense crop-range ",
                PASSIVE + "--strategy fedema --defense laplace ",
                PASSIVE + "--strategy fedprox --defense dpsgd ",
                PASSIVE + "--strategy norm-clip --defense early-stopping --split.public 16 ",
                PASSIVE + "--strategy median --defense weight-decay ",
            )
        ),
    ],
)
def test_run__changes_nothing_that_was_sent(
    flags: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = list[tuple[State, State]]()  # each beside a copy of it
    begin, record = FederatedRun._begin_branch, FederatedRun._record

    def keep(state: State) -> None:
        sent.append((state, {name: tensor.clone() for name, tensor in state.items()}))

    def start(self: FederatedRun, branch: str) -> BranchState:
        at = begin(self, branch)
        keep(at.state)
        return at

    def finish(self: FederatedRun, phase: Phase, received: State, done: FinishedRound) -> None:
        keep(done.state)
        record(self, phase, received, done)

    def answer(*order: Any) -> app.Answer:
        reply, state = app.answer(*order)
        keep(tensors(reply.content.array_records["arrays"]))
        return reply, state

    def together_app(setup: ClientSetup) -> app.Together:
        work = app.together_app(setup)

        def answer_all(*orders: Any) -> dict[int, app.Answer]:
            answers = work(*orders)
            for reply, _ in answers.values():
                keep(tensors(reply.content.array_records["arrays"]))
            return answers

        return answer_all

    monkeypatch.setattr(backends, "answer", answer)
    monkeypatch.setattr(backends, "together_app", together_app)
    monkeypatch.setattr(FederatedRun, "_begin_branch", start)
    monkeypatch.setattr(FederatedRun, "_record", finish)
    federated(planned(flags), tmp_path / "run")
    assert len(sent) >= 1 + 4 * (4 + 1) and all(same(*pair) for pair in sent)
