"""What a defence is: hooks on a client's training and release, identity by default."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from fedmia.data.images import ByteArray, IntArray
from fedmia.records.privacy import Epsilon
from fedmia.settings import Options
from fedmia.ssl.base import SSL, SSLMethod, State

if TYPE_CHECKING:
    from fedmia.ssl.train import Job, Train
    from fedmia.threat import WhiteBox

Metrics = dict[str, float]


@dataclass(frozen=True)
class TrainingConditions:
    """The training in which a defence works.

    Attributes:
        norm: `group`, `batch`, or `local`: batch norm whose statistics stay with the client.
        ssl: the method's options.
        public: how many public images the run has.
        pretrained: the server trains on them before the first round.
    """

    norm: str
    ssl: SSL
    public: int = 0
    pretrained: bool = False


@dataclass(frozen=True)
class Preparation:
    """What a client's defence may read and call before the first round.

    Attributes:
        rounds: rounds of the whole run, federated pre-training included.
        images: number of images that the client holds.
        rehearse: trains from the received weights on the client's images at the given positions,
            exactly as the coming round would, and returns the shared state; nothing is kept.
        rng: randomness of the preparation.
        public: uint8 (P, C, H, W), images that no client holds; none where the run has none.
        rehearse_public: trains likewise on public images, over again until they are as many as the
            client's own; returns the weights received and those trained. Nothing is kept, and no
            image of the client is looked at. None: there are no public images.
        rehearse_alone: a federation of one from the run's first weights, on the public images at
            the given positions, under this client's defences as far as they are prepared; a view of
            it after each round. Takes what changes each round's job first. None: not here.
    """

    rounds: int
    images: int
    rehearse: Callable[[IntArray], State]
    rng: np.random.Generator
    public: ByteArray
    rehearse_public: Callable[[], tuple[State, State]] | None = None
    rehearse_alone: Callable[[IntArray, Callable[[Job], None]], Iterator[WhiteBox]] | None = None


class Defense(Options, ABC):
    """A defence on one client. Subclasses are frozen dataclasses of options, one a file.

    Every hook is the identity by default. Hooks that change a value return it with metrics of
    what they did (noise level, clipped share). What must outlive the round is kept by the caller:
    `memory` is a JSON-able dict of the defence's own, stored with the client's local state; its
    `metrics` are those of the last round.

    Attributes:
        releases: it clips and noises the update; a client has one such defence at most.
        withholds: its guarantee covers weights alone, so no number that rests on the client's
            images may leave beside them.
        strength: the option that says how strong it is; empty where none does.
        strengths: values of it that a trade-off tries, from mild to strong.
        neutral: options under which it does nothing, beside other settings at their defaults: it
            adds no noise, clips nothing and trains as it is. Empty: there are none.
    """

    releases: ClassVar[bool] = False
    withholds: ClassVar[bool] = False
    strength: ClassVar[str] = ""
    strengths: ClassVar[tuple[float, ...]] = ()
    neutral: ClassVar[Mapping[str, Any]] = {}

    @property
    def trains(self) -> bool:
        """Whether it takes the place of local training; a client has one such defence at most."""
        return type(self).train is not Defense.train

    def check(self, setting: TrainingConditions) -> None:
        """Refuse settings under which the defence has no effect.

        Raises:
            InputError: with the reason.
        """
        return None

    def check_method(self, method: SSLMethod, channels: int, size: int) -> None:
        """Refuse a network, before anything runs, on which the defence cannot keep its promise.

        Args:
            method: built on the network; left as it is.
            channels: number of channels of an image.
            size: side of an image in pixels.

        Raises:
            InputError: naming the layer.
        """
        return None

    def forecast(self, images: int, train: Train, rounds: int) -> str | None:
        """A line where the settings end in no guarantee worth the name; None else.

        Args:
            images: of the client.
            train: how a client trains.
            rounds: of the run.

        Returns:
            The line, said before the first round.
        """
        return None

    def foresee(self, images: int, train: Train, rounds: int) -> None:
        """Refuse, before anything runs, a client for which the defence cannot keep its promise.

        Args:
            images: that the client holds.
            rounds: of the whole run.

        Raises:
            InputError: with the reason.
        """
        return None

    def prepare(self, preparation: Preparation, memory: dict[str, Any]) -> None:
        """Prepare the defence, once, before the client's first round; results go into `memory`.

        Args:
            preparation: what the client knows before its first round.
            memory: what the defence keeps between rounds; JSON-able.
        """
        return None

    def sits_out(self, memory: dict[str, Any]) -> bool:
        """Whether the client sits out the next round: it neither trains nor sends."""
        return False

    def adapt(self, job: Job, memory: dict[str, Any]) -> None:
        """Change how a round trains (`job.augment`, `job.train`, ..), before the training.

        Args:
            memory: what the defence keeps between rounds; JSON-able.
        """
        return None

    def train(self, job: Job, memory: dict[str, Any]) -> Metrics:
        """Train one round; `job.method` changes in place.

        Args:
            memory: what the defence keeps between rounds; JSON-able.

        Returns:
            Metrics of the training.
        """
        return job.run()

    def release(
        self, received: State, trained: State, memory: dict[str, Any], rng: np.random.Generator
    ) -> tuple[State, Metrics]:
        """Make what leaves the client from the trained weights.

        Args:
            received: weights that the client received.
            trained: weights after local training.
            memory: what the defence keeps between rounds; JSON-able.
            rng: the only source of randomness.

        Returns:
            The weights that leave the client, and metrics of what was done to them.
        """
        return trained, {}

    def privacy(self, memory: dict[str, Any]) -> Epsilon | None:
        """The privacy statement after the rounds in `memory`; None where there is none."""
        return None
