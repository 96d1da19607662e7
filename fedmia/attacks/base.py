"""What an attack is: fit on known images, score candidates. HIGHER SCORE = MORE LIKELY A MEMBER."""

from __future__ import annotations

import copy
import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedmia.data.images import IntArray
from fedmia.settings import Options, option
from fedmia.settings.errors import InputError
from fedmia.ssl.base import SSLMethod, State
from fedmia.ssl.train import Train
from fedmia.threat import NEGATIVES, ClientView, Threat, Trajectory, WhiteBox

if TYPE_CHECKING:
    from fedmia.records import SetComparison

Scores = NDArray[np.float64]
Suspect = tuple[IntArray, IntArray]  # places of a suspected set, and of others

# What of an encoder may tell a member: how close an image's views lie, how long its vector is,
# how its parts respond to its crops, how alike its crops are to it, how alike its patches are, the
# vector itself, the contrastive loss, inner layers, the loss under ascent, the update that a client
# sent, what has changed since earlier rounds.
LEAKS = (
    "similarity", "norm", "parts", "whole", "patches", "features", "loss", "layers", "ascent",
    "update", "trajectory",
)  # fmt: skip


@dataclass(frozen=True)
class Known:
    """Images whose membership the attacker knows, uint8 (N, C, H, W), apart from the candidates.

    Attributes:
        members: images that the model was trained on, `(M, C, H, W)`.
        nonmembers: images that it was not trained on, `(K, C, H, W)`.
        subjects: of the members `(M,)` and of the non-members `(K,)`, such as patients; None: each
            image is its own.
    """

    members: Tensor
    nonmembers: Tensor
    subjects: tuple[IntArray, IntArray] | None = field(default=None, kw_only=True)

    def both(self) -> tuple[Tensor, NDArray[np.int64]]:
        """All known images, members first, and their truth (1 = member)."""
        truth = np.repeat([1, 0], [len(self.members), len(self.nonmembers)])
        return torch.cat([self.members, self.nonmembers]), truth.astype(np.int64)

    def without_members(self) -> Known:
        """The known non-members alone."""
        of = self.subjects and (self.subjects[0][:0], self.subjects[1])
        return Known(self.members[:0], self.nonmembers, subjects=of)

    def least(self) -> int:
        """Images of the smaller side, of those of which any are known."""
        return min(filter(None, map(len, (self.members, self.nonmembers))), default=0)


def negatives_option() -> Any:
    """The option that says which negatives a contrastive loss has."""
    text = "negatives of the loss: keys of half the images that the attacker holds, or its queue"
    return option("held", text, choices=NEGATIVES)


FOLDS = 4  # of the known images, to set a threshold on scores of images not fitted on


class NotFitted(RuntimeError):
    """`score` was called before `fit`."""


def refuse_few(name: str, least: int, members: int, nonmembers: int) -> None:
    """Refuse fewer than `least` known images of a side.

    Args:
        name: who needs them, for the error.
        least: fewest known images a side.
        members: number of known members.
        nonmembers: number of known non-members.

    Raises:
        InputError: saying how many there are.
    """
    if min(members, nonmembers) < least:
        raise InputError(
            f"{name} needs at least {least} known members and non-members, "
            f"got {members} and {nonmembers}"
        )


def refuse_other_size(name: str, view: Any, known: Known) -> None:
    """Refuse shadows of images of another size than the known ones, for attacks that show the same
    images to both.

    Args:
        name: of the attack, for the error.
        view: a view without shadows is refused, too.
        known: without known images nothing is compared.

    Raises:
        InputError: naming both sizes.
    """
    own, theirs = known.both()[0].shape[1:], view.shadows[0].members.shape[1:]
    if known.least() and own != theirs:
        sizes = ["x".join(map(str, shape)) for shape in (theirs, own)]
        raise InputError(
            f"{name} shows the same images to the shadow encoders, trained on {sizes[0]}, and to "
            f"the target, audited on {sizes[1]}: it needs shadows of that size"
        )


def _fitting(fit: Callable[..., None]) -> Callable[..., None]:
    """`fit` that refuses too few known images and notes whether it came to its end."""

    @wraps(fit)
    def wrapped(self: Attack, view: Any, known: Known, rng: np.random.Generator) -> None:
        self._note_fit(False)
        if self.learns:
            members, others = len(known.members), len(known.nonmembers)
            alone = others > 0 and not members
            if alone and self.learns_from_members:
                raise InputError(f"{self.name} learns from known members, this attacker knows none")
            refuse_few(self.name, self.least_known, others if alone else members, others)
        self._note_fit(True)  # from here on: `fit` may itself score the known images
        try:
            fit(self, view, known, rng)
        except BaseException:
            self._note_fit(False)
            raise

    return wrapped


def _fitted(method: Callable[..., Any]) -> Callable[..., Any]:
    """`method` that raises NotFitted before `fit`."""

    @wraps(method)
    def wrapped(self: Attack, view: Any, images: Tensor, *more: Any) -> Any:
        if not self._fit_done:
            raise NotFitted(f"{self.name}: call fit before score")
        return method(self, view, images, *more)

    return wrapped


class Attack(Options, ABC):
    """A membership attack. Subclasses are dataclasses of options, one or a family a file.

    The harness fits on known images, then scores candidates in an order of their content alone.
    `fit` may be called again and forgets what was fitted before. That `score`, `by_client`,
    `features`, `score_sets`, `score_without` and `infer` raise NotFitted before `fit` is seen to
    here, not by subclasses.
    """

    # As on the command line: a class of a family states it, else that of its file, or
    # `module:Class` from outside.
    name: ClassVar[str]
    paper: ClassVar[str]
    needs: ClassVar[Threat]
    by_round: ClassVar[bool] = True  # cheap enough to be scored on every evaluated snapshot
    # Whether `python -m fedmia.simulate` runs it by default (`--attacks main`).
    main: ClassVar[bool] = False
    # Where it looks for the leak: LEAKS. A leak elsewhere must leave it at chance.
    looks_at: ClassVar[tuple[str, ...]] = ()
    # The step on the loss that it takes and reads, in a word that names its figures; the report's
    # name for the attack without it, and what that is, as in "ascent adds .. over <the same ..>".
    act: ClassVar[str] = ""
    control: ClassVar[str] = ""
    over: ClassVar[str] = ""
    # The report's names for the columns of `score_without`, and what each is.
    without: ClassVar[Mapping[str, str]] = {}
    # Values of its option `reading` that every report shows, the one asked for and the others
    # beside it, each in a row of its own; none for an attack that reads one way.
    readings: ClassVar[tuple[str, ...]] = ()
    reading: str = ""  # the one asked for
    # Fewest clients in a round, for attacks that compare their updates.
    least_clients: ClassVar[int] = 1
    # Whether it reads `view.shadows`, encoders that the attacker trains itself.
    uses_shadows: ClassVar[bool] = False
    # Fewest known images of a side that `fit` takes where it learns from them.
    least_known: ClassVar[int] = 0
    _fit_done = False

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        if "name" not in vars(cls):
            package, _, file = cls.__module__.rpartition(".")
            own = package == __package__
            cls.name = file.replace("_", "-") if own else f"{cls.__module__}:{cls.__qualname__}"
        answers = "score", "by_client", "features", "score_sets", "score_without", "infer"
        for name in ("fit", *answers):
            source = next((c for c in cls.__mro__ if name in vars(c)), Attack)
            if source is cls or not issubclass(source, Attack):  # its own, or a mixin's
                wrap = _fitting if name == "fit" else _fitted
                setattr(cls, name, wrap(getattr(cls, name)))

    def _note_fit(self, done: bool) -> None:
        vars(self)["_fit_done"] = done  # a frozen dataclass may be an attack, too

    @classmethod
    def reads_training(cls) -> bool:
        """Whether it reads updates or changes between rounds: an untrained encoder has neither."""
        return bool(cls.needs.row.keeps) or "trajectory" in cls.looks_at

    @property
    def known_needed(self) -> int:
        """Fewest known images of a side with which it is also fitted without any one of the parts
        on which its threshold is chosen in turn."""
        if not self.learns:
            return 0
        counts = itertools.count(self.least_known)
        return next(n for n in counts if n - -(-n // FOLDS) >= self.least_known)

    @property
    def learns(self) -> bool:
        """Whether `fit` learns from the known images."""
        return type(self).fit is not Attack.fit

    @property
    def learns_from_members(self) -> bool:
        """Whether what it learns needs known members; if not, non-members alone suffice."""
        return self.learns

    @property
    def choices(self) -> dict[str, Any]:
        """Values that `fit` chose for options left to it (`auto`), by option; plain types."""
        return {}

    def asks_shadows(self) -> bool:
        """Whether it reads `view.shadows` as it is set up."""
        return self.uses_shadows

    @property
    def shadow_threshold(self) -> float | None:
        """The score above which it says member by what it was fitted on, its shadows; None for
        attacks fitted on known images, which choose their threshold too."""
        return None

    def fit(self, view: Any, known: Known, rng: np.random.Generator) -> None:
        """Choose classifier and direction from known images only. Default: nothing to learn.

        Args:
            view: what the attack may ask, as its `needs` say (`BlackBox`, `WhiteBox`, ..).
            known: images whose membership the attacker knows.
            rng: stream of the attack's own random choices.

        Raises:
            InputError: fewer than `least_known` known images of a side.
        """
        self._note_fit(True)

    @abstractmethod
    def score(self, view: Any, images: Tensor) -> Scores:
        """(N,) finite scores of uint8 (N, C, H, W), higher = member; the order of the images, and
        what else is scored, play no part. Raises NotFitted before `fit`."""

    def by_client(self, view: Any, images: Tensor) -> tuple[NDArray[np.int64], Scores] | None:
        """Ids of the clients (K,) and one finite score of each image for each, (K, N): higher,
        likelier that this client trained on it. For attacks that score each client; called
        after `fit`. The client of an image's highest score is the one that the attack names."""
        return None

    def score_sets(self, view: Any, sets: Tensor, known: Known) -> Scores | None:
        """(S, 1 + controls) of uint8 sets (S, B, C, H, W): a score of each set as a whole, then
        those of its controls, the ones of `without` or the same attack without its act; higher,
        likelier that all its images are members. For attacks that learn more of a set than of its
        images; None: the mean of `score` says all."""
        return None

    def score_without(self, view: Any, images: Tensor) -> Scores | None:
        """(N, controls) scores of what needs no act, by the names of `without`, for attacks on a
        released model that have such: the difference to `score` is what the act adds."""
        return None

    def other_readings(self) -> dict[str, Attack]:
        """Copies of the attack, fitted as it is, by each other reading that a report shows."""
        copies = {name: copy.copy(self) for name in self.readings if name != self.reading}
        for name, other in copies.items():
            vars(other)["reading"] = name
        return copies

    def features(self, view: Any, images: Tensor) -> tuple[tuple[str, str, str], Scores] | None:
        """Three names and features (N, 3) for the scatter plot, for attacks that have them."""
        return None


@dataclass(frozen=True)
class AttackTurn:
    """One crafted round of an attacker's client, and what its attack can use there.

    Attributes:
        method: the client's own, with its bank; may be changed.
        received: the global weights of the round.
        trained: the weights after the client's own training, or `received` itself.
        targets: uint8 (N, C, H, W) in an order that carries no truth.
        held: uint8 images that the attacker holds; None: the bank holds their keys already.
        known: images whose membership it knows.
        number: which of the client's crafted rounds it is: 0, 1, ...
        turns: how many of them it can expect.
        share: weight of its update in the round's average, as far as it can know.
        notes: JSON-able, kept from round to round; `choice` stands in the report.
        augment: augmentation of the views.
        rng: stream of (seed, round, partition).
        train: how honest clients train in the round; its rate is that of the round.
        tuning: that of what it chooses on known images; None: the same.
        alone: the targets are one batch, which has the round to itself.
        passing: what the server's rule would let through that is nearest to a crafted state, as far
            as the attacker can guess the other clients' updates.
        rehearse: the mean of what honest clients would send back for weights that they receive, as
            guessed from trainings on the attacker's own images and the known members.
    """

    method: SSLMethod
    received: State
    trained: State
    targets: Tensor
    held: Tensor | None
    known: Known
    number: int
    turns: int
    share: float
    notes: dict[str, Any]
    augment: Any
    rng: np.random.Generator
    train: Train = field(default_factory=Train)
    tuning: np.random.Generator | None = None
    alone: bool = False
    passing: Callable[[State], State] = lambda crafted: crafted
    rehearse: Callable[[State], State] = lambda received: received


class DatasetAttack(Attack):
    """An attack that answers for whole data sets, by a p-value each; it has no row of images."""

    @abstractmethod
    def infer(
        self,
        view: Any,
        images: Tensor,
        classes: IntArray,
        suspects: Sequence[Suspect],
        rng: np.random.Generator,
        subjects: IntArray | None = None,
    ) -> list[SetComparison]:
        """Whether the encoder was trained on each suspected set, in the order asked; after `fit`.

        Args:
            view: as of `fit`.
            images: uint8 (N, C, H, W) of all sets.
            classes: (N,), which the data set's owner knows.
            suspects: places of a suspected set, and of others, not trained on, to compare with.
            rng: stream of the permutations.
            subjects: (N,) to which the images belong, such as patients: they are exchanged whole;
                None: each image is its own. It is handed over where there are any.

        Returns:
            one comparison for each of `suspects`, of no client.
        """


class ActiveAttack(Attack):
    """An attack with a part inside the federation: what its client sends in place of an update.

    As the rounds pass the client reads the images under test in each model that it receives; what
    it judges by is that trajectory, so no model has to be kept.
    """

    uploads: ClassVar[str]  # what that is, in a few words

    @classmethod
    def reads_training(cls) -> bool:
        return True

    @property
    def round_size(self) -> int | None:
        """Images of a batch that has an attacked round to itself, by which they are scored; None:
        the images under test share every attacked round."""
        return None

    @property
    def together(self) -> bool:
        """Whether the malicious clients of a run act as one: all send the same."""
        return False

    @abstractmethod
    def craft(self, turn: AttackTurn) -> State:
        """The state that the malicious client uploads."""

    @abstractmethod
    def disarmed(self) -> ActiveAttack:
        """The paired `control`: the same attack with its active step set to zero."""

    @abstractmethod
    def read(self, view: WhiteBox, images: Tensor) -> Scores:
        """(N,) what it notes of uint8 (N, C, H, W) under one model, such as their losses."""

    @abstractmethod
    def judge(self, trajectory: Trajectory) -> Scores:
        """(N,) scores of the images of a trajectory."""

    def reads_uploads(self) -> bool:
        """Whether `judge` needs readings of every upload; of the first there is always one."""
        return False

    def score(self, view: ClientView, images: Tensor) -> Scores:
        """Those of what the client noted of the images."""
        return self.judge(view.trajectory(images))
