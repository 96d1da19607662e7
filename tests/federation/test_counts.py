"""What a round copies, draws and moves does not rise again; and a card gives a CPU's numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from clients.client_round import ClientRound
from clients.honest import Honest
from fedmia.defenses.base import Metrics
from fedmia.ssl.base import State
from tests.counts import CASES, COLUMNS, Counted, count_case
from tests.pretend_card import CARD, Watch, pretend_card

# The most of each of COLUMNS in a first round and in a later one, rounded up;
# `python -m tests.counts` prints today's.
BOUNDS = {
    ("one after the other", "cpu"): ((7.0, 16, 0, 0, 0), (7.3, 0, 0, 0, 0)),
    ("one after the other", "meta"): ((8.0, 16, 0.01, 2.8, 3), (8.2, 0, 0.01, 2.8, 4)),
    ("in one pass", "cpu"): ((5.7, 8, 0, 0, 0), (5.4, 0, 0, 0, 0)),
    ("in one pass", "meta"): ((5.9, 8, 0.01, 0.4, 1.1), (5.5, 0, 0.01, 0.4, 1.1)),
}


@pytest.fixture(scope="module")
def count(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Counted]:
    """`count(case, device)`, once each."""
    counted = dict[tuple[str, str], Counted]()

    def count(case: str, device: str) -> Counted:
        if (case, device) not in counted:
            folder = tmp_path_factory.mktemp("counts")
            counted[case, device] = count_case(folder, case, device)
        return counted[case, device]

    return count


def excess(counted: Counted, case: str, device: str) -> list[str]:
    """The counts that are over their bounds."""
    rows = zip(counted.rounds, BOUNDS[case, device], ("first", "later"), strict=True)
    return [
        f"{case}, {device}, {which} round: {name} {row[name]:.3f} > {most}"
        for row, bounds, which in rows
        for name, most in zip(COLUMNS, bounds, strict=True)
        if row[name] > most
    ]


@pytest.mark.parametrize(("case", "device"), BOUNDS)
def test_counts__do_not_rise(case: str, device: str, count: Callable[[str, str], Counted]) -> None:
    assert excess(count(case, device), case, device) == []


@pytest.mark.parametrize("case", CASES)
def test_card__gives_the_numbers_of_a_cpu(case: str, count: Callable[[str, str], Counted]) -> None:
    """To the bit: what is computed there is computed on the CPU."""
    on_cpu, on_card = count(case, "cpu").state, count(case, "meta").state
    assert on_cpu.keys() == on_card.keys()
    assert all(torch.equal(t, on_card[n].cpu()) for n, t in on_cpu.items())


class Copies(Honest):
    """An honest client that trains from a copy of what it keeps."""

    def work(self, client_round: ClientRound) -> tuple[State, Metrics]:
        kept = client_round.local_state
        copied = {name: tensor.clone() for name, tensor in kept.tensors.items()}
        client_round.local_state = replace(kept, tensors=copied)
        return super().work(client_round)


def test_counts__see_one_more_copy_of_what_a_client_keeps(tmp_path: Path) -> None:
    case, device = next(iter(BOUNDS))
    roles = (f"{__name__}:Copies",) * CASES[case][0]
    over: Any = excess(count_case(tmp_path, case, device, roles=roles), case, device)
    assert len(over) == 1 and "later round: copied " in over[0]


@pytest.fixture
def card() -> Iterator[Watch]:
    with pretend_card() as watch:
        yield watch


def test_card__refuses_what_a_card_refuses(card: Watch) -> None:
    there, here = torch.ones(3, device=CARD), torch.ones(3)
    assert there.device == CARD
    for mix in (
        lambda: there + here,
        lambda: here.add_(there),
        lambda: torch.stack([here, there]),
        lambda: torch.where(there > 0, there, here),
    ):
        with pytest.raises(RuntimeError, match="on the cpu"):
            mix()
    with pytest.raises((TypeError, RuntimeError)):
        there.numpy()
    assert (there * torch.tensor(2.0)).tolist() == [2, 2, 2]  # one number may be the CPU's


def test_card__counts_what_crosses(card: Watch) -> None:
    there = torch.arange(6.0).to(CARD)
    there.view(2, 3)[1].zero_()  # a view shares its memory
    assert card.take() == {"to card": 24, "copied": 24}
    assert there.cpu().tolist() == [0, 1, 2, 0, 0, 0]
    assert card.take() == {"to host": 24, "copied": 24, "waits": 1}
    assert float(there.sum()) == 3 and bool(there.isfinite().all())
    assert card.take() == {"to host": 5, "waits": 2}
    there.copy_(torch.zeros(6)), there.clone(), torch.stack([there, there])
    torch.randn(2, 2), torch.empty(3, device=CARD).normal_()
    assert card.take() == {"to card": 24, "copied": 24 + 24 + 48, "drawn": 7}
