"""Ascent inside the federation (Algorithm 1): the malicious client climbs, uploads, and reads."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch.optim import Optimizer

from fedmia.attacks._rehearsal import Lots, Rows, best, tried
from fedmia.attacks.ascent_static import LOSSES, attack_losses, read_losses
from fedmia.attacks.base import ActiveAttack, AttackTurn, Scores, negatives_option
from fedmia.data.images import digests
from fedmia.records import LOSS_BEFORE
from fedmia.runtime.eager import SGD
from fedmia.settings import option
from fedmia.settings.errors import InputError
from fedmia.ssl.base import State
from fedmia.ssl.train import BatchViews, group_views, make_optimizer
from fedmia.threat import ClientView, Threat, Trajectory, WhiteBox
from fedmia.threat.whitebox import split_in_halves

Adapted = Literal["auto", "matched"]
READINGS = ("rise", "level", "line23")


@dataclass
class Ascent(ActiveAttack):
    """The malicious client ascends on its targets each round and reads the aggregate's loss.

    The paper adapts steps and rate by hand. `auto` tries them on known images in the first attacked
    round, with what honest clients will make of the climb (`fedmia.attacks._rehearsal`). A set of
    images is climbed alone, in a round of its own.
    """

    name: ClassVar[str] = "ascent"
    paper: ClassVar[str] = "Chen et al., Federated Contrastive Learning, Algorithm 1, Fig. 13"
    needs: ClassVar[Threat] = Threat("white_box", "client")
    main: ClassVar[bool] = True
    looks_at: ClassVar[tuple[str, ...]] = ("loss", "ascent")
    uploads: ClassVar[str] = "weights on which the loss of the images under test was driven up"
    control: ClassVar[str] = "ascent-zero"
    over: ClassVar[str] = "the same rounds without ascent"
    without: ClassVar[Mapping[str, str]] = {LOSS_BEFORE: "the loss before the attack"}
    act: ClassVar[str] = "ascent"
    readings: ClassVar[tuple[str, ...]] = ("rise", "level")

    steps: int | Adapted = option(
        "auto",
        "G, passes of ascent over the targets in a round (auto: chosen on known images; matched: "
        "the local epochs of honest clients); 0 = the control",
        ge=0,
    )
    lr: float | Adapted = option(
        "auto",
        "learning rate of the ascent by plain SGD (auto: chosen on known images; matched: the "
        "optimizer of honest clients at their rate)",
        gt=0,
    )
    batch: int = option(32, "targets a step", ge=1)
    negatives: str = negatives_option()
    loss: str = option("training", "the loss that is climbed and read", choices=LOSSES)
    pairs: int = option(2, "pairs of fixed views over which a loss is read", ge=1)
    reading: str = option(
        "rise",
        "score: minus the rise of the aggregated model's loss since before the attack (rise), "
        "minus that loss (level), or minus |L - L_agg| as on line 23 (line23)",
        choices=READINGS,
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

    def chosen(self, targets: int, number: int) -> NDArray[np.bool_]:
        """(targets,) which of them the upload of crafted round `number` acts on: all, or one batch
        of `round_size`, each in its turn.

        Args:
            targets: number of images under attack.
            number: of the client's crafted rounds, from 0.

        Returns:
            bool, True where the upload acts on the image.
        """
        if self.round_size is None or not targets:
            return np.ones(targets, dtype=bool)
        batches = -(-targets // self.round_size)
        return np.asarray(np.arange(targets) // self.round_size == number % batches)

    def craft(self, turn: AttackTurn) -> State:
        turn.method.load_shared(turn.received)
        every = np.ones(len(turn.targets), dtype=bool)
        acted = every if turn.alone else self.chosen(len(turn.targets), turn.number)
        if self.steps == 0 or not acted.any():
            return turn.received
        lots = self.lots(turn, acted.nonzero()[0])
        steps, lr = self._chosen(turn, lots)
        optimizer = self.optimizer(turn, lr)
        for _ in range(steps):
            self.climb(turn, lots, optimizer)
        shared = turn.method.shared_state()
        return {name: shared[name] for name in turn.received}

    def _chosen(self, turn: AttackTurn, lots: Lots) -> tuple[int, float | None]:
        """Steps, and the rate (None: that of honest clients); a choice stays in the notes."""
        if "auto" in (self.steps, self.lr):
            if "choice" not in turn.notes:
                if not len(turn.known.members) or not len(turn.known.nonmembers):
                    raise InputError(f"{self.name} chooses steps and lr on known images, got none")
                tuned = dataclasses.replace(turn, rng=turn.tuning or turn.rng)
                turn.notes["choice"] = best(tried(self, tuned, lots))
                turn.method.load_shared(turn.received)
            choice = turn.notes["choice"]
            return choice["steps"], choice["lr"]
        epochs = turn.train.local_epochs
        steps = epochs if self.steps == "matched" else int(self.steps)
        return steps, None if self.lr == "matched" else float(self.lr)

    def optimizer(self, turn: AttackTurn, lr: float | None) -> Optimizer:
        """Plain SGD at `lr`, or (None) the honest clients' own, without any momentum yet; over the
        weights that the client shares."""
        if lr is None:
            return make_optimizer(turn.method, turn.train)
        return SGD(turn.method.trainable(), lr=lr)

    def climb(self, turn: AttackTurn, lots: Lots, optimizer: Optimizer) -> None:
        """One pass over the targets of all lots; under `server=known` then back to the nearest
        state that the server's rule lets through.

        Args:
            turn: its method changes in place.
            lots: what `lots` returned.
            optimizer: what `optimizer` returned; it keeps its momentum from pass to pass.
        """
        method = turn.method
        pixels = turn.targets.to(next(iter(method.parameters())).device)
        for bank, rows in lots:
            method.load_local(bank)
            for view1, view2 in group_views(pixels, turn.augment, self._drawn(turn, rows)):
                optimizer.zero_grad()
                (-attack_losses(method, view1, view2, self.loss).mean()).backward()
                optimizer.step()
        if self.server == "known":
            climbed = method.shared_state()
            method.load_shared(turn.passing({n: climbed[n].clone() for n in turn.received}))

    def lots(self, turn: AttackTurn, rows: Rows) -> Lots:
        """Negatives, and the targets that meet them: no image is its own negative. Keys of held
        images are those under the weights that the method holds, the received ones.

        Args:
            turn: without held images, or with `negatives=queue`, its own bank serves all.
            rows: indices of the targets that climb, `(n,)`.

        Returns:
            the method's local state with the bank filled, and the rows that climb against it.
        """
        if self.negatives != "held" or turn.held is None:
            return [(turn.method.local_state(), rows)]
        halves, inside = split_in_halves(turn.held)
        names = digests(turn.targets.numpy())
        second = np.array([names[i] in inside for i in rows], dtype=bool)
        lots = []
        for half, here in zip(halves, (rows[second], rows[~second]), strict=True):
            if len(here):
                turn.method.fill_bank(half)
                bank = {n: t.clone() for n, t in turn.method.local_state().items()}
                lots.append((bank, here))
        return lots

    def _drawn(self, turn: AttackTurn, rows: Rows) -> Iterator[BatchViews]:
        """The batches of one pass, each with the uniforms of its views."""
        for part in self._batches(turn, rows):
            size = 2, len(part), turn.augment.draws
            yield part, turn.rng.random(size, dtype=np.float32)

    def _batches(self, turn: AttackTurn, rows: Rows) -> Iterator[Rows]:
        """The targets at `rows` in the batches of one pass, all of one size."""
        if turn.alone:
            yield rows
            return
        yield from even_batches(turn.rng.permutation(rows), self.batch)

    def read(self, view: WhiteBox, images: Tensor) -> Scores:
        """(N,) loss of each image, mean over `pairs` pairs of its fixed views."""
        loss = partial(read_losses, reading=self.loss)
        losses = view.losses(images, self.pairs, self.negatives, loss)
        return np.asarray(losses.double().numpy())

    def reads_uploads(self) -> bool:
        return self.reading == "line23"

    def judge(self, trajectory: Trajectory) -> Scores:
        """(N,) minus the reading asked for, mean over the rounds; a rise is since before the first
        (Sec. V-A3)."""
        if self.reading == "level":
            change = -trajectory.after
        elif self.reading == "line23":
            change = -np.abs(trajectory.sent - trajectory.after)
        else:
            change = trajectory.before[:1] - trajectory.after
        return np.asarray(change.mean(axis=0))

    def score_without(self, view: ClientView, images: Tensor) -> Scores:
        """(N, 1) minus the loss before the attack, which needs no upload."""
        return -view.trajectory(images).before[:1].T


def even_batches(order: Rows, size: int) -> Iterator[Rows]:
    """Batches of one size, the last one filled with the first images of the order.

    A step climbs the mean of its batch: a short one would climb each image harder.

    Args:
        order: numbers of the images, `(n,)`.
        size: of a batch, at least 1.

    Yields:
        Numbers of `min(size, n)` images.
    """
    for start in range(0, len(order), size):
        yield np.resize(np.roll(order, -start), min(size, len(order)))


@dataclass
class AscentAlgorithm1(Ascent):
    """Algorithm 1 to the letter: a round for each batch, its loss, its line 23.

    The paper states the rate, 0.1, as that of training, too, and asks that epochs and optimizer
    match (Sec. V-B4). Line 25 calls a small |L - L_agg| a member's. Sec. V-B4 says the reverse:
    that aggregation notably reduces the loss of members, and that of others more slowly.
    """

    name: ClassVar[str] = "ascent-algorithm1"
    main: ClassVar[bool] = False
    control: ClassVar[str] = "ascent-algorithm1-zero"

    steps: int | Adapted = option(
        "matched",
        "G, ascent steps on a batch (matched: the local epochs of honest clients); 0 = the control",
        ge=0,
    )
    lr: float | Adapted = option(
        "matched",
        "learning rate of the ascent by plain SGD (auto: chosen on known images; matched: the "
        "optimizer of honest clients at their rate)",
        gt=0,
    )
    batch: int = option(32, "images of a batch x_q, which has a round to itself", ge=1)
    loss: str = option("algorithm1", "that of lines 12 to 14", choices=LOSSES)
    pairs: int = option(1, "pairs of fixed views over which a loss is read", ge=1)
    reading: str = option("line23", "score: minus |L - L_agg|", choices=READINGS)

    @property
    def round_size(self) -> int | None:
        return self.batch
