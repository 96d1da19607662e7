"""Large images: passes are bounded by pixels wherever an encoder is asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fedmia import view
from fedmia.encoders.base import LoadOptions
from fedmia.encoders.describe import probe_encoder
from fedmia.encoders.memory import load_module
from fedmia.ssl.base import SSLMethod, iterate_parts, outputs

SIDE = 518
MOST = 3 * SIDE**2  # pixels of a pass


PASSES: list[int] = []  # pixels that came at once
DRAWN: list[int] = []  # pixels of views that were drawn at once


@dataclass(frozen=True)
class Whole:
    """The view of an image that is the image."""

    draws = 1

    def __call__(self, images: Tensor, uniforms: Tensor) -> Tensor:
        DRAWN.append(len(images) * images.shape[2] * images.shape[3])
        return images


class Counting(nn.Module):
    """Means of the four quarters of an image's channels."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = nn.AdaptiveAvgPool2d(2)
        self.conv = nn.Conv2d(3, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        PASSES.append(len(x) * x.shape[2] * x.shape[3])
        return self.conv(self.pool(x))


def large(count: int) -> Tensor:
    torch.manual_seed(0)
    return torch.randint(0, 256, (count, 3, SIDE, SIDE), dtype=torch.uint8)


def test_large__passes_are_of_few_images() -> None:
    images = large(4)
    released = load_module(Counting(), LoadOptions(size=SIDE))
    PASSES.clear()
    assert probe_encoder(released, images) == []
    assert 0 < max(PASSES) <= MOST
    attacker = view(released, held=images)
    PASSES.clear()
    attacker.embed_plain(images)
    assert SIDE**2 <= max(PASSES) <= MOST
    attacker.embed_views(images, 16, augmentation=Whole())
    attacker.responses(images, Whole(), 16)
    assert sum(DRAWN) == 2 * 4 * 16 * SIDE**2 and max(DRAWN) < 16 * SIDE**2
    assert max(PASSES) <= MOST
    small = torch.zeros(2000, 3, 8, 8)
    assert [len(p) for p in attacker.passes(small)] == [500] * 4


def test_banks__are_filled_from_bytes_alike(make_moco: Any) -> None:
    images = torch.randint(0, 256, (9, 3, 8, 8), dtype=torch.uint8)
    filled: list[SSLMethod] = []
    for pixels in (images, images.float() / 255):
        filled.append(make_moco())
        filled[-1].fill_bank(pixels)
    for name, tensor in filled[0].local_state().items():
        assert torch.equal(tensor, filled[1].local_state()[name])


def test_in_parts__are_whole_together() -> None:
    parts = list(iterate_parts(large(4), torch.device("cpu")))
    assert [len(p) for p in parts] == [3, 1]
    assert torch.equal(torch.cat(parts), large(4).float() / 255)


def test_outputs__and_their_gradients_are_those_of_one_pass(make_moco: Any) -> None:
    encoder, passed = make_moco().encoder.eval(), list[int]()
    encoder.backbone = nn.Sequential(nn.Upsample(8), encoder.backbone)  # of large ones, few pixels
    encoder.register_forward_pre_hook(lambda _, given: passed.append(len(given[0])))
    pixels = torch.rand(9, 3, 362, 362, requires_grad=True)
    weights = [pixels, *encoder.backbone.parameters()]
    gradients = []
    for out in (encoder(pixels), outputs(encoder, pixels)):
        gradients.append([out.detach(), *torch.autograd.grad(out.square().sum(), weights)])
    assert sorted(passed) == [1, 1, *[2] * 8, 9]  # in parts, and again in the backward pass
    torch.testing.assert_close(gradients[0], gradients[1])
