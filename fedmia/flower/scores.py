"""What leaves a node that has images of its own: scores, and which are of members."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from clients.site import Site
from fedmia.attacks.base import DatasetAttack
from fedmia.evaluation.federated.snapshots import Evaluation
from fedmia.evaluation.run import attacked, client_rows
from fedmia.federation.run import Finished, Prepared
from fedmia.options import registry
from fedmia.records import ClientDefence, ClientInfo, Epsilon, ScoredAttack
from fedmia.ssl.base import State
from fedmia.storage.snapshot import Snapshot, SnapshotStore, StateStore

# What is told of an attack: nothing else of it leaves the node.
SCORES = ("scores_members", "scores_nonmembers", "known_members", "known_nonmembers")
TOLD = ("name", "paper", "access", "vantage", "act", "shadow_threshold", "queries", "seconds",
        "choices")  # fmt: skip
KEPT = "the node keeps the scores of its images"
# What a statement on weights is worth to whoever also has a score of each image.
WEIGHTS = "of the weights alone"
BESIDE = (
    " It covers the weights alone: this report holds one score of each scored image of the node, "
    "so nothing is promised to whoever sees the report or the scores."
)


def scored(
    prepared: Prepared, site: Site, client: int, store: StateStore, last: int, final: State,
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
        run = Finished(prepared, site, store, snapshots, [], True)
        found = attacked(Evaluation(run, options))
    arrays = dict(zip(("pixels/members", "pixels/nonmembers"), found["pixels"], strict=True))
    told = _client(run, client, beside_scores)
    told["split"] = prepared.split.counts()
    for kind, attacks in {"attacks": found["attacks"], **found["controls"]}.items():
        told[kind] = [{key: getattr(a, key) for key in TOLD} for a in attacks]
        arrays |= {f"{kind}/{a.name}/{key}": getattr(a, key) for a in attacks for key in SCORES}
    record = ArrayRecord({name: Array(np.ascontiguousarray(a)) for name, a in arrays.items()})
    return RecordDict({"told": ConfigRecord({"json": json.dumps(told)}), "scores": record})


def kept_in(prepared: Prepared, site: Site, client: int, store: StateStore) -> RecordDict:
    """The client's statement, and no score."""
    with tempfile.TemporaryDirectory(prefix="fedmia-") as made:
        run = Finished(prepared, site, store, SnapshotStore(Path(made)), [], True)
        told = _client(run, client, lambda epsilon: epsilon)
    return RecordDict({"told": ConfigRecord({"json": json.dumps(told)})})


def beside_scores(epsilon: Epsilon) -> Epsilon:
    """A statement on weights, where scores of the images lie beside it."""
    return replace(epsilon, standing=WEIGHTS, assumptions=epsilon.assumptions + BESIDE)


def _client(run: Finished, client: int, stated: Callable[[Epsilon], Epsilon]) -> dict[str, Any]:
    """Size and defence of the client, less the metrics that rest on its images."""
    (row,) = (r for r in client_rows(run, run.prepared.data.labels, 1) if r.id == client)

    def told(part: ClientDefence) -> ClientDefence:
        metrics = run.site.defended(client).open(dict(part.metrics))
        spent = part.epsilon and stated(part.epsilon)
        parts, beside = tuple(map(told, part.parts)), tuple(map(stated, part.beside))
        return ClientDefence(part.name, spent, metrics, parts, beside)

    return {"size": row.size, "defence": row.defence and asdict(told(row.defence))}


def _defence(told: dict[str, Any]) -> ClientDefence:
    epsilon = told["epsilon"] and Epsilon(**told["epsilon"])
    parts = tuple(map(_defence, told["parts"]))
    beside = tuple(Epsilon(**one) for one in told["beside"])
    return ClientDefence(told["name"], epsilon, told["metrics"], parts, beside)


def read(client: int, content: RecordDict) -> tuple[ClientInfo, dict[str, Any]]:
    """The server's side of `scored` or `kept_in`: the client, and fields of `RunScores`."""
    told = json.loads(str(content.config_records["told"]["json"]))
    defence = told["defence"] and _defence(told["defence"])
    info = ClientInfo(client, told["size"], "honest", defence, (told["size"],))
    if "scores" not in content.array_records:
        none = ("member_ids", "nonmember_ids", "member_client", "member_labels", "nonmember_labels")
        return info, {name: np.zeros(0, np.int64) for name in none} | {"attacks": []}
    arrays = {n: a.numpy() for n, a in content.array_records["scores"].items()}
    made: dict[str, list[ScoredAttack]] = {"attacks": [], "untrained": []}
    for kind, attacks in made.items():
        for one in told[kind]:
            scores = {key: arrays[f"{kind}/{one['name']}/{key}"] for key in SCORES}
            attacks.append(ScoredAttack(**one | scores))
    members, others = arrays["pixels/members"], arrays["pixels/nonmembers"]
    return info, {
        "member_ids": np.arange(len(members)),
        "nonmember_ids": np.arange(len(members), len(members) + len(others)),
        "member_client": np.full(len(members), client),
        "member_labels": np.zeros(len(members), np.int64),
        "nonmember_labels": np.zeros(len(others), np.int64),
        "attacks": made["attacks"],
        "controls": {"untrained": made["untrained"]},
        "pixels": (members, others),
        "split": told["split"],
    }
