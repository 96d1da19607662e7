"""What a finished federation is scored on: attacks, controls, probes, clients, rounds."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from clients.base import Site
from fedmia import registry
from fedmia.data.images import ImageSet, IntArray
from fedmia.data.split import Split
from fedmia.federation.rounds import Federation
from fedmia.federation.snapshot import Snapshot
from fedmia.probes.knn import knn_accuracy
from fedmia.probes.linear import linear_accuracy
from fedmia.results import (
    ClientDefence,
    ClientInfo,
    Pair,
    Probe,
    RoundInfo,
    RunScores,
    ScoredAttack,
)
from fedmia.runtime.environment import describe
from fedmia.runtime.stopwatch import Stopwatch
from fedmia.scoring.snapshots import Evaluation
from fedmia.settings.tree import to_tree
from fedmia.ssl.base import State

if TYPE_CHECKING:
    from fedmia.federation.run import Prepared

BATCH = 8  # images in a batch of the by-batch reading


@dataclass
class Probes:
    """Utility of a state's pooled features on images apart from all others."""

    site: Site
    data: ImageSet
    split: Split

    def features(
        self, state: State
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Features and labels of the fitting half, then of the testing half."""
        torch.set_num_threads(self.site.threads)
        method = self.site.method(-1, None)
        method.load_shared(state)
        method.eval()
        out: list[torch.Tensor] = []
        for indices in (self.split.test_fit, self.split.test_eval):
            pixels = torch.from_numpy(self.data.images[indices])
            with torch.no_grad():
                parts = [
                    method.encoder.features(p.to(self.site.device).float() / 255, ["avgpool"])
                    for p in pixels.split(1024)
                ]
            out += [
                torch.cat([p["avgpool"].float().cpu() for p in parts]),
                torch.from_numpy(self.data.labels[indices]),
            ]
        fit, fit_labels, test, test_labels = out
        return fit, fit_labels, test, test_labels

    def knn(self, state: State) -> float:
        """Weighted-kNN accuracy in [0, 1]."""
        return knn_accuracy(*self.features(state))

    def both(self, state: State) -> dict[str, Probe]:
        """kNN and linear probe."""
        found, n = self.features(state), len(self.split.test_eval)
        return {"knn": Probe(knn_accuracy(*found), n), "linear": Probe(linear_accuracy(*found), n)}


def score(
    prepared: Prepared, federation: Federation, probes: Probes, watch: Stopwatch
) -> RunScores:
    """All that the report is made of, from the rounds that are finished."""
    experiment, split, labels = prepared.experiment, prepared.split, prepared.data.labels
    done = federation.rounds[-1].round if federation.rounds else 0
    evaluation = Evaluation(
        federation.site,
        split,
        federation.snapshots,
        experiment.attacker,
        federation.holder,
        {n: dict(o) for n, o in experiment.attack.items()},
    )
    with watch.part("attacks"):
        federation.display.say("attacks")
        found = attacked(evaluation, federation)
    with watch.part("probes"):
        last = federation.snapshots.load("main", federation.snapshots.rounds("main")[-1]).state
        utility = probes.both(last)
        untrained = probes.both(federation.snapshots.load("main", 0).state)
    notes = list(prepared.notes)
    if (active := evaluation.active()) and not federation.snapshots.sent("main"):
        notes.append(f"{active} was not scored: its client finished no attacked round.")
    environment = describe()
    owner = dict(zip(split.members.tolist(), split.owner.tolist(), strict=True))
    classes = int(labels.max()) + 1
    return RunScores(
        seed=experiment.seed,
        member_ids=split.scored_members,
        nonmember_ids=split.scored_nonmembers,
        member_client=np.array([owner[i] for i in split.scored_members.tolist()]),
        member_labels=labels[split.scored_members],
        nonmember_labels=labels[split.scored_nonmembers],
        utility=utility,
        utility_untrained=untrained,
        clients=client_rows(federation, labels, classes),
        pretrain=experiment.pretrain.mode,
        interrupted=None if federation.complete else done,
        notes=notes,
        split={
            "data": prepared.data.name,
            "channels": prepared.data.channels,
            "size": prepared.data.size,
            "classes": classes,
            **split.counts(),
        },
        config=to_tree(experiment),
        versions=environment["versions"] | {"commit": environment["commit"]},
        hardware=environment["hardware"],
        **found,
    )


def attacked(evaluation: Evaluation, federation: Federation) -> dict[str, Any]:
    """Scores of attacks, controls, pairs and batches, and the rounds with their leakage.

    Passive attacks are scored on the last snapshot before the first crafted update, or on the
    last of all where nothing is crafted. What does not depend on each other runs side by side.
    """
    snapshots, names, clean = federation.snapshots, evaluation.passive(), federation.clean
    kept, placebo = snapshots.rounds("main"), snapshots.rounds("placebo")
    scored_at = max(r for r in kept if r <= clean) if federation.active else kept[-1]
    # No update was sent before the first round: attacks on updates have the placebo alone.
    kinds = {n: registry.load("attack", n) for n in names}
    on_models = [n for n in names if kinds[n].needs.vantage != "server"]
    not_run = {}
    if not evaluation.uploads("main", scored_at)["updates"]:
        reason = "no round whose updates are kept was finished"
        not_run = {n: reason for n in names if n not in on_models}
        names = on_models
    work: dict[str, Callable[[], Any]] = {
        "attacks": lambda: evaluation.on(snapshots.load("main", scored_at), names),
        "untrained": lambda: evaluation.on(snapshots.load("main", 0), on_models),
        "pixels": evaluation.pixels,
    }
    if scored_at in placebo:
        work["placebo"] = lambda: evaluation.on(
            snapshots.load("placebo", scored_at), names, "placebo"
        )
    work |= active_work(evaluation, federation)
    for info in federation.rounds:
        if info.round in federation.evaluated() and info.round in kept:
            work[f"round {info.round}"] = partial(leakage, evaluation, federation, info, names)
    found = side_by_side(work, federation.site.threads)
    attacks, batches, pairs = found["attacks"], [], []
    controls = {k: found[k] for k in ("untrained", "placebo") if k in found}
    if "ascent" in found:
        attacks.append(found["ascent"])
        batches.append(evaluation.batches(found["ascent"], BATCH))
        for name, scored in controls.items():
            if f"ascent-{name}" in found:
                scored.append(found[f"ascent-{name}"])
    if "ascent-zero" in found:
        over = "the same rounds without ascent"
        pairs.append(Pair(found["ascent"], found["ascent-zero"], over))
        batches.append(evaluation.batches(found["ascent-zero"], BATCH))
    return {
        "attacks": attacks,
        "controls": controls,
        "pairs": pairs,
        "not_run": not_run,
        "batches": batches,
        "pixels": found["pixels"],
        "curves": evaluation.curves(clean) if pairs else None,  # from what the scores computed
        "rounds": [found.get(f"round {info.round}", info) for info in federation.rounds],
    }


def active_work(evaluation: Evaluation, federation: Federation) -> dict[str, Callable[[], Any]]:
    """What is to be read of the active attack: itself, its controls, its curves."""
    snapshots, clean, name = federation.snapshots, federation.clean, evaluation.active()
    rounds = len(snapshots.sent("main"))
    if not name or not rounds:
        return {}
    roles = federation.site.roles
    share = sum(r != "honest" for r in roles) / len(roles)
    work: dict[str, Callable[[], Any]] = {
        "ascent": lambda: evaluation.trajectory("main", clean),
        "ascent-untrained": lambda: evaluation.untrained_trajectory(rounds, share),
    }
    if len(snapshots.sent("zero")) == rounds:
        label = f"{name}-zero"
        work["ascent-zero"] = lambda: evaluation.trajectory("zero", clean, label=label)
    if len(snapshots.sent("placebo")) == rounds:
        work["ascent-placebo"] = lambda: evaluation.trajectory("placebo", clean)
    return work


def side_by_side(work: Mapping[str, Callable[[], Any]], threads: int) -> dict[str, Any]:
    """Results of independent pieces of work, run in as many threads as the cores allow."""
    workers = max(1, (os.cpu_count() or 1) // threads)
    pool = ThreadPoolExecutor(workers, "score", torch.set_num_threads, (threads,))
    try:
        running = {name: pool.submit(call) for name, call in work.items()}
        return {name: future.result() for name, future in running.items()}
    finally:  # a second Ctrl-C waits for nothing
        pool.shutdown(wait=False, cancel_futures=True)


def leakage(
    evaluation: Evaluation, federation: Federation, info: RoundInfo, names: list[str]
) -> RoundInfo:
    """The round with the scores of each passive attack and of each layer."""
    chosen = [n for n in names if registry.load("attack", n).by_round]
    snapshot = federation.snapshots.load("main", info.round)
    found = {s.name: s for s in evaluation.on(snapshot, chosen)}
    layers = by_layer(evaluation, snapshot) if "internal" in names else {}
    return replace(info, leakage=found, layers=layers)


def by_layer(evaluation: Evaluation, snapshot: Snapshot) -> dict[str, ScoredAttack]:
    """The internal attack on each layer alone (Fig. 6)."""
    site = evaluation.site
    layers = site.method(-1, None).encoder.layers
    options = dict(evaluation.attacks["internal"])
    found = {}
    for layer in layers:
        alone = replace(evaluation, attacks={"internal": {**options, "layers": (layer,)}})
        found[layer] = alone.on(snapshot, ["internal"])[0]
    return found


def client_rows(federation: Federation, labels: IntArray, classes: int) -> list[ClientInfo]:
    """Each client with its role, its images, and its defence's statement."""
    site, rows = federation.site, []
    for client, role in enumerate(site.roles):
        held = site.parts["members"][client]
        counts = np.bincount(labels[held], minlength=classes)
        rows.append(
            ClientInfo(
                id=client,
                size=len(held),
                role=role,
                defence=_defence(federation, client),
                classes=tuple(int(c) for c in counts),
            )
        )
    return rows


def _defence(federation: Federation, client: int) -> ClientDefence | None:
    site = federation.site
    if site.defense is None or client not in site.defended:
        return None
    kept = federation.store.load("main", client)
    memory: Mapping[str, Any] = kept.memory if kept else {}
    built = registry.build("defense", *site.defense)
    return ClientDefence(site.defense[0], built.privacy(dict(memory)), memory.get("metrics", {}))
