"""Weight decay: L2 regularisation against membership inference (Shokri et al., 2017)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from fedmia.defenses.base import Defense
from fedmia.settings import option
from fedmia.ssl.optimizers import set_decay
from fedmia.ssl.train import Job, Train


@dataclass(frozen=True)
class WeightDecay(Defense):
    """A weight decay of the client's own in place of the run's; promises no privacy.

    It rests on no image, so beside DP-SGD it costs no privacy: there the decay follows the noise.
    """

    paper: ClassVar[str] = "Shokri et al., S&P 2017, Sec. VIII-A"
    strength: ClassVar[str] = "weight_decay"
    strengths: ClassVar[tuple[float, ...]] = (5e-3, 2e-2, 5e-2)
    neutral: ClassVar[Mapping[str, Any]] = {"weight_decay": Train.weight_decay}

    weight_decay: float = option(5e-3, "L2 weight decay of the client's training", ge=0)

    def adapt(self, job: Job, memory: dict[str, Any]) -> None:
        job.train = replace(job.train, weight_decay=self.weight_decay, weight_decay_end=None)
        set_decay(job.optimizer, self.weight_decay)
