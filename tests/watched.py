"""Plugins that show what a run hands to whom: strategies that keep models and uploads, and attacks
whose scores tell which weights they were given."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from fedmia.attacks.base import ActiveAttack, Attack, AttackTurn, Scores
from fedmia.federation.inline import LocalGrid
from fedmia.settings import option
from fedmia.ssl.base import State
from fedmia.storage.snapshot import Update
from fedmia.threat import Threat, Trajectory, WhiteBox
from strategies.base import FederatedStrategy, FinishedRound, ignore_update
from strategies.cohort import Phase, draw_cohort
from strategies.dp_fedavg import DPFedAvg
from strategies.failure_policy import FederationError
from strategies.fedavg import FedAvg
from strategies.fedavgm import FedAvgM
from strategies.fedema import FedEMA
from strategies.scaffold import Scaffold

At = tuple[str, int]  # branch and round


@dataclass
class Replayed:
    """A round of one upload that was played again: what it began with, took in and ended in."""

    round: int
    received: State
    uploads: dict[int, State]
    ended: State


@dataclass
class Seen:
    """What the plugins of this module saw in this process since `watch()`.

    Attributes:
        phases: stretches of rounds that the strategy was asked for; no replay.
        models: the global weights after each round, and before the first of a stretch.
        uploads: of each round, by client.
        replays: rounds that were played again.
        kept: tensors that were sent, each with a copy made then.
        turns: what the active attack was given, and what it made of it.
        judged: trajectories by which it judged.
        banks: what it held beside the weights that it read, by their number.
        scored: views that the passive attack scored, and what it took from each.
        acts: called as a round of a branch ends, before anybody else hears of it.
        ended: how many rounds ended, of all branches.
    """

    phases: list[Phase] = field(default_factory=list)
    models: dict[At, State] = field(default_factory=dict)
    uploads: dict[At, dict[int, State]] = field(default_factory=dict)
    replays: list[Replayed] = field(default_factory=list)
    kept: list[tuple[State, State]] = field(default_factory=list)
    turns: list[tuple[AttackTurn, State]] = field(default_factory=list)
    judged: list[Trajectory] = field(default_factory=list)
    banks: dict[float, list[State]] = field(default_factory=dict)
    scored: list[dict[str, Any]] = field(default_factory=list)
    acts: dict[At, Callable[[], object]] = field(default_factory=dict)
    ended: int = 0

    def stays(self) -> bool:
        """Whether nobody has changed what was sent."""
        return bool(self.kept) and all(same(*pair) for pair in self.kept)


SEEN = Seen()


def watch() -> Seen:
    """What is seen from now on."""
    global SEEN
    SEEN = Seen()
    return SEEN


def same(one: State, other: State) -> bool:
    """Whether two states hold the same names and bits."""
    return one.keys() == other.keys() and all(torch.equal(one[n], other[n]) for n in one)


def copied(state: State) -> State:
    return {name: tensor.clone() for name, tensor in state.items()}


def total(state: State) -> float:
    """A number that tells weights apart."""
    return sum(float(state[name].double().sum()) for name in sorted(state))


def brightness(images: Tensor) -> Scores:
    """A number that tells images apart, (N,)."""
    scale = torch.arange(1, images[0].numel() + 1).double() / 1e6
    return np.asarray((images.flatten(1).double() * scale).mean(dim=1))


class Watched(FederatedStrategy):
    """Keeps each round of a strategy."""

    def rounds(self, grid: Any, phase: Phase, state: State, *rest: Any) -> Iterator[FinishedRound]:
        one = phase.last - phase.first == 1
        replay = one and not isinstance(grid, LocalGrid)  # no client is asked again
        seen, received = SEEN, state
        if not replay:
            seen.phases.append(phase)
            self._keep(seen.models, (phase.branch, phase.first), state)
        for done in super().rounds(grid, phase, state, *rest):
            uploads = vars(self).pop("_uploads")
            if replay:
                ends = copied(received), uploads, copied(done.state)
                seen.replays.append(Replayed(done.number, *ends))
            else:
                at = phase.branch, done.number
                self._keep(seen.models, at, done.state)
                seen.uploads[at] = uploads
                if at in seen.acts:
                    seen.acts.pop(at)()
                seen.ended += 1
            yield done

    def aggregate(self, received: State, updates: Any) -> State:
        every = list(updates)
        uploads: dict[int, State] = {}
        for one in every:
            self._keep(uploads, one.client, one.state)
        vars(self)["_uploads"] = uploads
        new: State = super().aggregate(received, every)  # type: ignore[safe-super]
        return new

    def _keep(self, place: dict[Any, State], name: Any, state: State) -> None:
        place[name] = copied(state)
        SEEN.kept.append((state, place[name]))


@dataclass
class Mean(Watched, FedAvg):
    """FedAvg."""


@dataclass
class Momentum(Watched, FedAvgM):
    """FedAvgM."""


@dataclass
class Mixed(Watched, FedEMA):
    """FedEMA."""


@dataclass
class Controls(Watched, Scaffold):
    """SCAFFOLD."""


@dataclass
class Private(Watched, DPFedAvg):
    """DP-FedAvg."""


@dataclass
class Still(FedAvg):
    """No client is asked: all send back what they would receive."""

    def rounds(
        self, grid: Any, phase: Phase, state: State, policy: Any, observe: Any = ignore_update
    ) -> Iterator[FinishedRound]:
        SEEN.phases.append(phase)
        for number in range(phase.first + 1, phase.last + 1):
            for client in draw_cohort(phase, number, policy.clients):
                observe(Update(client, number, state, 1, {"loss": 1.0}))
            yield FinishedRound(number, state, {}, 0.0)


@dataclass
class Refuses(FedAvg):
    """Ends the run before its first round."""

    def rounds(self, *given: Any) -> Iterator[FinishedRound]:
        raise FederationError("no round is wanted")


@dataclass
class Weighs(Attack):
    """Scores an image by the weights that it was given and the image's own pixels."""

    paper: ClassVar[str] = "none"
    needs: ClassVar[Threat] = Threat("white_box", "client")
    looks_at: ClassVar[tuple[str, ...]] = ("trajectory",)

    def score(self, view: Any, images: Tensor) -> Scores:
        own, before = view.copy_method(), getattr(view, "before", {})
        SEEN.scored.append({
            "total": total(own.shared_state()),
            "received": {r: total(view.received[r]) for r in view.received},
            "updates": {r: {c: total(state) for c, state in sent.items()}
                        for r, sent in getattr(view, "updates", {}).items()},
            "before": {r: total(before[r]) for r in before},
            "bank": copied(own.local_state()),
        })  # fmt: skip
        return total(own.shared_state()) + brightness(images)


class OnServer(Weighs):
    """The same on the server."""

    needs: ClassVar[Threat] = Threat("white_box", "server")


@dataclass
class Pushes(ActiveAttack):
    """Adds to each weight that it received what the images acted on weigh; reads the weights."""

    paper: ClassVar[str] = "none"
    needs: ClassVar[Threat] = Threat("white_box", "client")
    looks_at: ClassVar[tuple[str, ...]] = ("trajectory",)
    uploads: ClassVar[str] = "what it received, pushed"
    control: ClassVar[str] = "still"
    over: ClassVar[str] = "the same rounds without a push"
    act: ClassVar[str] = "push"

    push: float = option(0.01, "what is added to a weight", ge=0)

    def craft(self, turn: AttackTurn) -> State:
        by = self.push * float(brightness(turn.targets).mean())
        crafted = {n: t + by if t.is_floating_point() else t for n, t in turn.received.items()}
        SEEN.turns.append((turn, copied(crafted)))
        return crafted

    def disarmed(self) -> Pushes:
        return replace(self, push=0.0)

    def reads_uploads(self) -> bool:
        return True

    def read(self, view: WhiteBox, images: Tensor) -> Scores:
        own = view.copy_method()
        number = total(own.shared_state())
        SEEN.banks.setdefault(number, []).append(copied(own.local_state()))
        return number + brightness(images)

    def judge(self, seen: Trajectory) -> Scores:
        SEEN.judged.append(seen)
        return np.asarray(seen.after[-1] - seen.before[0]) + seen.before[0]


class Glances(Pushes):
    """Reads the first of its uploads alone."""

    def reads_uploads(self) -> bool:
        return False


class Batched(Pushes):
    """Acts on sixteen images at a time, which have a round to themselves."""

    @property
    def round_size(self) -> int:
        return 16
