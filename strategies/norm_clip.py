"""Norm clipping: no client moves the model further than the others may."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from fedmia.defenses.sensitivity import refuse_running
from fedmia.settings import option
from fedmia.ssl.base import State
from fedmia.storage.snapshot import ExpectedRound, Update
from strategies._clipping import clip_each, clip_state, match_dtypes
from strategies.base import FederatedStrategy, Metrics
from strategies.failure_policy import Adversary


@dataclass
class NormClip(FederatedStrategy):
    """G' = G + mean(u min(1, C / ||u||)), u = L - G each client's update; C inf is FedAvg."""

    paper: ClassVar[str] = "Sun et al., 2019, arXiv 1911.07963"
    singles: ClassVar[bool] = True
    strength: ClassVar[str] = "clip"
    strengths: ClassVar[tuple[float, ...]] = (3.0, 1.0, 0.3)
    neutral: ClassVar[Mapping[str, Any]] = {"clip": 1e9}

    clip: float = option(1.0, "C, largest L2 norm of a client's update", gt=0)
    last: dict[str, float] = field(default_factory=dict, init=False, repr=False)

    def check(self, norm: str) -> None:
        refuse_running(norm)

    def aggregate(self, received: State, updates: Iterable[Update]) -> State:
        lengths = list[float]()
        clipped_mean = self.mean(clip_each(received, updates, self.clip, lengths))
        self.last = {
            "clip": self.clip,
            "clipped": sum(length > self.clip for length in lengths) / len(lengths),
            "update_norm": sum(lengths) / len(lengths),
        }
        return match_dtypes(clipped_mean, received)

    def aggregation_metrics(self, against: Adversary) -> Metrics:
        return dict(self.last)

    def passing(self, crafted: State, expected: ExpectedRound) -> State:
        received = expected.received
        return match_dtypes(clip_state(received, crafted, self.clip)[0], received)
