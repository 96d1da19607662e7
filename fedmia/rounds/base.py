"""Models by branch and round, as attacks are scored on them; one encoder is one round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fedmia.encoders.base import LoadedEncoder
from fedmia.recording.branches import MAIN, UNTRAINED
from fedmia.rounds.notes import Notes
from fedmia.ssl.base import SSLMethod, State
from fedmia.threat.signals import Signals
from fedmia.threat.stored import Stored


class TargetModel:
    """The model after a round of a branch, with what was computed of it.

    Args:
        branch: MAIN, a control such as `placebo`, or UNTRAINED.
        round: 0: before the first; None: of an encoder whose round nobody knows.
        method: the network with its weights; None until it is asked for.

    Attributes:
        signals: outputs of the model, which attacks share.
    """

    def __init__(self, branch: str, round: int | None, method: SSLMethod | None = None) -> None:
        self.branch, self.round, self.method = branch, round, method
        self.signals = Signals()


class Rounds:
    """What a federation left behind: its models, and what was kept beside them.

    Attributes:
        where: what errors call it.
        digest: of all of it, for scores that are kept; empty where their key holds it already.
    """

    where: str = ""
    digest: str = ""

    @property
    def access(self) -> str:
        """To its models, `white_box` or `black_box`."""
        return "white_box"

    @property
    def stored(self) -> Stored | None:
        """Vectors in place of models; None: there are models."""
        return None

    @property
    def round(self) -> int | None:
        """The round whose model is under test; None: not known."""
        raise NotImplementedError

    @property
    def scored(self) -> Sequence[int]:
        """Rounds whose models are scored by themselves, ascending."""
        return ()

    def load(self, target: TargetModel) -> SSLMethod:
        """The network with the weights of a target.

        Raises:
            InputError: there is no such model, such as none that is untrained.
        """
        raise NotImplementedError

    def models(self, branch: str = MAIN) -> Mapping[int, State]:
        """The global models that were kept, by round; each is read when it is asked for."""
        return {}

    def negatives(self, branch: str = MAIN) -> Mapping[int, State]:
        """The bank of negatives, such as a queue, of the attacker's client, by round."""
        return {}

    def updates(self, branch: str = MAIN) -> Mapping[int, Mapping[int, State]]:
        """What each client sent, by round and client, of those that may be read."""
        return {}

    def before(self, branch: str = MAIN) -> Mapping[int, State]:
        """What the clients of a round received, for the rounds of `updates`."""
        return {}

    @property
    def notes(self) -> Notes | None:
        """What an attacker inside noted of its targets; None: there was none."""
        return None


class EncoderRounds(Rounds):
    """One encoder that somebody brings.

    Args:
        encoder: with its untrained control, where it has one.
    """

    def __init__(self, encoder: LoadedEncoder) -> None:
        self.encoder = encoder

    @property
    def access(self) -> str:
        return self.encoder.access

    @property
    def stored(self) -> Stored | None:
        return self.encoder.stored

    @property
    def round(self) -> int | None:
        return self.encoder.weights.round

    def load(self, target: TargetModel) -> SSLMethod:
        return self.encoder.untrained() if target.branch == UNTRAINED else self.encoder.method
