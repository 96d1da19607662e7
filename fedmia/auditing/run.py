"""One audit from its options to its report. The order of this file is the way of the data."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import torch
import yaml
from rich.console import Console

from fedmia.auditing.display import Display
from fedmia.auditing.harness import Audited, Harness
from fedmia.auditing.images import Dealt, deal, from_run
from fedmia.auditing.options import Asked, Audit
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
    tree = audit.tree()
    refuse_occupied(out, tree)
    torch.set_num_threads(audit.threads or os.cpu_count() or 1)
    device = torch.device(resolve_device(audit.device))
    with watch.part("data"):
        released, dealt = prepare(audit, device)
    display = Display(len(audit.attacks), quiet)
    cache = Path(audit.cache) if audit.cache else None if out is None else out / "shadows"
    own = Own(
        audit, released, dealt, cache, device, display.say, display.epochs, stop.is_set
    )  # fmt: skip
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
    harness.finished = Finished(None if out is None else out / "attacks", key(harness))
    if out is not None:
        make(out)
        kept = yaml.safe_dump(tree | {"_run": describe()}, sort_keys=False, allow_unicode=True)
        (out / "config.yaml").write_text(kept, encoding="utf-8")
    with display, watch.part("attacks"):
        found = harness.run(display.tell, stop.is_set, display.ran)
        swept = sweep(harness, found, display.say, stop.is_set) if audit.sweep else []
        pixels = harness.pixel_control()
    if not found.attacks:
        raise InputError(nothing_ran(found))
    with watch.part("probes"):
        useful = [probes(harness, dealt, model) for model in ("released", "untrained")]
    scores = gather(audit, released, dealt, harness, found, pixels, useful, stop.is_set())
    report = finish(scores, swept, out, watch)
    show(report, out, asked)
    return INTERRUPTED if stop.is_set() else FAILED if found.failed else 0


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
    dealt = deal(audit, audit.size or released.size) if dealt is None else dealt
    for images in (dealt.scored_members, dealt.scored_nonmembers):
        released.notes += [n for n in probe(released, images[:LOOK]) if n not in released.notes]
    return released, dealt


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


def once(make_all: Any) -> Any:
    """A call whose result is kept."""
    held: list[Any] = []

    def call() -> Any:
        if not held:
            held.append(make_all())
        return held[0]

    return call


def key(harness: Harness) -> str:
    """Digest of all that decides the scores: weights, images, views, options; not the attacks."""
    digest = hashlib.sha256()
    audit, dealt = harness.audit, harness.dealt
    file = Path(audit.encoder)
    if file.is_file():
        digest.update(file.read_bytes())
    for name, tensor in sorted(harness.released.method.encoder.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    for images in (
        dealt.known_members, dealt.known_nonmembers, dealt.scored_members, dealt.scored_nonmembers
    ):  # fmt: skip
        digest.update(b"".join(digests(images.numpy())))
    kept = {k: v for k, v in audit.tree().items() if k not in ("attacks", "attack", "cache")}
    digest.update(json.dumps([kept, repr(harness.augment)], sort_keys=True).encode())
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
    if released.untrained_how:
        notes.append(f"The untrained control is {released.untrained_how}.")
    notes.append(
        "Posers are half of the scored non-members, scored as if they were members: an attack "
        "that tells them from the other half reads something else than membership."
    )
    if interrupted:
        notes.append("The audit was interrupted: the attacks that are missing did not run.")
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
        utility_untrained=useful[1],
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


def nothing_ran(found: Audited) -> str:
    """One line that says why no attack could run."""
    reasons = [f"{name}: {reason}" for name, reason in found.not_run.items()]
    if not reasons:
        return "--attacks none leaves nothing to do"
    more = f" (and {len(reasons) - 1} others could not run)" if len(reasons) > 1 else ""
    return f"no attack could run; {reasons[0]}{more}"


def refuse_occupied(out: Path | None, tree: dict[str, Any]) -> None:
    """Refuse a folder that holds anything but an audit of the same options, which goes on.

    Raises:
        InputError: naming the folder and what is in it.
    """
    if out is None or not out.exists():
        return
    if not out.is_dir():
        raise InputError(f"--out '{out}' is a file")
    held = sorted(p.name for p in out.iterdir())
    if not held:
        return
    if "config.yaml" in held:
        before = yaml.safe_load((out / "config.yaml").read_text(encoding="utf-8"))
        if isinstance(before, dict):
            before.pop("_run", None)
            more = {"attacks", "attack"}  # another list of attacks adds to those finished
            if {k: v for k, v in before.items() if k not in more} == {
                k: v for k, v in tree.items() if k not in more
            }:
                return
    what = "another run or audit" if "config.yaml" in held else f"'{held[0]}'"
    raise InputError(f"--out '{out}' already holds {what}; name a new folder")


def make(out: Path) -> None:
    """Make the folder of the results."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--out '{out}' cannot be made: {error.strerror}") from None


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
