"""A tiny network in the forms in which an encoder is brought: module, .pt2, .onnx."""

from __future__ import annotations

import os
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fedmia.encoders.base import load
from fedmia.settings.errors import InputError

SIZE = 16


def refused(match: str, *spec: str | Path, **options: Any) -> None:
    """The encoder is refused in one line that has `match`."""
    with pytest.raises(InputError, match=match) as error:
        load(*map(str, spec), **options)
    assert "\n" not in str(error.value)


class Tiny(nn.Module):
    """Two convolutions with batch norm; returns the vector, and the map if asked."""

    def __init__(self, channels: int = 3, both: bool = False) -> None:
        super().__init__()
        self.layer1 = nn.Sequential(nn.Conv2d(channels, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU())
        self.layer2 = nn.Sequential(nn.Conv2d(8, 12, 3, 2, 1), nn.BatchNorm2d(12), nn.ReLU())
        self.fc = nn.Linear(12, 5)
        self.both = both

    def forward(self, x: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        last = self.layer2(self.layer1(x))
        vector = self.fc(last.mean(dim=(2, 3)))
        return (vector, last) if self.both else vector


def make_tiny(channels: int = 3, both: bool = False) -> Tiny:
    """Seeded weights and running statistics, in evaluation mode."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = Tiny(channels, both)
        for norm in (module.layer1[1], module.layer2[1]):
            norm.running_mean.normal_(0, 0.1)
            norm.running_var.uniform_(0.5, 1.5)
    return module.eval()


def save_program(
    module: nn.Module, path: Path, batch: int | None = None, channels: int = 3, size: int = SIZE
) -> str:
    """Export as .pt2 or .onnx, with a dynamic batch or one of `batch` images."""
    shapes = ({0: torch.export.Dim("batch")},) if batch is None else None
    example = (torch.zeros(batch or 2, channels, size, size),)
    if path.suffix == ".pt2":
        torch.export.save(torch.export.export(module, example, dynamic_shapes=shapes), path)
    else:
        pytest.importorskip("onnxscript")
        pytest.importorskip("onnxruntime")
        options = {"dynamic_shapes": shapes, "dynamo": True, "verbose": False}
        torch.onnx.export(module, example, os.fspath(path), **options)
    return str(path)


@pytest.fixture
def code(monkeypatch: pytest.MonkeyPatch) -> Any:
    """An importable module `usercode`, to put factories into."""
    module = types.ModuleType("usercode")
    monkeypatch.setitem(sys.modules, "usercode", module)
    return module


@pytest.fixture(scope="session")
def pictures() -> Tensor:
    """Seven uint8 images (7, 3, 16, 16)."""
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (7, 3, SIZE, SIZE), generator=generator, dtype=torch.uint8)


@pytest.fixture(scope="session")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], str]:
    """`saved(kind, form)`: path of the tiny network's file, exported once.

    Forms: `plain`, `both` (vector and map), `fixed` (four images at a time).
    """
    made: dict[tuple[str, str], str] = {}

    def save(kind: str, form: str) -> str:
        if (kind, form) not in made:
            path = tmp_path_factory.mktemp(form) / f"tiny.{kind}"
            module = make_tiny(both=form == "both")
            made[kind, form] = save_program(module, path, 4 if form == "fixed" else None)
        return made[kind, form]

    return save
