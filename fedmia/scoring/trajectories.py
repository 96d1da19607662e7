"""The active attack, scored on what its client noted in the attacked rounds of each branch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from fedmia.federation.snapshot import Snapshot, Update
from fedmia.results import Curves, ScoredAttack
from fedmia.scoring.readings import Notebook
from fedmia.scoring.snapshots import Evaluation
from fedmia.seeding import rng
from fedmia.threat import ClientView
from fedmia.threat.signals import Signals

UNTRAINED = "untrained"


class Trajectories:
    """Scores of the active attack `name`: its own, its controls', its curves."""

    def __init__(self, evaluation: Evaluation, name: str, notebook: Notebook) -> None:
        self.evaluation, self.name, self.notebook = evaluation, name, notebook
        self.run, self.site, self.attack = evaluation.run, evaluation.site, notebook.attack

    def unscored(self) -> str | None:
        """Why the attack cannot be scored, or None: it has acted on every image under test."""
        if not self.notebook.rounds("main"):
            return "its client finished no attacked round"
        if left := self.notebook.untouched("main"):
            return f"its client took part in too few rounds: it acted on all images but {left}"
        return None

    def work(self) -> dict[str, Callable[[], ScoredAttack]]:
        """What is to be scored, by name: the attack, and the controls whose rounds are whole."""
        rounds = {b: self.notebook.rounds(b) for b in ("main", "zero", "sets", "placebo")}
        whole = rounds["main"] == rounds["zero"] == rounds["sets"]
        found: dict[str, Callable[[], ScoredAttack]] = {
            "active": lambda: self.with_sets(self.on("main")) if whole else self.on("main"),
            "active-untrained": self.untrained,
        }
        if rounds["zero"] == rounds["main"]:
            found["active-zero"] = lambda: self.on("zero", self.attack.control)
        if rounds["placebo"] == rounds["main"]:
            found["active-placebo"] = lambda: self.on("placebo")
        return found

    def on(self, branch: str, label: str | None = None) -> ScoredAttack:
        """The attack on what its client noted in `branch`."""
        label, scored = label or self.name, self.evaluation.scorer.scored
        rounds, view = tuple(self.notebook.rounds(branch)), self.view(branch)
        found = scored(self.name, view, under_attack=True, rounds=rounds, label=label)
        kept = self.run.store.load(branch, self.evaluation.observed.holder or 0)
        notes = kept.memory.get("attack", {}) if kept else {}
        return replace(found, choices=notes.get("choice", {}))

    def with_sets(self, scored: ScoredAttack) -> ScoredAttack:
        """The scored attack with its answers to sets, each acted on by itself."""
        evaluation, columns = self.evaluation, []
        images, sets = evaluation.scorer.candidates, evaluation.scorer.sets
        for branch in ("sets", "zero"):
            judged = self.attack.judge(self.notebook.of(branch, self.view(branch), images))
            members, nonmembers = evaluation.scorer.apart(judged)
            columns.append((members[sets.members].mean(1), nonmembers[sets.nonmembers].mean(1)))
        ours, theirs = (np.stack(side, axis=1) for side in zip(*columns, strict=True))
        return replace(scored, sets_members=ours, sets_nonmembers=theirs)

    def view(self, branch: str) -> ClientView:
        """The active client's view of a branch."""
        snapshots, clean = self.run.snapshots, self.run.schedule.clean
        first = self._first() if branch == UNTRAINED else snapshots.load(branch, clean)
        noted = partial(self.notebook.of, branch)
        view = self.evaluation.observed.view(first, Signals(), noted=noted)
        assert isinstance(view, ClientView)
        return view

    def _first(self) -> Snapshot:
        return Snapshot(0, self.run.snapshots.untrained().state, {})

    def untrained(self) -> ScoredAttack:
        """The attack on the first model in the same rounds, honest clients sending back what they
        received."""
        run, site, schedule = self.run, self.site, self.run.schedule
        experiment, state = run.prepared.experiment, self._first().state
        strategy, notes = experiment.strategy.build("strategy"), dict[str, Any]()
        strategy.course = schedule.course(UNTRAINED, schedule.clean, schedule.last, craft=True)
        strategy.nodes = {client: client for client in range(len(site.roles))}
        method = self.view(UNTRAINED).copy_method()
        for round in range(schedule.clean + 1, schedule.last + 1):
            clients = [c for c in range(len(site.roles)) if schedule.takes_part(c, round)]
            sent = dict.fromkeys(clients, state)
            if experiment.holder in clients:
                number = len(self.notebook.rounds(UNTRAINED))
                stream = rng(site.seed, "craft-untrained", round)
                self.notebook.received(UNTRAINED, round, Snapshot(round, state, {}))
                crafted = self.attack.craft(site.turn(method, state, state, number, notes, stream))
                self.notebook.sent(UNTRAINED, round, Snapshot(round, crafted, {}))
                sent |= {c: crafted for c in experiment.malicious_clients if c in sent}
            sizes = [len(part) for part in site.parts["members"]]
            updates = [Update(c, round, s, sizes[c], {}) for c, s in sent.items()]
            state = state | strategy.aggregate(state, updates)
        self.notebook.received(UNTRAINED, schedule.last + 1, Snapshot(schedule.last, state, {}))
        return self.on(UNTRAINED, self.name)

    def curves(self) -> Curves:
        """What was noted of the evaluated images, acted on and not."""
        images, apart = self.evaluation.scorer.candidates, self.evaluation.scorer.apart
        main, zero = (self.notebook.of(b, self.view(b), images) for b in ("main", "zero"))
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
