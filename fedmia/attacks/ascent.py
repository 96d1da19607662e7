"""Ascent inside the federation (Algorithm 1): the malicious client climbs, uploads, and reads."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedmia.attacks.ascent_static import LOSSES, attack_losses, climb, read_losses
from fedmia.attacks.base import ActiveAttack, Scores, Trajectory, Turn, negatives_option
from fedmia.data.images import digests
from fedmia.settings.option import option
from fedmia.ssl.base import State
from fedmia.ssl.train import two_views
from fedmia.threat import ClientView, Threat


@dataclass
class Ascent(ActiveAttack):
    """The malicious client ascends on its targets each round and reads the aggregate's loss."""

    paper: ClassVar[str] = "Chen et al., Federated Contrastive Learning, Algorithm 1, Fig. 13"
    needs: ClassVar[Threat] = Threat("white_box", "client")
    main: ClassVar[bool] = True
    looks_at: ClassVar[tuple[str, ...]] = ("loss", "ascent")
    uploads: ClassVar[str] = "weights on which the loss of the images under test was driven up"
    control: ClassVar[str] = "ascent-zero"
    over: ClassVar[str] = "the same rounds without ascent"
    act: ClassVar[str] = "ascent"

    steps: int = option(1, "G, passes of ascent over the targets in a round; 0 = the control", ge=0)
    lr: float = option(0.01, "learning rate of the ascent", gt=0)
    batch: int = option(32, "targets a step", ge=1)
    boost: float = option(1.0, "factor on the upload's distance from its base; 1 = none", gt=0)
    base: str = option(
        "aggregated",
        "where the ascent starts: the aggregated model of the round (the paper), or "
        "the client's own training of it",
        choices=("aggregated", "trained"),
    )
    schedule: str = option(
        "all",
        "targets of a round: all of them, or one batch a round in turn (Algorithm 1's loop)",
        choices=("all", "rotate"),
    )
    negatives: str = negatives_option()
    loss: str = option("training", "the loss that is climbed and read", choices=LOSSES)
    pairs: int = option(4, "pairs of fixed views over which a loss is read", ge=1)
    reading: str = option(
        "level",
        "score: minus the aggregated model's mean loss (level), minus its rise since "
        "before the attack (rise), its fall from the upload (recovery), or minus |L - L_agg| as "
        "on line 23 (line23)",
        choices=("level", "rise", "recovery", "line23"),
    )

    def disarmed(self) -> Ascent:
        return dataclasses.replace(self, steps=0)

    def chosen(self, targets: Tensor, round: int) -> NDArray[np.bool_]:
        """(N,) which targets are attacked in attack round `round` (0, 1, ...)."""
        if self.schedule == "all":
            return np.ones(len(targets), dtype=bool)
        batches = -(-len(targets) // self.batch)
        return np.asarray(np.arange(len(targets)) // self.batch == round % max(batches, 1))

    def craft(self, turn: Turn) -> State:
        base = turn.received if self.base == "aggregated" else turn.trained
        targets = turn.targets[torch.from_numpy(self.chosen(turn.targets, turn.number))]
        if self.steps == 0 or not len(targets):
            return base
        method, rng = turn.method, turn.rng
        device = next(iter(method.parameters())).device
        if self.negatives == "held" and turn.held is not None:  # keys under the weights received
            method.load_shared(turn.received)
            method.fill_bank(turn.held.to(device).float() / 255)
        method.load_shared(base)
        pixels = targets.to(device)
        for _ in range(self.steps):
            order = torch.from_numpy(rng.permutation(len(pixels))).to(device)
            for part in order.split(self.batch):
                view1, view2 = two_views(pixels[part], turn.augment, rng)
                climb(method, partial(attack_losses, method, view1, view2, self.loss), 1, self.lr)
        shared = method.shared_state()
        crafted = {name: shared[name] for name in base}  # a base may leave out local statistics
        if self.boost == 1.0:
            return crafted
        return {name: base[name] + self.boost * (crafted[name] - base[name]) for name in crafted}

    def score(self, view: ClientView, images: Tensor) -> Scores:
        return self.reduce(self.trajectory(view, images), self.attacked(view, images))

    def reduce(self, seen: Trajectory, weight: Scores) -> Scores:
        """(N,) scores of a trajectory, averaged over the rounds that `weight` (R, N) counts."""
        if self.reading == "level":
            change = -seen.after
        elif self.reading == "rise":
            change = seen.before - seen.after
        elif self.reading == "recovery":
            change = seen.sent - seen.after
        else:
            change = -np.abs(seen.sent - seen.after)
        return np.asarray((change * weight).sum(axis=0) / np.maximum(weight.sum(axis=0), 1))

    def trajectory(self, view: ClientView, images: Tensor) -> Trajectory:
        """Losses of uint8 (N, C, H, W) through the attack; of uploads only if they are read."""
        rounds = sorted(view.sent)
        before = self.under(view, images, [view.received[min(view.received)]])
        after = self.under(view, images, [view.received[r] for r in rounds])
        uploads = [view.sent[r] for r in rounds] if self.reading in ("recovery", "line23") else []
        return Trajectory(rounds, before, self.under(view, images, uploads), after)

    def curves(self, view: ClientView, images: Tensor) -> Trajectory:
        seen = self.trajectory(view, images)
        first = [view.sent[seen.rounds[0]]]
        return dataclasses.replace(seen, sent=self.under(view, images, first))

    def under(self, view: ClientView, images: Tensor, states: Sequence[State]) -> Scores:
        """Loss of each image under each of the view's states, (len(states), N)."""
        read = partial(read_losses, reading=self.loss)
        found = view.losses_under(states, images, self.pairs, self.negatives, self.loss, read)
        return np.asarray(found.double().numpy())

    def attacked(self, view: ClientView, images: Tensor) -> Scores:
        """(R, N) 1 where the round attacked the image: under `rotate` it is read only then."""
        rounds = sorted(view.sent)
        if view.targets is None or self.schedule == "all":
            return np.ones((len(rounds), len(images)))
        position = {name: i for i, name in enumerate(digests(view.targets.numpy()))}
        at = np.array([position.get(name, -1) for name in digests(images.numpy())])
        clean = min(view.received)  # attack round 0 is the one after; some may have been missed
        picked = [np.append(self.chosen(view.targets, r - clean - 1), False) for r in rounds]
        return np.stack([one[at].astype(np.float64) for one in picked])  # at -1: no target
