"""`fedmia simulate --plan`: a short federation on all images, scored on few of them."""

from __future__ import annotations

import tempfile
import time
from collections import defaultdict
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np

from fedmia.cli.command import Invocation
from fedmia.data.cast import SCORED
from fedmia.evaluation.outlook import (
    Outlook,
    conclude,
    of_attacks,
    pick,
    refuse,
)
from fedmia.evaluation.run import score_run
from fedmia.federation.outlook import describe_start
from fedmia.federation.plan import Plan, forecasts, make_plan
from fedmia.federation.result import TrainedRounds
from fedmia.federation.schedule import Schedule
from fedmia.federation.train import train
from fedmia.pilot_memory import foresee_memory
from fedmia.recording.branches import MAIN, PLACEBO, UNTRAINED
from fedmia.records import Evaluation, ScoredAttack
from fedmia.report.build import build_report
from fedmia.runtime.cores import count_cores
from fedmia.runtime.forecast import cost_of, paid_once
from fedmia.runtime.memory import Watermark
from fedmia.runtime.progress import Display
from fedmia.runtime.stopwatch import Stopwatch
from fedmia.settings.commands.experiment import Experiment
from fedmia.settings.errors import InputError
from strategies.failure_policy import FederationError

CLEAN, ATTACKED, EPOCHS = 2, 2, 2  # rounds of each kind in a pilot, and epochs of pre-training


class _Clock(Display):
    """Silent; notes the seconds of each round."""

    def __init__(self) -> None:
        super().__init__(0, True, self._round)
        self.last = time.perf_counter()
        self.rounds: dict[tuple[str, int], float] = {}

    def _round(self, branch: str, round: int, loss: Any, knn: Any, seconds: float) -> None:
        now = time.perf_counter()
        self.rounds[branch, round], self.last = now - self.last, now


def plan_run(invocation: Invocation, watch: Stopwatch, stop: Event) -> Outlook:
    """What a run would do, by a short one in a temporary folder.

    Args:
        invocation: what the user asked for; its settings are an `Experiment`.
        watch: timed the command so far.
        stop: set when the user interrupts.

    Returns:
        The outlook.

    Raises:
        InputError: bad input, or a run that cannot be planned, such as one whose clients fail.
        KeyboardInterrupt: the user ended it.
    """
    experiment: Experiment = invocation.settings
    refuse(experiment, "sweep")
    memory = Watermark()
    with watch.part("data"):
        plan = make_plan(experiment)
    short, cast = shorten(experiment), plan.cast
    # Rounds of the placebo take as long as those of the federation.
    alone = replace(plan, experiment=short, cast=replace(cast, placebo_parts=()))
    clock = _Clock()
    with tempfile.TemporaryDirectory(prefix="fedmia-") as folder, closing(memory):
        memory.enter("training")
        try:
            result = train(alone, Path(folder), None, stop, watch, clock)
        except FederationError as error:
            raise InputError(f"--plan: the first rounds failed: {error}") from None
        if stop.is_set():
            raise KeyboardInterrupt
        tail = time.perf_counter() - clock.last
        at = {role: pick(len(cast.ids(role))) for role in SCORED}
        few = replace(result.plan, cast=result.plan.cast.only(at))
        extend_accounts(result, experiment.federation.rounds)
        timer = Stopwatch(time.perf_counter())
        memory.enter("attacks")
        pilot = score_run(replace(result, plan=few), timer, controls=False)
        memory.enter("report")
        build_report(pilot)
        memory.enter("the plan")
        takes = foresee_memory(memory, plan, result, invocation.out is not None)
        attacks = [*pilot.attacks, *ascent(result, experiment, *map(len, at.values()))]
    took = timer.timing()
    seconds = {
        "train": all_rounds(clock, experiment, short, tail),
        "attacks": all_attacks(pilot, took["attacks"], plan),
        "probes": took["probes"],
    }
    row: Outlook = {
        "lines": [*describe_start(plan), *forecasts(plan)],
        "images": {role: count for role, count in cast.counts().items() if count},
        "memory": takes,
    }
    controls = {PLACEBO if cast.placebo_parts else UNTRAINED: attacks}
    pilot = replace(pilot, attacks=attacks, controls=controls)
    return conclude(invocation, watch, pilot, seconds, **row)


def shorten(experiment: Experiment) -> Experiment:
    """The experiment with few rounds of each kind, and without its placebo."""
    attacked = min(ATTACKED, experiment.attack_rounds)
    rounds = attacked + min(CLEAN, experiment.federation.rounds - experiment.attack_rounds)
    short = replace(
        experiment.federation, rounds=rounds, attack_rounds=attacked or None, snapshots=1,
        placebo=False,
    )  # fmt: skip
    pretrain = replace(experiment.pretrain, epochs=min(EPOCHS, experiment.pretrain.epochs or 0))
    return replace(experiment, federation=short, pretrain=pretrain)


def all_rounds(clock: _Clock, whole: Experiment, short: Experiment, tail: float) -> float:
    """Seconds of the rounds of all branches, of pre-training, and of the climb after them.

    Args:
        clock: of the pilot.
        whole, short: settings of the run and of the pilot.
        tail: seconds of the climb of the pilot.

    Returns:
        The seconds.
    """
    by_kind, ran = defaultdict[tuple[str, bool], list[float]](list), Schedule(short).clean
    for (branch, round), seconds in clock.rounds.items():
        by_kind[branch, round > ran].append(seconds)
    of_pilot = {branch for branch, _ in by_kind}  # others take as long as the federation
    firsts = Schedule(whole).branches(whole.has_placebo).items()
    beside = {name: first for name, first in firsts if name not in of_pilot}
    total = cost_of(whole.attack_rounds, tail, max(short.attack_rounds, 1))
    for (branch, attacked), (first, *others) in by_kind.items():
        later = sum(others) or first, len(others) or 1
        once = paid_once(first, 1, *later)
        count = whole.attack_rounds if attacked else Schedule(whole).clean
        alike = sum(attacked or not first for first in beside.values()) if branch == MAIN else 0
        total += cost_of(count, *later, once) * (1 + alike)
        if short.pretrain.epochs and (branch, attacked) == (MAIN, False):
            # What its first round takes more than the second is pre-training, or done once.
            total += cost_of(whole.pretrain.epochs or 1, once, short.pretrain.epochs) - once
    return total


def all_attacks(pilot: Evaluation, took: float, plan: Plan) -> float:
    """Seconds of the scoring: of each model in turn, as many side by side as there are cores for.

    Args:
        pilot: scores of one model.
        took: seconds of the scoring of the pilot.
        plan: of the run.

    Returns:
        The seconds.
    """
    whole, cast = plan.experiment, plan.cast
    controls = [UNTRAINED, *[PLACEBO] * bool(cast.placebo_parts)]
    scored = sum(len(cast.ids(role)) for role in SCORED)
    rounds = len(Schedule(whole).evaluated()) - 2
    workers = max(1, count_cores() // whole.machine.threads_per_client)
    return of_attacks(pilot, took, whole.attacks, scored, controls, rounds, workers)


def ascent(
    result: TrainedRounds, whole: Experiment, members: int, others: int
) -> list[ScoredAttack]:
    """Rows of the active attack, without scores: it reads each model that it receives.

    Args:
        result: of the pilot.
        whole: settings of the run.
        members, others: how many are scored in the pilot.

    Returns:
        A row for each of its readings with its queries; none without an active attack.
    """
    notes, attack = result.notes, result.client_setup.attack
    if notes is None or attack is None:
        return []
    short = result.plan.experiment

    def reads(attacked: int) -> int:
        return attacked + 1 + (attacked if attack.reads_uploads() else 1)

    queries = notes.queries(MAIN) * reads(whole.attack_rounds) // reads(short.attack_rounds)
    if attack.round_size is not None:  # it reads its batches, in one round
        queries = notes.queries(MAIN, "batches")
    name, m, n = str(whole.active_attack), np.zeros(members), np.zeros(others)
    one = ScoredAttack(name, "", "white_box", "client", m, n, queries=queries)
    return [one, *(replace(one, name=f"{name}-{more}") for more in attack.other_readings())]


def extend_accounts(result: TrainedRounds, rounds: int) -> None:
    """Let the accounts of the clients' defences go on as in the pilot, so that its report states
    what is promised after all rounds.

    Args:
        result: of the pilot; the stored states of its clients change.
        rounds: of the whole run.
    """
    more = rounds / len(result.rounds)
    for client in result.plan.experiment.defended:
        if (state := result.store.load(MAIN, client)) is None:
            continue
        for name, defense in result.client_setup.build_defenses(client).layers:
            own = state.memory.get("defense", {}).get(name, {})
            # A budget for the whole run was dealt over the pilot's rounds.
            if getattr(defense, "epsilon", None) is None and "rounds" in own:
                steps = own.get("history", [])
                own["rounds"] = round(own["rounds"] * more)
                own["history"] = [[*one[:-1], round(one[-1] * more)] for one in steps]
        result.store.save(MAIN, client, state)
