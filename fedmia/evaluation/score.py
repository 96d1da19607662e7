"""Score some rounds: what an attacker finds in a run, an encoder, a recording or vectors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from fedmia.attacks.base import ActiveAttack, DatasetAttack, Known
from fedmia.evaluation.budgets import allot, sweep
from fedmia.evaluation.steps.controls import pixels
from fedmia.evaluation.suite import RELEASED, Progress, Suite
from fedmia.recording.branches import BRANCHES, EARLIER, LAST, MAIN, UNTRAINED
from fedmia.records import DatasetInferenceResults, Pair, ScoredAttack, list_attacks
from fedmia.records.note import Note
from fedmia.records.rows import RoundRow
from fedmia.rounds.base import TargetModel
from fedmia.runtime.cores import count_cores
from fedmia.shadows.train import CUT

# Branches that are attacked as the one under test; of these, whose models are their own.
ATTACKED = [name for name, one in BRANCHES.items() if one.armed and name not in (MAIN, UNTRAINED)]
OWN = [name for name in ATTACKED if not BRANCHES[name].parent]


def score(
    suite: Suite,
    names: Sequence[str],
    history: Sequence[RoundRow] = (),
    *,
    controls: bool = True,
    by_sets: bool = False,
    every_known: Known | None = None,
    say: Callable[[str], None] = lambda line: None,
    threads: int | None = None,
) -> dict[str, Any]:
    """Score attacks, controls, pairs and sets, and the leakage by round.

    Args:
        suite: the attacks, the models and the images.
        names: of the attacks that are able to run, in the order of the report.
        history: the rounds; their models are scored where they are to be.
        controls: whether attacks run on other models than the one under test: the untrained one,
            the placebo's and those of the rounds.
        by_sets: whether sets of images are judged, too.
        every_known: images that could be known, from which the classifier on pixels learns; None:
            those that the attacker knows.
        say: prints one line.
        threads: of a piece of work, as many of which run side by side as there are cores for;
            None: one after the other, with all threads.

    Returns:
        Fields of `Evaluation`.
    """
    kinds = {name: type(suite.build(name)) for name in names}
    single = [n for n in names if not issubclass(kinds[n], ActiveAttack | DatasetAttack)]
    survives, rounds, lost = suite.failures.attempt, suite.rounds, suite.failures.reasons
    single = [n for n in single if survives("main", n, partial(allot, suite, suite.main, n))]
    act = suite.act
    if act is not None and (why := act.unscored()):
        lost[act.name], act = why, None
    sets = suite.scorer.sets if by_sets else None
    work: dict[str, Callable[[], Any]] = {
        "attacks": partial(suite.score_attacks, suite.main, single, title=RELEASED, sets=sets)
    }
    if controls:
        work[UNTRAINED] = partial(_score_untrained, suite, single)
    for name in (EARLIER, LAST) if controls else ():
        for round in rounds.models(name):
            work[name] = partial(_score_beside, suite, single, TargetModel(name, round))
    for name in OWN if controls else ():
        if rounds.round in rounds.models(name):
            control = TargetModel(name, rounds.round)
            work[name] = partial(
                suite.score_attacks, control, single, name, title="", threshold=False
            )
    if act is not None:
        work |= {p: partial(suite.attempt, p, act.name, call) for p, call in act.work().items()}
    by_round = [n for n in single if kinds[n].by_round]
    for round in (row.round for row in history if controls):
        if round in rounds.scored:
            again = [] if round == rounds.round else by_round
            layers, alone = "internal" in single, threads is None
            work[f"round {round}"] = partial(score_round, suite, round, again, layers, alone)
    if rounds.stored is None and len((every_known or suite.scorer.known).members):
        work["pixels"] = partial(pixels, suite.scorer.with_known(every_known))
    done = run_side_by_side(work, threads, suite.progress)
    results = {piece: scores for piece, scores in done.items() if scores is not None}
    inferences = infer(suite, [n for n in names if issubclass(kinds[n], DatasetAttack)])
    scored = {one.name: one for one in results["attacks"]}
    if (last := f"round {rounds.round}") in results:
        results[last]["leakage"] = {name: scored[name] for name in by_round if name in scored}
    swept = suite.settings.sweep
    budgets = sweep(suite, suite.main, [*scored], swept, say) if swept else []
    if "active" in results:
        scored[results["active"].name] = results["active"]
    beside = {UNTRAINED: list[ScoredAttack]()}
    for name in (UNTRAINED, *ATTACKED):
        if results.keys() & {name, f"active-{name}"}:
            beside[name] = [one for one in results.get(name, ()) if one.name not in lost]
            if {"active", f"active-{name}"} <= results.keys():
                beside[name].append(results[f"active-{name}"])
    pairs = list[Pair]()
    if act is not None and {"active", "active-zero"} <= results.keys():
        both = (list_attacks([results[piece]]) for piece in ("active", "active-zero"))
        pairs = [Pair(one, zero, act.over) for one, zero in zip(*both, strict=True)]
    by_number = {row.round: results.get(f"round {row.round}", {}) for row in history}
    return {
        "attacks": list_attacks(scored[name] for name in names if name in scored),
        "controls": {name: list_attacks(rows) for name, rows in beside.items()},
        "pairs": pairs,
        "not_run": lost,
        "sets": sets,
        "sweep": budgets,
        "inferences": inferences,
        "pixels": results.get("pixels"),
        "curves": act.curves() if act and pairs else None,
        "rounds": [replace(row, knn=by_number[row.round].get("knn", row.knn)) for row in history],
        "leakage": {
            round: {name: one for name, one in fields["leakage"].items() if name not in lost}
            for round, fields in by_number.items()
            if "leakage" in fields
        },
        "layers": {r: one["layers"] for r, one in by_number.items() if "layers" in one},
    }


def _score_untrained(suite: Suite, names: Sequence[str]) -> list[ScoredAttack]:
    """The attacks on the untrained control, where there is one; those that failed do not run."""
    again = suite.controlled([n for n in names if n not in suite.failures.reasons])
    missing = suite.no_control_reason is not None if again else True
    suite.progress.again(0 if missing else len(again))
    if missing:
        return []
    return suite.score_attacks(suite.untrained, again, UNTRAINED, title=UNTRAINED, threshold=False)


def _score_beside(suite: Suite, names: Sequence[str], control: TargetModel) -> list[ScoredAttack]:
    """The attacks on the model of another round, as far as they run on one model alone."""
    again = suite.controlled([n for n in names if n not in suite.failures.reasons])
    return suite.score_attacks(control, again, control.branch, threshold=False)


def score_round(
    suite: Suite, round: int, names: Sequence[str], layers: bool, alone: bool
) -> dict[str, Any]:
    """The scores of attacks on the model of a round, those of `internal` by layer, and its kNN.

    Args:
        suite: the attacks.
        round: its number.
        names: of the attacks.
        layers: whether `internal` is run.
        alone: whether nothing runs beside it, so that rows of the model under test may be shared.

    Returns:
        `leakage`, `layers` and, where it is probed, `knn`; nothing where the user asked to stop.
    """
    if suite.progress.stopped():
        return {}
    shared = alone and round == suite.main.round
    target = suite.main if shared else TargetModel(MAIN, round)
    fields = suite.leakage_of_round(target, names, layers=layers)
    if suite.probe is not None:
        fields["knn"] = suite.probe(target)["knn"].value
    return fields


def infer(suite: Suite, names: Sequence[str]) -> list[DatasetInferenceResults]:
    """What attacks on data sets say of each client's scored members.

    Args:
        suite: the attacks.
        names: of those on data sets.

    Returns:
        The answers of those that did not fail.
    """
    answers = list[DatasetInferenceResults]()
    for name in names:
        if suite.progress.stopped():
            suite.failures.reasons[name] = CUT
            continue
        suite.progress.step(RELEASED, name, False)
        answer = suite.attempt("inferences", name, partial(suite.infer, name))
        answers += [] if answer is None else [answer]
        suite.progress.step(RELEASED, name, True)
    return answers


def explain_uncontrolled(suite: Suite, names: Sequence[str], control: str) -> list[Note]:
    """Why some attacks have no untrained control, and which control they have.

    Args:
        suite: the attacks.
        names: of those that have scores.
        control: that they have, as the note `not-tried-untrained` takes it.

    Returns:
        A note for the report; none where all have one.
    """
    trained = [name for name in names if suite.build(name).reads_training()]
    note = Note("not-tried-untrained", {"attacks": trained, "control": control})
    return [note] if trained else []


def run_side_by_side(
    work: Mapping[str, Callable[[], Any]], threads: int | None, progress: Progress
) -> dict[str, Any]:
    """Run independent work in as many threads as there are cores for.

    Args:
        work: what to compute, by name.
        threads: threads for one piece; None: one after the other, in this thread.
        progress: hears of each piece.

    Returns:
        The results, by name.

    Raises:
        BaseException: what a piece raised, once those that run beside it have ended.
    """
    progress.begin(len(work))

    def work_on(name: str, call: Callable[[], Any]) -> Any:
        progress.piece(name, False)
        try:
            return call()
        finally:
            progress.piece(name, True)

    if threads is None:
        return {name: work_on(name, call) for name, call in work.items()}
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
