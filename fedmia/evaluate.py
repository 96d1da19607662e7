"""From finished rounds to scores: every attack on the run's models, and on the controls beside."""

from __future__ import annotations

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
from fedmia.probes.pixels import pixel_scores
from fedmia.report.scores import AscentCurves, ScoredAttack
from fedmia.roles import held
from fedmia.seeding import rng
from fedmia.signals import PixelCache, Signals
from fedmia.snapshot import Snapshot, SnapshotStore
from fedmia.ssl.base import State
from fedmia.threat import BlackBox, ClientView, WhiteBox, require

FOLDS = 4  # of the known images, to set a threshold on scores of images not fitted on


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
        self.known = Known(self.take(s.known_members), self.take(s.known_nonmembers))
        self.candidates = np.concatenate([s.scored_members, s.scored_nonmembers])
        shuffle = rng(self.site.seed, "candidates").permutation(len(self.candidates))
        self._back = np.argsort(shuffle)
        self._images = self.take(self.candidates[shuffle])
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
        received: dict[int, State] | None = None,
        sent: dict[int, State] | None = None,
    ) -> WhiteBox:
        """What the attacker holds of a snapshot: the weights, and negatives of its own.

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
        seed, device = self.site.seed, torch.device(self.site.device)
        if held(self.attacker).vantage == "outsider":
            return WhiteBox(
                method,
                self.augment,
                seed=seed,
                device=device,
                held=held_images,
                signals=signals,
                pixels=self._pixels,
            )
        return ClientView(
            method,
            self.augment,
            seed=seed,
            device=device,
            held=held_images,
            signals=signals,
            pixels=self._pixels,
            received=received,
            sent=sent,
            targets=self.take(self.site.targets),
        )

    # -- scores --------------------------------------------------------------------------------

    def scored(self, name: str, view: BlackBox, **more: Any) -> ScoredAttack:
        """One attack through one view; its queries are those it needs by itself."""
        attack, before = self.build(name), view.queries
        require(view.threat, attack.needs, name)
        attack.fit(view, self.known, rng(self.site.seed, "fit", name))
        scores = attack.score(view, self._images)[self._back]
        queries = view.queries - before
        known_members, known_nonmembers = self._known_scores(name, attack, view)
        split = len(self.split.scored_members)
        found = attack.features(view, self._images)
        columns = found[1][self._back] if found else None
        return ScoredAttack(
            name=more.pop("label", name),
            paper=attack.paper,
            access=attack.needs.access,
            vantage=attack.needs.vantage,
            scores_members=scores[:split],
            scores_nonmembers=scores[split:],
            known_members=known_members,
            known_nonmembers=known_nonmembers,
            queries=queries,
            features_members=columns[:split] if columns is not None else None,
            features_nonmembers=columns[split:] if columns is not None else None,
            feature_names=found[0] if found else (),
            **more,
        )

    def _known_scores(
        self, name: str, fitted: Attack, view: BlackBox
    ) -> tuple[np.ndarray, np.ndarray]:
        """Scores of the known images that choose the threshold: cross-fitted where it learns."""
        images, truth = self.known.both()
        if not fitted.learns:
            scores = fitted.score(view, images)
            return scores[truth == 1], scores[truth == 0]
        scores = np.empty(len(images))
        # The deal is by position within each side, so every fold holds both.
        fold = np.concatenate([np.arange(n) % FOLDS for n in np.bincount(truth)[::-1]])
        for k in range(FOLDS):
            rest = fold != k
            attack = self.build(name)
            part = Known(images[rest & (truth == 1)], images[rest & (truth == 0)])
            attack.fit(view, part, rng(self.site.seed, "fit", name, k))
            scores[~rest] = attack.score(view, images[~rest])
        return scores[truth == 1], scores[truth == 0]

    def on(self, snapshot: Snapshot, names: list[str]) -> list[ScoredAttack]:
        """The named attacks on one snapshot, sharing what they compute."""
        signals = Signals()
        return [self.scored(n, self.view(snapshot, signals)) for n in names]

    def trajectory(self, branch: str, clean: int, label: str | None = None) -> ScoredAttack:
        """The active attack on what its client saw of `branch` since round `clean`."""
        name = self.active()
        assert name is not None
        view = self.client_view(branch, clean)
        return self.scored(name, view, under_attack=True, label=label or name)

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
        return self.scored(name, view, under_attack=True)

    def pixels(self) -> tuple[np.ndarray, np.ndarray]:
        """Scores (members, non-members) of a classifier that never sees a model."""
        scores = pixel_scores(self.known.members, self.known.nonmembers, self._images)[self._back]
        split = len(self.split.scored_members)
        return scores[:split], scores[split:]

    def curves(self, clean: int) -> AscentCurves | None:
        """Loss trajectories of the evaluated images with and without ascent (Fig. 10-13)."""
        name = self.active()
        attack = self.build(name) if name else None
        if not isinstance(attack, Ascent):
            return None
        split = len(self.split.scored_members)

        main, zero = self.client_view("main", clean), self.client_view("zero", clean)
        seen = attack.trajectory(main, self._images)
        after, before = seen.after[:, self._back], seen.before[0, self._back]
        control = attack.trajectory(zero, self._images).after[:, self._back]
        sent = attack.under(main, self._images, [main.sent[seen.rounds[0]]])[0, self._back]
        return AscentCurves(
            rounds=np.array(seen.rounds),
            members=after[:, :split],
            nonmembers=after[:, split:],
            control_members=control[:, :split],
            control_nonmembers=control[:, split:],
            before_members=before[:split],
            before_nonmembers=before[split:],
            after_members=sent[:split],
            after_nonmembers=sent[split:],
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
