"""An audit: an encoder that somebody brings and images of both sides, attacked and scored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from fedmia.config.audit import Audit
from fedmia.config.compatibility import check_gpu
from fedmia.config.roles import is_quick
from fedmia.config.tree import to_tree
from fedmia.data.base import Views
from fedmia.data.cast import SCORED, Cast
from fedmia.data.images import CHANNELS
from fedmia.encoders.base import LoadedEncoder, LoadOptions, load
from fedmia.encoders.describe import describe, probe_encoder
from fedmia.encoders.memory import InMemory, load_module
from fedmia.encoders.vectors import load_vectors, read_vectors
from fedmia.evaluation.audits.attack_suite import RELEASED, UNTRAINED, EncoderAttackSuite
from fedmia.evaluation.audits.climb import read_climb
from fedmia.evaluation.audits.estimate import Rehearsal, rehearse
from fedmia.evaluation.audits.images import deal, deal_sets
from fedmia.evaluation.audits.owners import check_owners
from fedmia.evaluation.audits.provided_shadows import ProvidedShadows
from fedmia.evaluation.audits.resume import same_audit
from fedmia.evaluation.audits.runs import run_of, split_of_run, trust_setting
from fedmia.evaluation.audits.shadows import OwnShadows
from fedmia.evaluation.federation import (
    FederatedEncoder,
    FederationSuite,
    load_rounds,
    read_rounds,
)
from fedmia.evaluation.steps.assemble import assemble
from fedmia.evaluation.steps.budgets import sweep
from fedmia.evaluation.steps.controls import pixels
from fedmia.options import registry
from fedmia.options.errors import InputError, opt
from fedmia.records import RunScores
from fedmia.runtime.device import resolve_device
from fedmia.runtime.heartbeat import format_seconds
from fedmia.runtime.progress import AuditDisplay
from fedmia.runtime.stopwatch import Stopwatch
from fedmia.ssl.augment import Augment
from fedmia.storage.manifest import ANSWERS, ATTACKS, SHADOWS
from fedmia.storage.outfolder import OutFolder

NOTHING = InMemory()
LOOK = 16  # images of a side that are embedded first, to refuse an encoder early


def examine(
    audit: Audit,
    released: LoadedEncoder,
    audit_split: Cast,
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
        released: the encoder under audit.
        audit_split: the images in their roles.
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
    provided = None if audit.shadow_encoders is None else ProvidedShadows(audit, audit_split)
    audit_split = audit_split if provided is None else provided.drop_known_images()
    cache = Path(audit.cache) if audit.cache else place.path_to(SHADOWS)
    own = OwnShadows(
        audit, released, audit_split, cache, device, display.line, display.epochs, stopped, provided
    )
    augment = recipe(audit, own.augment(), audit_split, run_of(audit) is not None)
    has_shadows = audit.shadows or provided is not None
    shadows, archive = own if has_shadows else None, place.path_to(ATTACKS)
    make: Callable[..., EncoderAttackSuite] = EncoderAttackSuite
    if isinstance(released, FederatedEncoder):
        make = FederationSuite
    suite = make(audit, released, audit_split, augment, device, shadows, archive)
    place.begin(to_tree(audit))
    swept, remote = None, released.remote
    if remote is not None:
        remote.remember(place.path_to(ANSWERS))
    with display, watch.part("attacks"):
        bare = released.stored is not None or remote is not None  # no weights, so no control
        names = suite.able()
        display.plan(len(names), 0 if bare else len(suite.controlled(names)))
        if display.wants_forecast or remote is not None:
            rehearsal = rehearse(suite, names)
            if rehearsal.images:
                display.line(describe_images(rehearsal, released.name, audit.rate))
            quick = [n for n in rehearsal.seconds if is_quick(registry.load("attack", n))]
            display.forecast(rehearsal.total(), rehearsal.total(quick), rehearsal.without)
        if not display.quiet and (others := suite.others()):
            # An API is not asked about images for attacks that do not run.
            rest = Rehearsal({}, ()) if remote is not None else rehearse(suite, others, short=True)
            display.leave_out(others, rest.total(), rest.without)
        suite.run(names, display.show_step, stopped, display.ran, controls)
        for note in suite.notes:
            display.line(note)
        if audit.sweep:
            ran = [a.name for a in suite.scores if a.name in audit.attacks]
            swept = sweep(suite, RELEASED, ran, audit.sweep, display.line, stopped)
        federated = suite.run_rounds(display.line, stopped)
    if not (suite.scores or suite.inferences):
        place.give_up()
        return gather(suite)
    with watch.part("probes"):
        scorer = suite.scorer.with_known(suite.every_known)  # the control is the auditor's
        alone = None if released.stored is not None else pixels(scorer)
        controlled = suite.no_control_reason is None
        return gather(
            suite,
            *notes(suite, controlled, stopped()),
            sweep=swept,
            pixels=alone,
            utility=suite.probes(RELEASED),
            utility_untrained=suite.probes(UNTRAINED) if controlled else {},
            health=suite.health(),
            encoder=None
            if released.stored is not None
            else describe(released, audit_split.sides[0].size),
            **federated,
        )


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
) -> tuple[LoadedEncoder, Cast]:
    """Load the encoder and the images, and check that they suit each other.

    Args:
        device: where tensors are computed.
        objects: what a Python session hands over; such an encoder takes the images' own size where
            none is given.

    Returns:
        The encoder, and the images in their roles.

    Raises:
        InputError: either is missing or broken, or they do not fit.
    """
    if audit.member_embeddings is not None:
        return prepare_vectors(audit, objects)
    if objects.encoder is None:
        released = load_encoder(audit, device, objects)
        audit_split = images_for(audit, released, objects.owners)
    else:
        audit_split = deal(audit, audit.size, objects.owners)
        size = audit_split.sides[0].size
        released = load_encoder(replace(audit, size=size), device, objects)
    check_embeddings(released, audit_split, audit.allow_random)
    owners = audit_split.owners if audit.owners else None  # a run's own need no check
    if owners is not None and isinstance(released, FederatedEncoder):
        check_owners(owners, released.history)
    if audit.notes is not None and isinstance(released, FederatedEncoder):
        released.climb = read_climb(Path(audit.notes), released.history)
        released.climb.require(audit_split.attacked())
        released.notes += released.climb.remarks
    return released, audit_split


def prepare_vectors(audit: Audit, objects: InMemory = NOTHING) -> tuple[LoadedEncoder, Cast]:
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
    return released, deal_sets(audit, members.images(), others.images(), Views())


def load_encoder(audit: Audit, device: torch.device, objects: InMemory = NOTHING) -> LoadedEncoder:
    """Load the encoder under audit.

    Args:
        device: where tensors are computed.
        objects: what a Python session hands over in its place.

    Returns:
        The encoder.

    Raises:
        InputError: it is missing or broken, or the folder of its shadows is missing.
        UntrustedPluginError: it is a run's, whose settings name a plugin from outside.
    """
    if audit.shadow_encoders is not None and not Path(audit.shadow_encoders).is_dir():
        raise InputError(f"{opt('shadow_encoders')} '{audit.shadow_encoders}': no such folder")
    if (run := run_of(audit)) is not None:
        run.tree()  # of its plugins any may be imported later
    history = read_rounds(audit)
    checkpoint = Path(audit.checkpoint) if audit.checkpoint and history is None else None
    load_options: dict[str, Any] = dict(
        checkpoint=checkpoint,
        size=audit.size,
        mean=audit.mean,
        std=audit.std,
        device=device,
        seed=audit.seed,
        key=audit.checkpoint_key if history is None or audit.federation else None,
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
    return (
        released if history is None else load_rounds(released, history, objects.loss or audit.loss)
    )


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


def gather(suite: EncoderAttackSuite, *notes: str, **measured: Any) -> RunScores:
    """Put together all that the report shows.

    Args:
        suite: the audit's attacks with their scores.
        notes: for the reader.
        measured: fields of `RunScores` beside those of the attacks.

    Returns:
        All that the report shows.
    """
    audit, released, audit_split = suite.audit, suite.released, suite.audit_split
    split, config, subject = audit_split.counts(), to_tree(audit), f"the encoder {released.name}"
    split["known_members"] = len(suite.scorer.known.members)
    if released.stored is None:
        config["views"] = vars(suite.augment)
    else:  # the images are stand-ins, of which no view was made
        del split["channels"], split["size"]
        split["views"], subject = released.stored.views, released.name
    return assemble(
        audit,
        attacks=suite.scores,
        controls={UNTRAINED: suite.controls},
        drawn=False,
        subject=subject,
        member_ids=audit_split.ids("scored_members"),
        nonmember_ids=audit_split.ids("scored_nonmembers"),
        member_client=suite.clients()[0],
        subject_names=audit_split.subject_names,
        subjects=audit_split.subject_sides("scored"),
        member_labels=audit_split.classes("scored_members"),
        nonmember_labels=audit_split.classes("scored_nonmembers"),
        inferences=suite.inferences,
        round=released.weights.round,
        not_run=suite.failures.reasons,
        failed=suite.failures.attacks,
        notes=notes,
        split={"encoder": released.name, "access": released.access} | split,
        config=config,
        timing={"by_attack": {a.name: a.seconds for a in suite.scores}},
        **measured,
    )


def notes(suite: EncoderAttackSuite, controlled: bool, interrupted: bool) -> list[str]:
    """Notes for the reader of the report.

    Args:
        suite: the audit's attacks with their scores.
        controlled: whether the encoder has an untrained control.
        interrupted: whether the user stopped the audit.

    Returns:
        One sentence each.
    """
    lines = [*suite.released.notes, *suite.audit_split.notes, *suite.notes]
    ran = {scored.name for scored in suite.scores}.intersection(suite.audit.attacks)
    if suite.shadows and any(suite.build(name).asks_shadows() for name in ran):
        lines += suite.shadows.notes()
    if controlled:
        lines.append(f"The untrained control is {suite.released.untrained_how}.")
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
