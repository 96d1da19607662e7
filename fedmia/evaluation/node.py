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
from fedmia.evaluation.federated.snapshots import Evaluation
from fedmia.evaluation.run import client_rows, score_all_attacks
from fedmia.evaluation.steps.assemble import assemble
from fedmia.evaluation.steps.controls import POSERS
from fedmia.federation.run import FederationResult, PreparedRun
from fedmia.options import registry
from fedmia.records import ClientDefence, ClientInfo, Epsilon, RunScores, ScoredAttack
from fedmia.ssl.base import State
from fedmia.storage.archive import pack, unpack
from fedmia.storage.snapshot import Snapshot, SnapshotStore, StateStore

# What is told of an attack: nothing else of it leaves the node.
TOLD = ("name", "paper", "access", "vantage", "act", "shadow_threshold", "queries", "seconds",
        "choices", "scores_members", "scores_nonmembers", "known_members",
        "known_nonmembers")  # fmt: skip
KEPT = "the node keeps the scores of its images"
# What a statement on weights is worth to whoever also has a score of each image.
WEIGHTS = "of the weights alone"
BESIDE = (
    " It covers the weights alone: this report holds one score of each scored image of the node, "
    "so nothing is promised to whoever sees the report or the scores."
)


def scored(
    prepared: PreparedRun, client_context: ClientContext, client: int, store: StateStore, last: int,
    final: State,
    untrained: State,
) -> RecordDict:  # fmt: skip
    """The run's attacks on the final encoder and on the untrained one: scores, sides apart."""
    options = {
        n: dict(o)
        for n, o in prepared.experiment.attack.items()
        if not issubclass(registry.load("attack", n), DatasetAttack)
    }
    with tempfile.TemporaryDirectory(prefix="fedmia-") as made:
        snapshots = SnapshotStore(Path(made))
        snapshots.save("main", Snapshot(0, untrained, {}))
        snapshots.save("main", Snapshot(last, final, {}))
        run = FederationResult(prepared, client_context, store, snapshots, [], True)
        found = score_all_attacks(Evaluation(run, options))
    told = _client(run, client, void_beside_scores)
    told |= {"split": prepared.split.counts(), "pixels": found["pixels"]}
    for kind, attacks in {"attacks": found["attacks"], **found["controls"]}.items():
        told[kind] = [ScoredAttack(**{key: getattr(a, key) for key in TOLD}) for a in attacks]
    return _answer(told)


def state_defenses(
    prepared: PreparedRun, client_context: ClientContext, client: int, store: StateStore
) -> RecordDict:
    """The client's statement, and no score."""
    with tempfile.TemporaryDirectory(prefix="fedmia-") as made:
        run = FederationResult(prepared, client_context, store, SnapshotStore(Path(made)), [], True)
        return _answer(_client(run, client, lambda epsilon: epsilon))


def _answer(told: dict[str, Any]) -> RecordDict:
    arrays: dict[str, np.ndarray] = {}
    text = json.dumps({name: pack(value, arrays) for name, value in told.items()})
    answer = RecordDict({"told": ConfigRecord({"json": text})})
    if arrays:
        answer["scores"] = ArrayRecord({name: Array(a) for name, a in arrays.items()})
    return answer


def void_beside_scores(epsilon: Epsilon) -> Epsilon:
    """A statement on weights, where scores of the images lie beside it."""
    return replace(epsilon, standing=WEIGHTS, assumptions=epsilon.assumptions + BESIDE)


def _client(
    run: FederationResult, client: int, stated: Callable[[Epsilon], Epsilon]
) -> dict[str, Any]:
    """Size and defence of the client, less the metrics that rest on its images."""
    (row,) = (r for r in client_rows(run, run.prepared.data.labels, 1) if r.id == client)

    def told(part: ClientDefence) -> ClientDefence:
        metrics = run.client_context.build_defenses(client).leaving_metrics(dict(part.metrics))
        spent = part.epsilon and stated(part.epsilon)
        parts, beside = tuple(map(told, part.parts)), tuple(map(stated, part.beside))
        return ClientDefence(part.name, spent, metrics, parts, beside)

    return {"size": row.size, "defence": row.defence and told(row.defence)}


def read(client: int, content: RecordDict) -> tuple[ClientInfo, dict[str, Any]]:
    """The server's side of `scored` or `kept_in`: the client, and fields of `RunScores`."""
    records = content.array_records
    arrays = {n: a.numpy() for n, a in records["scores"].items()} if "scores" in records else {}
    told = json.loads(str(content.config_records["told"]["json"]))
    told = {name: unpack(value, arrays) for name, value in told.items()}
    size = told.pop("size")
    info = ClientInfo(client, size, "honest", told.pop("defence"), (size,))
    members, others = map(len, told.get("pixels", ((), ())))
    if "untrained" in told:
        told["controls"] = {"untrained": told.pop("untrained")}
    return info, {
        "member_ids": np.arange(members),
        "nonmember_ids": np.arange(members, members + others),
        "member_client": np.full(members, client),
        "member_labels": np.zeros(members, np.int64),
        "nonmember_labels": np.zeros(others, np.int64),
        "attacks": [],
        **told,
    }


def material(client: int, content: RecordDict, done: FederationResult) -> RunScores:
    """What a report is made of, from one node's answer."""
    experiment, server = done.prepared.experiment, done.aggregation
    info, found = read(client, content)
    if "pixels" in found:
        note, lost = "The node scored its own images; its scores alone made this report.", []
        if server and server.epsilon:
            server = replace(server, epsilon=void_beside_scores(server.epsilon))
    else:
        note, lost = f"No attack was scored: {KEPT}.", list(experiment.attack)
    return assemble(
        experiment,
        posing=experiment.posers,
        subject=f"a federated encoder, on the images of client {client}",
        clients=[info],
        rounds=done.rounds,
        interrupted=None if done.complete else len(done.rounds),
        failure=done.failure,
        faults=done.faults,
        notes=[note] + [POSERS] * experiment.posers,
        not_run=dict.fromkeys(lost, KEPT),
        aggregation=server,
        **found,
    )
