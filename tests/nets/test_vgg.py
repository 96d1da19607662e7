"""VGG-11: torchvision's features, the pools that small images leave out, per-sample gradients."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
import torch
import torchvision
from torch import Tensor, nn

from fedmia.nets.base import initialise
from fedmia.nets.vgg11_bn import VGG11BN
from fedmia.options import registry
from fedmia.options.errors import InputError

torch.set_num_threads(1)


def pixels(count: int, channels: int = 3, size: int = 16) -> Tensor:
    return torch.randn(count, channels, size, size, generator=torch.Generator().manual_seed(1))


def thin(size: int = 16, channels: int = 3, norm: str = "group") -> nn.Module:
    net = VGG11BN(width=4, norm=norm).build(channels, size)
    initialise(net, torch.Generator().manual_seed(0))
    return net


def test_name__is_vgg11_bn() -> None:
    assert registry.load("model", "vgg11-bn") is VGG11BN


@pytest.mark.parametrize("size", [64, 70])
def test_vgg__is_torchvisions_where_no_pool_is_left_out(size: int) -> None:
    """Full width, batch norm with running statistics that are not the initial ones."""
    vgg = torchvision.models.vgg  # without the classifier, which is most of its weights
    theirs = vgg.make_layers(vgg.cfgs["A"], batch_norm=True)
    initialise(theirs, torch.Generator().manual_seed(0))
    for layer in theirs.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.running_mean.uniform_(-0.1, 0.1, generator=torch.Generator().manual_seed(2))
            layer.running_var.uniform_(0.5, 1.5, generator=torch.Generator().manual_seed(3))
    ours = VGG11BN(norm="batch").build(3, size)
    own, given = ours.state_dict(), theirs.state_dict()
    ours.load_state_dict(dict(zip(own, given.values(), strict=True)))  # the same order
    x = pixels(2, 3, size)
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
    net = thin(size, channels=1)
    assert sum(isinstance(m, nn.MaxPool2d) for m in net.modules()) == pools
    maps = net.stages(pixels(1, 1, size))
    assert list(maps) == [f"layer{i}" for i in range(1, 6)]
    assert maps["layer5"].shape == (1, 32, side, side) and net.width == 32
    assert [m.shape[2] for m in maps.values()] == [size >> min(i, pools) for i in range(1, 6)]


def test_vgg__embeds_crops_of_half_the_size() -> None:
    for size in (8, 32, 64):
        assert thin(size)(pixels(2, 3, size // 2)).shape == (2, 32)


def test_vgg__refuses_one_pixel_and_unknown_norms() -> None:
    with pytest.raises(InputError, match="VGG-11-BN.*2x2 pixels, got 1x1"):
        VGG11BN().build(3, 1)
    with pytest.raises(InputError, match="group"):
        VGG11BN(norm="grup")


@pytest.mark.parametrize("norm", ["group", "batch"])
def test_vgg__has_only_the_norm_asked_for(norm: str) -> None:
    kinds = {type(m) for m in thin(norm=norm).modules()}
    norm_layer, other = (nn.GroupNorm, nn.BatchNorm2d)[:: 1 if norm == "group" else -1]
    assert norm_layer in kinds and other not in kinds


def test_vgg__with_group_norm_does_not_mix_images() -> None:
    net, x = thin().double().train(), pixels(4).double()
    torch.testing.assert_close(net(x)[1:2], net(x[1:2]))


def test_vgg__initialise_sets_every_parameter_from_its_generator() -> None:
    net = VGG11BN(width=4).build(3, 16)
    for parameter in net.parameters():
        nn.init.constant_(parameter, float("nan"))
    initialise(net, torch.Generator().manual_seed(0))
    assert all(
        torch.equal(a, b) for a, b in zip(net.parameters(), thin().parameters(), strict=True)
    )
    assert torch.equal(pickle.loads(pickle.dumps(net))(pixels(2)), net(pixels(2)))


@pytest.mark.filterwarnings("ignore:Full backward hook:UserWarning")
def test_vgg__per_sample_gradients_of_opacus_equal_a_loop(per_sample: Any) -> None:
    per_sample(thin().double(), pixels(3).double())


@pytest.mark.slow
def test_vgg__exports_with_a_dynamic_batch(exported: Any) -> None:
    exported(thin().eval(), pixels)
