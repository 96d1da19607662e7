"""Batch norm over eighths of the batch: against one batch norm a part, and MoCo's two dealings."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fedmia.nets.base import initialise
from fedmia.nets.resnet import ResNet18
from fedmia.nets.smallnet import SmallNet
from fedmia.nets.split_norm import SplitBatchNorm
from fedmia.ssl.base import TrainingData
from fedmia.ssl.moco import MoCo


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return 2 * torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) + 1


def layer(kind: type[nn.BatchNorm2d], blocks: bool = False) -> Any:
    norm: Any = kind(3)
    with torch.no_grad():
        for seed, tensor in enumerate((norm.weight, norm.bias, norm.running_mean), 1):
            tensor.copy_(drawn(3, seed=seed))
    norm.blocks = blocks
    return norm


def parts_of(count: int, splits: int, blocks: bool) -> list[list[int]]:
    """Images of each part: every `splits`-th, as the notebook's reshape has it, or a block."""
    size = count // splits
    if blocks:
        return [list(range(at, at + size)) for at in range(0, count, size)]
    return [list(range(first, count, splits)) for first in range(splits)]


@pytest.mark.parametrize("blocks", [False, True])
@pytest.mark.parametrize(("count", "splits"), [(16, 8), (24, 8), (12, 4), (6, 2)])
def test_forward__is_a_batch_norm_of_each_part(count: int, splits: int, blocks: bool) -> None:
    x = drawn(count, 3, 2, 2)
    norm, want = layer(SplitBatchNorm, blocks), torch.empty(count, 3, 2, 2)
    out = norm(x)
    means, variances = [], []
    for rows in parts_of(count, splits, blocks):
        alone = layer(nn.BatchNorm2d)
        want[rows] = alone(x[rows]).detach()
        means.append(alone.running_mean)
        variances.append(alone.running_var)
    torch.testing.assert_close(out.detach(), want)
    torch.testing.assert_close(norm.running_mean, torch.stack(means).mean(dim=0))
    torch.testing.assert_close(norm.running_var, torch.stack(variances).mean(dim=0))
    assert int(norm.num_batches_tracked) == 1


def test_forward__is_batch_norm_where_nothing_is_split() -> None:
    """Of a batch of 5 or 1, which two does not divide, and outside training."""
    for count, training in ((5, True), (1, True), (16, False)):
        x = drawn(count, 3, 2, 2)
        split, plain = layer(SplitBatchNorm).train(training), layer(nn.BatchNorm2d).train(training)
        assert torch.equal(split(x), plain(x))
        assert torch.equal(split.running_var, plain.running_var)


def test_gradients__stay_in_their_part() -> None:
    x = drawn(16, 3, 2, 2).requires_grad_()
    layer(SplitBatchNorm)(x)[1].square().sum().backward()
    assert x.grad is not None
    touched = x.grad.flatten(1).any(dim=1).nonzero().flatten().tolist()
    assert touched == [1, 9]


def test_moco__deals_keys_otherwise_than_queries() -> None:
    """No two images are normalised together on both sides: what MoCo shuffles keys for."""
    net = SmallNet(width=4, norm="split").build(3, 8)
    method = MoCo(dim=8, queue=8).build(
        net, TrainingData((0.5,) * 3, (0.25,) * 3), torch.Generator()
    )
    sides = [
        [m.blocks for m in e.modules() if isinstance(m, SplitBatchNorm)]
        for e in (method.encoder, method.key_encoder)
    ]
    assert sides == [[False] * 4, [True] * 4]

    def together(encoder: nn.Module) -> set[tuple[int, int]]:
        """Pairs of images of which one's output depends on the other."""
        pairs = set()
        for i in range(16):
            x = torch.rand(16, 3, 8, 8, generator=torch.Generator().manual_seed(0))
            x.requires_grad_()
            encoder(x)[i].sum().backward()
            assert x.grad is not None
            rows = x.grad.flatten(1).any(dim=1).nonzero().flatten().tolist()
            pairs |= {(i, j) for j in rows if j != i}
        return pairs

    queries, keys = together(method.encoder), together(method.key_encoder)
    assert len(queries) == len(keys) == 16 and not queries & keys
    losses = method.train().losses(*torch.rand(2, 16, 3, 8, 8).unbind())
    assert losses.shape == (16,) and bool(losses.isfinite().all())


def test_resnet__has_it_everywhere_and_the_state_of_batch_norm() -> None:
    nets = {n: ResNet18(width=4, norm=n, stem="cifar").build(3, 16) for n in ("batch", "split")}
    kinds = {type(m) for m in nets["split"].modules()}
    assert SplitBatchNorm in kinds and nn.BatchNorm2d not in kinds and nn.GroupNorm not in kinds
    for net in nets.values():
        initialise(net, torch.Generator().manual_seed(0))
    assert nets["batch"].state_dict().keys() == nets["split"].state_dict().keys()
    x = drawn(2, 3, 16, 16)
    one, other = (net.eval()(x) for net in nets.values())
    assert torch.equal(one, other)
