"""Every network: features, weights from a generator, per-sample gradients, export."""

from __future__ import annotations

import pickle

import pytest
import torch
import torchvision
from torch import Tensor, nn

from fedmia.nets.base import Backbone, Net, group_count, initialise
from fedmia.nets.resnet import ResNet18, ResNet34, ResNet50
from fedmia.settings import registry
from fedmia.settings.errors import InputError

torch.set_num_threads(1)
VIT = {"width": 8, "heads": 2, "depth": 4, "patch": 4}
NETS = {
    "smallnet": {}, "resnet18": {"width": 8}, "resnet50": {"width": 8}, "vgg11-bn": {"width": 4},
    "vit-tiny": VIT | {"pool": "mean"}, "vit-tiny, learned": VIT | {"positions": "learned"},
}  # fmt: skip
every_net = pytest.mark.parametrize("name", NETS)


def spec(name: str, **options: object) -> Net:
    net: Net = registry.build("model", name.partition(",")[0], {**NETS[name], **options})
    return net


def built(name: str, channels: int = 3, size: int = 16, **options: object) -> Backbone:
    net = spec(name, **options).build(channels, size)
    initialise(net, torch.Generator().manual_seed(0))
    return net


def pixels(count: int, channels: int = 3, size: int = 16) -> Tensor:
    return torch.randn(count, channels, size, size, generator=torch.Generator().manual_seed(1))


@every_net
def test_features__are_those_of_each_named_layer(name: str) -> None:
    net, x = built(name), pixels(3)
    names = [*net.layers, "avgpool"]
    features = net.features(x, names)
    assert list(features) == names
    assert features["avgpool"].shape == (3, net.width) and torch.equal(features["avgpool"], net(x))
    if "vit" not in name:
        assert torch.equal(features[net.layers[-1]].mean((2, 3)), features["avgpool"])
    with pytest.raises(InputError, match="layer9"):
        net.features(x, ["layer9"])


@every_net
def test_initialise__sets_every_parameter_from_its_generator(name: str) -> None:
    net = spec(name).build(3, 16)
    for parameter in net.parameters():
        nn.init.constant_(parameter, float("nan"))
    initialise(net, torch.Generator().manual_seed(0))
    for a, b in zip(net.parameters(), built(name).parameters(), strict=True):
        assert torch.equal(a, b) and bool(torch.isfinite(a).all())
    assert torch.equal(pickle.loads(pickle.dumps(net))(pixels(2)), net(pixels(2)))


@every_net
def test_nets__do_not_mix_images_unless_asked_to(name: str) -> None:
    more = {"drop_path": 0.5} if "vit" in name else {}
    net, x = built(name, **more).double().train(), pixels(4).double()
    torch.testing.assert_close(net(x)[1:2], net(x[1:2]))
    assert nn.BatchNorm2d not in {type(m) for m in net.modules()}
    if not more:
        kinds = {type(m) for m in built(name, norm="batch").modules()}
        assert nn.BatchNorm2d in kinds and nn.GroupNorm not in kinds


@pytest.mark.filterwarnings("ignore:Full backward hook:UserWarning")
@every_net
def test_nets__per_sample_gradients_of_opacus_equal_a_loop(name: str) -> None:
    opacus = pytest.importorskip("opacus")
    more = {"drop_path": 0.3} if "learned" in name else {}
    net, x = built(name, **more).double().train(), pixels(3).double()
    weights = list(net.parameters())
    loop = [torch.autograd.grad(net(image[None]).square().sum(), weights) for image in x]
    hooked = opacus.GradSampleModule(net, loss_reduction="sum", strict=True)
    hooked(x).square().sum().backward()
    for n, weight in enumerate(weights):
        torch.testing.assert_close(weight.grad_sample, torch.stack([g[n] for g in loop]))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["resnet18", "vit-tiny"])
def test_nets__export_with_a_dynamic_batch(name: str) -> None:
    net, batch = built(name).eval(), torch.export.Dim("batch", min=1, max=64)
    program = torch.export.export(net, (pixels(4),), dynamic_shapes={"x": {0: batch}})
    for count in (2, 7):
        torch.testing.assert_close(program.module()(pixels(count)), net(pixels(count)))


@pytest.mark.parametrize(("channels", "groups"), [(64, 32), (16, 16), (48, 24), (37, 1), (1, 1)])
def test_group_count__divides_the_channels(channels: int, groups: int) -> None:
    assert group_count(channels) == groups


@pytest.mark.parametrize(("size", "side"), [(8, 4), (16, 4), (28, 4), (32, 4), (64, 4), (2, 2)])
def test_smallnet__last_map_is_about_4x4(size: int, side: int) -> None:
    net = built("smallnet", 1, size)
    assert net.stages(pixels(2, 1, size))["layer4"].shape == (2, net.width, side, side)


@pytest.mark.parametrize(("size", "sides"), [(32, [32, 16, 8, 4]), (128, [32, 16, 8, 4])])
def test_resnets__halve_at_each_stage(size: int, sides: list[int]) -> None:
    maps = built("resnet50", 1, size).stages(pixels(1, 1, size))
    assert [m.shape[2] for m in maps.values()] == sides


@pytest.mark.slow
@pytest.mark.parametrize("cls", [ResNet18, ResNet34, ResNet50])
def test_resnets__load_torchvision_weights_and_give_its_features(cls: type[Net]) -> None:
    """The full-width net, batch norm with running statistics that are not the initial ones."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        theirs = getattr(torchvision.models, cls.__name__.lower())()
    for layer in theirs.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.running_mean.uniform_(-0.1, 0.1, generator=torch.Generator().manual_seed(2))
            layer.running_var.uniform_(0.5, 1.5, generator=torch.Generator().manual_seed(3))
    theirs.fc = nn.Identity()
    ours = cls(norm="batch", stem="imagenet").build(3, 64)
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


@pytest.mark.parametrize("name", ["smallnet", "vgg11-bn"])
def test_build__refuses_one_pixel_and_unknown_norms(name: str) -> None:
    with pytest.raises(InputError, match="2x2 pixels, got 1x1"):
        spec(name).build(1, 1)
    with pytest.raises(InputError, match="group"):
        spec(name, norm="grup")
