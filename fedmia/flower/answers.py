"""A node that has images of its own: the scores that leave it, and the report made of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from clients.client_setup import ClientSetup
from fedmia.attacks.base import DatasetAttack
from fedmia.defenses.stack import require_account
from fedmia.evaluation.run import statement, suite_of_run
from fedmia.evaluation.score import score
from fedmia.evaluation.steps.assemble import assemble
from fedmia.evaluation.steps.failures import Failures
from fedmia.federation.attacker import load_weights
from fedmia.federation.plan import Plan
from fedmia.federation.result import TrainedRounds
from fedmia.recording.branches import MAIN
from fedmia.records import ClientInfo, Evaluation, ScoredAttack
from fedmia.records.defence_rows import DefencePart
from fedmia.records.note import Note
from fedmia.records.privacy import Epsilon
from fedmia.rounds.base import Rounds, TargetModel
from fedmia.ssl.base import SSLMethod, State
from fedmia.storage.archive import Archive, pack, unpack
from fedmia.storage.arrays import numbers
from fedmia.storage.snapshot import ClientState, StateStore
from fedmia.untrusted.text import parse_json

# What is told of an attack: nothing else of it leaves the node.
SENT_FIELDS = (
    "name", "paper", "access", "vantage", "act", "shadow_threshold", "queries", "seconds",
    "choices", "scores_members", "scores_nonmembers", "known_members", "known_nonmembers",
    "fitted_on",
)  # fmt: skip
SCORES_STAY = "the node keeps the scores of its images"
# What a statement on weights is worth to whoever also has a score of each image.
WEIGHTS = "of the weights alone"
BESIDE = (
    " It covers the weights alone: this report holds one score of each scored image of the node, "
    "so nothing is promised to whoever sees the report or the scores."
)


class SentModels(Rounds):
    """The models that a server sends to a node, which keeps no folder of them.

    Args:
        setup: of the node.
        states: the first model, of round 0, and the final one, by round.
    """

    def __init__(self, setup: ClientSetup, states: Mapping[int, State]) -> None:
        self._setup, self._states = setup, states

    @property
    def round(self) -> int:
        return max(self._states)

    def load(self, target: TargetModel) -> SSLMethod:
        return load_weights(self._setup, self._states[target.round or 0])

    def models(self, branch: str = MAIN) -> Mapping[int, State]:
        return self._states if branch == MAIN else {}


def score_node(
    plan: Plan, client_setup: ClientSetup, client: int, store: StateStore,
    last: int, final: State, untrained: State, leave: bool,
) -> RecordDict:  # fmt: skip
    """The client's privacy statement and, if they may leave the node, the scores of the run's
    attacks on the final and on the untrained encoder.

    Args:
        plan: settings, images and their roles.
        client: partition id of the client.
        store: what the node keeps of the run.
        last: last round that is read.
        final: weights of the final encoder.
        untrained: weights of the first encoder.
        leave: whether scores of images leave the node.

    Returns:
        Size and defence of the client, and scores.
    """
    local_state = store.load(MAIN, client)
    if not leave:
        return _answer(_client(client_setup, client, local_state, lambda epsilon: epsilon))
    attacks = {
        name: one
        for name, one in plan.experiment.attack_choices.items()
        if not isinstance(one.plugin("attack"), DatasetAttack)
    }
    rounds = SentModels(client_setup, {0: untrained, last: final})
    own = Archive(None), Failures((Exception,))
    suite = suite_of_run(rounds, plan, client_setup, plan.cast, attacks, *own)
    names = suite.able(attacks)
    results = score(suite, names, by_sets=True, threads=client_setup.threads)
    answer = _client(client_setup, client, local_state, void_beside_scores)
    answer |= {"split": plan.cast.counts(), "pixels": results["pixels"]}
    for kind, attacks in {"attacks": results["attacks"], **results["controls"]}.items():
        answer[kind] = [
            ScoredAttack(**{key: getattr(a, key) for key in SENT_FIELDS}) for a in attacks
        ]
    return _answer(answer)


def _answer(fields: dict[str, Any]) -> RecordDict:
    arrays: dict[str, np.ndarray] = {}
    text = json.dumps({name: pack(value, arrays) for name, value in fields.items()})
    answer = RecordDict({"told": ConfigRecord({"json": text})})
    if arrays:
        answer["scores"] = ArrayRecord({name: Array(a) for name, a in arrays.items()})
    return answer


def void_beside_scores(epsilon: Epsilon) -> Epsilon:
    """A statement on weights, beside scores that void it."""
    return replace(epsilon, standing=WEIGHTS, assumptions=epsilon.assumptions + BESIDE)


def _client(
    setup: ClientSetup, client: int, local_state: ClientState | None,
    stated: Callable[[Epsilon], Epsilon],
) -> dict[str, Any]:  # fmt: skip
    """Size and defence of the client, less the metrics that rest on its images."""

    def leaving(part: DefencePart) -> dict[str, Any]:
        metrics = setup.build_defenses(client).leaving_metrics(dict(part.metrics))
        return {"epsilon": part.epsilon and stated(part.epsilon), "metrics": metrics}

    size = len(setup.parts["members"][client])
    if (defence := statement(setup, client, local_state)) is not None:
        parts = [replace(part, **leaving(part)) for part in defence.parts]
        beside = [*map(stated, defence.beside)]
        defence = replace(defence, **leaving(defence), parts=parts, beside=beside)
    return {"size": size, "defence": defence}


def read_answer(client: int, content: RecordDict) -> tuple[ClientInfo, dict[str, Any]]:
    """Read a node's answer (`score_node`) on the server.

    Args:
        client: partition id of the client.
        content: the node's answer.

    Returns:
        The client's row, and fields of `Evaluation`.

    Raises:
        LookupError, TypeError, ValueError, AttributeError, EOFError: it is no such answer.
    """
    records = content.array_records
    arrays = numbers(records["scores"]) if "scores" in records else {}
    fields = parse_json(str(content.config_records["told"]["json"]))
    fields = {name: unpack(value, arrays) for name, value in fields.items()}
    size = fields.pop("size")
    info = ClientInfo(client, size, "honest", fields.pop("defence"), (size,))
    members, others = map(len, fields.get("pixels", ((), ())))
    if "untrained" in fields:
        fields["controls"] = {"untrained": fields.pop("untrained")}
    return info, {
        "member_ids": np.arange(members),
        "nonmember_ids": np.arange(members, members + others),
        "member_client": np.full(members, client),
        "member_labels": np.zeros(members, np.int64),
        "nonmember_labels": np.zeros(others, np.int64),
        "attacks": [],
        **fields,
    }


def scores_from_node(client: int, content: RecordDict, done: TrainedRounds) -> Evaluation:
    """Make the scores of a report from one node's answer.

    Args:
        client: partition id of the client.
        content: the node's answer.
        done: the rounds as the server saw them.

    Returns:
        All that the report shows.

    Raises:
        InputError: the node's account lacks rounds whose updates the server took.
    """
    experiment, server = done.plan.experiment, done.aggregation
    info, scores = read_answer(client, content)
    if info.defence and server:
        require_account(info.defence, done.trained[client])
    if "pixels" in scores:
        note, lost = Note("node-scored-itself"), list[str]()
        if server and server.epsilon:
            server = replace(server, epsilon=void_beside_scores(server.epsilon))
    else:
        note, lost = Note("scores-stay", {"why": SCORES_STAY}), list(experiment.attack)
    return assemble(
        experiment,
        drawn=False,  # the node chose its non-members
        subject=f"a federated encoder, on the images of client {client}",
        clients=[info],
        rounds=done.rounds,
        interrupted=None if done.complete else len(done.rounds),
        failure=done.failure,
        faults=done.faults,
        notes=[note],
        not_run=dict.fromkeys(lost, SCORES_STAY),
        aggregation=server,
        **scores,
    )
