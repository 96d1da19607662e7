"""One audit from its options to its report. The order of this file is the way of the data."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import torch
from rich.console import Console

from fedmia import __version__
from fedmia.auditing.display import Display
from fedmia.auditing.flags import Asked
from fedmia.auditing.harness import UNTRAINED, Audited, Harness
from fedmia.auditing.images import Dealt, deal, from_run
from fedmia.auditing.options import Audit
from fedmia.auditing.place import Place
from fedmia.auditing.shadow import Own, run_folder
from fedmia.auditing.store import Finished
from fedmia.auditing.sweep import sweep
from fedmia.auditing.utility import probes
from fedmia.data.images import digests
from fedmia.environment import describe
from fedmia.errors import InputError
from fedmia.released.base import Released, load, probe
from fedmia.report.build import build_report, strict
from fedmia.report.files import json_text, write_report
from fedmia.report.scores import RunScores
from fedmia.report.terminal import render
from fedmia.ssl.augment import Augment
from fedmia.stopwatch import Stopwatch
from fedmia.threat import Shadow

INTERRUPTED, FAILED = 130, 1  # exit codes
LOOK = 16  # images of a side that are embedded first, to refuse an encoder early


def conduct(asked: Asked, watch: Stopwatch, stop: Event) -> int:
    """Load, attack, report; the exit code.

    Raises:
        InputError: bad input, or no attack could run.
    """
    audit, out = asked.audit, asked.out
    assert audit is not None
    quiet = asked.quiet or asked.json
    place = Place(out, audit.tree())
    torch.set_num_threads(audit.threads or os.cpu_count() or 1)
    device = torch.device(resolve_device(audit.device))
    with watch.part("data"):
        released, dealt = prepare(audit, device)
    display = Display(len(audit.attacks), quiet)
    found, report = examine(audit, released, dealt, device, place, display, watch, stop.is_set)
    if report is None:
        return nothing_ran(found, stop.is_set())
    show(report, out, asked)
    return INTERRUPTED if stop.is_set() else FAILED if found.failed else 0


def examine(
    audit: Audit,
    released: Released,
    dealt: Dealt,
    device: torch.device,
    place: Place,
    display: Display,
    watch: Stopwatch,
    stopped: Callable[[], bool],
) -> tuple[Audited, dict[str, Any] | None]:
    """Attacks, controls and probes; what was found, and the report (None: no attack could run).

    Raises:
        InputError: the folder of the results cannot be made.
    """
    cache = Path(audit.cache) if audit.cache else place.under("shadows")
    own = Own(audit, released, dealt, cache, device, display.say, display.epochs, stopped)
    harness = Harness(
        audit,
        released,
        dealt,
        recipe(audit, own.augment(), dealt, run_folder(audit.encoder) is not None),
        device,
        None,
        Finished(None, ""),
    )
    if audit.shadows or audit.shadow_encoders:
        harness.shadows = once(partial(own.make, harness))
    harness.finished = Finished(place.under("attacks"), key(harness))
    place.begin()
    with display, watch.part("attacks"):
        found = harness.run(display.tell, stopped, display.ran)
        swept = sweep(harness, found, display.say, stopped) if audit.sweep else []
    if not found.attacks:
        place.give_up()
        return found, None
    with watch.part("probes"):
        pixels = harness.pixel_control()
        models = ("released", UNTRAINED) if harness.uncontrolled() is None else ("released",)
        useful = [probes(harness, dealt, model) for model in models]
    scores = gather(audit, released, dealt, harness, found, pixels, useful, stopped())
    return found, finish(scores, swept, place.folder, watch)


def prepare(audit: Audit, device: torch.device) -> tuple[Released, Dealt]:
    """The encoder and the images, checked against each other.

    Raises:
        InputError: either is missing or broken, or they do not fit.
    """
    released = load(
        audit.encoder,
        checkpoint=Path(audit.checkpoint) if audit.checkpoint else None,
        size=audit.size,
        mean=audit.mean,
        std=audit.std,
        device=device,
        seed=audit.seed,
    )
    folder = run_folder(audit.encoder)
    if audit.members is None and folder is None:
        raise InputError("--members DATASET and --nonmembers DATASET are missing")
    dealt = from_run(audit, folder) if audit.members is None and folder else None
    if dealt is None:
        size = audit.size or released.size
        dealt = deal(audit, size)
        if audit.size is None and size is not None:
            released.notes.append(
                f"Every image was brought to {size}x{size} pixels, the size of {released.name}."
            )
    if audit.shadow_encoders is not None and not Path(audit.shadow_encoders).is_dir():
        raise InputError(f"--shadow-encoders '{audit.shadow_encoders}': no such folder")
    look(released, dealt)
    return released, dealt


def look(released: Released, dealt: Dealt) -> None:
    """Embed a few images of each side, and note on the encoder what is odd.

    Raises:
        InputError: the encoder does not take them, or gives features that are not finite.
    """
    for images in (dealt.scored_members, dealt.scored_nonmembers):
        released.notes += [n for n in probe(released, images[:LOOK]) if n not in released.notes]


def recipe(audit: Audit, augment: Augment, dealt: Dealt, of_run: bool) -> Augment:
    """The attacker's views: the encoder's recipe, as far as the images bear it, then --augment."""
    if not of_run:
        v = dealt.views
        augment = replace(
            augment,
            crop_min=max(v.crop_min, augment.crop_min),
            flip=min(v.flip, augment.flip),
            brightness=augment.brightness * v.jitter,
            contrast=augment.contrast * v.jitter,
            saturation=augment.saturation * v.jitter,
            hue=min(augment.hue * v.jitter, 0.5),
        )
    return replace(augment, **audit.group("augment"))


def once(make_all: Callable[[], Sequence[Shadow]]) -> Callable[[], Sequence[Shadow]]:
    """A call whose result is kept, and so is its failure: shadows that diverge do so once."""
    held: list[Sequence[Shadow] | Exception] = []

    def call() -> Sequence[Shadow]:
        if not held:
            try:
                held.append(make_all())
            except Exception as error:
                held.append(error)
        if isinstance(held[0], Exception):
            raise held[0]
        return held[0]

    return call


def key(harness: Harness) -> str:
    """Digest of all that decides the scores: weights, images, views, options; not the attacks."""
    digest = hashlib.sha256()
    audit, dealt = harness.audit, harness.dealt
    # A large .onnx keeps its weights in a second file beside it.
    for file in (Path(audit.encoder), Path(f"{audit.encoder}.data")):
        if file.is_file():
            digest.update(file.read_bytes())
    for name, tensor in sorted(harness.released.method.encoder.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    for images in (
        dealt.known_members, dealt.known_nonmembers, dealt.scored_members,
        dealt.scored_nonmembers, dealt.spare,
    ):  # fmt: skip
        digest.update(b"".join(digests(images.numpy())))
    skipped = ("attacks", "attack", "cache", "sweep")
    kept = {k: v for k, v in audit.tree().items() if k not in skipped}
    about = [__version__, kept, repr(harness.augment)]
    digest.update(json.dumps(about, sort_keys=True).encode())
    return digest.hexdigest()


def gather(
    audit: Audit,
    released: Released,
    dealt: Dealt,
    harness: Harness,
    found: Audited,
    pixels: tuple[np.ndarray, np.ndarray],
    useful: list[Any],
    interrupted: bool,
) -> RunScores:
    """All that the report is made of."""
    environment = describe()
    notes = [*released.notes, *dealt.notes, *found.notes]
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
        pixels=pixels,
        utility=useful[0],
        utility_untrained=useful[1] if len(useful) > 1 else {},
        not_run=found.not_run,
        notes=notes,
        split={"encoder": released.name, "access": released.access} | dealt.counts(),
        config=audit.tree() | {"views": vars(harness.augment)},
        versions=environment["versions"] | {"commit": environment["commit"]},
        hardware=environment["hardware"],
    )


def finish(
    scores: RunScores, swept: list[dict[str, Any]], out: Path | None, watch: Stopwatch
) -> dict[str, Any]:
    """The report, written where a folder is given."""
    with watch.part("report"):
        report = build_report(scores)
        if swept:
            timing = report.pop("timing")
            report |= {"sweep": strict(swept), "timing": timing}
        figures: dict[str, bytes] = {}
        if out is not None:
            from fedmia.report.figures.draw import draw_all  # matplotlib takes its time

            figures = draw_all(scores, report)
    by_attack = {a.name: a.seconds for a in scores.attacks}
    report["timing"] = strict(watch.timing() | {"by_attack": by_attack})
    if out is not None:
        write_report(out, scores, report, figures)
    return report


def show(report: dict[str, Any], out: Path | None, asked: Asked) -> None:
    """Print what was asked for."""
    if asked.json:
        sys.stdout.write(json_text(report))
        return
    console = Console()
    if asked.quiet:
        console.print(report["verdict"], highlight=False, soft_wrap=True)
        return
    console.print(render(report))
    if out is not None:
        console.print(f"Report: {out / 'report.html'}", highlight=False, soft_wrap=True)


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


def resolve_device(device: str) -> str:
    """`auto` is the GPU where torch finds one, else the CPU.

    Raises:
        InputError: a GPU that is not there.
    """
    found = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if device == "auto":
        return "cuda" if found else "cpu"
    if device.startswith("cuda") and int(device.partition(":")[2] or 0) >= found:
        raise InputError(f"--device {device}: torch finds {found} CUDA GPUs on this machine")
    return device
