"""Parts of an image through transformers of one size: positions resampled for the parts' grid."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torchvision import models

from fedmia.encoders._positions import resample_table
from fedmia.encoders.base import LoadedEncoder, load
from fedmia.encoders.describe import describe
from tests.encoders.test_modules import Patches

RESAMPLED = "multiples of {} pixels, positions resampled"


def same(released: LoadedEncoder, wanted: nn.Module, side: int) -> None:
    """The pooled features of parts of `side` pixels are those of the library's own `wanted`."""
    parts, encoder = torch.rand(2, 3, side, side), released.method.encoder
    with torch.no_grad():
        want = wanted.eval()(encoder.normalise(parts))
        torch.testing.assert_close(encoder(parts), want, atol=1e-5, rtol=1e-5)
    assert not torch.allclose(want[0], want[1], atol=1e-3)


@pytest.mark.slow
def test_crops__timms_own_dynamic_sizes() -> None:
    timm = pytest.importorskip("timm")
    released = load("timm:test_vit")
    assert (released.size, released.fixed_size) == (160, True)
    expected = timm.create_model("test_vit", num_classes=0, dynamic_img_size=True)
    expected.load_state_dict(released.method.encoder.backbone.module.state_dict())
    same(released, expected, 80)
    assert describe(released, 160).crops == RESAMPLED.format(16)


def test_crops__torchvisions_vit(monkeypatch: pytest.MonkeyPatch) -> None:
    def small(**options: Any) -> nn.Module:
        return models.VisionTransformer(options.get("image_size", 32), 4, 2, 2, 8, 16)

    monkeypatch.setattr(models, "get_model", lambda name, weights, **o: small(**o))
    released = load("torchvision:vit_b_32", size=32)
    state = released.method.encoder.backbone.module.state_dict()
    table = resample_table(state["encoder.pos_embedding"], 17)
    assert table is not None and released.fixed_size and released.size == 32
    expected = small(image_size=16)
    expected.heads = nn.Identity()
    expected.load_state_dict(state | {"encoder.pos_embedding": table})
    same(released, expected, 16)
    again = describe(released, 32)
    assert again.crops == RESAMPLED.format(4)
    assert torch.equal(table, resample_table(state["encoder.pos_embedding"], 17))  # its own stay


def test_crops__one_size_alone_is_said(code: Any) -> None:
    code.make = Patches  # goes by no table of a known name
    released = load("usercode:make", size=16)
    assert released.fixed_size and describe(released, 16).crops == "16 pixels alone"
    assert describe(load("torchvision:resnet18", size=32), 32).crops == "any"
