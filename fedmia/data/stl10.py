"""STL-10: 5,000 training and 8,000 test colour images of 10 classes, 96x96."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from fedmia.data._torchvision import SUBSETS, read
from fedmia.data.base import Dataset, Request
from fedmia.data.images import ImageSet
from fedmia.settings.option import option


@dataclass(frozen=True)
class Stl10(Dataset):
    """STL-10: 5,000 training and 8,000 test colour images of 10 classes, 96x96."""

    paper: ClassVar[str] = "Coates et al., 'An Analysis of Single-Layer Networks', AISTATS 2011"
    mean: ClassVar[tuple[float, ...]] = (0.4467, 0.4398, 0.4066)
    std: ClassVar[tuple[float, ...]] = (0.2603, 0.2566, 0.2713)

    subset: str = option("train", "which images", choices=SUBSETS)

    def load(self, request: Request) -> ImageSet:
        """The images of the subset, from the data folder or downloaded into it.

        Raises:
            InputError: the files are absent or corrupt and cannot be downloaded.
        """
        return read("stl10", self.subset, request, _open, "stl10_binary")


def _open(root: str, part: str, download: bool) -> Any:
    from torchvision.datasets import STL10  # slow to import, and `--list` has no use for it

    return STL10(root, split=part, download=download)
