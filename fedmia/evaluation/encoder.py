"""An audit: an encoder that somebody brings and images of both sides, attacked and scored."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedmia.attacks.base import Known
from fedmia.data.cast import KNOWN, Cast
from fedmia.data.images import IntArray
from fedmia.encoders.describe import describe
from fedmia.evaluation.active import ActiveScorer
from fedmia.evaluation.audits.climb import attack_of_notes
from fedmia.evaluation.audits.estimate import Rehearsal, rehearse
from fedmia.evaluation.audits.federation import fields_of_rounds, refusal_reason, round_rows
from fedmia.evaluation.audits.provided_shadows import ProvidedShadows
from fedmia.evaluation.audits.resume import key, same_audit
from fedmia.evaluation.audits.runs import run_of
from fedmia.evaluation.audits.shadows import OwnShadows
from fedmia.evaluation.audits.subjects import refuse_single_images
from fedmia.evaluation.audits.utility import health, probe_images
from fedmia.evaluation.score import explain_uncontrolled, score
from fedmia.evaluation.steps.assemble import assemble
from fedmia.evaluation.steps.datasets import Partition
from fedmia.evaluation.steps.failures import Failures
from fedmia.evaluation.suite import Progress, Suite
from fedmia.partitions.iid import IID
from fedmia.recording.branches import UNTRAINED
from fedmia.records import Evaluation
from fedmia.records.note import Note
from fedmia.rounds.attacker import Attacker
from fedmia.rounds.base import EncoderRounds
from fedmia.rounds.kept import KeptRounds
from fedmia.rounds.notes import Notes
from fedmia.runtime.heartbeat import format_seconds
from fedmia.runtime.progress import AuditDisplay
from fedmia.runtime.stopwatch import Stopwatch
from fedmia.settings import registry
from fedmia.settings.choices import PluginChoice
from fedmia.settings.commands.audit import Audit
from fedmia.settings.commands.audit_attacks import expand_names
from fedmia.settings.commands.roles import QUICK, is_quick
from fedmia.settings.errors import InputError, opt, prefix_errors
from fedmia.settings.tree import to_tree
from fedmia.shadows.train import TrainingStopped
from fedmia.ssl.augment import Augment
from fedmia.storage.archive import Archive
from fedmia.storage.manifest import ANSWERS, ATTACKS, SHADOWS
from fedmia.storage.outfolder import OutFolder
from fedmia.threat import VANTAGE, BudgetError, Threat

NAMING = ("named_members", "client_ids", "by_client_members", "by_client_nonmembers")


class _Steps(Progress):
    """Shows each attack on the encoder and on its control, and each round."""

    def __init__(self, display: AuditDisplay, stopped: Callable[[], bool]) -> None:
        self.display, self._stopped = display, stopped

    def piece(self, name: str, done: bool) -> None:
        if name.startswith("round ") and not done and not self.stopped():
            self.display.line(f"attacks on the model of {name}")

    def step(self, model: str, attack: str, done: bool) -> None:
        self.display.show_step(model, attack, done)

    def again(self, attacks: int) -> None:
        self.display.ran(attacks)

    def stopped(self) -> bool:
        return self._stopped()


def suite_of_audit(
    audit: Audit, rounds: EncoderRounds, cast: Cast, device: torch.device,
    own: OwnShadows | None = None, folder: Path | None = None, augment: Augment | None = None,
) -> Suite:  # fmt: skip
    """The attacks of an audit.

    Args:
        audit: the audit's settings.
        rounds: the models under audit.
        cast: the images in their roles.
        device: where tensors are computed.
        own: the attacker's shadows; None: it has none.
        folder: of what was scored before and of what is scored now, or None.
        augment: augmentation of the attacker's views; None: the encoder's.

    Returns:
        The suite.
    """
    known = Known(*map(cast.pixels, KNOWN), subjects=cast.subject_sides("known"))
    federated, stored = isinstance(rounds, KeptRounds), rounds.stored
    vantage = VANTAGE[-1] if federated and rounds.access == "white_box" else VANTAGE[0]
    attacker = Attacker(
        threat=Threat(rounds.access, vantage),
        known=known.without_members() if audit.split.knows == "nonmembers" else known,
        seed=audit.seed,
        augment=augment or rounds.encoder.augment,
        device=device,
        precision=audit.encoder.precision,
        own=cast.own,
        labels=cast.labels,
        received=cast.received,
        budget=audit.query_budget,
        stored=stored,
    )
    deal: Partition = IID()
    clients = cast.owner("scored_members") if federated else None
    if clients is None:  # all members are one data set, or one of each subject
        subjects, deal = cast.subject("scored_members"), whole
        clients = np.zeros(len(cast.ids("scored_members")), np.int64)
        clients = clients if subjects is None else subjects
    act = rounds.notes if rounds.notes and rounds.notes.about["attack"] in audit.attacks else None
    suite = Suite(
        rounds,
        cast,
        attacker,
        audit,
        audit.attack_choices if stored is None else limit_views(audit, stored.views),
        clients,
        deal,
        Archive(folder, key(audit, rounds.encoder, cast, attacker.augment, device)),
        Failures((), (InputError, BudgetError, TrainingStopped)),
        shadows=own,
        refuse=lambda name: refusal_reason(rounds, name) or refuse_single_images(cast, name),
    )
    suite.probe = partial(probe_images, suite, cast)
    if act is not None:
        suite.attacks[act.about["attack"]] = attack_of_notes(act, audit)
        suite.act = ActiveScorer(suite, act)
    if audit.split.knows == "nonmembers":
        suite.notes.append(Note("no-known-members"))
    return suite


def examine(
    audit: Audit,
    rounds: EncoderRounds,
    cast: Cast,
    device: torch.device,
    place: OutFolder,
    display: AuditDisplay,
    watch: Stopwatch,
    stopped: Callable[[], bool],
    controls: bool = True,
) -> Evaluation:
    """Run attacks, controls and probes.

    Where no attack could run, the scores hold the reasons alone, and the folder of results is given
    up.

    Args:
        rounds: the models under audit.
        cast: the images in their roles.
        device: where tensors are computed.
        place: the folder of results.
        display: progress on the terminal.
        watch: notes the seconds of each part.
        stopped: whether the user asked to stop.
        controls: whether attacks run on the untrained control, too.

    Returns:
        All that the report shows.

    Raises:
        InputError: the folder of the results cannot be made, or members under attack are among
            the images of a shadow federation.
    """
    released = rounds.encoder
    provided = None if audit.shadow.encoders is None else ProvidedShadows(audit, cast)
    cast = cast if provided is None else provided.drop_known_images()
    cache = Path(audit.shadow.cache) if audit.shadow.cache else place.path_to(SHADOWS)
    own = OwnShadows(
        audit, released, cast, cache, device, display.line, display.epochs, stopped, provided
    )
    augment = audit_augmentation(audit, own.augment(), cast, run_of(audit) is not None)
    has_shadows = audit.shadow.count or provided is not None
    shadows, archive = own if has_shadows else None, place.path_to(ATTACKS)
    suite = suite_of_audit(audit, rounds, cast, device, shadows, archive, augment)
    suite.progress = _Steps(display, stopped)
    place.begin(to_tree(audit))
    if (remote := released.remote) is not None:
        remote.remember(place.path_to(ANSWERS))
    with display, watch.part("attacks"):
        bare = released.stored is not None or remote is not None  # no weights, so no control
        names = suite.able(audit.attacks)
        display.plan(len(names), 0 if bare else len(suite.controlled(names)))
        if display.wants_forecast or remote is not None:
            rehearsal = rehearse(suite, names)
            if rehearsal.images:
                display.line(describe_images(rehearsal, released.name, audit.encoder.rate))
            quick = [n for n in rehearsal.seconds if is_quick(registry.load("attack", n))]
            display.forecast(rehearsal.total(), rehearsal.total(quick), rehearsal.without)
        if rounds.notes is not None and suite.act is None:
            display.line(offer(rounds.notes))
        if not display.quiet and (others := other_attacks(suite, audit.attacks)):
            # An API is not asked about images for attacks that do not run.
            rest = Rehearsal({}, ()) if remote is not None else rehearse(suite, others, short=True)
            display.leave_out(others, rest.total(), rest.without)
        every = Known(*map(cast.pixels, KNOWN))  # the control is the auditor's
        results = score(
            suite, names, round_rows(rounds), controls=controls, every_known=every,
            say=display.line,
        )  # fmt: skip
        federated = fields_of_rounds(suite, cast.owners, stopped())
    ran = [name for name in names if any(one.name == name for one in results["attacks"])]
    lines = control_notes(suite, results, ran)
    for note in [*suite.notes, *lines]:
        display.note(note)
    if not ran and not results["inferences"]:
        place.give_up()
        return gather(suite, audit, cast, results)
    if not (isinstance(rounds, KeptRounds) and rounds.rostered and cast.owners is not None):
        nobody: dict[str, Any] = dict.fromkeys(NAMING)  # whom it names says nothing
        results["attacks"] = [replace(one, **nobody) for one in results["attacks"]]
    with watch.part("probes"):
        controlled = suite.no_control_reason is None
        return gather(
            suite,
            audit,
            cast,
            results,
            *notes(suite, cast, [*lines], ran, controlled, stopped()),
            utility=probe_images(suite, cast, suite.main),
            utility_untrained=probe_images(suite, cast, suite.untrained) if controlled else {},
            health=health(suite, cast),
            encoder=None if released.stored is not None else describe(released, cast.sides[0].size),
            **federated,
        )


def control_notes(suite: Suite, results: Mapping[str, Any], ran: Sequence[str]) -> list[Note]:
    """Which attacks have no control, or no scores somewhere.

    Args:
        suite: the attacks, scored.
        results: as `score` gives them.
        ran: attacks with scores.

    Returns:
        The notes.
    """
    lines, rounds = list[Note](), suite.rounds
    if ran and (missing := suite.no_control_reason) is not None:
        pixels = rounds.stored is None
        lines.append(Note("no-untrained-control", {"why": missing, "pixels": pixels}))
    if isinstance(rounds, KeptRounds):
        climbed = {one.name for one in results["controls"].get(UNTRAINED, ()) if one.under_attack}
        left = [name for name in ran if name not in climbed]
        lines += explain_uncontrolled(suite, left, "none")
    return lines + suite.failures.notes()


def offer(notes: Notes) -> str:
    """How to score an attack that took part in the rounds, where an audit does not run it."""
    name, client = notes.about["attack"], notes.about["client"]
    return f"client {client} attacked these rounds by {name}: --attacks {name} scores what it noted"


def other_attacks(suite: Suite, names: Sequence[str]) -> list[str]:
    """Attacks that could run and are not asked for, where all quick ones are."""
    left = [n for n in registry.names("attack") if n not in names]
    chosen = any(n in left for n in expand_names((QUICK,)))
    return [] if chosen else [n for n in left if _could_run(suite, n)]


def _could_run(suite: Suite, name: str) -> bool:
    try:
        return suite.check(name) is not None
    except (InputError, BudgetError):
        return False


def limit_views(audit: Audit, most: int) -> dict[str, PluginChoice]:
    """The attacks where a file has the views: those that leave their number open read all.

    Args:
        most: views of each image in the file.

    Returns:
        The attacks by name.
    """
    choices = dict(audit.attack_choices)
    for name, choice in choices.items():
        views = vars(choice.plugin("attack")).get("views", 0)
        if views > most > 1 and "views" not in choice.options:
            choices[name] = choice.with_options("attack", {**choice.options, "views": most})
    return choices


def whole(labels: IntArray, clients: int, draw: np.random.Generator) -> list[IntArray]:
    """The partition of an audit: its members are one data set, one part with all positions."""
    return [np.arange(len(labels))]


def describe_images(rehearsal: Rehearsal, name: str, rate: float | None) -> str:
    """How many images an API is to be sent, and how long that takes at the user's rate.

    Args:
        rehearsal: of the attacks.
        name: of the encoder.
        rate: most images a second; None: no limit.

    Returns:
        One line.
    """
    line = f"about {rehearsal.images:,} images are sent to {name}, each once"
    if rate is not None:
        line += (
            f", in {format_seconds(rehearsal.images / rate)} at {opt('encoder.rate', f'{rate:g}')}"
        )
    return f"{line}; {opt('views')} of an attack and {opt('split.limit')} lower the number"


def folder(audit: Audit, out: Path | None) -> OutFolder:
    """The folder of results; one that holds an audit of the same settings is continued."""
    return OutFolder(out, "another run or audit", same_audit(audit))


def gather(
    suite: Suite, audit: Audit, cast: Cast, results: Mapping[str, Any], *notes: Note,
    **measured: Any,
) -> Evaluation:  # fmt: skip
    """Put together all that the report shows.

    Args:
        suite: the audit's attacks, scored.
        cast: the images in their roles.
        results: as `score` gives them.
        notes: for the reader.
        measured: fields of `Evaluation` beside those of the attacks.

    Returns:
        All that the report shows.
    """
    assert isinstance(suite.rounds, EncoderRounds)
    released = suite.rounds.encoder
    split, config, subject = cast.counts(), to_tree(audit), f"the encoder {released.name}"
    split["known_members"] = len(suite.scorer.known.members)
    if released.stored is None:
        config["views"] = vars(suite.attacker.augment)
    else:  # the images are stand-ins, of which no view was made
        del split["channels"], split["size"]
        split["views"], subject = released.stored.views, released.name
    fields: dict[str, Any] = dict(
        drawn=False,
        subject=subject,
        member_ids=cast.ids("scored_members"),
        nonmember_ids=cast.ids("scored_nonmembers"),
        member_client=suite.clients,
        subject_names=cast.subject_names,
        subjects=cast.subject_sides("scored"),
        groups=cast.group_sides(),
        member_labels=cast.classes("scored_members"),
        nonmember_labels=cast.classes("scored_nonmembers"),
        round=released.weights.round,
        failed=suite.failures.attacks,
        picture=cast.picture if audit.show_images else None,
        notes=notes,
        split={"encoder": released.name, "access": released.access} | split,
        config=config,
        timing={"by_attack": {a.name: a.seconds for a in results["attacks"]}},
    )
    return assemble(audit, **{**results, **fields, **measured})


def notes(
    suite: Suite, cast: Cast, beside: Sequence[Note], ran: Sequence[str], controlled: bool,
    interrupted: bool,
) -> list[Note]:  # fmt: skip
    """Notes for the reader of the report.

    Args:
        suite: the audit's attacks, scored.
        cast: the images in their roles.
        beside: on controls.
        ran: attacks with scores.
        controlled: whether the encoder has an untrained control.
        interrupted: whether the user stopped the audit.

    Returns:
        The notes.
    """
    assert isinstance(suite.rounds, EncoderRounds)
    released = suite.rounds.encoder
    lines = [*released.notes, *cast.notes, *suite.notes, *beside]
    if suite.shadows and any(suite.build(name).asks_shadows() for name in ran):
        lines += suite.shadows.notes()
    if controlled:
        lines.append(Note("untrained-control", {"how": released.untrained_how}))
    if interrupted:
        lines.append(Note("interrupted"))
    return lines


def audit_augmentation(audit: Audit, augment: Augment, audit_split: Cast, of_run: bool) -> Augment:
    """The attacker's views: the encoder's as far as they suit the images, then --augment.

    Args:
        augment: the augmentation that the encoder was trained with, or less where it is not known.
        audit_split: the images in their roles.
        of_run: whether the encoder is of a federated run.

    Returns:
        The augmentation of the attacker's views.
    """
    if not of_run:
        v = audit_split.views
        augment = replace(
            augment,
            crop_min=max(v.crop_min, augment.crop_min),
            flip=min(v.flip, augment.flip),
            brightness=augment.brightness * v.jitter,
            contrast=augment.contrast * v.jitter,
            saturation=augment.saturation * v.jitter,
            hue=min(augment.hue * v.jitter, 0.5),
        )
    with prefix_errors("", "augment"):
        return replace(augment, **audit.augment)
