"""From finished rounds to scores: every attack on the run's models, and on the controls beside."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clients.base import Site
from fedmia import registry
from fedmia.attacks.ascent import Ascent
from fedmia.attacks.base import ActiveAttack, Attack, Known
from fedmia.data.images import IntArray
from fedmia.data.split import Split
from fedmia.federation.snapshot import Snapshot, SnapshotStore
from fedmia.probes.pixels import pixel_scores
from fedmia.results import Curves, ScoredAttack
from fedmia.scoring.scorer import Scorer
from fedmia.seeding import rng
from fedmia.settings.roles import held
from fedmia.ssl.base import State
from fedmia.threat import ClientView, ServerView, WhiteBox
from fedmia.threat.signals import PixelCache, Signals


class Received(Mapping[int, State]):
    """Global weights of the kept rounds of `branch` up to `last`, each read when asked for."""

    def __init__(self, snapshots: SnapshotStore, branch: str, last: int) -> None:
        self._snapshots, self._branch = snapshots, branch
        self._rounds = [r for r in snapshots.rounds(branch) if r <= last]

    def __getitem__(self, round: int) -> State:
        if round not in self._rounds:
            raise KeyError(round)
        return self._snapshots.load(self._branch, round).state

    def __iter__(self) -> Iterator[int]:
        return iter(self._rounds)

    def __len__(self) -> int:
        return len(self._rounds)


@dataclass
class Evaluation:
    """Scores attacks on a run's snapshots.

    Args:
        attacker: the run's `--attacker`.
        holder: partition id of the client that the attacker reads through, or None.
        attacks: name -> options of the attacks to run.
    """

    site: Site
    split: Split
    snapshots: SnapshotStore
    attacker: str
    holder: int | None
    attacks: dict[str, dict[str, Any]]

    def __post_init__(self) -> None:
        s = self.split
        self.scorer = Scorer(
            Known(self.take(s.known_members), self.take(s.known_nonmembers)),
            self.take(s.scored_members),
            self.take(s.scored_nonmembers),
            self.site.seed,
            self.build,
        )
        self.augment = registry.build("ssl", *self.site.ssl).augment
        self._pixels = PixelCache()
        self._seen: dict[str, ClientView] = {}

    def take(self, indices: IntArray) -> Tensor:
        """uint8 (N, C, H, W) of the images at `indices`."""
        return torch.from_numpy(self.site.images[indices])

    def build(self, name: str) -> Attack:
        attack: Attack = registry.build("attack", name, self.attacks[name])
        return attack

    def passive(self) -> list[str]:
        return [n for n in self.attacks if not isinstance(self.build(n), ActiveAttack)]

    def active(self) -> str | None:
        """The name of the active attack, if one is run."""
        return next((n for n in self.attacks if isinstance(self.build(n), ActiveAttack)), None)

    # -- views ---------------------------------------------------------------------------------

    def view(
        self,
        snapshot: Snapshot,
        signals: Signals,
        received: Mapping[int, State] | None = None,
        sent: dict[int, State] | None = None,
        branch: str = "main",
    ) -> WhiteBox:
        """What the attacker holds of a snapshot: the weights, and negatives of its own.

        A server also holds the updates of `branch` up to the snapshot's round.

        A client's negatives are its queue as it was then, or keys of its own images where it has
        none (round 0, or a client that does not train). An outsider has no images but the known
        ones: its negatives are their keys.
        """
        mine = self.site.parts["members"][self.holder] if self.holder is not None else None
        method = self.site.method(-1, len(mine) if mine is not None else None)
        method.load_shared(snapshot.state)
        method.eval()
        held_images = self.take(self.site.held)
        if snapshot.holder:
            method.load_local(snapshot.holder)
        else:
            own = self.take(mine) if mine is not None else held_images
            method.fill_bank(own.to(self.site.device).float() / 255)
        shared: dict[str, Any] = {
            "seed": self.site.seed,
            "device": torch.device(self.site.device),
            "held": held_images,
            "signals": signals,
            "pixels": self._pixels,
        }
        vantage = held(self.attacker).vantage
        if vantage == "outsider":
            return WhiteBox(method, self.augment, **shared)
        if vantage == "server":
            shared |= self.uploads(branch, snapshot.round)
            return ServerView(method, self.augment, received=received, **shared)
        targets = self.take(self.site.targets)
        return ClientView(
            method, self.augment, received=received, sent=sent, targets=targets, **shared
        )

    def uploads(self, branch: str, last: int) -> dict[str, Any]:
        """Updates of `branch` by round, to round `last`, and what their clients had received."""
        before = self.snapshots.before(branch)
        updates = {r: self.snapshots.updates(branch, r) for r in before if r <= last}
        return {"before": before, "updates": updates}

    # -- scores --------------------------------------------------------------------------------

    def on(self, snapshot: Snapshot, names: list[str], branch: str = "main") -> list[ScoredAttack]:
        """The named attacks on one snapshot of `branch`, sharing what they compute."""
        signals = Signals()
        seen = Received(self.snapshots, branch, snapshot.round)
        views = ((n, self.view(snapshot, signals, seen, branch=branch)) for n in names)
        return [self.scorer.scored(n, view) for n, view in views]

    def trajectory(self, branch: str, clean: int, label: str | None = None) -> ScoredAttack:
        """The active attack on what its client saw of `branch` since round `clean`."""
        name = self.active()
        assert name is not None
        view = self.client_view(branch, clean)
        return self.scorer.scored(name, view, under_attack=True, label=label or name)

    def client_view(self, branch: str, clean: int) -> ClientView:
        """What the active client saw of a branch; one view a branch, so that reads are shared."""
        if branch not in self._seen:
            self._seen[branch] = self._client_view(branch, clean)
        return self._seen[branch]

    def _client_view(self, branch: str, clean: int) -> ClientView:
        sent = self.snapshots.sent(branch)
        rounds = [r for r in self.snapshots.rounds(branch) if r == clean or r in sent]
        received = {r: self.snapshots.load(branch, r).state for r in rounds}
        sent = {r: s for r, s in sent.items() if r in received}
        view = self.view(self.snapshots.load(branch, clean), Signals(), received, sent)
        assert isinstance(view, ClientView)
        return view

    def untrained_trajectory(self, rounds: int, share: float) -> ScoredAttack:
        """The active attack on the first model, honest clients sending back what they received.

        Args:
            rounds: attacked rounds. share: weight of the malicious clients in the mean.
        """
        name = self.active()
        assert name is not None
        attack = self.build(name)
        assert isinstance(attack, ActiveAttack)
        first = self.snapshots.load("main", 0)
        targets = self.take(self.site.targets)
        state, received, sent = first.state, {0: first.state}, {}
        method = self.view(first, Signals()).holder(attack.negatives)
        for turn in range(rounds):
            picked = torch.from_numpy(attack.chosen(targets, turn))
            crafted = attack.craft(
                method,
                state,
                state,
                targets[picked],
                self.augment,
                rng(self.site.seed, "craft-untrained", turn),
            )
            state = {n: state[n] + share * (crafted[n] - state[n]) for n in state}
            sent[turn + 1], received[turn + 1] = crafted, state
        view = self.view(first, Signals(), received, sent)
        return self.scorer.scored(name, view, under_attack=True)

    def pixels(self) -> tuple[np.ndarray, np.ndarray]:
        """Scores (members, non-members) of a classifier that never sees a model."""
        known, images = self.scorer.known, self.scorer.candidates
        return self.scorer.apart(pixel_scores(known.members, known.nonmembers, images))

    def curves(self, clean: int) -> Curves | None:
        """Loss trajectories of the evaluated images with and without ascent (Fig. 10-13)."""
        name = self.active()
        attack = self.build(name) if name else None
        if not isinstance(attack, Ascent):
            return None
        images, apart = self.scorer.candidates, self.scorer.apart
        main, zero = self.client_view("main", clean), self.client_view("zero", clean)
        seen = attack.trajectory(main, images)
        after, before = apart(seen.after.T), apart(seen.before[0])
        control = apart(attack.trajectory(zero, images).after.T)
        sent = apart(attack.under(main, images, [main.sent[seen.rounds[0]]])[0])
        return Curves(
            act=attack.act,
            rounds=np.array(seen.rounds),
            members=after[0].T,
            nonmembers=after[1].T,
            control_members=control[0].T,
            control_nonmembers=control[1].T,
            before_members=before[0],
            before_nonmembers=before[1],
            after_members=sent[0],
            after_nonmembers=sent[1],
        )

    def batches(self, scored: ScoredAttack, size: int) -> ScoredAttack:
        """The same scores by batch of `size` images of one truth, formed here by seed."""
        draw = rng(self.site.seed, "batches")

        def means(values: np.ndarray) -> np.ndarray:
            order = draw.permutation(len(values))[: len(values) // size * size]
            return values[order].reshape(-1, size).mean(axis=1)

        return replace(
            scored,
            unit="batch",
            scores_members=means(scored.scores_members),
            scores_nonmembers=means(scored.scores_nonmembers),
            known_members=means(scored.known_members),
            known_nonmembers=means(scored.known_nonmembers),
        )
