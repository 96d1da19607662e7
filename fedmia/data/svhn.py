"""SVHN: 73,257 training and 26,032 test colour images of house numbers, 32x32."""

from __future__ import annotations

from typing import ClassVar

from fedmia.data._torchvision import TorchvisionDataset


class Svhn(TorchvisionDataset):
    """SVHN: 73,257 training and 26,032 test colour images of house numbers, 32x32."""

    paper: ClassVar[str] = "Netzer et al., 'Reading Digits in Natural Images', 2011"
    mean: ClassVar[tuple[float, ...]] = (0.4377, 0.4438, 0.4728)
    std: ClassVar[tuple[float, ...]] = (0.1980, 0.2010, 0.1970)
    kind: ClassVar[str] = "SVHN"
    files: ClassVar[str] = "train_32x32.mat or test_32x32.mat"
