"""Ascent inside the federation (Algorithm 1): the malicious client climbs, uploads, and reads."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score
from torch import Tensor

from fedmia.attacks.ascent_static import LOSSES, Auto, attack_losses, climb, read_losses
from fedmia.attacks.base import ActiveAttack, Scores, Turn, negatives_option
from fedmia.data.images import digests
from fedmia.errors import InputError
from fedmia.settings.option import option
from fedmia.ssl.base import State
from fedmia.ssl.train import two_views
from fedmia.threat import Threat, Trajectory, WhiteBox
from fedmia.threat.whitebox import in_halves

Rows = NDArray[np.int64]
Lots = list[tuple[State, Rows]]  # negatives, and rows of the images that meet them
STEPS = (1, 2)  # numbers of passes tried by `auto`
RATES = (0.01, 0.05)  # learning rates tried by `auto`


@dataclass
class Ascent(ActiveAttack):
    """The malicious client ascends on its targets each round and reads the aggregate's loss.

    The paper adapts steps and rate by hand. `auto` tries each of STEPS with each of RATES in the
    first attacked round, and takes those that tell known members best (AUC of minus the loss) on
    the weights received with as much of the climb as all rounds' averages will let through.
    """

    name: ClassVar[str] = "ascent"
    paper: ClassVar[str] = "Chen et al., Federated Contrastive Learning, Algorithm 1, Fig. 13"
    needs: ClassVar[Threat] = Threat("white_box", "client")
    main: ClassVar[bool] = True
    looks_at: ClassVar[tuple[str, ...]] = ("loss", "ascent")
    uploads: ClassVar[str] = "weights on which the loss of the images under test was driven up"
    control: ClassVar[str] = "ascent-zero"
    over: ClassVar[str] = "the same rounds without ascent"
    act: ClassVar[str] = "ascent"

    steps: int | Auto = option(
        "auto",
        "G, passes of ascent over the targets in a round (auto: chosen on known images); 0 = the "
        "control",
        ge=0,
    )
    lr: float | Auto = option(
        "auto", "learning rate of the ascent (auto: chosen on known images)", gt=0
    )
    batch: int = option(32, "targets a step", ge=1)
    schedule: str = option(
        "all",
        "targets of a round: all of them, or one part of them a round in turn (the loop of "
        "Algorithm 1), each in one round",
        choices=("all", "rotate"),
    )
    negatives: str = negatives_option()
    loss: str = option("training", "the loss that is climbed and read", choices=LOSSES)
    pairs: int = option(4, "pairs of fixed views over which a loss is read", ge=1)
    reading: str = option(
        "level",
        "score: minus the aggregated model's mean loss (level), minus its rise since before the "
        "attack (rise), or minus |L - L_agg| as on line 23 (line23)",
        choices=("level", "rise", "line23"),
    )

    server: str = option(
        "unknown",
        "the server's rule: unknown, or known, and then the climb stays under its clip or inside "
        "its choice, as guessed from trainings on the attacker's own images, and all malicious "
        "clients climb as one",
        choices=("unknown", "known"),
    )

    @property
    def together(self) -> bool:
        return self.server == "known"

    def disarmed(self) -> Ascent:
        return dataclasses.replace(self, steps=0)

    def chosen(self, targets: int, number: int, turns: int) -> NDArray[np.bool_]:
        """Under `rotate` one of `turns` parts of the targets, each once in so many rounds."""
        if self.schedule == "all":
            return np.ones(targets, dtype=bool)
        part = -(-targets // turns)
        return np.asarray(np.arange(targets) // max(part, 1) == number % turns)

    def craft(self, turn: Turn) -> State:
        turn.method.load_shared(turn.received)
        picked = self.chosen(len(turn.targets), turn.number, turn.turns).nonzero()[0]
        if turn.sets is not None:
            picked = np.concatenate(turn.sets) if turn.sets else picked[:0]
        if not len(picked) or self.steps == 0:
            return turn.received
        lots = self._lots(turn, picked)
        steps, lr = self._chosen(turn, lots)
        for _ in range(steps):
            self._climb(turn, lots, lr)
        shared = turn.method.shared_state()
        return {name: shared[name] for name in turn.received}

    def _chosen(self, turn: Turn, lots: Lots) -> tuple[int, float]:
        """Steps and rate; what `auto` chooses stays for the client's later rounds."""
        if "auto" not in (self.steps, self.lr):
            return int(self.steps), float(self.lr)
        if "choice" not in turn.notes:
            if not len(turn.known.members) or not len(turn.known.nonmembers):
                raise InputError(f"{self.name} chooses steps and lr on known images, got none")
            steps, lr = max(self._tried(turn, lots), key=lambda one: one[0])[1]
            turn.notes["choice"] = {"steps": steps, "lr": lr}
            turn.method.load_shared(turn.received)
        return turn.notes["choice"]["steps"], turn.notes["choice"]["lr"]

    def _tried(self, turn: Turn, lots: Lots) -> Iterator[tuple[float, tuple[int, float]]]:
        """AUC on known images, and (steps, rate) of it; the gentlest first."""
        method, part = turn.method, min(1.0, turn.share * turn.turns)
        images, truth = turn.known.both()
        device = next(iter(method.parameters())).device
        pairs = [two_views(images.to(device), turn.augment, turn.rng) for _ in range(self.pairs)]
        known = self._lots(dataclasses.replace(turn, targets=images), np.arange(len(images)))
        wanted = STEPS if self.steps == "auto" else (self.steps,)
        for lr in RATES if self.lr == "auto" else (self.lr,):
            method.load_shared(turn.received)
            for step in range(1, max(wanted) + 1):
                self._climb(turn, lots, lr)
                if step not in wanted:
                    continue
                climbed = method.shared_state()
                method.load_shared(
                    {n: t + part * (climbed[n] - t) for n, t in turn.received.items()}
                )
                losses = np.zeros(len(images))
                for bank, rows in known:
                    method.load_local(bank)
                    with torch.no_grad():
                        each = [
                            attack_losses(method, a[rows], b[rows], self.loss) for a, b in pairs
                        ]
                    losses[rows] = torch.stack(each).mean(dim=0).double().cpu().numpy()
                method.load_shared(climbed)
                yield float(roc_auc_score(truth, -losses)), (step, lr)

    def _climb(self, turn: Turn, lots: Lots, lr: float) -> None:
        """One pass over the targets of all lots, and back to what the server lets through, if that
        is known."""
        method, pixels = turn.method, turn.targets
        device = next(iter(method.parameters())).device
        for bank, rows in lots:
            method.load_local(bank)
            for part in self._batches(turn, rows):
                view1, view2 = two_views(pixels[part].to(device), turn.augment, turn.rng)
                climb(method, partial(attack_losses, method, view1, view2, self.loss), 1, lr)
        if self.server == "known":
            climbed = method.shared_state()
            method.load_shared(turn.passing({n: climbed[n].clone() for n in turn.received}))

    def _lots(self, turn: Turn, picked: Rows) -> Lots:
        """Negatives, and the targets that meet them: no image is its own negative. Keys of held
        images are those under the weights received."""
        if self.negatives != "held" or turn.held is None:
            return [(turn.method.local_state(), picked)]
        halves, inside = in_halves(turn.held)
        names = digests(turn.targets.numpy())
        second = np.array([names[i] in inside for i in picked], dtype=bool)
        lots = []
        for half, rows in zip(halves, (picked[second], picked[~second]), strict=True):
            if len(rows):
                turn.method.fill_bank(half)
                bank = {n: t.clone() for n, t in turn.method.local_state().items()}
                lots.append((bank, rows))
        return lots

    def _batches(self, turn: Turn, rows: Rows) -> Iterator[Rows]:
        """The targets at `rows` in the batches of one pass, all of one size: a step climbs the mean
        of its batch, so a short one would climb each image harder."""
        if turn.sets is not None:
            for at in turn.rng.permutation(len(turn.sets)):
                yield turn.sets[at]
            return
        order = turn.rng.permutation(rows)
        for start in range(0, len(order), self.batch):
            yield np.resize(np.roll(order, -start), min(self.batch, len(order)))

    def read(self, view: WhiteBox, images: Tensor) -> Scores:
        """(N,) loss of each image, mean over `pairs` pairs of its fixed views."""
        loss = partial(read_losses, reading=self.loss)
        found = view.losses(images, self.pairs, self.negatives, loss)
        return np.asarray(found.double().numpy())

    def reads_uploads(self) -> bool:
        return self.reading == "line23"

    def judge(self, seen: Trajectory) -> Scores:
        """(N,) minus the reading asked for, mean over the rounds that acted on the image.

        Where all are acted on in every round, a rise is since before the first.
        """
        if self.reading == "level":
            change = -seen.after
        elif self.reading == "line23":
            change = -np.abs(seen.sent - seen.after)
        else:
            since = seen.before[:1] if self.schedule == "all" else seen.before
            change = since - seen.after
        counted = seen.acted.astype(np.float64)
        return np.asarray((change * counted).sum(axis=0) / counted.sum(axis=0))


@dataclass
class AscentAlgorithm1(Ascent):
    """Algorithm 1 to the letter: its loop over batches, its loss, its rate, its line 23.

    The paper states the rate, 0.1, and not G, the steps.
    """

    name: ClassVar[str] = "ascent-algorithm1"
    main: ClassVar[bool] = False
    control: ClassVar[str] = "ascent-algorithm1-zero"

    steps: int | Auto = option(
        5, "G, passes of ascent over the targets in a round; 0 = the control", ge=0
    )
    lr: float | Auto = option(0.1, "learning rate of the ascent", gt=0)
    schedule: str = option(
        "rotate", "as of `ascent`: the loop over batches, lines 2 to 30", choices=("all", "rotate")
    )
    negatives: str = option("queue", "the queue Q of lines 12 and 13", choices=("held", "queue"))
    loss: str = option("algorithm1", "that of lines 12 to 14", choices=LOSSES)
    pairs: int = option(1, "pairs of fixed views over which a loss is read", ge=1)
    reading: str = option("line23", "score: minus |L - L_agg|", choices=("level", "rise", "line23"))
