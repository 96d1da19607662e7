"""A client's defences together, in the order in which they act."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fedmia.defenses.base import Defense, Metrics, Preparation, TrainingConditions
from fedmia.records.defence_rows import DefencePart, DefenceRow
from fedmia.records.privacy import Epsilon
from fedmia.seeding import SEEDED
from fedmia.settings.errors import InputError, opt, prefix_errors
from fedmia.ssl.base import State
from fedmia.ssl.train import Job

# What may leave beside weights under a guarantee for weights alone: it rests on no image.
OPEN = frozenset({"began", "ended", "seconds", "noise_std", "lr"})
STANDINGS = ("guaranteed", "heuristic", "empirical")
TOGETHER = " One of the statements of {names}, which hold side by side; of its unit the least."


class DefenseStack:
    """Defences by name. Each keeps a memory of its own under its name in the client's.

    Training and release are a chain: what one defence guarantees of its result, the next only
    processes further. So every statement holds of what leaves the client, and the least epsilon of
    the best standing is the whole stack's, for each unit of privacy.

    Args:
        layers: name and defence, in the order in which they act.
        noise_source: of the run's random streams: seeded, or the operating system's.
    """

    def __init__(
        self, layers: Sequence[tuple[str, Defense]] = (), noise_source: str = SEEDED
    ) -> None:
        self.layers = layers
        self.noise_source = noise_source

    def __bool__(self) -> bool:
        return bool(self.layers)

    @property
    def withholds(self) -> bool:
        """Whether numbers that rest on images stay with the client."""
        return any(defense.withholds for _, defense in self.layers)

    @property
    def adapts(self) -> bool:
        """Whether a defence may change the method or its optimizer beyond their state."""
        return any(type(defense).adapt is not Defense.adapt for _, defense in self.layers)

    def leaving_metrics(self, metrics: Metrics) -> Metrics:
        """Of the metrics, those that may leave."""
        return {k: v for k, v in metrics.items() if not self.withholds or k in OPEN}

    def prepare(self, preparation: Preparation, memory: dict[str, Any]) -> None:
        """Before the client's first round."""
        for name, defense in self.layers:
            defense.prepare(preparation, memory.setdefault(name, {}))

    def sits_out(self, memory: dict[str, Any]) -> bool:
        """Whether the client sits out the coming round."""
        return any(defense.sits_out(memory.get(name, {})) for name, defense in self.layers)

    def adapt(self, job: Job, memory: dict[str, Any]) -> None:
        """Change how a round trains."""
        for name, defense in self.layers:
            defense.adapt(job, memory.setdefault(name, {}))

    def train(self, job: Job, memory: dict[str, Any]) -> Metrics:
        """Train locally for one round, by the first defence that trains itself.

        Args:
            memory: what the client keeps, by name of the defence; changed in place.

        Returns:
            Metrics of the training.
        """
        self.adapt(job, memory)
        for name, defense in self.layers:
            if defense.trains:
                return defense.train(job, memory.setdefault(name, {}))
        return job.run()

    def release(
        self, received: State, trained: State, memory: dict[str, Any], rng: np.random.Generator
    ) -> tuple[State, Metrics]:
        """Turn what was trained into what leaves the client, defence by defence.

        Args:
            received: global weights of the round.
            trained: weights after local training.
            memory: what the client keeps, by name of the defence; changed in place.
            rng: draws the noise.

        Returns:
            The weights that leave, and metrics.
        """
        metrics: Metrics = {}
        for name, defense in self.layers:
            own = memory.setdefault(name, {})
            trained, more = defense.release(received, trained, own, rng)
            metrics |= more
        return trained, metrics

    def statement(self, memory: dict[str, Any]) -> DefenceRow | None:
        """What the client's defences are and promise together, and each by itself."""
        parts = []
        for name, defense in self.layers:
            own = memory.get(name, {})
            spent = defense.privacy(own)
            spent = spent and replace(spent, noise_source=self.noise_source)
            parts.append(DefencePart(name=name, epsilon=spent, metrics=own.get("metrics", {})))
        if len(parts) < 2:
            return DefenceRow(**vars(parts[0]), parts=parts) if parts else None
        names = ", ".join(part.name for part in parts)
        metrics = {k: v for part in parts for k, v in part.metrics.items()}
        statements = smallest_epsilon(parts)
        first = statements[0] if statements else None
        return DefenceRow(
            name=names, epsilon=first, metrics=metrics, parts=parts, beside=statements[1:]
        )


def require_account(defence: DefenceRow, rounds: int) -> DefenceRow:
    """Refuse a statement whose account lacks rounds that left.

    Args:
        defence: with its statements.
        rounds: in which weights left that rest on the client's images.

    Returns:
        `defence`.

    Raises:
        InputError: an account has fewer, so its epsilon would be too small.
    """
    for stated in (defence.epsilon, *defence.beside, *(part.epsilon for part in defence.parts)):
        if stated is not None and stated.rounds < rounds:
            raise InputError(
                f"{defence.name}: its account has {stated.rounds} rounds, but {rounds} were "
                "trained and sent, so no epsilon can be stated: the defence did not count "
                "them, or what the client keeps between rounds was lost"
            )
    return defence


def smallest_epsilon(parts: Sequence[DefencePart]) -> list[Epsilon]:
    """The smallest epsilon of the best standing that any part has, for each unit by itself, in the
    order of the parts; none where none has one.

    Of one unit every statement stays that has a smaller delta than those of a smaller epsilon.
    """
    stated, front = [(p.name, p.epsilon) for p in parts if p.epsilon is not None], list[Epsilon]()
    for unit in dict.fromkeys(e.unit for _, e in stated):
        names, alike = zip(*((name, e) for name, e in stated if e.unit == unit), strict=True)
        more = TOGETHER.format(names=" and ".join(names)) if len(alike) > 1 else ""
        best, delta = min(map(_rank, alike)), 1.0
        for one in sorted(alike, key=lambda e: (e.value or 0.0, e.delta)):
            if _rank(one) == best and one.delta < delta:
                front.append(replace(one, assumptions=one.assumptions + more))
                delta = one.delta
    return front


def _rank(epsilon: Epsilon) -> tuple[bool, int]:
    """What has no value comes last, then the standing counts."""
    return epsilon.value is None, STANDINGS.index(epsilon.standing)


def check_exclusive(layers: Sequence[tuple[str, Defense]]) -> None:
    """Refuse defences that one client cannot have together.

    Raises:
        InputError: naming both, and why.
    """
    for what, why in (
        ("trains", "each takes the place of local training"),
        ("releases", "each clips and noises the update, and the second would add noise alone"),
    ):
        names = [name for name, defense in layers if getattr(defense, what)]
        if len(names) > 1:
            raise InputError(f"{names[0]} and {names[1]} exclude each other: {why}")


def central_stack(
    layers: Sequence[tuple[str, Defense]], setting: TrainingConditions, where: str
) -> DefenseStack | None:
    """The defences of a training that is no client's, None without any.

    Args:
        layers: the defences by name, in the order in which they act.
        setting: norm and method of the training.
        where: the option that names them.

    Returns:
        The defences together.

    Raises:
        InputError: one of them does not suit the training.
    """
    for name, defense in layers:
        with prefix_errors(opt(where, name)):
            defense.check(setting)
    return DefenseStack(layers) if layers else None
