"""SVHN: 73,257 training and 26,032 test colour images of house numbers, 32x32."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from fedmia.data._torchvision import SUBSETS, read
from fedmia.data.base import Dataset, Request
from fedmia.data.images import ImageSet
from fedmia.settings.option import option


@dataclass(frozen=True)
class Svhn(Dataset):
    """SVHN: 73,257 training and 26,032 test colour images of house numbers, 32x32."""

    paper: ClassVar[str] = "Netzer et al., 'Reading Digits in Natural Images', 2011"
    mean: ClassVar[tuple[float, ...]] = (0.4377, 0.4438, 0.4728)
    std: ClassVar[tuple[float, ...]] = (0.1980, 0.2010, 0.1970)

    subset: str = option("train", "which images", choices=SUBSETS)

    def load(self, request: Request) -> ImageSet:
        """The images of the subset, from the data folder or downloaded into it.

        Raises:
            InputError: the files are absent or corrupt and cannot be downloaded.
        """
        return read("svhn", self.subset, request, _open, "train_32x32.mat or test_32x32.mat")


def _open(root: str, part: str, download: bool) -> Any:
    from torchvision.datasets import SVHN  # slow to import, and `--list` has no use for it

    return SVHN(root, split=part, download=download)
