"""Two attacks with a switch inside: PartCrop read after every epoch, SD-MI with given anchors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor, nn

from fedmia.attacks.base import Known, Scores
from fedmia.attacks.partcrop import PartCrop
from fedmia.attacks.sd_mi import SDMI, distances
from fedmia.settings import option
from fedmia.threat import BlackBox


@dataclass
class PartCropByEpoch(PartCrop):
    """PartCrop that remembers its network as it is fitted, as its public code looks at it after
    each epoch. Few known images make short epochs, so it may remember every few of them.

    The fit is the attack's own: a hook counts the rows that the network is shown.
    """

    every: int = option(1, "epochs between two networks that are remembered", ge=1)

    _last: ClassVar[tuple[BlackBox, Tensor, list[Tensor]] | None] = None  # one call's inputs

    def fit(self, view: BlackBox, known: Known, rng: np.random.Generator) -> None:
        self._rows, self._seen = len(known.members) + len(known.nonmembers), 0
        self._states: list[dict[str, Tensor]] = []
        super().fit(view, known, rng)
        self._remember()
        self._hook.remove()

    def network(self, widths: Sequence[int]) -> nn.Module:
        self._network = super().network(widths)
        self._hook = self._network.register_forward_pre_hook(self._count)
        return self._network

    def score_moments(self, view: BlackBox, images: Tensor) -> list[Scores]:
        """Scores (N,) by each network that is remembered; the last are those of `score`.

        Args:
            view: of the encoder.
            images: uint8 (N, C, H, W).

        Returns:
            One array a network, in the order of the epochs.
        """
        by_moment = []
        for state in self._states:
            self._network.load_state_dict(state)
            by_moment.append(self.score(view, images))
        return by_moment

    def inputs(self, view: BlackBox, images: Tensor, *draw: int) -> list[Tensor]:
        if draw:  # of images fitted on
            return super().inputs(view, images, *draw)
        if self._last is None or self._last[0] is not view or self._last[1] is not images:
            self._last = view, images, super().inputs(view, images)  # type: ignore[misc]
        return self._last[2]

    def _count(self, module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        if module.training:
            if self._seen and self._seen % (self._rows * self.every) == 0:
                self._remember()
            self._seen += len(inputs[0])

    def _remember(self) -> None:
        state = self._network.state_dict()
        self._states.append({name: tensor.clone() for name, tensor in state.items()})


class AnchoredSDMI(SDMI):
    """SD-MI whose anchors are drawn from a population that is given, such as all images that are
    attacked (its code, main.py:52-55). It is fitted on the same known images as SD-MI.

    Args:
        population: uint8 (M, C, H, W).
        options: of SD-MI; `anchors` is needed.
    """

    def __init__(self, population: Tensor, **options: object) -> None:
        super().__init__(**options)  # type: ignore[arg-type]
        self._population = population

    def fit(self, view: BlackBox, known: Known, rng: np.random.Generator) -> None:
        order = np.random.default_rng(view.seed).permutation(len(self._population))
        self._drawn = view.embed_plain(self._population[order[: self.anchors]], self.layer)
        super().fit(view, known, rng)

    def _inputs(self, vectors: Tensor) -> Tensor:
        return distances(vectors, self._drawn, self.distance)
