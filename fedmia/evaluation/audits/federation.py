"""What is special in an audit of a federation: its models, its attacks, its rows of the report.

`read_rounds` reads what was kept, and `load_rounds` puts it into the network. `refusal_reason` says
which attacks cannot run. The other functions make the rows of rounds, clients and suspects.
"""

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

LOSSES = ("loss", "train_loss", "train-loss")  # names of the training loss in clients' metrics


def read_rounds(audit: Audit) -> KeptRounds | None:
    """Read what was kept of the federation that an audit names; None: it names an encoder alone.

    Raises:
        InputError: there is no recording or file, or a damaged one.
    """
    if not audit.of_rounds:
        return None
    if audit.federation.recording is None:
        return read_files(str(audit.encoder.checkpoint), audit.encoder.checkpoint_key)
    _, at, number = audit.encoder.name.rpartition("@")  # RUN@ROUND
    until = int(number) if at and number.isdigit() else None
    return read_recording(Path(audit.federation.recording), until)


def load_rounds(
    released: LoadedEncoder, rounds: KeptRounds, loss: str | Loss | None = None,
    cut: Callable[[KeptRounds], KeptRounds] = lambda rounds: rounds,
) -> KeptRounds:  # fmt: skip
    """Load the last model of a federation into its network, and that before the first round, where
    it was kept, as the untrained control.

    Args:
        released: the network that was trained, whatever its weights; changed in place.
        rounds: what was kept of the federation.
        loss: with which clients trained, or `package.module:NAME` of it; None: not known, or the
            network is a method of fedmia, which has its own.
        cut: chooses the rounds under audit. It gets all, so that every file is checked.

    Returns:
        The rounds under audit, with the network as their encoder.

    Raises:
        InputError: models of another network, or a loss that is none.
    """
    method, foreign = released.method, isinstance(released.method, LoadedEncoderMethod)
    rounds = cut(rounds.fit(released, strict=foreign))
    own_loss = registry.load_outside("loss", loss) if isinstance(loss, str) else loss
    if own_loss is not None and not callable(own_loss):
        raise InputError(
            f"{opt('federation.loss')}: {loss!r}, must be a function of (network, pixels)"
        )
    method.own_loss, last = own_loss, rounds.states[rounds.round]
    method.load_shared(last)
    released.name += f" of round {rounds.round}"
    released.weights = Weights(rounds.where, len(last), round=rounds.round)
    released.notes = [note for note in released.notes if note.code != "random-weights"]
    released.notes += rounds.remarks
    if len(rounds.scored) < (models := sum(r > 0 for r in rounds.states)):
        released.notes.append(Note("scored-by-round", {"rounds": rounds.scored, "models": models}))
    if 0 in rounds.states:
        released.untrained = partial(rounds.with_state, 0)
        released.untrained_how = "the federation's own model before its first round (round 0)"
    return rounds


def refusal_reason(rounds: Rounds, name: str) -> str | None:
    """Why an attack cannot run: an encoder alone admits only those of an outsider, rounds those
    whose models or updates were kept, and what reads a loss needs to know which.

    Args:
        rounds: under audit.
        name: of the attack.

    Returns:
        The reason; None: it can run.
    """
    if not isinstance(rounds, KeptRounds):
        return outside_reason(name)
    attack, notes = registry.load("attack", name), rounds.notes
    if notes is not None and notes.about["attack"] == name:
        return None
    if attack is Ascent:
        return (
            f"{outside_reason(name)}; of another Flower app a client with fedmia.flower.ascend "
            "takes part, and notes (--notes) has what it read"
        )
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
    for number in sorted({*rounds.states, *rounds.records} - {0}):
        record = rounds.records.get(number, RecordedRound(MAIN, number))
        losses = [m[name] for m in record.metrics.values() for name in LOSSES if name in m]
        loss = float(np.mean(losses)) if losses else None
        cohort = [*record.cohort] or None
        rows.append(RoundRow(round=number, under_attack=False, loss=loss, cohort=cohort))
    return rows


def client_infos(rounds: KeptRounds, owners: IntArray | None) -> list[ClientInfo]:
    """The clients, where it is known who holds which image.

    Args:
        rounds: of the federation.
        owners: (members,) client of each member, negative for none; None: not known.

    Returns:
        One row for each client that holds a member.
    """
    if owners is None:
        return []
    records, clients = rounds.records, len(rounds.clients)
    all_train = all(len(r.cohort) == clients for r in records.values() if r.cohort)
    last_rounds = {client: r for r, record in records.items() for client in record.cohort}
    sampled = rounds.rostered and not all_train  # without a roster owners have other numbers
    return [
        ClientInfo(k, size, "honest", last_round=last_rounds.get(k, 0) if sampled else None)
        for k, size in sorted(Counter(owners.tolist()).items())
        if k >= 0
    ]


def suspect_rows(suite: Suite, rounds: KeptRounds) -> list[SuspectRow]:
    """The clients by how far their updates stand out, also in the loss of known non-members.

    Args:
        suite: the attacks on these rounds.
        rounds: of the federation.

    Returns:
        One row for each client, the most suspicious first; none without updates.
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
    """The fields of `Evaluation` that only a federation has; none of an encoder alone.

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
