"""A node that has images of its own: the scores that leave it, and the report made of them."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from clients.client_context import ClientContext
from fedmia.attacks.base import DatasetAttack
from fedmia.defenses.stack import require_account
from fedmia.evaluation.run import client_rows, score_suite, suite_of_run
from fedmia.evaluation.steps.assemble import assemble
from fedmia.federation.plan import Plan
from fedmia.federation.result import TrainedRounds
from fedmia.options.bounded import parse_json
from fedmia.recording.writer import RecordingWriter
from fedmia.records import ClientInfo, RunScores, ScoredAttack
from fedmia.records.privacy import ClientDefence, Epsilon
from fedmia.ssl.base import State
from fedmia.storage.archive import pack, unpack
from fedmia.storage.arrays import numbers
from fedmia.storage.snapshot import StateStore

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


def score_node(
    plan: Plan, client_context: ClientContext, client: int, store: StateStore,
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
    attacks = {
        name: one
        for name, one in plan.experiment.attack_choices.items()
        if not isinstance(one.plugin("attack"), DatasetAttack)
    }
    with tempfile.TemporaryDirectory(prefix="fedmia-") as folder:
        recording = RecordingWriter(Path(folder))
        run = TrainedRounds(plan, client_context, store, recording, [], True)
        if not leave:
            return _answer(_client(run, client, lambda epsilon: epsilon))
        recording.save("main", 0, untrained)
        recording.save("main", last, final)
        results = score_suite(suite_of_run(run, attacks), run)
    answer = _client(run, client, void_beside_scores)
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
    run: TrainedRounds, client: int, stated: Callable[[Epsilon], Epsilon]
) -> dict[str, Any]:
    """Size and defence of the client, less the metrics that rest on its images."""
    (row,) = (r for r in client_rows(run, run.plan.cast.data.labels, 1) if r.id == client)

    def sent_defense(part: ClientDefence) -> ClientDefence:
        metrics = run.client_context.build_defenses(client).leaving_metrics(dict(part.metrics))
        spent = part.epsilon and stated(part.epsilon)
        parts, beside = tuple(map(sent_defense, part.parts)), tuple(map(stated, part.beside))
        return ClientDefence(part.name, spent, metrics, parts, beside)

    return {"size": row.size, "defence": row.defence and sent_defense(row.defence)}


def read_answer(client: int, content: RecordDict) -> tuple[ClientInfo, dict[str, Any]]:
    """Read a node's answer (`score_node`) on the server.

    Args:
        client: partition id of the client.
        content: the node's answer.

    Returns:
        The client's row, and fields of `RunScores`.

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


def scores_from_node(client: int, content: RecordDict, done: TrainedRounds) -> RunScores:
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
        require_account(info.defence, server.trained[client])
    if "pixels" in scores:
        note, lost = "The node scored its own images; its scores alone made this report.", []
        if server and server.epsilon:
            server = replace(server, epsilon=void_beside_scores(server.epsilon))
    else:
        note, lost = f"No attack was scored: {SCORES_STAY}.", list(experiment.attack)
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
