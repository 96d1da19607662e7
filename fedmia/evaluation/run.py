"""Score a run of fedmia's own: its rounds, its cast and its attacker, as they were planned."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedmia.attacks.base import ActiveAttack
from fedmia.config.choices import PluginChoice
from fedmia.data.images import IntArray
from fedmia.defenses.stack import require_account
from fedmia.evaluation.score import explain_uncontrolled, score
from fedmia.evaluation.steps.assemble import assemble
from fedmia.evaluation.steps.failures import Failures
from fedmia.evaluation.suite import PLACEBO, Progress, Suite
from fedmia.evaluation.trajectories import Trajectories
from fedmia.federation.result import TrainedRounds
from fedmia.federation.utility import Probes
from fedmia.options import registry
from fedmia.options.errors import InputError
from fedmia.partitions.base import Partition
from fedmia.partitions.iid import IID
from fedmia.recording.format import MAIN
from fedmia.records import ClientInfo, RunScores
from fedmia.runtime.progress import Display
from fedmia.runtime.stopwatch import Stopwatch
from strategies.failure_policy import FederationError


class _Pieces(Progress):
    """Shows which pieces of the scoring run."""

    def __init__(self, display: Display) -> None:
        self.display = display

    def begin(self, pieces: int) -> None:
        self.display.begin_scoring(pieces)

    def piece(self, name: str, done: bool) -> None:
        self.display.scoring(name, done)


def suite_of_run(
    run: TrainedRounds,
    attacks: Mapping[str, PluginChoice] | None = None,
    failures: Failures | None = None,
) -> Suite:
    """The attacks of a run on what it left.

    Args:
        run: its rounds over.
        attacks: those to run, by name; None: the run's own.
        failures: takes what attacks raise; None: all.

    Returns:
        The suite.
    """
    plan, cast = run.plan, run.cast
    clients = cast.owner("scored_members")
    deal: Partition = plan.experiment.partition.plugin("partition")
    if deal.trains_on_all():  # non-members belong to none, so they pose at random
        deal = IID()

    def refuse(name: str) -> str | None:
        keeps = registry.load("attack", name).needs.row.keeps
        models = run.models()
        rounds = run.updates() if keeps == "updates" else [r for r in models if r - 1 in models]
        if keeps and not any(r <= run.round for r in rounds):
            return f"no round whose {keeps} are kept was finished"
        return None

    suite = Suite(
        run,
        cast,
        run.attacker,
        plan.experiment.attack_choices if attacks is None else attacks,
        np.zeros(0, np.int64) if clients is None else clients,
        deal,
        run.archive,
        failures or Failures((Exception,)),
        refuse=refuse,
        formed=run.sets(),
    )
    active = suite.of_kind(ActiveAttack)
    if active and run.readings:
        suite.act = Trajectories(suite, run, active[0], run.readings)
    return suite


def score_suite(
    suite: Suite, run: TrainedRounds, display: Display | None = None, controls: bool = True
) -> dict[str, Any]:
    """Score the attacks of a run.

    Args:
        suite: the attacks.
        run: its rounds over.
        display: progress on the terminal; None shows nothing.
        controls: as of `score_run`.

    Returns:
        Fields of `RunScores`.
    """
    if display is not None:
        suite.progress = _Pieces(display)
    active = suite.of_kind(ActiveAttack)
    passive = [name for name in suite.attacks if name not in active]
    names = suite.able([*passive, *active * (suite.act is not None)])
    return score(
        suite,
        names,
        run.rounds,
        controls=controls,
        by_sets=True,
        swept=run.plan.experiment.sweep,
        threads=run.client_context.threads,
    )


def score_run(
    run: TrainedRounds,
    watch: Stopwatch,
    display: Display | None = None,
    controls: bool = True,
) -> RunScores:
    """Score the finished rounds of a run.

    Args:
        run: what it left.
        watch: notes the seconds of each part.
        display: progress on the terminal; None shows nothing.
        controls: whether attacks run on other models than the one under test: the untrained one,
            the placebo's and those of the rounds.

    Returns:
        All that the report shows.

    Raises:
        FederationError: the model's answers are not finite.
    """
    plan, recording, cast = run.plan, run.recording, run.cast
    experiment, data = plan.experiment, cast.data
    probes = Probes(run.client_context, plan.cast)
    with watch.part("probes"):
        scored_at, end = run.round, recording.rounds(MAIN)[-1]
        model = recording.models()[scored_at]
        utility = probes.both(model)
        after = (probes.both(recording.models()[end]), end) if end > scored_at else None
        health = probes.health(model, {r.round: r.loss for r in run.rounds}.get(scored_at))
        untrained = probes.both(recording.untrained())
    suite = suite_of_run(run, failures=Failures((InputError, FederationError)))
    with watch.part("attacks"):
        results = score_suite(suite, run, display, controls)
    notes = [*plan.notes, *suite.failures.notes(), *suite.notes]
    notes += placebo_note(suite, run)
    classes = int(data.labels.max()) + 1
    shape = {"data": data.name, "channels": data.channels, "size": data.size, "classes": classes}
    sides = cast.ids("scored_members"), cast.ids("scored_nonmembers")
    return assemble(
        experiment,
        drawn=not experiment.partition.plugin("partition").trains_on_all(),
        member_ids=sides[0],
        nonmember_ids=sides[1],
        member_client=suite.clients,
        member_labels=cast.classes("scored_members"),
        nonmember_labels=cast.classes("scored_nonmembers"),
        whose=None if cast.whose is None else cast.kinds(),
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
        failed=suite.failures.attacks,
        faults=run.faults,
        notes=notes,
        split=shape | cast.counts(),
        **results,
    )


def placebo_note(suite: Suite, run: TrainedRounds) -> list[str]:
    """Why some attacks have no untrained control, and which control they have.

    Args:
        suite: the attacks, scored.
        run: its rounds over.

    Returns:
        A sentence for the report; none where all have one.
    """
    own = "their control is the placebo"
    if suite.main.round not in run.models(PLACEBO):
        own = "the placebo was not finished"
    if not run.cast.placebo_parts:
        own = "no control: --federation.placebo true runs one, the placebo"
    return explain_uncontrolled(suite, [*suite.known], own)


def client_rows(
    run: TrainedRounds, labels: IntArray, classes: int, scored_at: int = 0
) -> list[ClientInfo]:
    """Role, images and privacy statement of each client.

    Args:
        run: its rounds over.
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
