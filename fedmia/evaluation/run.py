"""Score a run of fedmia's own: its rounds, its cast and its attacker, as they were planned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from clients.client_setup import ClientSetup
from fedmia.attacks.base import ActiveAttack, Known
from fedmia.data.cast import KNOWN, SCORED, Cast
from fedmia.data.images import IntArray
from fedmia.data.sets import ImageSets, form_sets
from fedmia.defenses.stack import require_account
from fedmia.evaluation.active import ActiveScorer
from fedmia.evaluation.score import explain_uncontrolled, score
from fedmia.evaluation.steps.assemble import assemble
from fedmia.evaluation.steps.failures import Failures
from fedmia.evaluation.suite import Progress, Suite
from fedmia.federation.attacker import make_attacker
from fedmia.federation.plan import Plan
from fedmia.federation.result import TrainedRounds
from fedmia.federation.utility import Probes
from fedmia.partitions.base import Partition
from fedmia.partitions.iid import IID
from fedmia.recording.branches import MAIN, PLACEBO
from fedmia.records import ClientInfo, Evaluation
from fedmia.records.defence_rows import DefenceRow
from fedmia.records.note import Note
from fedmia.rounds.base import Rounds
from fedmia.runtime.progress import Display
from fedmia.runtime.stopwatch import Stopwatch
from fedmia.settings import registry
from fedmia.settings.choices import PluginChoice
from fedmia.settings.errors import InputError
from fedmia.storage.archive import Archive
from fedmia.storage.snapshot import ClientState
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
    rounds: Rounds,
    plan: Plan,
    setup: ClientSetup,
    cast: Cast,
    attacks: Mapping[str, PluginChoice],
    archive: Archive,
    failures: Failures,
) -> Suite:
    """The attacks of a run's attacker on models of it.

    Args:
        rounds: the models.
        plan: settings of the run, and all its images.
        setup: what its clients share.
        cast: the images in their roles, without those of clients that were dropped.
        attacks: those to run, by name.
        archive: keeps what is scored, and has what was scored before.
        failures: takes what attacks raise.

    Returns:
        The suite.
    """
    experiment, clients = plan.experiment, cast.owner("scored_members")
    deal: Partition = experiment.partition.plugin("partition")
    if deal.trains_on_all():  # non-members belong to none, so they pose at random
        deal = IID()

    def refuse(name: str) -> str | None:
        keeps = registry.load("attack", name).needs.row.keeps
        models = rounds.models()
        recorded = (
            rounds.updates() if keeps == "updates" else [r for r in models if r - 1 in models]
        )
        if keeps and not any(r <= (rounds.round or 0) for r in recorded):
            return f"no round whose {keeps} are kept was finished"
        return None

    known = Known(*map(cast.pixels, KNOWN), subjects=cast.subject_sides("known"))
    attacker = make_attacker(setup, known)
    suite = Suite(
        rounds,
        cast,
        replace(attacker, budget=experiment.query_budget),
        experiment,
        attacks,
        np.zeros(0, np.int64) if clients is None else clients,
        deal,
        archive,
        failures,
        refuse=refuse,
        formed=formed_sets(plan.cast, cast, experiment.seed),
    )
    if rounds.notes is not None and rounds.notes.about["attack"] in suite.attacks:
        suite.act = ActiveScorer(suite, rounds.notes, by_sets=cast.subjects is None)
    return suite


def formed_sets(planned: Cast, cast: Cast, seed: int) -> ImageSets:
    """The sets formed before the first round, without those of clients that were dropped.

    Args:
        planned: the images of all clients.
        cast: those of the clients that stayed.
        seed: of the run.

    Returns:
        The sets, as places among the scored images of `cast`.
    """
    members, others = map(planned.ids, SCORED)
    ours, theirs = form_sets(len(members), len(others), seed)
    stayed = np.isin(members, cast.ids("scored_members"))
    whole = ours[stayed[ours].all(axis=1)]
    return (np.cumsum(stayed) - 1)[whole], theirs


def score_run(
    run: TrainedRounds,
    watch: Stopwatch,
    display: Display | None = None,
    controls: bool = True,
) -> Evaluation:
    """Score the finished rounds of a run.

    Args:
        run: what it left.
        watch: notes the seconds of each part.
        display: progress on the terminal; None shows nothing.
        controls: whether attacks run on other models than the one under test: the untrained one,
            the placebo's and those of the rounds. Without them an active attack is not scored.

    Returns:
        All that the report shows.

    Raises:
        FederationError: the model's answers are not finite.
    """
    plan, recording, cast = run.plan, run.recording, run.cast
    experiment, data = plan.experiment, cast.data
    probes = Probes(run.client_setup, plan.cast)
    with watch.part("probes"):
        scored_at, end = run.round, recording.rounds(MAIN)[-1]
        model = recording.load(MAIN, scored_at)[0]
        utility = probes.both(model)
        after = (probes.both(recording.load(MAIN, end)[0]), end) if end > scored_at else None
        health = probes.health(model, {r.round: r.loss for r in run.rounds}.get(scored_at))
        untrained = probes.both(recording.untrained())
    failures = Failures((InputError, FederationError))
    choices, setup = experiment.attack_choices, run.client_setup
    suite = suite_of_run(run, plan, setup, cast, choices, run.archive, failures)
    suite.act = suite.act if controls else None
    if display is not None:
        suite.progress = _Pieces(display)
    active = [] if suite.act is None else [suite.act.name]
    names = suite.able([n for n in choices if n not in suite.of_kind(ActiveAttack)] + active)
    with watch.part("attacks"):
        results = score(
            suite, names, run.rounds, controls=controls, by_sets=cast.subjects is None,
            threads=setup.threads,
        )  # fmt: skip
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
        subject_names=cast.subject_names,
        subjects=cast.subject_sides("scored"),
        groups=cast.group_sides(),
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
        picture=cast.picture if experiment.show_images else None,
        faults=run.faults,
        notes=notes,
        split=shape | cast.counts(),
        **results,
    )


def placebo_note(suite: Suite, run: TrainedRounds) -> list[Note]:
    """Why some attacks have no untrained control, and which control they have.

    Args:
        suite: the attacks, scored.
        run: its rounds over.

    Returns:
        A note for the report; none where all have one.
    """
    own = "placebo"
    if suite.main.round not in run.models(PLACEBO):
        own = "unfinished"
    if not run.cast.placebo_parts:
        own = "missing"
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
    setup, rows, last = run.client_setup, [], run.last_rounds(scored_at)
    trained = run.trained or (0,) * len(setup.roles)
    for client, role in enumerate(setup.roles):
        own, defended = setup.parts["members"][client], client in setup.experiment.defended
        local_state = run.store.load(MAIN, client) if defended else None
        counts = np.bincount(labels[own], minlength=classes).tolist()
        at = None if last is None else int(last[client])
        defence = statement(setup, client, local_state, trained[client])
        rows.append(ClientInfo(client, len(own), role, defence, tuple(counts), at))
    return rows


def statement(
    setup: ClientSetup, client: int, local_state: ClientState | None, trained: int = 0
) -> DefenceRow | None:
    """What a client's defences promise, by the account that it keeps.

    Args:
        setup: what all clients of the run share.
        client: partition id.
        local_state: what the client keeps; None before its first round.
        trained: rounds whose updates the server took.

    Returns:
        The statement; None of a client without defences.

    Raises:
        InputError: the account lacks rounds that were trained.
    """
    if client not in setup.experiment.defended:
        return None
    memory = local_state.memory.get("defense", {}) if local_state else {}
    defence = setup.build_defenses(client).statement(memory)
    # A state is kept of trained rounds alone, and a node's is all that it knows of them.
    return defence and require_account(defence, max(trained, int(local_state is not None)))
