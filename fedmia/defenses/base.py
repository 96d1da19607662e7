"""What a defence is: hooks on a client's training and release, identity by default."""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedmia.options import Options
from fedmia.ssl.base import State

if TYPE_CHECKING:
    from fedmia.ssl.train import Job

Metrics = dict[str, float]


@dataclass(frozen=True)
class Epsilon:
    """A privacy statement, printed with what it rests on.

    Attributes:
        value: epsilon spent over all rounds, None where none can be stated.
        delta: delta of (epsilon, delta)-DP, 0 for pure DP.
        rounds: rounds it covers.
        standing: `guaranteed`, `heuristic` or `empirical`.
        assumptions: one sentence: unit of privacy, what is assumed, why the standing.
    """

    value: float | None
    delta: float
    rounds: int
    standing: str
    assumptions: str


class Defense(Options, ABC):
    """A defence on one client. Subclasses are frozen dataclasses of options, one a file.

    Every hook is the identity by default. Hooks that change a value return it with metrics of
    what they did (noise level, clipped share). What must outlive the round is kept by the caller:
    `memory` is a JSON-able dict, the defence's own, stored with the client's local state.
    """

    def check(self, *, norm: str) -> None:
        """Refuse a setting in which the defence is void (`norm`: `group` or `batch`).

        Raises:
            InputError: with the reason.
        """
        return None

    def train(self, job: Job, memory: dict[str, Any]) -> Metrics:
        """Local training of one round, `job.method` updated in place. Default: `job.run()`."""
        return job.run()

    def release(
        self, received: State, trained: State, memory: dict[str, Any], rng: np.random.Generator
    ) -> tuple[State, Metrics]:
        """What leaves the client: (state, metrics) from the state received and the one trained."""
        return trained, {}

    def epsilon(self, memory: dict[str, Any]) -> Epsilon | None:
        """The privacy statement after the rounds recorded in `memory`; None: none is made."""
        return None
