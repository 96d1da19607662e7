"""What leaves a node that has images of its own: scores, and which are of members."""

from __future__ import annotations

import json
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from clients.site import Site
from fedmia import registry
from fedmia.attacks.base import DatasetAttack
from fedmia.federation.run import Finished, Prepared
from fedmia.federation.snapshot import Snapshot, SnapshotStore, StateStore
from fedmia.results import ClientDefence, ClientInfo, Epsilon, ScoredAttack
from fedmia.scoring.score import attacked, client_rows
from fedmia.scoring.snapshots import Evaluation
from fedmia.ssl.base import State

# What is told of an attack: nothing else of it leaves the node.
SCORES = ("scores_members", "scores_nonmembers", "known_members", "known_nonmembers")
TOLD = ("name", "paper", "access", "vantage", "act", "shadow_threshold", "queries", "seconds",
        "choices")  # fmt: skip


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
    row = client_rows(run, prepared.data.labels, 1)[client]
    arrays = dict(zip(("pixels/members", "pixels/nonmembers"), found["pixels"], strict=True))
    defence = row.defence and asdict(row.defence)
    for one in [defence, *defence["parts"]] if defence else []:
        one["metrics"] = site.defended(client).open(one["metrics"])
    told: dict[str, Any] = {"size": row.size, "defence": defence}
    told["split"] = prepared.split.counts()
    for kind, attacks in {"attacks": found["attacks"], **found["controls"]}.items():
        told[kind] = [{key: getattr(a, key) for key in TOLD} for a in attacks]
        arrays |= {f"{kind}/{a.name}/{key}": getattr(a, key) for a in attacks for key in SCORES}
    record = ArrayRecord({name: Array(np.ascontiguousarray(a)) for name, a in arrays.items()})
    return RecordDict({"told": ConfigRecord({"json": json.dumps(told)}), "scores": record})


def _defence(told: dict[str, Any]) -> ClientDefence:
    epsilon = told["epsilon"] and Epsilon(**told["epsilon"])
    parts = tuple(map(_defence, told["parts"]))
    beside = tuple(Epsilon(**one) for one in told["beside"])
    return ClientDefence(told["name"], epsilon, told["metrics"], parts, beside)


def read(client: int, content: RecordDict) -> tuple[ClientInfo, dict[str, Any]]:
    """The server's side of `scored`: the client, and fields of `RunScores`."""
    told = json.loads(str(content.config_records["told"]["json"]))
    arrays = {n: a.numpy() for n, a in content.array_records["scores"].items()}
    defence = told["defence"]
    if defence is not None:
        defence = _defence(defence)
    made: dict[str, list[ScoredAttack]] = {"attacks": [], "untrained": []}
    for kind, attacks in made.items():
        for one in told[kind]:
            scores = {key: arrays[f"{kind}/{one['name']}/{key}"] for key in SCORES}
            attacks.append(ScoredAttack(**one | scores))
    members, others = arrays["pixels/members"], arrays["pixels/nonmembers"]
    return ClientInfo(client, told["size"], "honest", defence, (told["size"],)), {
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
