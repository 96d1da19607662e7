"""Score what a federation left: its models by round, its updates and readings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch

from fedmia.data.images import IntArray
from fedmia.defenses.stack import require_account
from fedmia.evaluation.models import Evaluation, RoundModel
from fedmia.evaluation.steps.assemble import assemble
from fedmia.evaluation.steps.budgets import allot, sweep
from fedmia.evaluation.steps.controls import pixels
from fedmia.evaluation.steps.failures import Failures
from fedmia.evaluation.trajectories import Trajectories
from fedmia.federation.result import FederationResult
from fedmia.federation.utility import Probes
from fedmia.options import registry
from fedmia.options.errors import InputError
from fedmia.records import ClientInfo, Pair, RoundInfo, RunScores, ScoredAttack, list_attacks
from fedmia.runtime.cores import count_cores
from fedmia.runtime.progress import Display
from fedmia.runtime.stopwatch import Stopwatch
from strategies.failure_policy import FederationError


def score(
    run: FederationResult,
    watch: Stopwatch,
    display: Display | None = None,
    controls: bool = True,
) -> RunScores:
    """Score the finished rounds of a federation.

    Args:
        run: what it left.
        watch: notes the seconds of each part.
        display: progress on the terminal; None shows nothing.
        controls: whether attacks run on other models than the last: the untrained one, the
            placebo's and those of the rounds.

    Returns:
        All that the report shows.

    Raises:
        FederationError: the model's answers are not finite.
    """
    plan, recording, cast = run.plan, run.recording, run.cast
    experiment, data = plan.experiment, cast.data
    probes = Probes(run.client_context, plan.cast)
    failures = Failures((InputError, FederationError))
    evaluation = Evaluation(run, None, failures)
    with watch.part("probes"):
        scored_at, end = evaluation.scored_at(), recording.rounds("main")[-1]
        model = recording.load("main", scored_at).state
        utility = probes.both(model)
        after = (probes.both(recording.load("main", end).state), end) if end > scored_at else None
        health = probes.health(model, {r.round: r.loss for r in run.rounds}.get(scored_at))
        untrained = probes.both(recording.untrained().state)
    with watch.part("attacks"):
        results = score_all_attacks(evaluation, display, controls)
    notes = [*plan.notes, *failures.notes(), *evaluation.notes, *results.pop("notes", [])]
    classes = int(data.labels.max()) + 1
    shape = {"data": data.name, "channels": data.channels, "size": data.size, "classes": classes}
    sides = cast.ids("scored_members"), cast.ids("scored_nonmembers")
    return assemble(
        experiment,
        drawn=not experiment.partition.build("partition").trains_on_all(),
        member_ids=sides[0],
        nonmember_ids=sides[1],
        member_client=cast.owner("scored_members"),
        member_labels=cast.classes("scored_members"),
        nonmember_labels=cast.classes("scored_nonmembers"),
        whose=None if cast.whose is None else tuple(cast.whose[side] for side in sides),
        utility=utility,
        utility_untrained=untrained,
        round=scored_at,
        after_attack=after,
        health=health,
        clients=client_rows(run, data.labels, classes, scored_at),
        aggregation=run.aggregation,
        pretrain=experiment.pretrain.mode,
        interrupted=None if run.complete else run.rounds[-1].round if run.rounds else 0,
        failure=run.failure,
        failed=failures.attacks,
        faults=run.faults,
        notes=notes,
        split=shape | cast.counts(),
        **results,
    )


def score_all_attacks(
    evaluation: Evaluation, display: Display | None = None, others: bool = True
) -> dict[str, Any]:
    """Score attacks, controls, pairs and sets, and the leakage by round.

    Passive attacks are scored at `Evaluation.scored_at`. Independent work runs side by side.

    Args:
        display: progress on the terminal; None shows nothing.
        others: as `controls` of `score`.

    Returns:
        Fields of `RunScores`.
    """
    run, names, active = evaluation.run, evaluation.passive(), evaluation.active()
    recording, scored_at = run.recording, evaluation.scored_at()
    rounds, placebo = recording.rounds("main"), recording.rounds("placebo")
    kinds, lost = {n: registry.load("attack", n) for n in names}, evaluation.failures.reasons
    not_run = dict[str, str]()
    if not evaluation.uploads("main", scored_at)["updates"]:
        reason = "no round whose updates are kept was finished"
        not_run = {n: reason for n in names if kinds[n].needs.vantage == "server"}
    main = RoundModel(recording.load("main", scored_at))
    names = [n for n in names if n not in not_run]
    survive = evaluation.failures.attempt
    names = [n for n in names if survive("main", n, partial(allot, evaluation, main, n))]
    on_models = [n for n in names if not kinds[n].reads_training()]
    untrained, sets = RoundModel(recording.untrained()), evaluation.scorer.sets
    work: dict[str, Callable[[], Any]] = {
        "attacks": lambda: evaluation.score_attacks(main, names, "main", sets=sets),
        "pixels": lambda: pixels(evaluation.scorer),
    }
    if others:
        work["untrained"] = lambda: evaluation.score_attacks(
            untrained, on_models, "untrained", threshold=False
        )
    if scored_at in placebo:
        work["placebo"] = lambda: evaluation.score_attacks(
            RoundModel(recording.load("placebo", scored_at), "placebo"), names, "placebo",
            threshold=False,
        )  # fmt: skip
    trajectories = (
        Trajectories(evaluation, active, run.readings) if active and run.readings else None
    )
    if active and trajectories and (why := trajectories.unscored()):
        not_run[active], trajectories = why, None
    if trajectories:
        keep, pieces = evaluation.attempt, trajectories.work()
        work |= {p: partial(keep, p, trajectories.name, call) for p, call in pieces.items()}
    by_round = [n for n in names if kinds[n].by_round]
    for info in run.rounds if others else ():
        if info.round in run.schedule.evaluated() and info.round in rounds:
            more = by_round if info.round != scored_at else []
            work[f"round {info.round}"] = partial(add_leakage, evaluation, info, more)
    done = run_side_by_side(work, evaluation.client_context.threads, display)
    results = {piece: scores for piece, scores in done.items() if scores is not None}
    infer = evaluation.inferences((main, untrained))
    attacks, pairs = list_attacks(results["attacks"]), list[Pair]()
    spec, ran = run.plan.experiment.sweep, [a.name for a in results["attacks"]]
    swept = sweep(evaluation, main, ran, spec) if spec else None
    if f"round {scored_at}" in results:
        known = {s.name: s for s in attacks if s.name in by_round}
        results[f"round {scored_at}"] = replace(results[f"round {scored_at}"], leakage=known)
    attacks += list_attacks([results["active"]]) if "active" in results else []
    controls: dict[str, list[ScoredAttack]] = {}
    for name in ("untrained", "placebo"):
        if name in results:
            scored = [s for s in results[name] if s.name not in lost]
            if {"active", f"active-{name}"} <= results.keys():
                scored.append(results[f"active-{name}"])
            controls[name] = list_attacks(scored)
    if trajectories and {"active", "active-zero"} <= results.keys():
        both = zip(
            list_attacks([results["active"]]), list_attacks([results["active-zero"]]), strict=True
        )
        pairs += [Pair(act, zero, trajectories.attack.over) for act, zero in both]
    return {
        "attacks": attacks,
        "controls": controls,
        "notes": placebo_note([n for n in names if n not in on_models], run, "placebo" in results),
        "pairs": pairs,
        "not_run": not_run | lost,
        "sets": sets,
        "sweep": swept,
        "inferences": infer,
        "pixels": results["pixels"],
        "curves": trajectories.curves() if trajectories and pairs else None,
        "rounds": [
            replace(i, leakage={n: s for n, s in i.leakage.items() if n not in lost})
            for i in (results.get(f"round {info.round}", info) for info in run.rounds)
        ],
    }


def placebo_note(names: Sequence[str], run: FederationResult, scored: bool) -> list[str]:
    """Why some attacks have no untrained control, and which control they have.

    Args:
        names: attacks without an untrained control.
        run: the federation, its rounds over.
        scored: whether the placebo branch is scored.

    Returns:
        A sentence for the report.
    """
    own = "their control is the placebo" if scored else "the placebo was not finished"
    if not run.cast.placebo_parts:
        own = "no control: --federation.placebo true runs one, the placebo"
    why = "not tried untrained, as updates and changes between rounds come with training"
    return [f"{', '.join(names)}: {why}; {own}."] if names else []


def run_side_by_side(
    work: Mapping[str, Callable[[], Any]], threads: int, display: Display | None = None
) -> dict[str, Any]:
    """Run independent work in as many threads as there are cores for.

    Args:
        work: what to compute, by name.
        threads: threads for one process.
        display: shows which pieces run; None shows nothing.

    Returns:
        The results, by name.

    Raises:
        BaseException: what a piece raised, once those that run beside it have ended.
    """
    if display is not None:
        display.begin_scoring(len(work))

    def work_on(name: str, call: Callable[[], Any]) -> Any:
        if display is None:
            return call()
        display.scoring(name, False)
        try:
            return call()
        finally:
            display.scoring(name, True)

    workers = max(1, count_cores() // threads)
    pool = ThreadPoolExecutor(workers, "score", torch.set_num_threads, (threads,))
    wait = True  # what still runs would write beside a run that goes on in this process
    try:
        running = {name: pool.submit(work_on, name, call) for name, call in work.items()}
        return {name: future.result() for name, future in running.items()}
    except KeyboardInterrupt:  # a second Ctrl-C waits for nothing
        wait = False
        raise
    finally:
        pool.shutdown(wait=wait, cancel_futures=True)


def add_leakage(evaluation: Evaluation, info: RoundInfo, names: list[str]) -> RoundInfo:
    """Add to the row of a round the scores of attacks, and of `internal` by layer."""
    model = RoundModel(evaluation.run.recording.load("main", info.round))
    layered = "internal" in evaluation.passive()
    return replace(info, **evaluation.leakage_of_round(model, info.round, names, layered))


def client_rows(
    run: FederationResult, labels: IntArray, classes: int, scored_at: int = 0
) -> list[ClientInfo]:
    """Role, images and privacy statement of each client.

    Args:
        run: the federation, its rounds over.
        labels: int64 (N,), the class of each image.
        classes: number of classes.
        scored_at: round of the scored model.

    Returns:
        One row for each client.

    Raises:
        InputError: a privacy statement whose account lacks rounds that were trained.
    """
    client_context, rows, last = run.client_context, [], run.last_rounds(scored_at)
    trained = run.aggregation.trained if run.aggregation else (0,) * len(client_context.roles)
    for client, role in enumerate(client_context.roles):
        own, defence = client_context.parts["members"][client], None
        if client in run.plan.experiment.defended:
            local_state = run.store.load("main", client)
            memory = local_state.memory.get("defense", {}) if local_state else {}
            defence = client_context.build_defenses(client).statement(memory)
            # A state is kept of trained rounds alone, and a node's is all that it knows of them.
            rounds = max(trained[client], int(local_state is not None))
            defence = defence and require_account(defence, rounds)
        counts = np.bincount(labels[own], minlength=classes).tolist()
        at = None if last is None else int(last[client])
        rows.append(ClientInfo(client, len(own), role, defence, tuple(counts), at))
    return rows
