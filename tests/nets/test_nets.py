"""The encoders: shapes, torchvision's weights, per-sample gradients, export."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torchvision
from torch import nn

from fedmia.nets.base import Backbone, Net, group_count, initialise
from fedmia.nets.resnet import ResNet18, ResNet34, ResNet50
from fedmia.nets.smallnet import SmallNet
from fedmia.options import registry
from fedmia.options.errors import InputError

torch.set_num_threads(1)
NETS: dict[str, Callable[..., Net]] = {
    "smallnet": SmallNet,
    "resnet18": ResNet18,
    "resnet34": ResNet34,
    "resnet50": ResNet50,
}
THIN = {
    "smallnet": {},
    "resnet18": {"width": 8},
    "resnet34": {"width": 8},
    "resnet50": {"width": 8},
}


def built(name: str, channels: int = 3, size: int = 16, **options: object) -> Backbone:
    net = NETS[name](**{**THIN[name], **options}).build(channels, size)
    initialise(net, torch.Generator().manual_seed(0))
    return net


def pixels(count: int, channels: int = 3, size: int = 16) -> torch.Tensor:
    return torch.randn(count, channels, size, size, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("name", NETS)
def test_nets__are_found_by_name(name: str) -> None:
    assert registry.load("model", name) is NETS[name]


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(("size", "side"), [(8, 4), (16, 4), (28, 4), (32, 4), (64, 4), (2, 2)])
def test_smallnet__last_map_is_about_4x4(channels: int, size: int, side: int) -> None:
    net = built("smallnet", channels, size)
    maps = net.stages(pixels(2, channels, size))
    assert maps["layer4"].shape == (2, net.width, side, side)
    assert net(pixels(2, channels, size)).shape == (2, net.width)


@pytest.mark.parametrize("name", ["resnet18", "resnet34", "resnet50"])
def test_resnets__halve_at_each_stage(name: str) -> None:
    maps = built(name, 1, 32).stages(pixels(2, 1, 32))
    assert [m.shape[2] for m in maps.values()] == [32, 16, 8, 4]
    big = built(name, 3, 128).stages(pixels(1, 3, 128))
    assert [m.shape[2] for m in big.values()] == [32, 16, 8, 4]


@pytest.mark.parametrize("name", NETS)
def test_nets__give_the_features_of_each_named_layer(name: str) -> None:
    net, x = built(name), pixels(3)
    names = [*net.layers, "avgpool"]
    features = net.features(x, names)
    assert list(features) == names
    assert features["avgpool"].shape == (3, net.width) and torch.equal(features["avgpool"], net(x))
    assert torch.equal(features["layer4"].mean((2, 3)), features["avgpool"])
    with pytest.raises(InputError, match="layer5"):
        net.features(x, ["layer5"])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["resnet18", "resnet34", "resnet50"])
def test_resnets__load_torchvision_weights_and_give_its_features(name: str) -> None:
    """The full-width net, batch norm with running statistics that are not the initial ones."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        theirs = getattr(torchvision.models, name)()
    for layer in theirs.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.running_mean.uniform_(-0.1, 0.1, generator=torch.Generator().manual_seed(2))
            layer.running_var.uniform_(0.5, 1.5, generator=torch.Generator().manual_seed(3))
    theirs.fc = nn.Identity()
    ours = NETS[name](norm="batch", stem="imagenet").build(3, 64)
    ours.load_state_dict(theirs.state_dict())
    x = pixels(2, 3, 64)
    with torch.no_grad():
        torch.testing.assert_close(ours.eval()(x), theirs.eval()(x), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("net", "size", "least"),
    [(ResNet18(), 8, 9), (ResNet50(stem="imagenet"), 32, 33), (ResNet34(stem="cifar"), 4, 9)],
)
def test_resnets__refuse_a_1x1_last_map(net: Net, size: int, least: int) -> None:
    with pytest.raises(InputError, match=f"{size}x{size}.*at least {least} pixels"):
        net.build(3, size)
    thin = type(net)(**{**vars(net), "width": 8}).build(3, least)
    assert thin.stages(pixels(1, 3, least))["layer4"].shape[2:] == (2, 2)


def test_smallnet__refuses_one_pixel_and_unknown_norms() -> None:
    with pytest.raises(InputError, match="1x1"):
        SmallNet().build(1, 1)
    with pytest.raises(InputError, match="group"):
        SmallNet(norm="grup")


@pytest.mark.parametrize("norm", ["group", "batch"])
@pytest.mark.parametrize("name", NETS)
def test_nets__have_only_the_norm_asked_for(name: str, norm: str) -> None:
    kinds = {type(m) for m in built(name, norm=norm).modules()}
    norm_layer, other = (nn.GroupNorm, nn.BatchNorm2d)[:: 1 if norm == "group" else -1]
    assert norm_layer in kinds and other not in kinds


@pytest.mark.parametrize("name", NETS)
def test_nets__with_group_norm_do_not_mix_images(name: str) -> None:
    net, x = built(name).double().train(), pixels(4).double()
    torch.testing.assert_close(net(x)[1:2], net(x[1:2]))


@pytest.mark.parametrize(("channels", "groups"), [(64, 32), (16, 16), (48, 24), (37, 1), (1, 1)])
def test_group_count__divides_the_channels(channels: int, groups: int) -> None:
    assert group_count(channels) == groups


@pytest.mark.parametrize("name", NETS)
def test_nets__initialise_sets_every_parameter_from_its_generator(name: str) -> None:
    net = NETS[name](**THIN[name]).build(3, 16)
    for parameter in net.parameters():
        nn.init.constant_(parameter, float("nan"))
    initialise(net, torch.Generator().manual_seed(0))
    assert all(torch.isfinite(p).all() for p in net.parameters())
    for a, b in zip(net.parameters(), built(name).parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("name", NETS)
def test_nets__survive_pickling(name: str) -> None:
    net, x = built(name), pixels(2)
    assert torch.equal(pickle.loads(pickle.dumps(net))(x), net(x))
    assert pickle.loads(pickle.dumps(NETS[name]())) == NETS[name]()


@pytest.mark.filterwarnings("ignore:Full backward hook:UserWarning")
@pytest.mark.parametrize("name", NETS)
def test_nets__per_sample_gradients_of_opacus_equal_a_loop(name: str, per_sample: Any) -> None:
    per_sample(built(name).double(), pixels(3).double())


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["smallnet", *(pytest.param(n, marks=pytest.mark.slow) for n in ("resnet18", "resnet50"))],
)
def test_nets__export_with_a_dynamic_batch(name: str, exported: Any) -> None:
    exported(built(name).eval(), pixels)
