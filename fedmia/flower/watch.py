"""Leakage while a federation runs, and its end where a bound is passed: `record(.., watch=..)`.

A look scores the model that the server is about to send, before it is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from flwr.serverapp import Grid

from fedmia.encoders.memory import Network
from fedmia.flower.leakage import Leakage
from fedmia.flower.messages import log
from fedmia.flower.serve import ask_nodes
from fedmia.observers.run_observers import RunObservers
from fedmia.options.errors import InputError, check_arguments
from fedmia.ssl.base import State
from fedmia.statistics.auc import AucEstimate, auc_interval
from fedmia.statistics.spending import ALPHA, lower_limit, spend

Measure = Callable[[int, State], AucEstimate]


@dataclass(frozen=True)
class Look:
    """What a watch saw of one model.

    Attributes:
        round: after which the model was made; 0: before the first.
        auc: of the attack, in [0, 1].
        low: lower end of its 95 % interval.
        high: upper end.
        limit: lower limit at the error that this look may spend, by which it is decided whether to
            stop; None: no look that may stop.
    """

    round: int
    auc: float
    low: float
    high: float
    limit: float | None


class Watch:
    """Looks at the global model every so many rounds, and stops the federation where it leaks more
    than a bound.

    Args:
        net: the network whose weights the messages carry, by the names of its `state_dict()` or as
            a bare list in its order; or a function that makes it. None: the nodes score images of
            their own, by `fedmia.flower.serve`, and so say what is otherwise said here of them.
        members: images that clients train on, uint8 (N, C, H, W), array or tensor.
        others: images of the same distribution that none trains on, likewise.
        every: a look after every so many rounds. The first model is looked at, too, which no
            client trained: what is found there is a difference of the images.
        attack: an attack on a released encoder, by name.
        stop_above: the bound of the AUC, in [0.5, 1); None: nothing is stopped.
        looks: planned ones; later looks stop nothing.
        alpha: chance that any of them stops a federation that leaks no more than the bound.
        observe: observers, such as `tensorboard`, by name.
        leakage: further options of the attack and the network: `options`, `mean`, `std`, `augment`,
            `device` and `seed`, as of `fedmia.flower.leakage.Leakage`.

    Raises:
        InputError: a value out of range, or images, attack or network that cannot be used.

    Attributes:
        looks: what was seen so far.
        stopped: whether the bound was passed.
    """

    def __init__(
        self, net: Network | None = None, members: Any = None, others: Any = None, *,
        every: int = 5, attack: str = "similarity", stop_above: float | None = None,
        looks: int = 20, alpha: float = ALPHA, observe: Sequence[str] = (), **leakage: Any,
    ) -> None:  # fmt: skip
        arguments = {
            "every": (every, "an integer >= 1", type(every) is int and every >= 1),
            "looks": (looks, "an integer >= 1", type(looks) is int and looks >= 1),
            "alpha": (alpha, "in (0, 0.5)", 0 < alpha < 0.5),
            "stop_above": (stop_above, "in [0.5, 1)", stop_above is None or 0.5 <= stop_above < 1),
        }
        check_arguments("watch", arguments)
        self.every, self.stop_above = every, stop_above
        self.looks, self.stopped, self._over = list[Look](), False, False
        self._errors = spend(looks, alpha)
        self._own: Measure | None = None
        self._observe = tuple(observe)
        self.attack = attack
        beside = {"members": members, "others": others, **leakage}
        try:
            if net is not None:
                self._own = Leakage(net, attack=attack, **beside).measure
            elif extra := [name for name, value in beside.items() if value is not None]:
                raise InputError(f"{extra[0]} is given without net: nodes have their own")
        except InputError as error:
            raise InputError(f"watch: {error}") from None

    @contextmanager
    def looking(self, folder: Path, grid: Grid) -> Iterator[Callable[[int, State], bool]]:
        """The time of a recording.

        Args:
            folder: into which observers write.
            grid: Flower's way to the nodes.

        Yields:
            `look`.
        """
        self._measure = self._own or partial(ask_nodes, grid, self.attack)
        self.looks, self.stopped, self._over, self._last = [], False, False, 0
        settings = {"attack": self.attack, "every": self.every, "stop_above": self.stop_above}
        with RunObservers(self._observe, folder) as self._observers:
            self._observers.begin(settings)
            yield self.look
        if 0 < self._last < self.every and not self._over:
            log.warning(
                "watch: every=%d is more than the %d rounds whose models were seen: no trained "
                "model was looked at", self.every, self._last,
            )  # fmt: skip

    def look(self, round: int, state: State) -> bool:
        """Score the model after a round, if a look is due.

        Args:
            round: 0: before the first, 1, 2, ..
            state: its weights.

        Returns:
            Whether the federation goes on.

        Raises:
            InputError: before the first round: the model cannot be scored.
        """
        self._last = round
        again = any(one.round == round for one in self.looks)
        if self._over or self.stopped or again or round % self.every:
            return not self.stopped
        try:
            estimate = self._measure(round, state)
        except Exception as error:  # of the user's network, or of nodes
            kind = "" if isinstance(error, InputError) else f"{type(error).__name__}: "
            if not round:
                raise InputError(f"watch: {kind}{error}") from None
            self.end(f"round {round}: {kind}{error}")
            return True
        number, (low, high) = len([one for one in self.looks if one.round]), auc_interval(estimate)
        limit = None
        if round and self.stop_above is not None and number < len(self._errors):
            limit = lower_limit(estimate, self._errors[number])
        self.looks.append(look := Look(round, estimate.value, low, high, limit))
        self.stopped = limit is not None and limit > (self.stop_above or 0)
        self._say(look, number)
        return not self.stopped

    def end(self, why: str) -> None:
        """Look no more, and say why.

        Args:
            why: the reason, for the log.
        """
        if not self._over:
            log.warning("watch ended: %s; the federation goes on unwatched", why)
        self._over = True

    def _say(self, look: Look, number: int) -> None:
        """Tell the log and the observers."""
        name, planned = self.attack, len(self._errors)
        values = {"": look.auc, "_low": look.low, "_high": look.high}
        self._observers.scalars(
            {f"leakage{end}/{name}": value for end, value in values.items()}, look.round
        )
        text = f"watch: round {look.round}: {name} AUC {look.auc:.3f} [{look.low:.3f}, "
        text += f"{look.high:.3f}]"
        if look.limit is not None:
            text += f"; look {number + 1} of {planned}: at least {look.limit:.3f}, stops above "
            text += f"{self.stop_above}"
        elif not look.round and look.low > 0.5:
            text += ": nobody trained this model, so members and others differ by themselves"
        elif self.stop_above is not None and number == planned:
            text += f"; the {planned} planned looks are over: nothing is stopped any more"
        log.info("%s", text)
        if self.stopped:
            log.warning(
                "watch: the federation stops after round %d: the AUC of %s is over %s (the error "
                "of all looks is at most %g)", look.round, name, self.stop_above, sum(self._errors),
            )  # fmt: skip
