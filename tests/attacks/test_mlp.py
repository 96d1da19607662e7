"""The network as attack classifier: its threads, and a row's logit wherever the row stands."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedmia.attacks import _mlp
from fedmia.attacks._mlp import init_uniform, logits, mlp, train_logits
from fedmia.runtime.threads import limit_threads


class Watched(nn.Linear):
    """A layer that notes the threads that compute it."""

    def __init__(self) -> None:
        super().__init__(4, 1)
        self.threads: set[int] = set()

    def forward(self, x: Tensor) -> Tensor:
        self.threads.add(torch.get_num_threads())
        return super().forward(x)


@pytest.mark.parametrize(("small", "within"), [(4 * 5, 1), (4 * 5 - 1, 3)])
def test_train_logits__one_thread_where_small(
    small: int, within: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four images a step, five weights; outside as many threads as before."""
    monkeypatch.setattr(_mlp, "SMALL", small)
    model = Watched()
    with limit_threads(3):
        train_logits(
            model, torch.rand(8, 4), np.repeat([1, 0], 4), np.random.default_rng(0),
            optimizer=lambda w: torch.optim.SGD(w, lr=0.1), epochs=2, batch=4,
        )  # fmt: skip
        assert torch.get_num_threads() == 3
    assert model.threads == {within}


def test_threads__given_back_after_an_error() -> None:
    before = torch.get_num_threads()
    with pytest.raises(ZeroDivisionError), limit_threads(before + 1):
        raise ZeroDivisionError
    assert torch.get_num_threads() == before


def test_logits__of_equal_rows_are_equal_wherever_they_stand() -> None:
    """Or a tie with the threshold is decided by the place in a product of matrices."""
    model = mlp((11, 256, 256))
    init_uniform(model, torch.Generator().manual_seed(0))
    model = model.double().requires_grad_(False)
    row = (torch.arange(11) % 3 == 0).double()
    outputs = {float(x) for n in (1, 2, 3, 5, 37) for x in logits(model, row.expand(n, 11))}
    assert len(outputs) == 1
