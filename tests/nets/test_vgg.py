"""VGG-11: torchvision's features, and the pools that small images leave out."""

from __future__ import annotations

import pytest
import torch
import torchvision
from torch import Tensor, nn

from fedmia.nets.base import initialise
from fedmia.nets.vgg11_bn import VGG11BN

torch.set_num_threads(1)


def pixels(count: int, channels: int, size: int) -> Tensor:
    return torch.randn(count, channels, size, size, generator=torch.Generator().manual_seed(1))


def test_vgg__is_torchvisions_where_no_pool_is_left_out() -> None:
    """Full width, batch norm with running statistics that are not the initial ones."""
    vgg = torchvision.models.vgg  # without the classifier, which is most of its weights
    theirs = vgg.make_layers(vgg.cfgs["A"], batch_norm=True)
    initialise(theirs, torch.Generator().manual_seed(0))
    for layer in theirs.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.running_mean.uniform_(-0.1, 0.1, generator=torch.Generator().manual_seed(2))
            layer.running_var.uniform_(0.5, 1.5, generator=torch.Generator().manual_seed(3))
    ours = VGG11BN(norm="batch").build(3, 70)
    own, given = ours.state_dict(), theirs.state_dict()
    ours.load_state_dict(dict(zip(own, given.values(), strict=True)))  # the same order
    x = pixels(2, 3, 70)
    with torch.no_grad():
        want = theirs.eval()(x)
        features = ours.eval().features(x, ["layer5", "avgpool"])
    torch.testing.assert_close(features["layer5"], want, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(features["avgpool"], want.mean((2, 3)), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("size", "pools", "side"),
    [(2, 0, 2), (3, 0, 3), (4, 1, 2), (8, 2, 2), (16, 3, 2), (28, 3, 3), (32, 4, 2), (63, 4, 3),
     (64, 5, 2), (128, 5, 4)],
)  # fmt: skip
def test_pools__as_many_as_leave_parts(size: int, pools: int, side: int) -> None:
    net = VGG11BN(width=4).build(1, size)
    assert sum(isinstance(m, nn.MaxPool2d) for m in net.modules()) == pools
    maps = net.stages(pixels(1, 1, size))
    assert maps["layer5"].shape == (1, 32, side, side) and net.width == 32
    assert [m.shape[2] for m in maps.values()] == [size >> min(i, pools) for i in range(1, 6)]
    assert net(pixels(2, 1, max(size // 2, 2))).shape == (2, 32)  # a crop of half the side
