"""Who runs beside whom, and in which order replies come, changes no bit."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from flwr.app import Message

from fedmia.federation.backends import InlineGrid

from .conftest import Finished, Run, federated, planned, same, weights

FLAGS = "--attacker active --attacks ascent --strategy fedavg --strategy.weighting examples"


def equal(one: Run, other: Run) -> bool:
    """The same weights, uploads and client states in every branch."""
    for branch in ("main", "zero", "placebo"):
        a, b = weights(one, branch), weights(other, branch)
        if list(a) != list(b) or not all(same(a[r], b[r]) for r in a):
            return False
        for client in range(4):
            states = [f.store.load(branch, client) for f in (one, other)]
            assert states[0] is not None and states[1] is not None
            if (
                not same(states[0].tensors, states[1].tensors)
                or states[0].memory != states[1].memory
            ):
                return False
    sent = [f.sent("main") for f in (one, other)]
    assert list(sent[0]) == list(sent[1]) == [3, 4]
    return all(same(sent[0][r], sent[1][r]) for r in sent[0])


@pytest.mark.slow
def test_clients__in_any_order_on_one_thread_or_four_give_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedmia.federation.backends.count_cores", lambda: 1)
    serial = federated(planned(FLAGS), tmp_path / "serial")
    plain = InlineGrid.send_and_receive

    def turned(
        self: InlineGrid, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        every = list(messages)
        return list(plain(self, every[1::2] + every[::2], timeout=timeout))[::-1]

    monkeypatch.setattr("fedmia.federation.backends.count_cores", lambda: 4)
    monkeypatch.setattr(InlineGrid, "send_and_receive", turned)
    four = federated(planned(FLAGS), tmp_path / "four")
    assert equal(serial, four)
    assert [r.loss for r in serial.rounds] == [r.loss for r in four.rounds]


def test_participation__half_of_the_clients_train_each_round(finished: Finished) -> None:
    run = finished("--federation.participation 0.5 --attacks none")
    for round in range(1, 5):
        assert sum(run.schedule.takes_part(client, round) for client in range(4)) == 2
    assert not same(weights(run)[1], weights(finished("--attacks none"))[1])


@pytest.mark.slow
def test_participation__an_attacker_that_misses_rounds_still_runs(tmp_path: Path) -> None:
    flags = "--federation.participation 0.5 --attacker active --rounds 7 --attack-rounds 5"
    run = federated(planned(f"{flags} --attacks ascent"), tmp_path / "run")
    sent = run.sent("main")
    assert 0 < len(sent) < 5  # of this seed: it was left out of some, not of all
    assert list(sent) == list(run.sent("zero")) == list(run.sent("placebo"))
    rounds = [r for r in range(3, 8) if run.schedule.takes_part(3, r)]
    assert list(sent) == rounds
