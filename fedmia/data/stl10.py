"""STL-10: 5,000 training and 8,000 test colour images of 10 classes, 96x96."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedmia.data._torchvision import Archive


@dataclass(frozen=True)
class Stl10(Archive):
    """STL-10: 5,000 training and 8,000 test colour images of 10 classes, 96x96."""

    paper: ClassVar[str] = "Coates et al., 'An Analysis of Single-Layer Networks', AISTATS 2011"
    mean: ClassVar[tuple[float, ...]] = (0.4467, 0.4398, 0.4066)
    std: ClassVar[tuple[float, ...]] = (0.2603, 0.2566, 0.2713)
    kind: ClassVar[str] = "STL10"
    files: ClassVar[str] = "stl10_binary"
