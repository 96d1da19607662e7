"""Checkpoints of public code: nothing is missing, and the features are those of their library."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from fedmia.released.base import Released, load
from tests.released.forms import FORMS, SIZE, Made, make

QUICK = ("moco-v2", "lightly cifar", "dino", "moco-v3 vit", "solo-learn")


def check(released: Released, made: Made) -> None:
    """The same features and projection as the library's network, from every weight of the file."""
    assert released.weights.missing == ()
    encoder = released.method.encoder
    pixels = torch.rand(3, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        found = encoder.features(pixels, ("avgpool", "encoder"))
        vector = made.backbone(encoder.normalise(pixels))
        wanted = vector if made.head is None else made.head(vector)
    torch.testing.assert_close(found["avgpool"], vector, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(found["encoder"], wanted, atol=1e-5, rtol=1e-5)
    assert isinstance(encoder.head, nn.Identity) == (made.head is None)


@pytest.mark.parametrize(
    "form", [f if f in QUICK else pytest.param(f, marks=pytest.mark.slow) for f in FORMS]
)
def test_form__loads_whole_and_computes_the_same(form: str, tmp_path: Path) -> None:
    if any(word in form for word in ("vit", "dino", "mae")):
        pytest.importorskip("timm")
    path = tmp_path / "file.pth"
    made = make(form, path)
    released = load(str(path), key=made.key)
    check(released, made)
