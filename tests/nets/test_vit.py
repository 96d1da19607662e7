"""The vision transformer: torchvision's arithmetic, positions, sizes, per-sample gradients."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torchvision
from torch import Tensor, nn
from torch.nn import functional as F

from fedmia.nets.base import initialise
from fedmia.nets.keyed import keyed_uniforms
from fedmia.nets.transformer import SineCosinePositions, VisionTransformer, patchify
from fedmia.nets.vit import ViTTiny, auto_patch
from fedmia.settings import registry
from fedmia.settings.errors import InputError

torch.set_num_threads(1)
TOY = {"width": 8, "heads": 2, "depth": 4, "patch": 4}


def pixels(count: int, channels: int = 3, size: int = 16, seed: int = 1) -> Tensor:
    return torch.randn(count, channels, size, size, generator=torch.Generator().manual_seed(seed))


def toy(size: int = 16, channels: int = 3, **options: Any) -> VisionTransformer:
    net = ViTTiny(**{**TOY, **options}).build(channels, size)
    initialise(net, torch.Generator().manual_seed(0))
    return net


@pytest.mark.parametrize(
    ("name", "width", "heads", "millions"),
    [("vit-tiny", 192, 3, 5.35), ("vit-small", 384, 6, 21.3), ("vit-base", 768, 12, 85.1)],
)
def test_sizes__are_the_published_ones(name: str, width: int, heads: int, millions: float) -> None:
    with torch.device("meta"):
        net = registry.build("model", name, {}).build(3, 32)
    assert (net.width, net.depth, net.patch) == (width, 12, 4)
    assert {m.heads for m in net.modules() if hasattr(m, "heads")} == {heads}
    assert [len(net.get_submodule(layer)) for layer in net.layers] == [3, 3, 3, 3]
    count = sum(p.numel() for p in net.parameters()) / 1e6
    assert count == pytest.approx(millions, abs=0.05)


def test_patchify__naive_twin() -> None:
    x = torch.arange(2 * 3 * 4 * 6.0).view(2, 3, 4, 6)
    got = patchify(x, 2)
    assert got.shape == (2, 2, 3, 12)
    for b in range(2):
        for i in range(2):
            for j in range(3):
                want = [float(x[b, c, 2 * i + di, 2 * j + dj])
                        for di in range(2) for dj in range(2) for c in range(3)]  # fmt: skip
                assert got[b, i, j].tolist() == want


def test_trunk__equals_torchvisions_transformer() -> None:
    """Their weights in our modules, class token's own position added to the class token."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        theirs = torchvision.models.VisionTransformer(
            image_size=16, patch_size=4, num_layers=5, num_heads=2, hidden_dim=8, mlp_dim=32,
            num_classes=2,
        )  # fmt: skip
        theirs.class_token.data.normal_()
    theirs.heads = nn.Identity()
    ours = ViTTiny(width=8, heads=2, depth=5, patch=4, positions="learned").build(3, 16)
    places = theirs.encoder.pos_embedding
    with torch.no_grad():
        ours.embed.weight.copy_(theirs.conv_proj.weight.permute(0, 2, 3, 1).flatten(1))
        ours.embed.bias.copy_(theirs.conv_proj.bias)
        ours.cls.weight.copy_(theirs.class_token + places[:, :1])
        ours.positions.weight.copy_(places[:, 1:].unflatten(1, (4, 4)))
        ours.norm.load_state_dict(theirs.encoder.ln.state_dict())
        blocks = [b for name in ours.layers for b in ours.get_submodule(name)]
        assert len(blocks) == 5
        for block, their in zip(blocks, theirs.encoder.layers, strict=True):
            block.norm1.load_state_dict(their.ln_1.state_dict())
            block.norm2.load_state_dict(their.ln_2.state_dict())
            block.attn.qkv.weight.copy_(their.self_attention.in_proj_weight)
            block.attn.qkv.bias.copy_(their.self_attention.in_proj_bias)
            block.attn.proj.load_state_dict(their.self_attention.out_proj.state_dict())
            for mine, other in ((0, 0), (2, 3)):
                block.mlp[mine].load_state_dict(their.mlp[other].state_dict())
        x = pixels(3)
        torch.testing.assert_close(ours.eval()(x), theirs.eval()(x), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("pool", ["cls", "mean"])
def test_trunk__maps_of_patches_and_a_pooled_vector(pool: str) -> None:
    net, x = toy(size=24, pool=pool), pixels(3, size=24)
    stages, pooled = net.trunk(x)
    assert list(stages) == ["layer1", "layer2", "layer3", "layer4"]
    assert all(m.shape == (3, 8, 6, 6) for m in stages.values())
    tokens = net.encode(net.tokens(x).flatten(1, 2))
    for got, want in zip(stages.values(), tokens, strict=True):
        assert torch.equal(got[:, :, 2, 5], want[:, 1 + 2 * 6 + 5])
    assert torch.equal(pooled, tokens[-1][:, 0] if pool == "cls" else tokens[-1][:, 1:].mean(1))
    assert torch.allclose(tokens[-1].mean(dim=2), torch.zeros(3, 37), atol=1e-5)  # normalised


def test_sincos__naive_twin() -> None:
    weight = SineCosinePositions(8, 3).weight
    for row in range(3):
        for column in range(3):
            want = []
            for at in (row, column):
                rates = [10000 ** (-k / 2) for k in range(2)]
                want += [math.sin(at * r) for r in rates] + [math.cos(at * r) for r in rates]
            assert weight[0, row, column].tolist() == pytest.approx(want, abs=1e-6)
    net = toy()
    assert not any("positions" in name for name in net.state_dict())  # a constant
    assert "positions.weight" in toy(positions="learned").state_dict()


@pytest.mark.parametrize("positions", ["sincos", "learned"])
def test_positions__of_another_size_are_interpolated(positions: str) -> None:
    net = toy(size=16, positions=positions)
    weight = net.positions.weight
    zeros = torch.zeros(1, 2, 2, 8)
    want = F.interpolate(weight.permute(0, 3, 1, 2), size=(2, 2), mode="bicubic")
    assert torch.equal(net.positions(zeros), want.permute(0, 2, 3, 1))
    assert torch.equal(net.positions(torch.zeros(1, 4, 4, 8)), weight)
    for size in (4, 8, 12, 16, 32):
        maps, pooled = net.trunk(pixels(2, size=size))
        assert maps["layer4"].shape == (2, 8, size // 4, size // 4) and pooled.shape == (2, 8)
    assert net(torch.zeros(2, 3, 8, 16)).shape == (2, 8)


@pytest.mark.parametrize(
    ("options", "size", "named"),
    [
        ({}, 30, "cuts 30x30 images into patches of 4x4"),
        ({"patch": 8}, 8, "two of it at least"),
        ({"width": 64}, 32, r"64, must be .* heads \(3\)"),
        ({"width": 6}, 32, "6, must be a multiple of 4"),
    ],
)
def test_build__refuses_what_does_not_divide(
    options: dict[str, int], size: int, named: str
) -> None:
    with pytest.raises(InputError, match=named):
        ViTTiny(**options).build(3, size)
    for side in (2, 10, 18):  # nor does a network take such images
        with pytest.raises(InputError, match=f"{side}x{side}.*patches of 4x4"):
            toy()(pixels(1, size=side))


@pytest.mark.parametrize(
    ("size", "patch"),
    [(8, 2), (16, 2), (18, 4), (32, 4), (48, 4), (64, 8), (96, 8), (128, 8), (144, 16), (224, 16)],
)
def test_patch__follows_the_size(size: int, patch: int) -> None:
    assert auto_patch(size) == patch


def test_drop_path__rates_rise_and_keep_the_mean() -> None:
    net, x = toy(drop_path=0.6).train(), pixels(3000, size=8, seed=3)
    factors = net.path_factors(x)
    assert factors.shape == (3000, 8)
    for column, rate in zip(factors.T, [0, 0, 0.2, 0.2, 0.4, 0.4, 0.6, 0.6], strict=True):
        assert float((column == 0).float().mean()) == pytest.approx(rate, abs=0.04)
        assert float(column.max()) == pytest.approx(1 / (1 - rate))
        assert float(column.mean()) == pytest.approx(1, abs=0.1)
    assert net.eval().path_factors(x) is None and toy().train().path_factors(x) is None


def test_drop_path__is_a_function_of_image_and_weights() -> None:
    net, x = toy(drop_path=0.6).train(), pixels(64)
    first = net.path_factors(x)
    assert torch.equal(net.path_factors(x.flip(0)).flip(0), first)
    with torch.no_grad():
        net.cls.weight[0, 0, 3] += 1e-3
    assert not torch.equal(net.path_factors(x), first)


def test_drop_path__a_dropped_branch_adds_nothing() -> None:
    net, x = toy(), pixels(2)
    tokens = net.tokens(x).flatten(1, 2)
    stages = net.encode(tokens, torch.zeros(2, 8))
    assert torch.equal(stages[2], net.cls(tokens))
    torch.testing.assert_close(net.encode(tokens, torch.ones(2, 8))[3], net.encode(tokens)[3])


def test_keyed_uniforms__naive_twin_in_pythons_integers() -> None:
    """SplitMix64 word for word; Python's integers do not overflow, so they show the wrapping."""
    full = 2**64 - 1

    def mixed(z: int) -> int:
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & full
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & full
        return z ^ (z >> 31)

    x, key, step = pixels(3, size=2), 2**61 + 12345, 0x9E3779B97F4A7C15
    rows = x.flatten(1).view(torch.int32).tolist()
    for row, got in zip(rows, keyed_uniforms(x, key, 5).tolist(), strict=True):
        digest = sum(mixed((w & full) ^ ((i * step) & full)) for i, w in enumerate(row, 1))
        digest = mixed((digest + key) & full)
        want = [(mixed((digest + j * step) & full) >> 40) / 2**24 for j in range(1, 6)]
        assert got == want


def test_keyed_uniforms__are_uniform_and_the_images_own() -> None:
    x = pixels(2000, channels=1, size=4)
    u = keyed_uniforms(x, 7, 16)
    assert u.dtype == torch.float32 and float(u.min()) >= 0 and float(u.max()) < 1
    assert float(u.mean()) == pytest.approx(0.5, abs=0.01)
    assert float(u.var()) == pytest.approx(1 / 12, abs=0.005)
    correlations = torch.corrcoef(u.T) - torch.eye(16)
    assert float(correlations.abs().max()) < 0.1
    order = torch.randperm(2000, generator=torch.Generator().manual_seed(0))
    assert torch.equal(keyed_uniforms(x[order], 7, 16), u[order])
    assert torch.equal(keyed_uniforms(x, 7, 4), u[:, :4])
    assert not torch.equal(keyed_uniforms(x, 8, 16), u)
    moved = x.clone()
    moved[:, 0, 0, 0], moved[:, 0, 0, 1] = x[:, 0, 0, 1], x[:, 0, 0, 0]  # the same words elsewhere
    assert not (keyed_uniforms(moved, 7, 16) == u).all(dim=1).any()
