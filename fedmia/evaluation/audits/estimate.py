"""How long the attacks of an audit will take, before the first one runs."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from dataclasses import dataclass

import torch

from fedmia.attacks.base import DatasetAttack
from fedmia.evaluation.budgets import first_known
from fedmia.evaluation.suite import Suite
from fedmia.options.seeding import rng
from fedmia.rounds.base import EncoderRounds

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


def rehearse(suite: Suite, names: Iterable[str], short: bool = False) -> Rehearsal:
    """Fit and score every attack on a few images, and extrapolate.

    Fits and scores cost in proportion to their images; what attacks share is computed once here as
    in the audit. The scores are thrown away, and no random stream of the audit is used.

    Args:
        suite: the attacks of the audit, before they run.
        names: of the attacks.
        short: on fewer images, and no attack begins once LONG seconds have passed.

    Returns:
        The seconds of each attack, twice what it takes on one model.
    """
    scorer = suite.scorer
    most, (known, images) = scorer.known.least(), (FEW, FEW) if short else (KNOWN, IMAGES)
    few, candidates = first_known(scorer.known, min(known, most)), scorer.candidates[:images]
    end = time.perf_counter() + LONG if short else math.inf
    seconds, without = dict[str, float](), list[str]()
    assert isinstance(suite.rounds, EncoderRounds)
    if (remote := suite.rounds.encoder.remote) is not None:  # thresholds score the known images too
        candidates = torch.cat([candidates, few.both()[0]])
    before = 0 if remote is None else remote.sent
    for name in names:
        attack = suite.build(name)
        late = time.perf_counter() > end
        if late or isinstance(attack, DatasetAttack) or attack.asks_shadows():
            without.append(name)
            continue
        try:
            view = suite.view(suite.main, name, few)
            began = time.perf_counter()
            attack.fit(view, few, rng(scorer.seed, "rehearsal", name))
            fitted = time.perf_counter()
            attack.score(view, candidates)
        except Exception:  # it fails in the audit too, which then says why and goes on
            without.append(name)
            continue
        each = (time.perf_counter() - fitted) / len(candidates)
        fit = (fitted - began) * most / few.least()
        # A threshold from known images scores them too.
        seconds[name] = 2 * (fit + each * (len(scorer.candidates) + 2 * most))
    share = len(candidates) / (len(scorer.candidates) + 2 * most)
    images = 0 if remote is None else round((remote.sent - before) / share)
    return Rehearsal(seconds, tuple(without), images)
