"""One audit from its options to its report. The order of this file is the way of the data."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from threading import Event

import numpy as np
import torch

from fedmia.cli.command import FAILED, INTERRUPTED, Invocation
from fedmia.config.audit import Audit
from fedmia.config.compatibility import gpu
from fedmia.config.tree import to_tree
from fedmia.data.sets import form_sets
from fedmia.encoders.base import Released, load, probe
from fedmia.encoders.understood import understood
from fedmia.evaluation.given import Given
from fedmia.evaluation.harness import Audited, Harness
from fedmia.evaluation.images import Dealt, deal
from fedmia.evaluation.resume import key, same_audit
from fedmia.evaluation.runs import from_run, run_of, trusted
from fedmia.evaluation.sets import set_scores
from fedmia.evaluation.shadows import Own, once
from fedmia.evaluation.sweep import sweep
from fedmia.evaluation.views import UNTRAINED, ModelViews, health, probes, recipe
from fedmia.options.errors import InputError, opt, said
from fedmia.records import Probe, RunScores, Sweep, twins
from fedmia.report.publish import publish, show
from fedmia.report.rows import Report
from fedmia.runtime.cores import cores
from fedmia.runtime.device import bfloat16_note, resolve_device
from fedmia.runtime.environment import describe
from fedmia.runtime.progress import AuditDisplay
from fedmia.runtime.stopwatch import Stopwatch
from fedmia.storage.archive import Archive
from fedmia.storage.outfolder import OutFolder

LOOK = 16  # images of a side that are embedded first, to refuse an encoder early


def conduct(asked: Invocation, watch: Stopwatch, stop: Event) -> int:
    """Load, attack, report; the exit code.

    Raises:
        InputError: bad input, or no attack could run.
    """
    audit, quiet = asked.settings, asked.quiet or asked.json
    place = folder(audit, asked.out)
    torch.set_num_threads(audit.threads or cores())
    device = device_of(audit)
    with watch.part("data"):
        released, dealt = prepare(audit, device)
    display = AuditDisplay(len(audit.attacks), quiet)
    own = [] if released.weights.round is None else released.notes  # which model of its run it is
    for note in filter(None, [bfloat16_note(audit.device, audit.precision), *own]):
        display.say(said(note, audit.tongue))
    found, report = examine(audit, released, dealt, device, place, display, watch, stop.is_set)
    if report is None:
        return nothing_ran(found, stop.is_set())
    show(report, asked.out, json=asked.json, quiet=asked.quiet)
    return INTERRUPTED if stop.is_set() else FAILED if found.failed else 0


def examine(
    audit: Audit,
    released: Released,
    dealt: Dealt,
    device: torch.device,
    place: OutFolder,
    display: AuditDisplay,
    watch: Stopwatch,
    stopped: Callable[[], bool],
) -> tuple[Audited, Report | None]:
    """Attacks, controls and probes; what was found, and the report (None: no attack could run).

    Raises:
        InputError: the folder of the results cannot be made, or members under attack are among
            the images of a shadow federation.
    """
    given = None if audit.shadow_encoders is None else Given(audit, dealt)
    dealt = dealt if given is None else given.apart()
    cache = Path(audit.cache) if audit.cache else place.under("shadows")
    own = Own(audit, released, dealt, cache, device, display.say, display.epochs, stopped, given)
    augment = recipe(audit, own.augment(), dealt, run_of(audit) is not None)
    views = ModelViews(audit, released, dealt, augment, device)
    if audit.shadows or audit.shadow_encoders:
        views.shadows = once(partial(own.make, views))
        if own.paired():
            views.naive = once(partial(own.make, views, naive=True))
        views.shadow_contents, views.shadow_notes = own.contents, own.notes
    harness = Harness(views, Archive(place.under("attacks"), key(views)))
    place.begin(to_tree(audit))
    with display, watch.part("attacks"):
        found = harness.run(display.tell, stopped, display.ran)
        swept = sweep(harness, found, display.say, stopped) if audit.sweep else None
    if not (found.attacks or found.inferences):
        place.give_up()
        return found, None
    with watch.part("probes"):
        pixels = harness.pixel_control()
        models = ("released", UNTRAINED) if harness.uncontrolled() is None else ("released",)
        useful = [probes(views, model) for model in models]
    scores = gather(views, found, swept, pixels, useful, stopped())
    return found, publish(scores, place.folder, watch)


def folder(audit: Audit, out: Path | None) -> OutFolder:
    """Where the results go; an audit of the same settings may be gone on with."""
    return OutFolder(out, "another run or audit", same_audit(audit))


def device_of(audit: Audit) -> torch.device:
    """The processor of `--device`.

    Raises:
        InputError: a GPU that is not there.
    """
    gpu(audit.device)
    return torch.device(resolve_device(audit.device))


def prepare(audit: Audit, device: torch.device) -> tuple[Released, Dealt]:
    """The encoder and the images, checked against each other.

    Raises:
        InputError: either is missing or broken, or they do not fit.
    """
    released = brought(audit, device)
    dealt = images_for(audit, released)
    look(released, dealt, audit.allow_random)
    return released, dealt


def brought(audit: Audit, device: torch.device) -> Released:
    """The encoder.

    Raises:
        InputError: it is missing or broken, or the folder of its shadows is missing.
        Untrusted: it is a run's, whose settings name a plugin from outside that is not trusted.
    """
    if audit.shadow_encoders is not None and not Path(audit.shadow_encoders).is_dir():
        raise InputError(f"{opt('shadow_encoders')} '{audit.shadow_encoders}': no such folder")
    if (run := run_of(audit)) is not None:
        run.tree()  # of its plugins any may be imported later
    return load(
        audit.encoder,
        checkpoint=Path(audit.checkpoint) if audit.checkpoint else None,
        size=audit.size,
        mean=audit.mean,
        std=audit.std,
        device=device,
        seed=audit.seed,
        key=audit.checkpoint_key,
        allow_missing=audit.allow_missing,
        trust_plugins=trusted(audit),
    )


def images_for(audit: Audit, released: Released) -> Dealt:
    """The images in their roles, of the encoder's size.

    Raises:
        InputError: they are missing, cannot be read or are too few.
    """
    run = run_of(audit)
    if audit.members is None and run is None:
        sides = [opt(side, "DATASET") for side in ("members", "nonmembers")]
        raise InputError(f"{sides[0]} and {sides[1]} are missing")
    if audit.members is None and run:
        return from_run(audit, run)
    size = audit.size or released.size
    dealt = deal(audit, size)
    if audit.size is None and size is not None:
        released.notes.append(
            f"Every image was brought to {size}x{size} pixels, the size of {released.name}."
        )
    return dealt


def look(released: Released, dealt: Dealt, allow_random: bool) -> None:
    """Embed a few images of each side, and note on the encoder what is odd.

    Raises:
        InputError: the encoder does not take them, gives features that are not finite, or others
            when it is asked again (unless `allow_random`).
    """
    for images in (dealt.scored_members, dealt.scored_nonmembers):
        found = probe(released, images[:LOOK], allow_random=allow_random)
        released.notes += [n for n in found if n not in released.notes]


def nothing_ran(found: Audited, interrupted: bool) -> int:
    """Say in one line why there is nothing to report; the exit code.

    Raises:
        InputError: no attack could run.
    """
    reasons = [f"{name}: {reason}" for name, reason in found.not_run.items()]
    if interrupted:
        print("fedmia: interrupted before the first attack was done", file=sys.stderr)
        return INTERRUPTED
    more = f" (and {len(reasons) - 1} others could not run)" if len(reasons) > 1 else ""
    line = f"no attack could run; {reasons[0]}{more}"
    if not found.failed:
        raise InputError(line)
    print(f"fedmia: error: {line}", file=sys.stderr)
    return FAILED


def gather(
    views: ModelViews,
    found: Audited,
    swept: Sweep | None,
    pixels: tuple[np.ndarray, np.ndarray],
    useful: list[dict[str, Probe]],
    interrupted: bool,
) -> RunScores:
    """All that the report is made of."""
    audit, released, dealt = views.audit, views.released, views.dealt
    environment = describe()
    sizes = len(dealt.scored_members), len(dealt.scored_nonmembers)
    notes = [said(n, audit.tongue) for n in (*released.notes, *dealt.notes, *found.notes)]
    ran = {scored.name for scored in found.attacks}.intersection(audit.attacks)
    if any(views.build(name).asks_shadows() for name in ran):
        notes += [said(n, audit.tongue) for n in views.shadow_notes()]
    if len(useful) > 1:
        notes.append(f"The untrained control is {released.untrained_how}.")
    notes.append(
        "Posers are half of the scored non-members, scored as if they were members: an attack "
        "that tells them from the other half reads something else than membership."
    )
    if interrupted:
        notes.append(
            "The audit was interrupted: the attacks, controls and probes that are missing did not "
            "run."
        )
    pairs = twins(found.attacks)
    return RunScores(
        seed=audit.seed,
        subject=f"the encoder {released.name}",
        member_ids=dealt.member_ids,
        nonmember_ids=dealt.nonmember_ids,
        member_client=np.zeros(len(dealt.member_ids), dtype=np.int64),
        member_labels=dealt.member_labels,
        nonmember_labels=dealt.nonmember_labels,
        attacks=found.attacks,
        controls=found.controls,
        inferences=found.inferences,
        pairs=pairs,
        sets=set_scores(form_sets(*sizes, audit.seed), found.attacks, found.controls, pairs),
        pixels=pixels,
        sweep=swept,
        utility=useful[0],
        round=released.weights.round,
        health=health(views),
        utility_untrained=useful[1] if len(useful) > 1 else {},
        not_run=found.not_run,
        notes=notes,
        encoder=understood(released, int(dealt.scored_members.shape[2])),
        split={"encoder": released.name, "access": released.access} | dealt.counts(),
        config=to_tree(audit) | {"views": vars(views.augment)},
        versions=environment["versions"] | {"commit": environment["commit"]},
        hardware=environment["hardware"],
        timing={"by_attack": {a.name: a.seconds for a in found.attacks}},
    )
