"""An audit of a federation that somebody recorded: its rounds, and what the report says of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fedmia.attacks.ascent import Ascent
from fedmia.attacks.base import ActiveAttack
from fedmia.data.images import IntArray
from fedmia.encoders.base import LoadedEncoder, Weights
from fedmia.encoders.memory import Loss
from fedmia.encoders.modules import LoadedEncoderMethod
from fedmia.evaluation.audits.suspects import PUBLIC, public_loss, rank_suspects
from fedmia.evaluation.suite import Suite
from fedmia.recording.branches import MAIN
from fedmia.recording.format import RecordedRound
from fedmia.records import ClientInfo
from fedmia.records.client_rows import SuspectRow
from fedmia.records.note import Note
from fedmia.records.rows import RoundRow
from fedmia.rounds.base import Rounds
from fedmia.rounds.kept import KeptRounds, read_files, read_recording
from fedmia.settings import registry
from fedmia.settings.commands.audit import Audit
from fedmia.settings.commands.audit_attacks import outside_reason
from fedmia.settings.errors import InputError, opt
from fedmia.threat import WhiteBox

LOSSES = ("loss", "train_loss", "train-loss")  # what clients call it among their metrics
NOTES = "a client with fedmia.flower.ascend takes part, and notes (--notes) has what it read"


def read_rounds(audit: Audit) -> KeptRounds | None:
    """What was kept of the federation that an audit names; None: it names an encoder alone.

    Raises:
        InputError: there is no recording or file, or a damaged one.
    """
    if not audit.of_rounds:
        return None
    if audit.federation.recording is None:
        return read_files(str(audit.encoder.checkpoint), audit.encoder.checkpoint_key)
    _, at, turn = audit.encoder.name.rpartition("@")  # RUN@ROUND
    until = int(turn) if at and turn.isdigit() else None
    return read_recording(Path(audit.federation.recording), until)


def load_rounds(
    released: LoadedEncoder, rounds: KeptRounds, loss: str | Loss | None = None,
    cut: Callable[[KeptRounds], KeptRounds] = lambda rounds: rounds,
) -> KeptRounds:  # fmt: skip
    """The models of a federation in their network; the control is the first one.

    Args:
        released: the network that was trained, whatever its weights; changed in place.
        rounds: what was kept of the federation.
        loss: with which clients trained, or `package.module:NAME` of it; None: not known, or the
            network is a method of fedmia, which has its own.
        cut: gives the rounds that are audited, of all.

    Returns:
        The rounds, whose encoder has the last model and its control.

    Raises:
        InputError: models of another network, or a loss that is none.
    """
    method, foreign = released.method, isinstance(released.method, LoadedEncoderMethod)
    rounds = cut(rounds.fit(released, strict=foreign))
    method.own_loss = registry.load_outside("loss", loss) if isinstance(loss, str) else loss
    if method.own_loss is not None and not callable(method.own_loss):
        raise InputError(
            f"{opt('federation.loss')}: {loss!r}, must be a function of (network, pixels)"
        )
    method.load_shared(rounds.states[rounds.round])
    released.notes = [note for note in released.notes if note.code != "random-weights"]
    released.notes += rounds.remarks
    if len(rounds.scored) < (models := sum(r > 0 for r in rounds.states)):
        released.notes.append(Note("scored-by-round", {"rounds": rounds.scored, "models": models}))
    released.name += f" of round {rounds.round}"
    tensors = len(rounds.states[rounds.round])
    released.weights = Weights(rounds.where, tensors, round=rounds.round)
    if 0 in rounds.states:
        released.untrained = partial(rounds.with_state, 0)
        released.untrained_how = "the federation's own model before its first round (round 0)"
    return rounds


def refuse(rounds: Rounds, name: str) -> str | None:
    """Why an attack has no place in an audit, or None: of one encoder only an outsider's has one,
    the server needs updates, and a client whose attack reads a loss needs to know which.

    Args:
        rounds: under audit.
        name: of the attack.

    Returns:
        The reason.
    """
    if not isinstance(rounds, KeptRounds):
        return outside_reason(name)
    attack, notes = registry.load("attack", name), rounds.notes
    if notes is not None and notes.about["attack"] == name:
        return None
    if attack is Ascent:
        return f"{outside_reason(name)}; of another Flower app {NOTES}"
    if issubclass(attack, ActiveAttack) or attack.needs.vantage == "outsider":
        return outside_reason(name)
    keeps, models = attack.needs.row.keeps, rounds.states
    if keeps == "changes" and not any(r - 1 in models for r in models):
        return "needs the models of two rounds that follow each other, and none are kept"
    if keeps == "updates" and not rounds.sent:
        how = 'fedmia.flower.record(grid, folder, updates="all") keeps them'
        return f"needs the updates of clients, and none are kept: {how}"
    if loss_unknown(rounds) and "loss" in attack.looks_at:
        return f"needs the loss of the training: {opt('federation.loss', 'my_app.task:loss')}"
    return None


def loss_unknown(rounds: KeptRounds) -> bool:
    """Whether nobody says with which loss clients trained."""
    method = rounds.encoder.method
    return isinstance(method, LoadedEncoderMethod) and method.own_loss is None


def round_rows(rounds: Rounds) -> list[RoundRow]:
    """The rounds of a federation, without leakage; none of an encoder alone."""
    rows = list[RoundRow]()
    if not isinstance(rounds, KeptRounds):
        return rows
    for round in (r for r in sorted({*rounds.states, *rounds.records}) if r):
        line = rounds.records.get(round, RecordedRound(MAIN, round))
        losses = [m[name] for m in line.metrics.values() for name in LOSSES if name in m]
        loss = float(np.mean(losses)) if losses else None
        cohort = [*line.cohort] or None
        rows.append(RoundRow(round=round, under_attack=False, loss=loss, cohort=cohort))
    return rows


def client_infos(rounds: KeptRounds, owners: IntArray | None) -> list[ClientInfo]:
    """The clients, where it is known who holds which image.

    Args:
        rounds: of the federation.
        owners: client of each member, negative for none; None: not known.

    Returns:
        A row a client.
    """
    if owners is None:
        return []
    lines = rounds.records
    whole = all(len(r.cohort) == len(rounds.clients) for r in lines.values() if r.cohort)
    last = {client: r for r, line in lines.items() for client in line.cohort}
    drawn = rounds.rostered and not whole
    return [
        ClientInfo(c, n, "honest", last_round=last.get(c, 0) if drawn else None)
        for c, n in sorted(Counter(owners.tolist()).items())
        if c >= 0
    ]


def suspect_rows(suite: Suite, rounds: KeptRounds) -> list[SuspectRow]:
    """The clients by how far their updates stand out; the loss is of known non-members.

    Args:
        suite: the attacks on these rounds.
        rounds: of the federation.

    Returns:
        A row a client; none without updates.
    """
    if not rounds.sent:
        return []
    public, loss = suite.attacker.known.nonmembers[:PUBLIC], None
    if rounds.access == "white_box" and not loss_unknown(rounds):
        view = suite.attacker.view(suite.method(suite.main), signals=suite.main.signals)
        assert isinstance(view, WhiteBox)
        loss = public_loss(view, public)
    return rank_suspects(rounds.before(), rounds.sent, loss, rounds.clients)


def fields_of_rounds(suite: Suite, owners: IntArray | None, stopped: bool) -> dict[str, Any]:
    """Fields of `Evaluation` for the clients of a federation; none of an encoder alone.

    Args:
        suite: the attacks, scored.
        owners: as of `client_infos`.
        stopped: whether the user asked to stop.

    Returns:
        Fields by name.
    """
    rounds = suite.rounds
    if not isinstance(rounds, KeptRounds):
        return {}
    return {
        "clients": client_infos(rounds, owners),
        "rows": {} if stopped else {"suspects": suspect_rows(suite, rounds)},
        "faults": rounds.faults,
    }
