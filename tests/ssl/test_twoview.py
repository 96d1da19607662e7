"""The bank of methods without a queue, and the heads of all."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from fedmia.ssl._heads import mlp
from tests.ssl.methods import case, pixels


@pytest.mark.parametrize("name", ["simclr", "mocov3"])
def test_bank__is_a_ring_of_the_latest_outputs(name: str) -> None:
    method = case(name, bank=6).build()
    expected = list(method.bank.rows.clone())
    for count in (4, 1, 3, 8):
        a, b = pixels(count, count), pixels(count, 9)
        with torch.no_grad():
            expected = [*expected, *F.normalize(method.encoder(a), dim=1)][-6:]
        before = method.bank.rows.clone()
        method.losses(a, b)
        assert torch.equal(method.bank.rows, before)  # it moves after the step
        method.after_step()
        ring = torch.roll(method.bank.rows, -method.bank.pointer, dims=0)
        torch.testing.assert_close(ring, torch.stack(expected))
        method.after_step()  # without new losses there are no new outputs
        torch.testing.assert_close(torch.roll(method.bank.rows, -method.bank.pointer, dims=0), ring)


@pytest.mark.parametrize("norm", ["layer", "batch", "none"])
def test_mlp__layers_norms_and_biases(norm: str) -> None:
    head = mlp(4, 6, 3, 3, norm, last_norm=True)
    linear = [m for m in head if isinstance(m, nn.Linear)]
    assert [(m.in_features, m.out_features) for m in linear] == [(4, 6), (6, 6), (6, 3)]
    assert all((m.bias is None) == (norm == "batch") for m in linear)
    assert sum(isinstance(m, nn.ReLU) for m in head) == 2
    kind = {"layer": nn.LayerNorm, "batch": nn.BatchNorm1d, "none": nn.Linear}[norm]
    assert isinstance(head[-1], kind)
    scaled = [m.weight is not None for m in head if isinstance(m, kind)]
    assert scaled == [True, True, norm == "none"]  # the last norm has no scale and shift
    assert head(torch.zeros(2, 4)).shape == (2, 3)
    assert [type(m) for m in mlp(4, 9, 3, 1, norm)] == [nn.Linear]
