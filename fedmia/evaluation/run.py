"""A federated run: its rounds, and what they are scored on."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import torch

from fedmia.data.images import IntArray
from fedmia.evaluation.federated.observer import Observer
from fedmia.evaluation.federated.probes import Probes
from fedmia.evaluation.federated.recorder import TrajectoryRecorder
from fedmia.evaluation.federated.snapshots import Evaluation, RoundModel, client_of_members
from fedmia.evaluation.federated.trajectories import Trajectories
from fedmia.evaluation.steps.assemble import assemble
from fedmia.evaluation.steps.budgets import allot, sweep
from fedmia.evaluation.steps.controls import POSERS, pixels
from fedmia.evaluation.steps.failures import Failures
from fedmia.federation.checkpoint import Checkpoint
from fedmia.federation.run import (
    FederationResult,
    Nodes,
    PreparedRun,
    federate,
    make_client_context,
)
from fedmia.options import registry
from fedmia.options.errors import InputError
from fedmia.records import ClientInfo, Pair, RoundInfo, RunScores, ScoredAttack, list_attacks
from fedmia.runtime.cores import count_cores
from fedmia.runtime.progress import Display
from fedmia.runtime.stopwatch import Stopwatch
from fedmia.storage.manifest import SNAPSHOTS
from fedmia.storage.snapshot import SnapshotStore
from strategies.failure_policy import FederationError


def execute(
    prepared: PreparedRun, out: Path | None, watch: Stopwatch, stop: Event, shown: Display,
    nodes: Nodes | None = None, checkpoint: Checkpoint | None = None,
) -> RunScores:  # fmt: skip
    """Train, attack and score. The snapshots stay in `out` where it is given.

    Args:
        nodes: clients that Flower runs elsewhere, in place of a backend's.
        checkpoint: to be gone on with.

    Raises:
        FederationError: a client failed in the first round; nothing is reported.
    """
    with tempfile.TemporaryDirectory(prefix="fedmia-") as made, shown as display:
        folder = Path(made)
        client_context = make_client_context(prepared, folder, stop)
        snapshots = SnapshotStore((out or folder) / SNAPSHOTS)
        probes = Probes(client_context, prepared.data.labels, prepared.split)
        notes, active = None, prepared.active
        if active is not None:
            notes = TrajectoryRecorder(Observer(prepared.experiment, client_context), active)
        finished = federate(
            prepared, client_context, folder, snapshots, round_recorder=notes, probe=probes.knn,
            watch=watch,
            display=display, nodes=nodes, checkpoint=checkpoint,
        )  # fmt: skip
        display.say("attacks")
        return score(finished, probes, watch, notes)


def score(
    run: FederationResult,
    probes: Probes,
    watch: Stopwatch,
    trajectory_recorder: TrajectoryRecorder | None = None,
) -> RunScores:
    """All that the report is made of, from the rounds that are finished.

    Args:
        notebook: of the active attack's client.

    Raises:
        FederationError: the model's answers are not finite.
    """
    prepared, snapshots, split = run.prepared, run.snapshots, run.split
    experiment, data = prepared.experiment, prepared.data
    failures = Failures((InputError, FederationError), tongue=experiment.tongue)
    evaluation = Evaluation(
        run, None, trajectory_recorder.observer if trajectory_recorder else None, failures
    )
    with watch.part("probes"):
        scored_at, end = evaluation.scored_at(), snapshots.rounds("main")[-1]
        model = snapshots.load("main", scored_at).state
        utility = probes.both(model)
        after = (probes.both(snapshots.load("main", end).state), end) if end > scored_at else None
        health = probes.health(model, {r.round: r.loss for r in run.rounds}.get(scored_at))
        untrained = probes.both(snapshots.untrained().state)
    with watch.part("attacks"):
        found = score_all_attacks(evaluation, trajectory_recorder)
    notes = [*prepared.notes, *failures.notes(), *evaluation.notes, *found.pop("notes", [])]
    classes = int(data.labels.max()) + 1
    shape = {"data": data.name, "channels": data.channels, "size": data.size, "classes": classes}
    sides = split.scored_members, split.scored_nonmembers
    labels = [data.labels[side] for side in sides]
    return assemble(
        experiment,
        posing=experiment.posers,
        member_ids=sides[0],
        nonmember_ids=sides[1],
        member_client=client_of_members(run),
        member_labels=labels[0],
        nonmember_labels=labels[1],
        whose=None if split.whose is None else tuple(split.whose[side] for side in sides),
        utility=utility,
        utility_untrained=untrained,
        round=scored_at,
        after_attack=after,
        health=health,
        clients=client_rows(run, data.labels, classes),
        aggregation=run.aggregation,
        pretrain=experiment.pretrain.mode,
        interrupted=None if run.complete else run.rounds[-1].round if run.rounds else 0,
        failure=run.failure,
        failed=failures.attacks,
        faults=run.faults,
        notes=notes + [POSERS] * experiment.posers,
        split=shape | split.counts(),
        **found,
    )


def score_all_attacks(
    evaluation: Evaluation, trajectory_recorder: TrajectoryRecorder | None = None
) -> dict[str, Any]:
    """Scores of attacks, controls, pairs and sets, and the rounds with their leakage.

    Passive attacks are scored at `Evaluation.scored_at`. Independent work runs side by side.
    """
    run, names, active = evaluation.run, evaluation.passive(), evaluation.active()
    snapshots, scored_at = run.snapshots, evaluation.scored_at()
    kept, placebo = snapshots.rounds("main"), snapshots.rounds("placebo")
    kinds, lost = {n: registry.load("attack", n) for n in names}, evaluation.failures.reasons
    not_run = dict[str, str]()
    if not evaluation.uploads("main", scored_at)["updates"]:
        reason = "no round whose updates are kept was finished"
        not_run = {n: reason for n in names if kinds[n].needs.vantage == "server"}
    main = RoundModel(snapshots.load("main", scored_at))
    names = [n for n in names if n not in not_run]
    survive = evaluation.failures.attempt
    names = [n for n in names if survive("main", n, partial(allot, evaluation, main, n))]
    on_models = [n for n in names if not kinds[n].reads_training()]
    untrained, sets = RoundModel(snapshots.untrained()), evaluation.scorer.sets
    work: dict[str, Callable[[], Any]] = {
        "attacks": lambda: evaluation.score_attacks(main, names, "main", sets=sets),
        "untrained": lambda: evaluation.score_attacks(untrained, on_models, "untrained"),
        "pixels": lambda: pixels(evaluation.scorer),
    }
    if scored_at in placebo:
        work["placebo"] = lambda: evaluation.score_attacks(
            RoundModel(snapshots.load("placebo", scored_at), "placebo"), names, "placebo"
        )
    trajectories = (
        Trajectories(evaluation, active, trajectory_recorder)
        if active and trajectory_recorder
        else None
    )
    if active and trajectories and (why := trajectories.unscored()):
        not_run[active], trajectories = why, None
    if trajectories:
        keep, pieces = evaluation.kept, trajectories.work()
        work |= {p: partial(keep, p, trajectories.name, call) for p, call in pieces.items()}
    by_round = [n for n in names if kinds[n].by_round]
    for info in run.rounds:
        if info.round in run.schedule.evaluated() and info.round in kept:
            more = by_round if info.round != scored_at else []
            work[f"round {info.round}"] = partial(add_leakage, evaluation, info, more)
    done = run_side_by_side(work, evaluation.client_context.threads)
    found = {piece: scores for piece, scores in done.items() if scores is not None}
    infer = evaluation.inferences((main, untrained))
    attacks, pairs = list_attacks(found["attacks"]), list[Pair]()
    spec, ran = run.prepared.experiment.sweep, [a.name for a in found["attacks"]]
    swept = sweep(evaluation, main, ran, spec) if spec else None
    if f"round {scored_at}" in found:
        known = {s.name: s for s in attacks if s.name in by_round}
        found[f"round {scored_at}"] = replace(found[f"round {scored_at}"], leakage=known)
    attacks += list_attacks([found["active"]]) if "active" in found else []
    controls: dict[str, list[ScoredAttack]] = {}
    for name in ("untrained", "placebo"):
        if name in found:
            scored = [s for s in found[name] if s.name not in lost]
            if {"active", f"active-{name}"} <= found.keys():
                scored.append(found[f"active-{name}"])
            controls[name] = list_attacks(scored)
    if trajectories and {"active", "active-zero"} <= found.keys():
        both = zip(
            list_attacks([found["active"]]), list_attacks([found["active-zero"]]), strict=True
        )
        pairs += [Pair(act, zero, trajectories.attack.over) for act, zero in both]
    return {
        "attacks": attacks,
        "controls": controls,
        "notes": placebo_note([n for n in names if n not in on_models], run, "placebo" in found),
        "pairs": pairs,
        "not_run": not_run | lost,
        "sets": sets,
        "sweep": swept,
        "inferences": infer,
        "pixels": found["pixels"],
        "curves": trajectories.curves() if trajectories and pairs else None,
        "rounds": [without(found.get(f"round {i.round}", i), lost) for i in run.rounds],
    }


def placebo_note(names: Sequence[str], run: FederationResult, scored: bool) -> list[str]:
    """Why the attacks `names` have no untrained control, and which they have."""
    own = "their control is the placebo" if scored else "the placebo was not finished"
    if not run.split.placebo_parts:
        own = "no control: --federation.placebo true runs one, the placebo"
    why = "not tried untrained, as updates and changes between rounds come with training"
    return [f"{', '.join(names)}: {why}; {own}."] if names else []


def run_side_by_side(work: Mapping[str, Callable[[], Any]], threads: int) -> dict[str, Any]:
    """Results of independent pieces of work, run in as many threads as the cores allow."""
    workers = max(1, count_cores() // threads)
    pool = ThreadPoolExecutor(workers, "score", torch.set_num_threads, (threads,))
    try:
        running = {name: pool.submit(call) for name, call in work.items()}
        return {name: future.result() for name, future in running.items()}
    finally:  # a second Ctrl-C waits for nothing
        pool.shutdown(wait=False, cancel_futures=True)


def add_leakage(evaluation: Evaluation, info: RoundInfo, names: list[str]) -> RoundInfo:
    """The round with the scores of the named attacks, and of `internal` by layer (Fig. 6)."""
    snapshot = evaluation.run.snapshots.load("main", info.round)
    piece = f"round {info.round}"
    scored = evaluation.score_attacks(RoundModel(snapshot), names, piece, threshold=False)
    found, layers = {s.name: s for s in scored}, dict[str, ScoredAttack]()
    if "internal" in evaluation.passive():
        by_layer = partial(evaluation.by_layer, snapshot, threshold=False)
        layers = evaluation.kept(f"{piece} layers", "internal", by_layer) or {}
    return replace(info, leakage=found, layers=layers)


def without(info: RoundInfo, lost: Mapping[str, str]) -> RoundInfo:
    """The round less the attacks that are not listed."""
    return replace(info, leakage={n: s for n, s in info.leakage.items() if n not in lost})


def client_rows(run: FederationResult, labels: IntArray, classes: int) -> list[ClientInfo]:
    """Each client with its role, its images, and its defence's statement."""
    client_context, rows = run.client_context, []
    for client, role in enumerate(client_context.roles):
        own = client_context.parts["members"][client]
        kept = run.store.load("main", client)
        memory = kept.memory.get("defense", {}) if kept else {}
        defence = client_context.build_defenses(client).statement(memory)
        counts = np.bincount(labels[own], minlength=classes).tolist()
        rows.append(ClientInfo(client, len(own), role, defence, tuple(counts)))
    return rows
