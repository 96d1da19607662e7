"""Parts of an image through transformers of one size: positions resampled for the parts' grid."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torchvision import models

from fedmia.attacks.partcrop import PartCrop
from fedmia.encoders._positions import resample_table
from fedmia.encoders.base import LoadedEncoder, load
from fedmia.encoders.describe import describe
from fedmia.library import view
from fedmia.ssl.base import Encoder
from fedmia.threat import BlackBox
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
@pytest.mark.parametrize("name", ["test_vit", "test_vit2"])
def test_crops__timms_own_dynamic_sizes(name: str) -> None:
    timm = pytest.importorskip("timm")
    released = load(f"timm:{name}")
    assert (released.size, released.fixed_size) == (160, True)
    expected = timm.create_model(name, num_classes=0, dynamic_img_size=True)
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


def pixels_of(attack: PartCrop, attacker: BlackBox, images: Tensor) -> int:
    """How many pixels the attack's queries send through the encoder."""
    sent: list[int] = []

    def counted(encoder: Encoder, x: Tensor) -> Tensor:
        sent.append(len(x) * x.shape[2] * x.shape[3])
        return (x - encoder.mean) / encoder.std

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Encoder, "normalise", counted)
        attack.inputs(attacker, images)
    return sum(sent)


@pytest.mark.slow
def test_partcrop__crops_of_a_transformer_cost_their_own_pixels() -> None:
    pytest.importorskip("timm")
    released = load("timm:test_vit", size=48)
    images = torch.randint(0, 256, (2, 3, 48, 48), dtype=torch.uint8)
    parts, whole = (
        pixels_of(PartCrop(crops=6, part=part), view(released), images) for part in (0.5, 1.0)
    )
    assert whole == 2 * (1 + 6) * 48**2
    assert parts == 2 * (48**2 + 6 * 32**2)  # half of 3 patches a side are whole ones: 2
