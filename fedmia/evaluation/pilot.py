"""`fedmia simulate --plan`: a short federation on all images, scored on few of them."""

from __future__ import annotations

import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

from fedmia.config.experiment import Experiment
from fedmia.evaluation.outlook import (
    Outlook,
    extend,
    finish,
    pick,
    publish_apart,
    queries_of,
    shares_of,
    smallest_leak,
)
from fedmia.evaluation.run import score
from fedmia.federation.outlook import describe_start
from fedmia.federation.plan import Plan, forecasts
from fedmia.federation.result import FederationResult
from fedmia.federation.schedule import Schedule
from fedmia.partitions.split import Split
from fedmia.records.rows import Report
from fedmia.runtime.cores import count_cores
from fedmia.runtime.progress import Display
from fedmia.runtime.stopwatch import Stopwatch

Train = Callable[..., FederationResult]
CLEAN, ATTACKED, EPOCHS = 3, 2, 2  # rounds of each branch of a pilot, and epochs of pre-training
ROLES = "known_members", "scored_members", "known_nonmembers", "scored_nonmembers"


class _Clock(Display):
    """Silent; notes the seconds of each round and of each piece of the scoring."""

    def __init__(self, watch: Stopwatch) -> None:
        super().__init__(0, True, self._round)
        self._watch, self.last = watch, time.perf_counter()
        self.rounds: dict[tuple[str, int], float] = {}
        self.pieces: dict[str, float] = {}
        self.pretrained = 0.0

    def _round(self, branch: str, round: int, loss: Any, knn: Any, seconds: float) -> None:
        now = time.perf_counter()
        if not self.rounds:
            self.pretrained = max(self._watch.seconds["train"] - seconds, 0.0)
            self.last += self.pretrained
        self.rounds[branch, round], self.last = now - self.last, now

    def scoring(self, piece: str, finished: bool) -> None:
        self.pieces[piece] = time.perf_counter() - self.pieces.get(piece, 0.0)


def plan_run(
    plan: Plan, train: Train, out: Path | None, watch: Stopwatch, leak: float | None, stop: Event
) -> Outlook:
    """What a run would do, by a short one in a temporary folder.

    Args:
        plan: settings, images and their roles.
        train: `fedmia.federation.train.train`, as scoring trains nothing itself.
        out: folder of the run, which is not touched; None: it writes no files.
        watch: timed the command so far.
        leak: AUC of a leak of which the images needed are counted, or None.
        stop: set when the user interrupts.

    Returns:
        The outlook.

    Raises:
        FederationError: a client failed.
        KeyboardInterrupt: the user ended it.
    """
    experiment, split, spent = plan.experiment, plan.split, watch.timing()
    short, timer = shorten(experiment), Stopwatch(time.perf_counter())
    clock = _Clock(timer)
    shares = shares_of(min(len(split.known_members), len(split.known_nonmembers)))
    scored: list[tuple[Report, dict[str, float], dict[str, float]]] = []
    with tempfile.TemporaryDirectory(prefix="fedmia-") as folder:
        result = train(replace(plan, experiment=short), Path(folder), None, stop, timer, clock)
        if stop.is_set():
            raise KeyboardInterrupt
        tail = time.perf_counter() - clock.last
        for share in shares:
            watched = Stopwatch(time.perf_counter())
            pieces = _Clock(watched)
            few = replace(result.plan, split=cut(split, share))
            scores = score(replace(result, readings=None, plan=few), watched, pieces)
            report = publish_apart(scores, out, watched)
            scored.append((report, watched.timing(), pieces.pieces))
        epsilon = epsilons(result, experiment.federation.rounds)
    reports = scored[0][0], scored[1][0]
    if result.client_context.attack is not None:  # its scores are read off while the rounds pass
        others = result.client_context.attack.other_readings()
        reports[1]["family"]["intervals"] += 1 + len(others)
    walls = scored[0][1]["attacks"], scored[1][1]["attacks"]
    seconds = {
        "import": spent["import"],
        "data": spent["data"],
        "train": all_rounds(clock, experiment, short, tail),
        "attacks": extend(shares, walls) + more_rounds(scored, shares, experiment, short),
        "probes": scored[1][1]["probes"],
        "report": scored[0][1]["report"],  # of the first: matplotlib is loaded once
    }
    row: Outlook = {
        "lines": [*describe_start(plan), *forecasts(plan)],
        "images": {role: count for role, count in split.counts().items() if count},
        "epsilon": epsilon,
        "queries": queries_of(shares, reports),
    }
    sides = len(split.scored_members), len(split.scored_nonmembers)
    have = dict(zip(("members", "nonmembers"), sides, strict=True))
    return finish(row, watch, seconds, reports[1], smallest_leak(reports[1], *sides, leak, have))


def shorten(experiment: Experiment) -> Experiment:
    """The experiment with few rounds of each kind."""
    attacked = min(ATTACKED, experiment.attack_rounds)
    rounds = attacked + min(CLEAN, experiment.federation.rounds - experiment.attack_rounds)
    short = replace(
        experiment.federation, rounds=rounds, attack_rounds=attacked or None, snapshots=1
    )
    pretrain = replace(experiment.pretrain, epochs=min(EPOCHS, experiment.pretrain.epochs))
    return replace(experiment, federation=short, pretrain=pretrain, sweep=None)


def cut(split: Split, share: float) -> Split:
    """The split with a share of the images that attacks read."""
    return replace(
        split, **{n: getattr(split, n)[pick(len(getattr(split, n)), share)] for n in ROLES}
    )


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
    total = clock.pretrained * whole.pretrain.epochs / max(short.pretrain.epochs, 1)
    for (_, attacked), took in by_kind.items():
        count = whole.attack_rounds if attacked else Schedule(whole).clean
        # The first of a kind also prepares what the others use.
        rest = took[1:] or took
        total += took[0] + (count - 1) * sum(rest) / len(rest)
    return total + tail * whole.attack_rounds / max(short.attack_rounds, 1)


def more_rounds(
    scored: list[tuple[Report, dict[str, float], dict[str, float]]],
    shares: tuple[float, float], whole: Experiment, short: Experiment,
) -> float:  # fmt: skip
    """Seconds of the scored rounds that the pilot lacks, side by side.

    Args:
        scored: report, seconds by part and seconds by piece of each pilot.
        shares: of the images in each.
        whole, short: settings of the run and of the pilot.

    Returns:
        The seconds.
    """
    lacking = len(Schedule(whole).evaluated()) - len(Schedule(short).evaluated())
    each = [max((s for n, s in p.items() if n.startswith("round ")), default=0.0)
            for _, _, p in scored]  # fmt: skip
    workers = max(1, count_cores() // whole.threads_per_client)
    return max(lacking, 0) * extend(shares, (each[0], each[1])) / workers


def epsilons(result: FederationResult, rounds: int) -> list[str]:
    """What the defences of the clients promise after all rounds, by the account of a pilot.

    Args:
        result: of the pilot.
        rounds: of the whole run.

    Returns:
        A line for each set of defences: its largest epsilon.
    """
    best: dict[str, tuple[float, str]] = {}
    more = rounds / len(result.rounds)
    for client in result.plan.experiment.defended:
        state = result.store.load("main", client)
        if state is None:
            continue
        stack, memory = result.client_context.build_defenses(client), dict[str, Any]()
        for name, defense in stack.layers:
            own = dict(state.memory.get("defense", {}).get(name, {}))
            # A budget for the whole run was dealt over the pilot's rounds.
            if getattr(defense, "epsilon", None) is None and "rounds" in own:
                own["rounds"] = round(own["rounds"] * more)
                steps = own.get("history", [])
                own["history"] = [[*one[:-1], round(one[-1] * more)] for one in steps]
            memory[name] = own
        stated = stack.statement(memory)
        if stated is None:
            continue
        epsilon, line = stated.epsilon, f"{stated.name}: no epsilon is promised"
        value = float("inf") if epsilon is None or epsilon.value is None else epsilon.value
        if epsilon is not None:
            number = "infinite" if epsilon.value is None else f"{epsilon.value:.3g}"
            unit = f"delta {epsilon.delta:g} for each {epsilon.unit} ({epsilon.standing})"
            line = f"{stated.name}: epsilon {number} at {unit} after {rounds} rounds, the largest"
        if stated.name not in best or value > best[stated.name][0]:
            best[stated.name] = value, line
    return [line for _, line in best.values()]
