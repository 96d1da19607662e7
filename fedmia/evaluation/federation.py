"""An audit of a federation: leakage by round, layer and client, of models that were kept."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

from fedmia.attacks.base import ActiveAttack
from fedmia.config.audit import Audit
from fedmia.data.images import IntArray
from fedmia.encoders._module import RANDOM, LoadedEncoderMethod
from fedmia.encoders.base import LoadedEncoder, Weights
from fedmia.evaluation.audits.attack_suite import (
    RELEASED,
    UNTRAINED,
    VIEWS,
    EncoderAttackSuite,
)
from fedmia.evaluation.audits.rounds import MOST, RoundHistory, States, read_files, read_recording
from fedmia.evaluation.steps.datasets import Partition
from fedmia.options import registry
from fedmia.options.errors import InputError, opt
from fedmia.partitions.iid import IID
from fedmia.records import ClientInfo, RoundInfo, ScoredAttack, list_attacks
from fedmia.ssl.base import SSLMethod
from fedmia.threat import BlackBox, ClientView, ServerView, Threat, WhiteBox

LOSSES = ("loss", "train_loss", "train-loss")  # what clients call it among their metrics
NAMING = ("named_members", "client_ids", "by_client_members", "by_client_nonmembers")
Loss = Callable[[nn.Module, Tensor], Tensor]


@dataclass(kw_only=True)
class FederatedEncoder(LoadedEncoder):
    """The last global model of a federation, and those of its other rounds.

    Attributes:
        history: what was kept of the federation, by the names of `method`.
    """

    history: RoundHistory


def read_rounds(audit: Audit) -> RoundHistory | None:
    """What was kept of the federation that an audit names; None: it names an encoder alone.

    Raises:
        InputError: there is no recording or file, or a damaged one.
    """
    if not audit.of_rounds:
        return None
    if audit.federation is None:
        return read_files(str(audit.checkpoint))
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
        raise InputError(f"{opt('loss')} must be a function of (network, pixels), got {loss!r}")
    last, untrained = max(history.models), released.untrained
    method.load_shared(history.models[last])
    how = released.untrained_how
    if 0 in history.models:
        untrained = partial(_with_state, method, history, 0)
        how = "the federation's own model before its first round (round 0)"
    notes = [note for note in released.notes if not note.endswith(RANDOM)]
    fields = {name: value for name, value in vars(released).items() if name != "history"}
    notes += history.notes
    if len(history.scored) < (models := sum(r > 0 for r in history.models)):
        rounds = ", ".join(map(str, history.scored))
        notes.append(f"Scored by round: {MOST} of the {models} models that were kept, {rounds}.")
    own = {"untrained": untrained, "untrained_how": how, "notes": notes}
    weights = Weights(history.where, len(history.models[last]), round=last)
    name = f"{released.name} of round {last}"
    return FederatedEncoder(**fields | own | {"name": name, "weights": weights}, history=history)


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
        super().__init__(audit, released, *rest)
        self.owners = self.audit_split.owners

    def method(self, model: str) -> SSLMethod:
        fresh, method = model not in self._methods, super().method(model)
        round = {RELEASED: str(self.last), UNTRAINED: "0"}.get(model, model)
        if fresh and int(round) in self.history.queues and self.audit_split.own is not None:
            method.load_local(self.history.queues[int(round)])
        return method

    def build_method(self, model: str) -> SSLMethod:
        if model in (RELEASED, UNTRAINED):
            return super().build_method(model)
        return _with_state(self.released.method, self.history, int(model))

    def vantage(self, name: str) -> tuple[Callable[..., BlackBox], Threat, dict[str, Any]]:
        needs = self.build(name).needs
        if needs.vantage == "outsider" or VIEWS[self.released.access] is not WhiteBox:
            return super().vantage(name)
        models, some = self.history.models, self.audit_split.received
        rounds = [r for r in models if some is None or r in some or r == self.last]
        received = {"received": States(rounds, models.__getitem__)}
        if needs.vantage == "client":
            return ClientView, ClientView.threat, received
        uploads = {"updates": self.history.updates, "before": self.history.before}
        return ServerView, ServerView.threat, received | uploads

    def refusal(self, name: str) -> str | None:
        attack = self.build(name)
        if isinstance(attack, ActiveAttack) or attack.needs.vantage == "outsider":
            return super().refusal(name)
        if attack.needs.vantage == "server" and not self.history.updates:
            keeps = 'fedmia.flower.record(grid, folder, updates="all") keeps them'
            return f"needs the updates of clients, and none are kept: {keeps}"
        foreign = isinstance(self.released.method, LoadedEncoderMethod)
        unknown = foreign and self.released.method.own_loss is None
        if unknown and attack.needs.vantage == "client" and "loss" in attack.looks_at:
            return f"needs the loss of the training: {opt('loss', 'my_app.task:loss')}"
        return None

    def decides(self, name: str) -> str:
        return f"{super().decides(name)} {self.history.digest}"

    def clients(self) -> tuple[IntArray, Partition]:
        if self.owners is None:
            return super().clients()
        return self.owners[self.audit_split.member_ids], IID()

    def federated(self, say: Callable[[str], None], stopped: Callable[[], bool]) -> dict[str, Any]:
        ran = [name for name in self.audit.attacks if any(s.name == name for s in self.scores)]
        if trained := [name for name in ran if self.build(name).reads_training()]:
            self.notes.append(
                f"{', '.join(trained)}: not tried untrained, as updates and changes between rounds "
                "come with training; the control is posers."
            )
        if self.owners is None or not self.history.rostered:  # whom it names says nothing
            nobody: dict[str, Any] = dict.fromkeys(NAMING)
            self.scores = [replace(scored, **nobody) for scored in self.scores]
        rounds = [r for r in sorted({*self.history.models, *self.history.rounds}) if r]
        chosen, infos = self.history.scored, list[RoundInfo]()
        by_round = [name for name in ran if self.build(name).by_round]
        for round in rounds:
            info = self._known_of(round)
            if round in chosen and not stopped():
                say(f"attacks on the model of round {round}")
                info = self._score_round(info, by_round)
            infos.append(info)
        for (name, piece), why in sorted(self.failures.beside.items()):
            if piece.isdecimal():
                self.notes.append(f"{name} has no scores of round {piece}: {why}")
        return {"rounds": infos, "clients": self._client_infos()}

    def _known_of(self, round: int) -> RoundInfo:
        """What was recorded of a round."""
        line = self.history.rounds.get(round)
        metrics = () if line is None else line.metrics.values()
        losses = [m[name] for m in metrics for name in LOSSES if name in m]
        cohort = () if line is None else line.cohort
        return RoundInfo(round, False, float(np.mean(losses)) if losses else None, cohort=cohort)

    def _score_round(self, info: RoundInfo, names: list[str]) -> RoundInfo:
        """Add to a round the scores of attacks, those of `internal` by layer, and its kNN."""
        last = info.round == self.last
        model, leakage = RELEASED if last else str(info.round), dict[str, ScoredAttack]()
        for name in names:
            scored = None if last else self._attempt(model, name, partial(self._score, model, name))
            listed = [s for s in self.scores if s.name == name] if last else [scored]
            leakage |= {s.name: s for s in list_attacks([s for s in listed if s is not None])}
        layers: dict[str, ScoredAttack] | None = None
        if "internal" in names:
            layers = self._attempt(model, "internal", partial(self._layers, model), " layers")
        knn = self.probes(model)["knn"].value
        if not last:  # no model of a round stays in memory
            del self._methods[model], self._signals[model]
        return replace(info, leakage=leakage, layers=layers or {}, knn=knn)

    def _attempt(self, model: str, name: str, call: Callable[[], Any], what: str = "") -> Any:
        once = partial(self.once, f"{model}{what}", name, call)
        return self.failures.attempt(model, name, once)

    def _score(self, model: str, name: str) -> ScoredAttack:
        how: dict[str, Any] = {"rounds": (int(model),), "threshold": False}
        return self.score(model, name, self.known[name], self.budget, **how)

    def _layers(self, model: str) -> dict[str, ScoredAttack]:
        view = self.view(model, "internal", self.scorer.known, None)
        assert isinstance(view, WhiteBox)
        return self.scorer.score_layers(view, self.attacks.get("internal", {}), threshold=False)

    def _client_infos(self) -> list[ClientInfo]:
        """The clients, where it is known who holds which image."""
        if self.owners is None:
            return []
        rounds, infos = self.history.rounds.values(), list[ClientInfo]()
        whole = all(len(one.cohort) == len(self.history.clients) for one in rounds if one.cohort)
        for client in sorted({*self.owners.tolist()} - {-1}):
            last = max((one.round for one in rounds if client in one.cohort), default=0)
            known = self.history.rostered and not whole
            size = int((self.owners == client).sum())
            infos.append(ClientInfo(client, size, "honest", last_round=last if known else None))
        return infos
