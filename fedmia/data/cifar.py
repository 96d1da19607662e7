"""CIFAR-10 and CIFAR-100: 50,000 training and 10,000 test colour images, 32x32."""

from __future__ import annotations

from typing import ClassVar

from fedmia.data._torchvision import TorchvisionDataset


class _Cifar(TorchvisionDataset):
    paper: ClassVar[str] = (
        "Krizhevsky, 'Learning Multiple Layers of Features from Tiny Images', 2009"
    )
    by_flag: ClassVar[bool] = True


class Cifar10(_Cifar):
    """CIFAR-10: 50,000 training and 10,000 test colour images of 10 classes, 32x32."""

    name: ClassVar[str] = "cifar10"
    mean: ClassVar[tuple[float, ...]] = (0.4914, 0.4822, 0.4465)
    std: ClassVar[tuple[float, ...]] = (0.2470, 0.2435, 0.2616)
    kind: ClassVar[str] = "CIFAR10"
    files: ClassVar[str] = "cifar-10-batches-py"


class Cifar100(_Cifar):
    """CIFAR-100: 50,000 training and 10,000 test colour images of 100 classes, 32x32."""

    name: ClassVar[str] = "cifar100"
    mean: ClassVar[tuple[float, ...]] = (0.5071, 0.4865, 0.4409)
    std: ClassVar[tuple[float, ...]] = (0.2673, 0.2564, 0.2762)
    kind: ClassVar[str] = "CIFAR100"
    files: ClassVar[str] = "cifar-100-python"
