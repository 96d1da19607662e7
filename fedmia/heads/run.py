"""One comparison from its settings to `head.json`, in the order of the way of the data."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from torch.nn import functional as F

from fedmia.cli.command import Invocation
from fedmia.config.compatibility import gpu
from fedmia.config.forms import dataset_and_path
from fedmia.config.head import Head
from fedmia.config.tree import to_tree
from fedmia.data._source import renumbered
from fedmia.data.base import Request
from fedmia.data.images import ImageSet
from fedmia.encoders.base import Released, load
from fedmia.encoders.describe import probe
from fedmia.heads import compare
from fedmia.heads.page import page, terminal
from fedmia.heads.release import ASSUMPTIONS, Setting
from fedmia.heads.rows import FORMAT, HeadReport
from fedmia.heads.trial import Labelled, Trial, deal, trial
from fedmia.options import registry
from fedmia.options.errors import InputError, opt, renamed, said
from fedmia.options.seeding import rng
from fedmia.report.tell import tell, write_files
from fedmia.runtime.cores import cores
from fedmia.runtime.device import resolve_device
from fedmia.runtime.environment import describe
from fedmia.runtime.progress import HeadDisplay
from fedmia.ssl.base import SSLMethod, in_parts
from fedmia.statistics.spread import spread
from fedmia.storage.outfolder import OutFolder

LOOK = 16  # images embedded first, to refuse an encoder early


def conduct(asked: Invocation) -> int:
    """Load, train, attack, report; the exit code.

    Raises:
        InputError: no such encoder or data, too few images, or an occupied folder.
    """
    began, wanted = time.perf_counter(), asked.settings
    place = OutFolder(asked.out, "another run")
    torch.set_num_threads(wanted.threads or cores())
    released, images = prepare(wanted)
    with HeadDisplay(wanted.seeds, asked.quiet or asked.json) as display:
        report = measure(wanted, released, images, display.ended)
    report["timing"] = {"total_s": time.perf_counter() - began}
    place.begin(to_tree(wanted))
    if place.folder is not None:
        write(report, place.folder)
    show(report, asked)
    return 0


def prepare(asked: Head) -> tuple[Released, ImageSet]:
    """The encoder and the labelled images, checked against each other; no image twice.

    Raises:
        InputError: either is missing or broken, they do not fit, or there are too few.
    """
    gpu(asked.device)
    released = load(
        asked.encoder,
        checkpoint=Path(asked.checkpoint) if asked.checkpoint else None,
        size=asked.size, mean=asked.mean, std=asked.std,
        device=resolve_device(asked.device), seed=asked.seed,
    )  # fmt: skip
    name, path = dataset_and_path(asked.data)
    source = registry.build("dataset", name, asked.data_options)
    folder = None if asked.data_dir is None else Path(asked.data_dir)
    try:
        found = source.load(Request(path, folder, asked.size or released.size, asked.seed))
    except InputError as error:
        raise InputError(renamed(error.text, _here)) from None
    first = sorted({name: i for i, name in reversed(list(enumerate(found.digests())))}.values())
    if len(first) < len(found):
        released.notes.append(f"{len(found) - len(first)} byte-equal copies were left out.")
    images = found.take(np.array(first))
    labels, classes = renumbered(images.labels)
    if len(classes) < 2:
        raise InputError(f"{opt('data', asked.data)}: a head needs 2 classes, got {len(classes)}")
    deal(len(images), asked.images, rng(asked.seed, "trial"))  # refused before a long computation
    released.notes += probe(released, torch.from_numpy(images.images[:LOOK]))
    return released, replace(images, labels=labels, classes=classes)


def _here(option: str) -> str:
    """An option of a simulation's data as it is said here."""
    last = option.removeprefix("data.")
    return {"name": "data", "dir": "data_dir", "size": "size"}.get(last, f"data_options.{last}")


@torch.no_grad()
def features(method: SSLMethod, images: ImageSet) -> Labelled:
    """Features of unit length, on the CPU: encoders differ in length, and with it what a learning
    rate and a weight mean."""
    device, parts = method.encoder.mean.device, []
    for part in in_parts(torch.from_numpy(images.images), device):
        found = method.encoder(part).flatten(1)
        parts.append(F.normalize(found.float(), dim=1).cpu())
    labels = torch.from_numpy(images.labels)
    return Labelled(torch.cat(parts), labels, int(labels.max()) + 1)


def measure(
    asked: Head, released: Released, images: ImageSet, ended: Callable[[], None] = lambda: None
) -> HeadReport:
    """Train and attack every head; the report, its timing left open.

    Args:
        ended: told of each head that is done.
    """
    settings = [Setting(m, e) for m in asked.mechanisms for e in asked.epsilons]
    own, none = features(released.method, images), features(released.untrained(), images)
    trials, controls = list[Trial](), list[Trial]()
    for seed in range(asked.seed, asked.seed + asked.seeds):
        trials.append(trial(own, asked, seed, settings))
        controls.append(trial(none, asked, seed, ()))
        ended()
    return told(asked, released, images, own, settings, trials, controls)


def told(
    asked: Head, released: Released, images: ImageSet, labelled: Labelled,
    settings: Sequence[Setting], trials: Sequence[Trial], controls: Sequence[Trial],
) -> HeadReport:  # fmt: skip
    """All that `head.json` holds."""
    family, environment = compare.tried(len(settings)), describe()
    rows = compare.rows(trials, asked, settings)
    dealt = deal(len(images), asked.images, rng(asked.seed, "trial"))
    widths = [labelled.features.shape[1], *([asked.hidden] if asked.hidden else [])]
    widths.append(labelled.classes)
    return {
        "format": FORMAT,
        "sentence": compare.sentence(rows, asked.seeds),
        "encoder": released.name,
        "data": images.name,
        "heads": asked.seeds,
        "releases": asked.draws,
        "n_members": len(dealt.members),
        "n_nonmembers": len(dealt.others),
        "shadows": len(dealt.shadow_in),
        "weights": sum((a + 1) * b for a, b in zip(widths, widths[1:], strict=False)),
        "fitted": spread(t.fitted for t in trials),
        "sensitivity": {
            f"l{order}": spread((t.sensitivity[order] for t in trials), high=math.inf)
            for order in (1, 2)
        },
        "assumptions": ASSUMPTIONS.format(pairs=asked.samples),
        "rows": rows,
        "controls": {
            "untrained": compare.row(None, [t.plain for t in controls], asked, family),
            "placebo": compare.attack_rows([t.placebo for t in trials], family),
        },
        "notes": [*notes(asked, released, len(dealt.shadow_in)), ratio(trials)],
        "config": to_tree(asked),
        "versions": environment["versions"] | {"commit": environment["commit"]},
        "timing": {},
    }


def notes(asked: Head, released: Released, shadows: int) -> list[str]:
    """What the reader of the numbers should know."""
    found = [said(note, asked.tongue) for note in released.notes]
    found.append(
        f"The attacker has {shadows} shadow head{'s' * (shadows > 1)} on the same encoder, trained "
        "as the head is on images of the same source; classifiers and thresholds are fitted on "
        "their answers alone. The knowing attacker also knows the law and the scale of the noise."
    )
    found.append(
        "Images that a head is trained on are drawn at random from all: which of them the encoder "
        "itself was trained on says nothing of that. The encoder is not noised; what it leaks, "
        "python -m fedmia.audit measures."
    )
    found.append(f"The untrained control is {released.untrained_how}.")
    return found


def ratio(trials: Sequence[Trial]) -> str:
    """Why mechanisms that are scaled by another norm cost as much as they do."""
    found = [t.sensitivity[1] / t.sensitivity[2] for t in trials if t.sensitivity[2]]
    many = f"{statistics.fmean(found):.1f}" if found else "unknown"
    return (
        f"The sensitivity in L1 is {many} times that in L2 (mean over heads; the paper's Table 1 "
        "has 1.26). Logistic and Laplace noise grow with the first, Gaussian noise with the second."
    )


def write(report: HeadReport, folder: Path) -> None:
    """head.json, head.html and figures/NAME.png."""
    from fedmia.heads.figures import draw  # matplotlib takes its time

    figures = draw(report)
    (folder / "figures").mkdir()
    for name, data in figures.items():
        (folder / "figures" / f"{name}.png").write_bytes(data)
    write_files(folder / "head", report, page(report, figures))


def show(report: HeadReport, asked: Invocation) -> None:
    """Print the report: as JSON, as its sentence alone, or as a table and where its page is."""

    def legend(console: Console) -> None:
        console.print("AUC of each attack; * no meaningful guarantee.", style="dim")

    page = None if asked.out is None else asked.out / "head.html"
    tell(report, lambda: terminal(report), page, json=asked.json, quiet=asked.quiet, more=legend)
