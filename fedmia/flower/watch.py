"""Leakage while a federation runs, and its end where a bound is passed: `record(.., watch=..)`.

A look scores the model that the server is about to send, before it is sent.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from flwr.serverapp import Grid

from fedmia.encoders.memory import Network
from fedmia.flower.leakage import Leakage
from fedmia.flower.messages import log
from fedmia.flower.serve import ask_nodes
from fedmia.observers.run_observers import ObserverGroup
from fedmia.report.words import watch as words
from fedmia.settings.errors import InputError, check_arguments
from fedmia.ssl.base import State
from fedmia.statistics.auc import AucEstimate, as_sure, auc_interval
from fedmia.statistics.spending import ALPHA, lower_limit, spend

Measure = Callable[[int, State], AucEstimate]


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
        rehearse: an AUC over the bound, in (0.5, 1), that takes the place of the one that is
            measured, from the first round on, to see a federation stop; None: the watch is in
            earnest.
        observe: observers, such as `tensorboard`, by name.
        leakage: further options of the attack and the network: `options`, `mean`, `std`, `augment`,
            `device` and `seed`, as of `fedmia.flower.leakage.Leakage`.

    Raises:
        InputError: a value out of range, or images, attack or network that cannot be used.

    Attributes:
        looks: the AUC that was measured after each round that was looked at; 0: before the first.
        limits: the lower limit of the AUC at each look that could stop the federation, by which it
            was decided.
        stopped: whether the bound was passed.
    """

    def __init__(
        self, net: Network | None = None, members: Any = None, others: Any = None, *,
        every: int = 5, attack: str = "similarity", stop_above: float | None = None,
        looks: int = 20, alpha: float = ALPHA, rehearse: float | None = None,
        observe: Sequence[str] = (), **leakage: Any,
    ) -> None:  # fmt: skip
        bound = stop_above or 0.5
        arguments = {
            "every": (every, "an integer >= 1", type(every) is int and every >= 1),
            "looks": (looks, "an integer >= 1", type(looks) is int and looks >= 1),
            "alpha": (alpha, "in (0, 0.5)", 0 < alpha < 0.5),
            "stop_above": (stop_above, "in [0.5, 1)", stop_above is None or 0.5 <= stop_above < 1),
            "rehearse": (
                rehearse, f"over the bound, in ({bound}, 1)",
                rehearse is None or bound < rehearse < 1,
            ),
        }  # fmt: skip
        check_arguments("watch", arguments)
        self.every, self.stop_above, self.rehearse = every, stop_above, rehearse
        self.looks, self.limits = dict[int, AucEstimate](), dict[int, float]()
        self.stopped = self._over = False
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
        self.looks, self.limits, self._last = {}, {}, 0
        self.stopped = self._over = False
        settings = {
            "attack": self.attack, "every": self.every, "stop_above": self.stop_above,
            "rehearse": self.rehearse,
        }  # fmt: skip
        with ObserverGroup(self._observe, folder) as self._observers:
            self._observers.begin(settings)
            yield self.look
        if 0 < self._last < self.every and not self._over:
            log.warning("watch: %s", words.none_looked_at(self.every, self._last))
        if self.rehearse is not None:
            self._review(self.rehearse)

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
        if self._over or self.stopped or round in self.looks or round % self.every:
            return not self.stopped
        try:
            estimate = self._measure(round, state)
        except Exception as error:  # of the user's network, or of nodes
            kind = "" if isinstance(error, InputError) else f"{type(error).__name__}: "
            if not round:
                raise InputError(f"watch: {kind}{error}") from None
            self.end(f"round {round}: {kind}{error}")
            return True
        number = len([one for one in self.looks if one])
        self.looks[round] = decisive = estimate
        if round and self.rehearse is not None:
            decisive = as_sure(estimate, self.rehearse)
        if round and self.stop_above is not None and number < len(self._errors):
            level = self._errors[number]
            # A rehearsal lets no federation go on that leaks too much.
            self.limits[round] = max(lower_limit(one, level) for one in {decisive, estimate})
            self.stopped = self.limits[round] > self.stop_above
        self._say(round, number, decisive)
        return not self.stopped

    def end(self, why: str) -> None:
        """Look no more, and say why.

        Args:
            why: the reason, for the log.
        """
        if not self._over:
            log.warning("watch ended: %s; the federation goes on unwatched", why)
        self._over = True

    def _say(self, round: int, number: int, decisive: AucEstimate) -> None:
        """Tell the log and the observers."""
        planned, estimate, rest = len(self._errors), self.looks[round], ""
        rehearsed = decisive is not estimate
        self._observe_auc("leakage", round, estimate)
        if rehearsed:
            self._observe_auc("rehearsal", round, decisive)
        if round in self.limits:
            rest = words.of_bound(number + 1, planned, self.limits[round], self.stop_above)
        elif not round and auc_interval(estimate)[0] > 0.5:
            rest = f": {words.BY_THEMSELVES}"
        elif self.stop_above is not None and number == planned:
            rest = words.looks_over(planned)
        log.info("watch: %s", words.look(self.attack, round, estimate, decisive, rest))
        if self.stopped and rehearsed:
            own = lower_limit(estimate, self._errors[number])
            line = words.rehearsed_stop(round, estimate, decisive, own, self.stop_above)
            log.warning("watch: %s", line)
        elif self.stopped:
            line = words.stop(self.attack, round, self.stop_above, sum(self._errors))
            log.warning("watch: %s", line)

    def _observe_auc(self, what: str, round: int, estimate: AucEstimate) -> None:
        values = (estimate.value, *auc_interval(estimate))
        names = [f"{what}{end}/{self.attack}" for end in ("", "_low", "_high")]
        self._observers.scalars(dict(zip(names, values, strict=True)), round)

    def _review(self, value: float) -> None:
        """Say at how many of the planned looks the rehearsed AUC would stop the federation."""
        if self.stop_above is None:
            log.warning("watch: %s", words.NO_BOUND)
        elif last := max(self.looks, default=0):
            decisive = as_sure(self.looks[last], value)
            limits = [lower_limit(decisive, error) for error in self._errors]
            stops = sum(limit > self.stop_above for limit in limits)
            level = logging.INFO if stops == len(limits) else logging.WARNING
            log.log(level, "watch: %s", words.rehearsal(value, limits, stops))
