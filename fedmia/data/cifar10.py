"""CIFAR-10: 50,000 training and 10,000 test colour images of 10 classes, 32x32."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from fedmia.data._torchvision import SUBSETS, read
from fedmia.data.base import Dataset, Request
from fedmia.data.images import ImageSet
from fedmia.settings.option import option


@dataclass(frozen=True)
class Cifar10(Dataset):
    """CIFAR-10: 50,000 training and 10,000 test colour images of 10 classes, 32x32."""

    paper: ClassVar[str] = (
        "Krizhevsky, 'Learning Multiple Layers of Features from Tiny Images', 2009"
    )
    mean: ClassVar[tuple[float, ...]] = (0.4914, 0.4822, 0.4465)
    std: ClassVar[tuple[float, ...]] = (0.2470, 0.2435, 0.2616)

    subset: str = option("train", "which images", choices=SUBSETS)

    def load(self, request: Request) -> ImageSet:
        """The images of the subset, from the data folder or downloaded into it.

        Raises:
            InputError: the files are absent or corrupt and cannot be downloaded.
        """
        return read("cifar10", self.subset, request, _open, "cifar-10-batches-py")


def _open(root: str, part: str, download: bool) -> Any:
    from torchvision.datasets import CIFAR10  # slow to import, and `--list` has no use for it

    return CIFAR10(root, train=part == "train", download=download)
