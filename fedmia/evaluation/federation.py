"""An audit of a federation: leakage by round, layer and client, of models that were kept."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fedmia.attacks.ascent import Ascent
from fedmia.attacks.base import ActiveAttack
from fedmia.config.audit import Audit
from fedmia.data.images import IntArray
from fedmia.encoders.base import LoadedEncoder, Weights
from fedmia.encoders.memory import Loss
from fedmia.encoders.modules import RANDOM, LoadedEncoderMethod
from fedmia.evaluation.audits.attack_suite import (
    RELEASED,
    UNTRAINED,
    VIEWS,
    EncoderAttackSuite,
)
from fedmia.evaluation.audits.climb import TWIN, ClimbNotes
from fedmia.evaluation.audits.rounds import MOST, RoundHistory, read_files, read_recording
from fedmia.evaluation.audits.suspects import PUBLIC, public_loss, rank_suspects
from fedmia.evaluation.steps.datasets import Partition
from fedmia.options import registry
from fedmia.options.errors import InputError, opt
from fedmia.partitions.iid import IID
from fedmia.recording.format import MAIN, RoundRecord
from fedmia.recording.reader import States
from fedmia.records import ClientInfo, Pair, RoundInfo, ScoredAttack, list_attacks
from fedmia.records.client_rows import SuspectRow
from fedmia.ssl.base import SSLMethod
from fedmia.threat import BlackBox, ClientView, ServerView, Threat, WhiteBox

LOSSES = ("loss", "train_loss", "train-loss")  # what clients call it among their metrics
NOTES = "a client with fedmia.flower.ascend takes part, and notes (--notes) has what it read"
UNPAIRED = "another run of the app without ascent"
NAMING = ("named_members", "client_ids", "by_client_members", "by_client_nonmembers")


@dataclass(kw_only=True)
class FederatedEncoder(LoadedEncoder):
    """The last global model of a federation, and those of its other rounds.

    Attributes:
        history: what was kept of the federation, by the names of `method`.
        climb: what an attacker in it noted; None: there was none, or nothing is known of it.
    """

    history: RoundHistory
    climb: ClimbNotes | None = None


def read_rounds(audit: Audit) -> RoundHistory | None:
    """What was kept of the federation that an audit names; None: it names an encoder alone.

    Raises:
        InputError: there is no recording or file, or a damaged one.
    """
    if not audit.of_rounds:
        return None
    if audit.federation is None:
        return read_files(str(audit.checkpoint), audit.checkpoint_key)
    _, at, turn = audit.encoder.rpartition("@")  # RUN@ROUND
    until = int(turn) if at and turn.isdigit() else None
    return read_recording(Path(audit.federation), until)


def load_rounds(
    released: LoadedEncoder, history: RoundHistory, loss: str | Loss | None = None
) -> FederatedEncoder:
    """The last model of a federation as an encoder under audit; its control is the first one.

    Args:
        released: the network that was trained, whatever its weights; changed in place.
        history: what was kept of the federation.
        loss: with which clients trained, or `package.module:NAME` of it; None: not known, or the
            network is a method of fedmia, which has its own.

    Returns:
        The encoder with its control.

    Raises:
        InputError: models of another network, or a loss that is none.
    """
    method, foreign = released.method, isinstance(released.method, LoadedEncoderMethod)
    history = history.fit(method, released.name, strict=foreign)
    method.own_loss = registry.load_outside("loss", loss) if isinstance(loss, str) else loss
    if method.own_loss is not None and not callable(method.own_loss):
        raise InputError(f"{opt('loss')}: {loss!r}, must be a function of (network, pixels)")
    last = max(history.models)
    method.load_shared(history.models[last])
    notes = [note for note in released.notes if not note.endswith(RANDOM)]
    notes += history.notes
    if len(history.scored) < (models := sum(r > 0 for r in history.models)):
        rounds = ", ".join(map(str, history.scored))
        notes.append(f"Scored by round: {MOST} of the {models} models that were kept, {rounds}.")
    own: dict[str, Any] = {"name": f"{released.name} of round {last}", "notes": notes}
    own["weights"] = Weights(history.where, len(history.models[last]), round=last)
    if 0 in history.models:
        own["untrained"] = partial(_with_state, method, history, 0)
        own["untrained_how"] = "the federation's own model before its first round (round 0)"
    return FederatedEncoder(**vars(released) | own, history=history)


def _with_state(method: SSLMethod, history: RoundHistory, round: int) -> SSLMethod:
    """A copy of the method with the model of a round."""
    other = copy.deepcopy(method)
    other.load_shared(history.models[round])
    return other


class FederationSuite(EncoderAttackSuite):
    """Runs attacks on the last model of a federation, its control, and the models of its rounds.

    Attacks of a client have received every model that was kept; those of the server have updates,
    too. The others see one model alone.

    Args:
        audit: the audit's settings.
        released: the last model, with those of the other rounds.
        rest: further arguments of `EncoderAttackSuite`, in order.
    """

    def __init__(self, audit: Audit, released: FederatedEncoder, *rest: Any) -> None:
        self.history, self.last = released.history, max(released.history.models)
        self.climb = released.climb
        super().__init__(audit, released, *rest)
        self.owners = self.audit_split.owners

    def method(self, model: str) -> SSLMethod:
        """A number stands for the model of that round, with its client's queue if one is kept."""
        fresh, method = model not in self._methods, super().method(model)
        round = {RELEASED: str(self.last), UNTRAINED: "0"}.get(model, model)
        if fresh and int(round) in self.history.queues and self.audit_split.own is not None:
            method.load_local(self.history.queues[int(round)])
        return method

    def build_method(self, model: str) -> SSLMethod:
        """A number stands for the model of that round."""
        if model in (RELEASED, UNTRAINED):
            return super().build_method(model)
        return _with_state(self.released.method, self.history, int(model))

    def vantage(self, name: str) -> tuple[Callable[..., BlackBox], Threat, dict[str, Any]]:
        """A client's view has the models that it received, the server's the updates, too."""
        needs = self.build(name).needs
        if needs.vantage == "outsider" or VIEWS[self.released.access] is not WhiteBox:
            return super().vantage(name)
        models, some = self.history.models, self.audit_split.received
        rounds = [r for r in models if some is None or r in some or r == self.last]
        received: dict[str, Any] = {"received": States(rounds, models.__getitem__)}
        if self.climb is not None:
            received["noted"] = partial(self.climb.readings.of, MAIN)
        if needs.vantage == "client":
            return ClientView, ClientView.threat, received
        uploads = {"updates": self.history.sound, "before": self.history.before}
        return ServerView, ServerView.threat, received | uploads

    def refusal(self, name: str) -> str | None:
        """The server needs updates; a client whose attack reads a loss needs to know which."""
        attack = self.build(name)
        if type(attack) is Ascent:
            return None if self.climb else f"{super().refusal(name)}; of another Flower app {NOTES}"
        if isinstance(attack, ActiveAttack) or attack.needs.vantage == "outsider":
            return super().refusal(name)
        if attack.needs.vantage == "server" and not self.history.updates:
            keeps = 'fedmia.flower.record(grid, folder, updates="all") keeps them'
            return f"needs the updates of clients, and none are kept: {keeps}"
        if self._loss_unknown and attack.needs.vantage == "client" and "loss" in attack.looks_at:
            return f"needs the loss of the training: {opt('loss', 'my_app.task:loss')}"
        return None

    def decides(self, name: str) -> str:
        """The digest of the federation counts, too."""
        own = "" if self.climb is None else self.climb.digest()
        return f"{super().decides(name)} {self.history.digest}{own}"

    def score_model(self, model: str, name: str) -> ScoredAttack:
        """An ascent is scored by the notes of its client, in the rounds in which it acted."""
        if type(self.build(name)) is not Ascent:
            return super().score_model(model, name)
        return self._score_ascent(MAIN, name)

    def _score_ascent(self, branch: str, label: str) -> ScoredAttack:
        """The ascent, or its twin without it, on what its client noted in a branch."""
        name, notes = Ascent.name, self.climb
        assert notes is not None
        view = self.view(RELEASED, name, known := self.known[name], self.budget)
        assert isinstance(view, ClientView)
        scored = self.scorer.with_known(known).score_attack(
            name, view.of_notes(partial(notes.readings.of, branch)), under_attack=True,
            rounds=tuple(notes.acted(branch)), label=label,
        )  # fmt: skip
        choices = notes.choices | ({"steps": 0} if branch == TWIN else {})
        also = [replace(one, choices=choices) for one in scored.also]
        return replace(scored, choices=choices, also=also)

    def _pairs(self) -> list[Pair]:
        """The ascent beside its twin, each of their readings, where both were run."""
        own = [a for a in self.scores if a.under_attack]
        if not own or self.climb is None or not self.climb.acted(TWIN):
            return []
        score = partial(self._score_ascent, TWIN, Ascent.control)
        twins = list_attacks([self.once(TWIN, Ascent.name, score)])
        return [Pair(act, zero, UNPAIRED) for act, zero in zip(own, twins, strict=True)]

    def _control_of_climb(self) -> list[ScoredAttack]:
        """The ascent on the first model, as if nobody trained, where its client noted one."""
        if self.climb is None or not self.climb.acted(UNTRAINED):
            return []
        score = partial(self._score_ascent, UNTRAINED, Ascent.name)
        return list_attacks([self.once(UNTRAINED, Ascent.name, score)])

    def clients(self) -> tuple[IntArray, Partition]:
        """The owners, where they are known; posers are dealt at random then."""
        if self.owners is None:
            return super().clients()
        return self.owners[self.audit_split.ids("scored_members")], IID()

    def run_rounds(self, say: Callable[[str], None], stopped: Callable[[], bool]) -> dict[str, Any]:
        """Attack the models of the rounds that were kept: some fields of the report."""
        ran = [name for name in self.audit.attacks if any(s.name == name for s in self.scores)]
        climbed = self._control_of_climb() if Ascent.name in ran and not stopped() else []
        self.controls += climbed
        controlled = [one.name for one in climbed]
        if trained := [n for n in ran if self.build(n).reads_training() and n not in controlled]:
            self.notes.append(
                f"{', '.join(trained)}: not tried untrained, as updates and changes between rounds "
                "come with training; they have no control."
            )
        if self.owners is None or not self.history.rostered:  # whom it names says nothing
            nobody: dict[str, Any] = dict.fromkeys(NAMING)
            self.scores = [replace(scored, **nobody) for scored in self.scores]
        rounds = [r for r in sorted({*self.history.models, *self.history.rounds}) if r]
        passive = [n for n in ran if not isinstance(self.build(n), ActiveAttack)]
        infos, by_round = list[RoundInfo](), [n for n in passive if self.build(n).by_round]
        for round in rounds:
            line = self.history.rounds.get(round, RoundRecord(MAIN, round))
            losses = [m[name] for m in line.metrics.values() for name in LOSSES if name in m]
            loss = float(np.mean(losses)) if losses else None
            infos.append(RoundInfo(round, False, loss, cohort=line.cohort))
            if round in self.history.scored and not stopped():
                say(f"attacks on the model of round {round}")
                infos[-1] = replace(infos[-1], **self._score_round(round, by_round))
        for (name, piece), why in sorted(self.failures.beside.items()):
            if piece != UNTRAINED:
                self.notes.append(f"{name} has no scores of {piece}: {why}")
        return {
            "rounds": infos, "clients": self._client_infos(), "pairs": self._pairs(),
            "suspects": [] if stopped() else self._rank_suspects(),
            "faults": self.history.faults,
        }  # fmt: skip

    def _rank_suspects(self) -> list[SuspectRow]:
        """The clients by how far their updates stand out; the loss is of known non-members."""
        if not self.history.updates:
            return []
        public, loss = self.audit_split.pixels("known_nonmembers")[:PUBLIC], None
        if self.released.access == "white_box" and not self._loss_unknown:
            loss = public_loss(WhiteBox(**self._shared(RELEASED), held=self.held), public)
        return rank_suspects(self.history.before, self.history.updates, loss, self.history.clients)

    @property
    def _loss_unknown(self) -> bool:
        """Whether nobody says with which loss clients trained."""
        method = self.released.method
        return isinstance(method, LoadedEncoderMethod) and method.own_loss is None

    def _score_round(self, round: int, names: list[str]) -> dict[str, Any]:
        """Scores of attacks on the model of a round, those of `internal` by layer, and its kNN."""
        last = round == self.last
        model = RELEASED if last else str(round)
        fields = self.leakage_of_round(model, round, [] if last else names, "internal" in names)
        if last:
            fields["leakage"] = {s.name: s for s in self.scores if s.name in names}
        fields["knn"] = self.probes(model)["knn"].value
        if not last:  # no model of a round stays in memory
            self._methods.pop(model, None)  # where nothing was to be scored
            self._signals.pop(model, None)
        return fields

    def _client_infos(self) -> list[ClientInfo]:
        """The clients, where it is known who holds which image."""
        if self.owners is None:
            return []
        rounds = self.history.rounds
        whole = all(len(r.cohort) == len(self.history.clients) for r in rounds.values() if r.cohort)
        last = {client: r for r, line in rounds.items() for client in line.cohort}
        drawn = self.history.rostered and not whole
        return [
            ClientInfo(c, n, "honest", last_round=last.get(c, 0) if drawn else None)
            for c, n in sorted(Counter(self.owners.tolist()).items())
            if c >= 0
        ]
