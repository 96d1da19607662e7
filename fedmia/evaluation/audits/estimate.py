"""How long the attacks of an audit will take, before the first one runs."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from fedmia.attacks.base import DatasetAttack, Known
from fedmia.evaluation.budgets import first_known
from fedmia.evaluation.suite import Suite
from fedmia.rounds.base import EncoderRounds
from fedmia.runtime.forecast import cost_of, paid_once
from fedmia.seeding import rng

KNOWN = 8  # known images a side of a rehearsal
IMAGES = 16  # that it scores
FEW, LONG = 4, 10.0  # of either, and seconds in all, of attacks that are not asked for


@dataclass(frozen=True)
class Rehearsal:
    """What the attacks would take, by a small rehearsal of each.

    Attributes:
        seconds: of each attack that was rehearsed, on the encoder and on its control, by name.
        without: attacks that were not rehearsed: they train shadow encoders, read whole sets of
            images, fail, or came too late.
        images: that an API or a function is asked about, each counted once; 0 of other encoders.
    """

    seconds: dict[str, float]
    without: tuple[str, ...]
    images: int = 0

    def total(self, names: Iterable[str] | None = None) -> float:
        """Seconds of some attacks together; of all that were rehearsed if None."""
        return sum(self.seconds.get(name, 0.0) for name in names or self.seconds)


def rehearse(suite: Suite, names: Sequence[str], short: bool = False) -> Rehearsal:
    """Fit and score every attack on a few images, first on fewer still, and extrapolate.

    What the first time takes beyond its share, such as imports, is paid once. Fits and scores cost
    in proportion to their images; what attacks share is computed once here as in the audit. The
    scores are thrown away, and no random stream of the audit is used.

    Args:
        suite: the attacks of the audit, before they run.
        names: of the attacks.
        short: on fewer images, and no attack begins once LONG seconds have passed.

    Returns:
        The seconds of each attack, on its control too where it has one.
    """
    assert isinstance(suite.rounds, EncoderRounds)
    scorer, remote = suite.scorer, suite.rounds.encoder.remote
    every, (known, images) = scorer.known, (FEW, FEW) if short else (KNOWN, IMAGES)
    most, scored = every.least(), len(scorer.candidates)
    both = scored + len(every.both()[0])  # a threshold from known images scores them too
    last = Known(every.members[-FEW:], every.nonmembers[-FEW:])
    steps = [(last, scorer.candidates[-FEW:])]
    steps.append((first_known(every, min(known, most)), scorer.candidates[:images]))
    if remote is not None:  # it is sent the known images, too
        steps = [(few, torch.cat([some, few.both()[0]])) for few, some in steps]
    end = time.perf_counter() + LONG if short else math.inf
    seconds, without = dict[str, float](), list[str]()
    controlled = suite.controlled(names) if suite.no_control_reason is None else ()
    before = 0 if remote is None else remote.sent
    for name in names:
        late, attack = time.perf_counter() > end, suite.build(name)
        if late or isinstance(attack, DatasetAttack) or attack.asks_shadows():
            without.append(name)
            continue
        fits, scores = list[tuple[float, int]](), list[tuple[float, int]]()  # seconds, images
        try:
            for few, some in steps:
                attack, view = suite.build(name), suite.view(suite.main, name, few)
                began = time.perf_counter()
                attack.fit(view, few, rng(scorer.seed, "rehearsal", name))
                fitted = time.perf_counter()
                attack.score(view, some)
                fits.append((fitted - began, max(few.least(), 1)))
                scores.append((time.perf_counter() - fitted, len(some)))
        except Exception:  # it fails in the audit too, which then says why and goes on
            without.append(name)
            continue
        once = paid_once(*fits[0], *fits[1]) + paid_once(*scores[0], *scores[1])
        seconds[name] = once + cost_of(most, *fits[1]) + cost_of(both, *scores[1])
        if name in controlled:  # which has no threshold of its own
            seconds[name] += cost_of(most, *fits[1]) + cost_of(scored, *scores[1])
    sent = 0 if remote is None else remote.sent - before
    return Rehearsal(
        seconds, tuple(without), round(cost_of(both, sent, sum(len(some) for _, some in steps)))
    )
