"""An encoder that the attacker trained itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fedmia.data.images import digests

if TYPE_CHECKING:
    from fedmia.threat.blackbox import BlackBox


@dataclass(frozen=True)
class Shadow:
    """An encoder that the attacker trained itself, and what it knows of its training.

    Attributes:
        view: queries to it, which cost the attacker nothing that a budget counts.
        members: uint8 (M, C, H, W) images that it was trained on.
        nonmembers: uint8 (K, C, H, W) images of the same source that it was not trained on.
    """

    view: BlackBox
    members: Tensor
    nonmembers: Tensor
    _names: set[bytes] = field(default_factory=set, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._names.update(digests(self.members.numpy()))

    def trained_on(self, images: Tensor) -> NDArray[np.bool_]:
        """(N,) which of uint8 `images` it was trained on, by their bytes."""
        return np.array([name in self._names for name in digests(images.numpy())], dtype=bool)
