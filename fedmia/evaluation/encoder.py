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
from fedmia.config.audit import Audit
from fedmia.config.audit_attacks import expand_names
from fedmia.config.compatibility import check_gpu
from fedmia.config.roles import QUICK, is_quick
from fedmia.config.tree import to_tree
from fedmia.data.base import Views
from fedmia.data.cast import KNOWN, SCORED, Cast
from fedmia.data.images import CHANNELS, IntArray
from fedmia.encoders.base import LoadedEncoder, LoadOptions, load
from fedmia.encoders.describe import describe, probe_encoder
from fedmia.encoders.memory import InMemory, load_module
from fedmia.encoders.vectors import load_vectors, read_vectors
from fedmia.evaluation.audits.climb import ClimbNotes, read_climb
from fedmia.evaluation.audits.climbed import ClimbScores
from fedmia.evaluation.audits.estimate import Rehearsal, rehearse
from fedmia.evaluation.audits.federation import (
    fields_of_rounds,
    load_rounds,
    read_rounds,
    refuse,
    round_infos,
)
from fedmia.evaluation.audits.images import deal, deal_sets
from fedmia.evaluation.audits.owners import check_owners
from fedmia.evaluation.audits.provided_shadows import ProvidedShadows
from fedmia.evaluation.audits.resume import key, same_audit
from fedmia.evaluation.audits.runs import run_of, split_of_run, trust_setting
from fedmia.evaluation.audits.shadows import OwnShadows
from fedmia.evaluation.score import explain_uncontrolled, score
from fedmia.evaluation.steps.assemble import assemble
from fedmia.evaluation.steps.datasets import Partition
from fedmia.evaluation.steps.failures import Failures
from fedmia.evaluation.suite import Progress, Suite
from fedmia.options import registry
from fedmia.options.errors import InputError, opt
from fedmia.options.seeding import rng
from fedmia.partitions.iid import IID
from fedmia.probes.utility import NO_PROBES, mean_cosine, probe
from fedmia.records import Health, Probe, RunScores
from fedmia.rounds.attacker import Attacker
from fedmia.rounds.base import UNTRAINED, EncoderRounds, Target
from fedmia.rounds.kept import KeptRounds
from fedmia.runtime.device import resolve_device
from fedmia.runtime.heartbeat import format_seconds
from fedmia.runtime.progress import AuditDisplay
from fedmia.runtime.stopwatch import Stopwatch
from fedmia.shadows.train import TrainingStopped
from fedmia.ssl.augment import Augment
from fedmia.statistics.matching import effective_size
from fedmia.statistics.subjects import halves
from fedmia.storage.archive import Archive
from fedmia.storage.manifest import ANSWERS, ATTACKS, SHADOWS
from fedmia.storage.outfolder import OutFolder
from fedmia.threat import VANTAGE, BudgetError, Threat

NAMING = ("named_members", "client_ids", "by_client_members", "by_client_nonmembers")
NOTHING = InMemory()
LOOK = 16  # images of a side that are embedded first, to refuse an encoder early


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
    own: OwnShadows | None = None, folder: Path | None = None, climb: ClimbNotes | None = None,
    augment: Augment | None = None,
) -> Suite:  # fmt: skip
    """The attacks of an audit.

    Args:
        audit: the audit's settings.
        rounds: the models under audit.
        cast: the images in their roles.
        device: where tensors are computed.
        own: the attacker's shadows; None: it has none.
        folder: of what was scored before and of what is scored now, or None.
        climb: what an attacker in the rounds noted; None: there was none, or nobody knows of it.
        augment: recipe of the attacker's views; None: the encoder's.

    Returns:
        The suite.
    """
    known = Known(*map(cast.pixels, KNOWN), subjects=cast.subject_sides("known"))
    kept, stored = isinstance(rounds, KeptRounds), rounds.stored
    vantage = VANTAGE[-1] if kept and rounds.access == "white_box" else VANTAGE[0]
    attacker = Attacker(
        threat=Threat(rounds.access, vantage),
        known=known.without_members() if audit.knows == "nonmembers" else known,
        seed=audit.seed,
        augment=augment or rounds.encoder.augment,
        device=device,
        precision=audit.precision,
        own=cast.own,
        labels=cast.labels,
        received=cast.received,
        budget=audit.query_budget,
        stored=stored,
    )
    deal: Partition = IID()
    clients = cast.owner("scored_members") if kept else None
    if clients is None:  # all members are one data set, or one of each subject
        subjects, deal = cast.subject("scored_members"), whole
        clients = np.zeros(len(cast.ids("scored_members")), np.int64)
        clients = clients if subjects is None else subjects
    suite = Suite(
        rounds,
        cast,
        attacker,
        audit.attack if stored is None else limit_views(audit, stored.views),
        clients,
        deal,
        Archive(folder, key(audit, rounds.encoder, cast, attacker.augment, device)),
        Failures((), (InputError, BudgetError, TrainingStopped)),
        shadows=own,
        refuse=partial(refuse, rounds, climb is not None),
    )
    suite.probe = partial(probe_images, suite, cast)
    if climb is not None:
        suite.act = ClimbScores(suite, climb)
    if audit.knows == "nonmembers":
        suite.notes.append("The attacker knows non-members alone: none chooses a threshold.")
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
) -> RunScores:
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
    provided = None if audit.shadow_encoders is None else ProvidedShadows(audit, cast)
    cast = cast if provided is None else provided.drop_known_images()
    cache = Path(audit.cache) if audit.cache else place.path_to(SHADOWS)
    own = OwnShadows(
        audit, released, cast, cache, device, display.line, display.epochs, stopped, provided
    )
    augment = recipe(audit, own.augment(), cast, run_of(audit) is not None)
    has_shadows, climb = audit.shadows or provided is not None, read_notes_of(audit, rounds)
    shadows, archive = own if has_shadows else None, place.path_to(ATTACKS)
    suite = suite_of_audit(audit, rounds, cast, device, shadows, archive, climb, augment)
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
                display.line(describe_images(rehearsal, released.name, audit.rate))
            quick = [n for n in rehearsal.seconds if is_quick(registry.load("attack", n))]
            display.forecast(rehearsal.total(), rehearsal.total(quick), rehearsal.without)
        if not display.quiet and (others := other_attacks(suite, audit.attacks)):
            # An API is not asked about images for attacks that do not run.
            rest = Rehearsal({}, ()) if remote is not None else rehearse(suite, others, short=True)
            display.leave_out(others, rest.total(), rest.without)
        every = Known(*map(cast.pixels, KNOWN))  # the control is the auditor's
        results = score(
            suite, names, round_infos(rounds), controls=controls, every_known=every,
            swept=audit.sweep, say=display.line,
        )  # fmt: skip
        federated = fields_of_rounds(suite, cast.owners, stopped())
    ran = [name for name in names if any(one.name == name for one in results["attacks"])]
    lines = control_notes(suite, results, ran)
    for note in [*suite.notes, *lines]:
        display.line(note)
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


def read_notes_of(audit: Audit, rounds: EncoderRounds) -> ClimbNotes | None:
    """What an attacker in the rounds noted, where the audit names it."""
    if audit.notes is None or not isinstance(rounds, KeptRounds):
        return None
    return read_climb(Path(audit.notes), rounds)


def control_notes(suite: Suite, results: Mapping[str, Any], ran: Sequence[str]) -> list[str]:
    """Which attacks have no control, or no scores somewhere.

    Args:
        suite: the attacks, scored.
        results: as `score` gives them.
        ran: attacks with scores.

    Returns:
        One sentence each.
    """
    lines, rounds = list[str](), suite.rounds
    if ran and (missing := suite.no_control_reason) is not None:
        rest = "nothing" if rounds.stored is not None else "the classifier on pixels"
        lines.append(f"{missing}; what remains as a control is {rest}.")
    if isinstance(rounds, KeptRounds):
        climbed = {one.name for one in results["controls"].get(UNTRAINED, ()) if one.under_attack}
        left = [name for name in ran if name not in climbed]
        lines += explain_uncontrolled(suite, left, "they have no control")
    return lines + suite.failures.notes()


def other_attacks(suite: Suite, asked: Sequence[str]) -> list[str]:
    """Attacks that could run and are not asked for, where all quick ones are."""
    left = [n for n in registry.names("attack") if n not in asked]
    chosen = any(n in left for n in expand_names((QUICK,)))
    return [] if chosen else [n for n in left if _could_run(suite, n)]


def _could_run(suite: Suite, name: str) -> bool:
    try:
        return suite.check(name) is not None
    except (InputError, BudgetError):
        return False


def probe_images(suite: Suite, cast: Cast, target: Target) -> dict[str, Probe]:
    """kNN and linear probe: fitted on half of the scored non-members, tested on the other half.

    Without two classes among the labels neither can run.

    Args:
        suite: the attacks.
        cast: the images in their roles.
        target: the model.

    Returns:
        The probes by name.
    """
    labels, own = cast.classes("scored_nonmembers"), cast.subject("scored_nonmembers")
    of = np.arange(len(labels)) if own is None else own
    fit, test = halves(of, rng(suite.attacker.seed, "probes"))
    if len(fit) < 2 or len(np.unique(labels[fit])) < 2:
        return NO_PROBES
    rows = suite.plain_view(target).embed_plain(cast.pixels("scored_nonmembers"), "avgpool")
    classes = torch.from_numpy(labels)
    probes = probe(rows[fit], classes[fit], rows[test], classes[test])
    if own is None:
        return probes
    shares = np.unique(of[test], return_counts=True)[1] / len(test)
    return {n: replace(one, trials=effective_size(shares)) for n, one in probes.items()}


def health(suite: Suite, cast: Cast) -> Health | None:
    """How alike the encoder's outputs are for different scored non-members.

    None where there are fewer than two. The encoder's loss is not known.
    """
    images = cast.pixels("scored_nonmembers")
    if len(images) < 2:
        return None
    return Health(mean_cosine(suite.plain_view(suite.main).embed_plain(images)))


def limit_views(audit: Audit, most: int) -> dict[str, Mapping[str, Any]]:
    """Options of the attacks where a file has the views: those that leave their number open read
    all.

    Args:
        most: views of each image in the file.

    Returns:
        Options by attack.
    """
    options: dict[str, Mapping[str, Any]] = {**audit.attack}
    for name in audit.attacks:
        views = vars(registry.build("attack", name, options.get(name, {}))).get("views", 0)
        if views > most > 1 and "views" not in options.get(name, {}):
            options[name] = {**options.get(name, {}), "views": most}
    return options


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
        line += f", in {format_seconds(rehearsal.images / rate)} at {opt('rate', f'{rate:g}')}"
    return f"{line}; {opt('views')} of an attack and {opt('limit')} lower the number"


def folder(audit: Audit, out: Path | None) -> OutFolder:
    """The folder of results; one that holds an audit of the same settings is continued."""
    return OutFolder(out, "another run or audit", same_audit(audit))


def device_of(audit: Audit) -> torch.device:
    """The device of `--device`; an error where its GPU is not there."""
    check_gpu(audit.device)
    return torch.device(resolve_device(audit.device))


def prepare(
    audit: Audit, device: torch.device, objects: InMemory = NOTHING
) -> tuple[EncoderRounds, Cast]:
    """Load the models and the images, and check that they suit each other.

    Args:
        device: where tensors are computed.
        objects: what a Python session hands over; such an encoder takes the images' own size where
            none is given.

    Returns:
        The models, and the images in their roles.

    Raises:
        InputError: either is missing or broken, or they do not fit.
    """
    if audit.member_embeddings is not None:
        return prepare_vectors(audit, objects)
    if objects.encoder is None:
        rounds = load_encoder(audit, device, objects)
        audit_split = images_for(audit, rounds.encoder, objects.owners)
    else:
        audit_split = deal(audit, audit.size, objects.owners)
        size = audit_split.sides[0].size
        rounds = load_encoder(replace(audit, size=size), device, objects)
    check_embeddings(rounds.encoder, audit_split, audit.allow_random)
    owners = audit_split.owners if audit.owners else None  # a run's own need no check
    if owners is not None and isinstance(rounds, KeptRounds):
        check_owners(owners, rounds)
    if (climb := read_notes_of(audit, rounds)) is not None:
        climb.require(audit_split.attacked())
        rounds.encoder.notes += climb.remarks
    return rounds, audit_split


def prepare_vectors(audit: Audit, objects: InMemory = NOTHING) -> tuple[EncoderRounds, Cast]:
    """Read the vectors of `--member-embeddings` and of the other side.

    Args:
        objects: what a Python session hands over in place of files.

    Returns:
        The encoder that stands for them, and stand-ins for the images in their roles.

    Raises:
        InputError: a file without vectors, sides that do not match, or too few rows.
    """
    names = "member_embeddings", "nonmember_embeddings"
    files = {name: Path(str(getattr(audit, name))) for name in names}
    members, others = (
        objects.vectors.get(name) or read_vectors(file, opt(name, file), audit.subject_column)
        for name, file in files.items()
    )
    released = load_vectors(members, others, audit.seed, objects.name)
    cast = deal_sets(audit, members.images(), others.images(), Views())
    return EncoderRounds(released), cast


def load_encoder(audit: Audit, device: torch.device, objects: InMemory = NOTHING) -> EncoderRounds:
    """Load the encoder under audit, or the models of its rounds.

    Args:
        device: where tensors are computed.
        objects: what a Python session hands over in its place.

    Returns:
        The models.

    Raises:
        InputError: it is missing or broken, or the folder of its shadows is missing.
        UntrustedPluginError: it is a run's, whose settings name a plugin from outside.
    """
    if audit.shadow_encoders is not None and not Path(audit.shadow_encoders).is_dir():
        raise InputError(f"{opt('shadow_encoders')} '{audit.shadow_encoders}': no such folder")
    if (run := run_of(audit)) is not None:
        run.tree()  # of its plugins any may be imported later
    kept = read_rounds(audit)
    checkpoint = Path(audit.checkpoint) if audit.checkpoint and kept is None else None
    load_options: dict[str, Any] = dict(
        checkpoint=checkpoint,
        size=audit.size,
        mean=audit.mean,
        std=audit.std,
        device=device,
        seed=audit.seed,
        key=audit.checkpoint_key if kept is None or audit.federation else None,
        allow_missing=audit.allow_missing,
        trust_plugins=trust_setting(audit),
        embedding=audit.embedding,
        access=audit.access,
        rate=audit.rate,
        batch=audit.batch,
    )
    if objects.encoder is None:
        released = load(audit.encoder, **load_options)
    elif checkpoint is not None:
        raise InputError(f"{opt('checkpoint', checkpoint)}: a module holds its own weights")
    else:
        released = load_module(objects.encoder, LoadOptions(**load_options), name=objects.name)
    if kept is None:
        return EncoderRounds(released)
    return load_rounds(released, kept, objects.loss or audit.loss)


def images_for(audit: Audit, released: LoadedEncoder, owners: object = None) -> Cast:
    """Give the images their roles: those of `--members`, at the encoder's size, or the run's own.

    Args:
        audit: names the images.
        released: gets a note where its size decides.
        owners: as of `deal`.

    Returns:
        The images in their roles.

    Raises:
        InputError: they are missing, cannot be read or are too few.
    """
    run = run_of(audit)
    if audit.members is None and run is None:
        sides = [opt(side, "DATASET") for side in ("members", "nonmembers")]
        raise InputError(f"{sides[0]} and {sides[1]} are missing")
    if audit.members is None and run:
        return split_of_run(audit, run)
    size = audit.size or released.size
    audit_split = deal(audit, size, owners)
    if audit.size is None and size is not None:
        released.notes.append(
            f"Every image was brought to {size}x{size} pixels, the size of {released.name}."
        )
    return audit_split


def check_embeddings(released: LoadedEncoder, audit_split: Cast, allow_random: bool) -> None:
    """Embed a few images of each side, and note on the encoder what is unusual.

    Args:
        released: the encoder under audit.
        audit_split: the images in their roles.
        allow_random: accept, with a note, an encoder that answers one image in two ways.

    Raises:
        InputError: the encoder does not take them, gives features that are not finite, or others
            when it is asked again (unless `allow_random`).
    """
    channels, needed = audit_split.sides[0].channels, released.channels
    if needed is not None and needed in CHANNELS.values() and channels != needed:
        way_out = {3: ("rgb", "repeats the gray channel"), 1: ("gray", "takes the luminance")}
        value, what = way_out[needed]
        raise InputError(
            f"the images have {channels} channels, {released.name} takes {needed}: "
            f"{opt('channels', value)} {what}"
        )
    for role in SCORED:
        images = audit_split.pixels(role)
        report = probe_encoder(released, images[:LOOK], allow_random=allow_random)
        released.notes += [n for n in report if n not in released.notes]


def gather(
    suite: Suite, audit: Audit, cast: Cast, results: Mapping[str, Any], *notes: str,
    **measured: Any,
) -> RunScores:  # fmt: skip
    """Put together all that the report shows.

    Args:
        suite: the audit's attacks, scored.
        cast: the images in their roles.
        results: as `score` gives them.
        notes: for the reader.
        measured: fields of `RunScores` beside those of the attacks.

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
        member_labels=cast.classes("scored_members"),
        nonmember_labels=cast.classes("scored_nonmembers"),
        round=released.weights.round,
        failed=suite.failures.attacks,
        notes=notes,
        split={"encoder": released.name, "access": released.access} | split,
        config=config,
        timing={"by_attack": {a.name: a.seconds for a in results["attacks"]}},
    )
    return assemble(audit, **{**results, **fields, **measured})


def notes(
    suite: Suite, cast: Cast, beside: Sequence[str], ran: Sequence[str], controlled: bool,
    interrupted: bool,
) -> list[str]:  # fmt: skip
    """Notes for the reader of the report.

    Args:
        suite: the audit's attacks, scored.
        cast: the images in their roles.
        beside: on controls.
        ran: attacks with scores.
        controlled: whether the encoder has an untrained control.
        interrupted: whether the user stopped the audit.

    Returns:
        One sentence each.
    """
    assert isinstance(suite.rounds, EncoderRounds)
    released = suite.rounds.encoder
    lines = [*released.notes, *cast.notes, *suite.notes, *beside]
    if suite.shadows and any(suite.build(name).asks_shadows() for name in ran):
        lines += suite.shadows.notes()
    if controlled:
        lines.append(f"The untrained control is {released.untrained_how}.")
    if interrupted:
        lines.append(
            "The audit was interrupted: the attacks, controls and probes that are missing did not "
            "run."
        )
    return lines


def recipe(audit: Audit, augment: Augment, audit_split: Cast, of_run: bool) -> Augment:
    """The attacker's views: the encoder's recipe as far as it suits the images, then --augment.

    Args:
        augment: the recipe that the encoder was trained with, or less where it is not known.
        audit_split: the images in their roles.
        of_run: whether the encoder is of a federated run.

    Returns:
        The recipe of the attacker's views.
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
    return replace(augment, **audit.augment)
