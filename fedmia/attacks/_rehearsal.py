"""Steps and rate of an ascent in the federation, rehearsed on known images."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.optim import Optimizer

from fedmia.attacks.ascent_static import attack_losses
from fedmia.attacks.base import AttackTurn, Scores
from fedmia.ssl.base import State
from fedmia.ssl.train import draw_two_views
from fedmia.threat import Trajectory

STEPS = {False: (1, 2), True: (1, 5)}  # passes tried: over all targets, or over a batch alone
RATES = (0.01, 0.05)
Tried = tuple[float, int, float | None]  # AUC on known images, steps, rate
Rows = NDArray[np.int64]
Lots = list[tuple[State, Rows]]  # negatives, and rows of the images that meet them


class AscentAttack(Protocol):
    """What is rehearsed of an ascent: its options, its climb and its reading."""

    steps: Any
    lr: Any
    loss: str
    pairs: int

    def lots(self, turn: AttackTurn, rows: Rows) -> Lots: ...

    def optimizer(self, turn: AttackTurn, lr: float | None) -> Optimizer: ...

    def climb(self, turn: AttackTurn, lots: Lots, optimizer: Optimizer) -> None: ...

    def judge(self, trajectory: Trajectory) -> Scores: ...


def best(tried: Iterator[Tried]) -> dict[str, Any]:
    """Steps and rate of the highest AUC; of equal ones the first, which is the gentlest."""
    _, steps, lr = max(tried, key=lambda one: one[0])
    return {"steps": steps, "lr": lr}


def tried(attack: AscentAttack, turn: AttackTurn, lots: Lots) -> Iterator[Tried]:
    """Score each number of steps at each rate: the AUC of the attack's reading on known images.

    All targets share the rounds: the known ones are climbed among them, as much of the climb as
    the averages of all attacked rounds let through goes to the honest clients, and they train on.
    A batch alone: known images climb in such batches, and each is averaged with what honest clients
    send back for the weights that they received beside it.

    Args:
        lots: targets by their negatives.
    """
    steps = turn.train.local_epochs if attack.steps == "matched" else attack.steps
    checkpoints = STEPS[turn.alone] if steps == "auto" else (steps,)
    rates = RATES if attack.lr == "auto" else (None if attack.lr == "matched" else attack.lr,)
    honest = turn.rehearse(turn.received) if turn.alone else None
    for lr in rates:
        if honest is not None:
            yield from _rehearse_alone(attack, turn, honest, checkpoints, lr)
        else:
            yield from _rehearse_together(attack, turn, lots, checkpoints, lr)


def _rehearse_together(
    attack: AscentAttack,
    turn: AttackTurn,
    lots: Lots,
    checkpoints: Sequence[int],
    lr: float | None,
) -> Iterator[Tried]:
    images, truth = turn.known.both()
    read = LossReader(attack, turn, images)
    before, part = read(turn.received), min(1.0, turn.share * turn.turns)
    for steps, climbed in _iterate_climbs(attack, turn, lots, checkpoints, lr):
        mixed = mean(turn.received, climbed, part)
        after = read(mean(turn.rehearse(mixed), mixed, turn.share))
        yield _auc(attack, truth, before, read(climbed), after), steps, lr


def _rehearse_alone(
    attack: AscentAttack,
    turn: AttackTurn,
    honest: State,
    checkpoints: Sequence[int],
    lr: float | None,
) -> Iterator[Tried]:
    images, truth = turn.known.both()
    size, read = len(turn.targets), LossReader(attack, turn, images)
    before = read(turn.received)
    sent, after = (np.zeros((len(checkpoints), len(images))) for _ in range(2))
    order = turn.rng.permutation(len(images))
    for start in range(0, len(order), size):
        rows = np.resize(np.roll(order, -start), size)  # the last batch is filled: see `Ascent`
        batch = dataclasses.replace(turn, targets=images[rows])
        for at, (_, climbed) in enumerate(
            _iterate_climbs(attack, batch, attack.lots(batch, np.arange(size)), checkpoints, lr)
        ):
            own = order[start : start + size]
            sent[at, own] = read(climbed, own)
            after[at, own] = read(mean(honest, climbed, turn.share), own)
    for at, steps in enumerate(checkpoints):
        yield _auc(attack, truth, before, sent[at], after[at]), steps, lr


def _iterate_climbs(
    attack: AscentAttack,
    turn: AttackTurn,
    lots: Lots,
    checkpoints: Sequence[int],
    lr: float | None,
) -> Iterator[tuple[int, State]]:
    """The weights after each number of steps that is wanted, from those received."""
    turn.method.load_shared(turn.received)
    optimizer, climbed = attack.optimizer(turn, lr), turn.received
    for steps in range(1, max(checkpoints) + 1):
        turn.method.load_shared(climbed)
        attack.climb(turn, lots, optimizer)
        climbed = {n: t.clone() for n, t in turn.method.shared_state().items()}
        if steps in checkpoints:
            yield steps, climbed


def mean(others: State, own: State, share: float) -> State:
    """The weights of a mean in which `own` has `share` and all others the rest."""
    return {n: t + share * (own[n] - t) for n, t in others.items()}


def _auc(
    attack: AscentAttack, truth: NDArray[np.int64], before: Scores, sent: Scores, after: Scores
) -> float:
    scores = attack.judge(Trajectory([1], before[None], sent[None], after[None]))
    worst = -1e300  # of a climb that diverged
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(truth, np.nan_to_num(scores, nan=worst, neginf=worst)))


class LossReader:
    """Losses (N,) of images under any weights, over the same views."""

    def __init__(self, attack: AscentAttack, turn: AttackTurn, images: Tensor) -> None:
        self.attack, self.turn = attack, turn
        device = next(iter(turn.method.parameters())).device
        self.pairs = [
            draw_two_views(images.to(device), turn.augment, turn.rng) for _ in range(attack.pairs)
        ]
        known = dataclasses.replace(turn, targets=images)
        turn.method.load_shared(turn.received)
        self.lots = attack.lots(known, np.arange(len(images)))

    @torch.no_grad()
    def __call__(self, weights: State, rows: Rows | None = None) -> Scores:
        """Of the images at `rows`, in their order; None: of all."""
        method, losses = self.turn.method, np.full(len(self.pairs[0][0]), np.nan)
        method.load_shared(weights)
        for bank, every in self.lots:
            at = every if rows is None else every[np.isin(every, rows)]
            if len(at):
                method.load_local(bank)
                each = [
                    attack_losses(method, a[at], b[at], self.attack.loss) for a, b in self.pairs
                ]
                losses[at] = torch.stack(each).mean(dim=0).double().cpu().numpy()
        return losses if rows is None else losses[rows]
