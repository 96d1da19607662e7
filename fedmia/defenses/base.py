"""What a defence is: hooks on a client's training and release, identity by default."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from fedmia.data.images import IntArray
from fedmia.results import Epsilon
from fedmia.settings.option import Options
from fedmia.ssl.base import State

if TYPE_CHECKING:
    from fedmia.ssl.train import Job

Metrics = dict[str, float]


@dataclass(frozen=True)
class Outlook:
    """What a defended client knows before its first round.

    Attributes:
        rounds: rounds of the whole run, federated pre-training included.
        images: number of images that the client holds.
        rehearse: trains from the received weights on the client's images at the given positions,
            exactly as the coming round would, and returns the shared state; nothing is kept.
        rng: randomness of the preparation.
    """

    rounds: int
    images: int
    rehearse: Callable[[IntArray], State]
    rng: np.random.Generator


class Defense(Options, ABC):
    """A defence on one client. Subclasses are frozen dataclasses of options, one a file.

    Every hook is the identity by default. Hooks that change a value return it with metrics of
    what they did (noise level, clipped share). What must outlive the round is kept by the caller:
    `memory` is a JSON-able dict, stored with the client's local state; its `metrics` are those of
    the last round.

    Attributes:
        strength: the option that says how strong it is; empty where none does.
        strengths: values of it that a trade-off tries, from mild to strong.
    """

    strength: ClassVar[str] = ""
    strengths: ClassVar[tuple[float, ...]] = ()

    def check(self, *, norm: str, coupled: bool = False) -> None:
        """Refuse a setting in which the defence is void.

        Args:
            norm: `group`, `batch`, or `local`: batch norm whose statistics stay with the client.
            coupled: whether one image's loss depends on the other images of its batch.

        Raises:
            InputError: with the reason.
        """
        return None

    def prepare(self, outlook: Outlook, memory: dict[str, Any]) -> None:
        """Called once, before the client's first round; what it learns goes into `memory`."""
        return None

    def train(self, job: Job, memory: dict[str, Any]) -> Metrics:
        """Local training of one round, `job.method` updated in place. Default: `job.run()`."""
        return job.run()

    def release(
        self, received: State, trained: State, memory: dict[str, Any], rng: np.random.Generator
    ) -> tuple[State, Metrics]:
        """What leaves the client: (state, metrics) from the state received and the one trained."""
        return trained, {}

    def privacy(self, memory: dict[str, Any]) -> Epsilon | None:
        """The privacy statement after the rounds recorded in `memory`; None: none is made."""
        return None
