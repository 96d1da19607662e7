"""Large images: passes are bounded by pixels wherever an encoder is asked."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
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
class Darker:
    """Views of an image that are the whole of it, each by so much darker."""

    draws = 1

    def __call__(self, images: Tensor, uniforms: Tensor) -> Tensor:
        DRAWN.append(len(images) * images.shape[2] * images.shape[3])
        return images * uniforms[:, :, None, None]


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
    small = torch.zeros(2000, 3, 8, 8)
    assert [len(p) for p in attacker.passes(small)] == [500] * 4


def test_views__too_many_to_be_drawn_at_once_are_those_drawn_one_by_one() -> None:
    """Of some images together, of one, and of one in pieces."""
    images, views, released = large(2), 16, load_module(Counting(), LoadOptions(size=SIDE))
    attacker = view(released, held=images)
    PASSES.clear()
    each = [attacker.view_pixels(one[None], views, Darker())[:, 0] for one in images]
    whole = attacker.embed_plain(images, "avgpool")[:, None]
    want = torch.stack([attacker.embed(pixels, "avgpool") for pixels in each])
    cosines = nn.functional.cosine_similarity(want, whole, dim=2)
    for steps in ((views,), (3, 7, views)):
        attacker = view(released, held=images)
        DRAWN.clear()
        for count in steps:
            got = attacker.embed_views(images, count, "avgpool", augmentation=Darker())
            torch.testing.assert_close(got, want[:, :count])
        assert sum(DRAWN) >= 2 * views * SIDE**2 and max(DRAWN) <= 1 << 21
        DRAWN.clear()
        for count in steps:
            got = attacker.responses(images, Darker(), count)[1]
            torch.testing.assert_close(got, cosines[:, :count])
        assert sum(DRAWN) == 2 * views * SIDE**2 and max(DRAWN) <= 1 << 22
    assert max(PASSES) <= MOST


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


def test_outputs__and_their_gradients_are_those_of_one_pass() -> None:
    """Two images at a time, and the last alone."""
    encoder: Any = Counting().eval()
    pixels = torch.rand(9, 3, 360, 360, requires_grad=True)
    weights = [pixels, *encoder.parameters()]
    gradients = []
    for read in (encoder, partial(outputs, encoder)):
        PASSES.clear()
        out = read(pixels)
        gradients.append([out.detach(), *torch.autograd.grad(out.square().sum(), weights)])
    torch.testing.assert_close(gradients[0], gradients[1])
    assert max(PASSES) == 2 * 360**2 and sum(PASSES) == 2 * 9 * 360**2  # again, backwards
