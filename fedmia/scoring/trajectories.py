"""The active attack, scored on what its client saw of each branch since the last clean round."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedmia.attacks.base import ActiveAttack, Turn
from fedmia.results import Curves, ScoredAttack
from fedmia.scoring.snapshots import Evaluation
from fedmia.seeding import rng
from fedmia.threat import ClientView
from fedmia.threat.signals import Signals


class Trajectories:
    """Scores of the active attack `name`: its own, its controls', its curves."""

    def __init__(self, evaluation: Evaluation, name: str) -> None:
        built = evaluation.build(name)
        assert isinstance(built, ActiveAttack)
        self.evaluation, self.name, self.attack = evaluation, name, built
        self.run, self.site = evaluation.run, evaluation.site
        self._views: dict[str, ClientView] = {}

    def work(self) -> dict[str, Callable[[], ScoredAttack]]:
        """What is to be scored, by name: the attack, and the controls whose rounds are whole."""
        rounds = {b: len(self.run.snapshots.sent(b)) for b in ("main", "zero", "placebo")}
        found: dict[str, Callable[[], ScoredAttack]] = {
            "active": lambda: self.on("main"),
            "active-untrained": lambda: self.untrained(rounds["main"]),
        }
        if rounds["zero"] == rounds["main"]:
            found["active-zero"] = lambda: self.on("zero", self.attack.control)
        if rounds["placebo"] == rounds["main"]:
            found["active-placebo"] = lambda: self.on("placebo")
        return found

    def on(self, branch: str, label: str | None = None) -> ScoredAttack:
        """The attack on what its client saw of `branch`."""
        view, label = self.view(branch), label or self.name
        return self.evaluation.scorer.scored(self.name, view, under_attack=True, label=label)

    def view(self, branch: str) -> ClientView:
        """What the active client saw of a branch; one view a branch, so that reads are shared."""
        if branch in self._views:
            return self._views[branch]
        snapshots, clean = self.run.snapshots, self.run.schedule.clean
        uploads, kept = snapshots.sent(branch), snapshots.received(branch, self.run.schedule.last)
        received = {r: kept[r] for r in kept if r == clean or r in uploads}
        sent = {r: uploads[r] for r in uploads if r in received}
        first = snapshots.load(branch, clean)
        view = self.evaluation.view(first, Signals(), received, sent, branch)
        assert isinstance(view, ClientView)
        self._views[branch] = view
        return view

    def untrained(self, rounds: int) -> ScoredAttack:
        """The attack on the first model in as many rounds, honest clients sending back what they
        received."""
        site, evaluation = self.site, self.evaluation
        share = len(self.run.prepared.experiment.malicious_clients) / len(site.roles)
        first = self.run.snapshots.load("main", 0)
        state, received, sent = first.state, {0: first.state}, {}
        method = evaluation.view(first, Signals()).copy_method()
        for number in range(rounds):
            turn = Turn(
                method=method,
                received=state,
                trained=state,
                targets=site.take(site.targets),
                held=None if number else site.take(site.held),  # keys of the first model
                number=number,
                augment=evaluation.augment,
                rng=rng(site.seed, "craft-untrained", number),
            )
            crafted = self.attack.craft(turn)
            state = {n: state[n] + share * (crafted[n] - state[n]) for n in state}
            sent[number + 1], received[number + 1] = crafted, state
        view = evaluation.view(first, Signals(), received, sent)
        return evaluation.scorer.scored(self.name, view, under_attack=True)

    def curves(self) -> Curves | None:
        """Curves of the evaluated images, attacked and not, where the attack has them."""
        images, apart = self.evaluation.scorer.candidates, self.evaluation.scorer.apart
        main, zero = (self.attack.curves(self.view(b), images) for b in ("main", "zero"))
        if main is None or zero is None:
            return None
        after, control = apart(main.after.T), apart(zero.after.T)
        before, sent = apart(main.before[0]), apart(main.sent[0])
        return Curves(
            act=self.attack.act,
            rounds=np.array(main.rounds),
            members=after[0].T,
            nonmembers=after[1].T,
            control_members=control[0].T,
            control_nonmembers=control[1].T,
            before_members=before[0],
            before_nonmembers=before[1],
            after_members=sent[0],
            after_nonmembers=sent[1],
        )
