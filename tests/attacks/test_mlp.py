"""The network as attack classifier: in how many threads it is trained."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedmia.attacks import _mlp
from fedmia.attacks._mlp import train_logits
from fedmia.runtime.threads import threads


class Told(nn.Linear):
    """A layer that notes the threads that compute it."""

    def __init__(self) -> None:
        super().__init__(4, 1)
        self.threads: set[int] = set()

    def forward(self, x: Tensor) -> Tensor:
        self.threads.add(torch.get_num_threads())
        return super().forward(x)


def trained(model: nn.Module) -> None:
    inputs, truth = torch.rand(8, 4), np.repeat([1, 0], 4)
    train_logits(
        model, inputs, truth, np.random.default_rng(0),
        optimizer=lambda w: torch.optim.SGD(w, lr=0.1), epochs=2, batch=4,
    )  # fmt: skip


@pytest.mark.parametrize(("small", "within"), [(4 * 5, 1), (4 * 5 - 1, 3)])
def test_train_logits__one_thread_where_small(
    small: int, within: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four images a step, five weights; outside as many threads as before."""
    monkeypatch.setattr(_mlp, "SMALL", small)
    model = Told()
    with threads(3):
        trained(model)
        assert torch.get_num_threads() == 3
    assert model.threads == {within}


def test_threads__given_back_after_an_error() -> None:
    before = torch.get_num_threads()
    with pytest.raises(ZeroDivisionError), threads(before + 1):
        raise ZeroDivisionError
    assert torch.get_num_threads() == before
