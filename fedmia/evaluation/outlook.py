"""`--plan`: what a command would do, by pilots on few of its images: seconds, queries, and the
smallest leak that its images would show."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import torch

from fedmia.cli.command import Invocation
from fedmia.config.audit import Audit
from fedmia.encoders.base import LoadedEncoder
from fedmia.evaluation.audits.images import AuditSplit
from fedmia.evaluation.encoder import examine
from fedmia.options.errors import InputError
from fedmia.records import RunScores
from fedmia.records.attack_rows import with_auc
from fedmia.records.rows import Report
from fedmia.report.publish import json_text, publish
from fedmia.report.verdict import leak_tests
from fedmia.runtime.heartbeat import format_seconds
from fedmia.runtime.progress import AuditDisplay
from fedmia.runtime.stopwatch import Stopwatch
from fedmia.statistics.power import images_needed, smallest_detectable_auc
from fedmia.storage.outfolder import OutFolder

LEAST = 8  # known images a side of the smaller pilot
SHARES = 0.1, 0.2  # of the images in the two pilots, where that leaves LEAST
EPOCHS = 2  # of each shadow of a pilot
Outlook = dict[str, Any]  # as `--plan --json` prints it


def shares_of(known: int) -> tuple[float, float]:
    """Shares of all images that the two pilots take, where so many are known a side."""
    least = min(max(SHARES[0], LEAST / max(known, 1)), 0.5)
    return least, min(1.0, 2 * least)


def pick(count: int, share: float) -> np.ndarray:
    """Positions of a share of `count` images, at least 4, evenly spread."""
    number = min(count, max(4, round(share * count)))
    return np.linspace(0, count - 1, number).astype(np.int64) if count else np.zeros(0, np.int64)


def extend(shares: tuple[float, float], values: tuple[float, float]) -> float:
    """The line through two pilots, at all images; it falls nowhere.

    Args:
        shares: of the images in the pilots.
        values: what each took.

    Returns:
        What all images take.
    """
    (first, second), (low, high) = shares, values
    slope = (high - low) / (second - first) if second > first else 0.0
    return high + max(slope, 0.0) * (1 - second)


def queries_of(shares: tuple[float, float], reports: tuple[Report, Report]) -> dict[str, int]:
    """Queries of each attack, from the reports of the two pilots."""
    small, large = ({a["name"]: a["queries"] for a in one["attacks"]} for one in reports)
    both = [name for name in large if name in small]
    return {name: round(extend(shares, (small[name], large[name]))) for name in both}


def smallest_leak(
    report: Report, members: int, others: int, leak: float | None, available: Mapping[str, int]
) -> Outlook:
    """How small a leak the images show, by the tests of the report.

    Args:
        report: of a pilot, which has as many tests as the command.
        members: that are scored.
        others: non-members that are scored.
        leak: AUC of a leak of which the images needed are counted; None: of none.
        available: images a side that could be scored.

    Returns:
        Keys of the outlook.
    """
    tests = leak_tests(report, with_auc(report["attacks"]))
    row: Outlook = {
        "scored": {"members": members, "nonmembers": others},
        "tests": report["family"]["intervals"],
        "smallest_auc": smallest_detectable_auc(members, others, **tests),
    }
    if leak is not None:
        needed = images_needed(leak, **tests)
        enough = needed is not None and min(available.values()) >= needed
        row |= {"leak": leak, "images_needed": needed, "available": dict(available)}
        row["enough"] = enough
    return row


class _Clock(AuditDisplay):
    """Silent; notes when the epochs of the shadows began and ended."""

    def __init__(self) -> None:
        super().__init__(0, True)
        self.stamps: list[tuple[float, int]] = []

    def epochs(self, done: int, total: int) -> None:
        self.stamps.append((time.perf_counter(), done))

    def shadows(self) -> tuple[float, float]:
        """Seconds of all epochs, and of one."""
        if len(self.stamps) < 2:
            return 0.0, 0.0
        (began, first), (ended, last) = self.stamps[0], self.stamps[-1]
        return ended - began, (ended - began) / max(last - first, 1)


def plan_audit(
    audit: Audit, released: LoadedEncoder, split: AuditSplit, device: torch.device,
    out: Path | None, watch: Stopwatch, leak: float | None, stop: Event,
) -> Outlook:  # fmt: skip
    """What an audit would do; nothing is written.

    Args:
        released: the encoder under audit.
        split: the images in their roles.
        device: where tensors are computed.
        out: folder of the audit, which is not touched; None: it writes no files.
        watch: timed the command so far.
        leak: as of `smallest_leak`.
        stop: set when the user interrupts.

    Returns:
        The outlook.

    Raises:
        InputError: no attack can run.
        KeyboardInterrupt: the user ended it.
    """
    spent = watch.timing()
    short = replace(audit, sweep=None)
    plan = audit.plan()
    if audit.shadows:
        short = replace(short, shadow={**audit.shadow, "epochs": min(EPOCHS, plan.epochs)})
    shares = shares_of(min(len(split.known_members), len(split.known_nonmembers)))
    runs = [_pilot(short, released, _cut(split, share), device, out, stop) for share in shares]
    epoch = runs[0][2][1]
    seconds = {
        "import": spent["import"],
        "data": spent["data"],
        "shadows": epoch * plan.epochs * plan.count if audit.shadows else 0.0,
        "attacks": extend(shares, (runs[0][1]["attacks"], runs[1][1]["attacks"])),
        "probes": runs[1][1]["probes"],
        "report": runs[0][1]["report"],  # of the first: matplotlib is loaded once
    }
    reports = runs[0][0], runs[1][0]
    counts = split.counts()
    images = {k: v for k, v in counts.items() if isinstance(v, int) and "_" in k}
    row: Outlook = {
        "lines": [*released.notes, *split.notes],
        "images": images,
        "epsilon": [],
        "queries": queries_of(shares, reports),
    }
    if released.remote is not None:  # it answers each image once
        row["images_sent"] = round(released.remote.sent / shares[1])
        row["images_sent_for_the_plan"] = released.remote.sent
        seconds["attacks"] = max(seconds["attacks"], row["images_sent"] / (audit.rate or np.inf))
    spare = counts["spare_nonmembers"]
    sides = len(split.scored_members), len(split.scored_nonmembers)
    available = {"members": sides[0], "nonmembers": sides[1] + spare}
    return finish(
        row, watch, seconds, reports[1], smallest_leak(reports[1], *sides, leak, available)
    )


def _pilot(
    audit: Audit, released: LoadedEncoder, split: AuditSplit, device: torch.device,
    out: Path | None, stop: Event,
) -> tuple[Report, dict[str, float], tuple[float, float]]:  # fmt: skip
    """The audit on few images: its report, its seconds without its shadows, and those of these."""
    watch, clock = Stopwatch(time.perf_counter()), _Clock()
    place = OutFolder(None, "")
    scores = examine(audit, released, split, device, place, clock, watch, stop.is_set)
    if stop.is_set():
        raise KeyboardInterrupt
    if not (scores.attacks or scores.inferences):
        why = next(iter(scores.not_run.items()), ("", "none is asked for"))
        raise InputError(f"no attack could run; {why[0]}: {why[1]}")
    report = publish_apart(scores, out, watch)
    shadows = clock.shadows()
    seconds = watch.timing()
    return report, {**seconds, "attacks": max(seconds["attacks"] - shadows[0], 0.0)}, shadows


def _cut(split: AuditSplit, share: float) -> AuditSplit:
    """The images of a pilot."""
    names = {
        "scored_members": ("member_ids", "member_labels"),
        "scored_nonmembers": ("nonmember_ids", "nonmember_labels"),
        "known_members": (),
        "known_nonmembers": (),
    }
    less: dict[str, Any] = {}
    for images, beside in names.items():
        at = pick(len(getattr(split, images)), share)
        less |= {name: getattr(split, name)[at] for name in (images, *beside)}
    return replace(split, **less)


def publish_apart(scores: RunScores, out: Path | None, watch: Stopwatch) -> Report:
    """The report of a pilot; its files and figures are made in a temporary folder.

    Args:
        scores: of the pilot.
        out: folder of the command; None: it writes no files.
        watch: notes the seconds.

    Returns:
        The report.
    """
    with tempfile.TemporaryDirectory(prefix="fedmia-") as folder:
        return publish(scores, None if out is None else Path(folder), watch)


def finish(
    row: Outlook, watch: Stopwatch, seconds: Mapping[str, float], report: Report, leak: Outlook
) -> Outlook:
    """The outlook with its seconds, the smallest leak, and the attacks that the pilots lack.

    Args:
        row: the other keys.
        watch: timed this command, for `plan_s`.
        seconds: of the command, by part.
        report: of the larger pilot.
        leak: keys of `smallest_leak`.

    Returns:
        The outlook.
    """
    parts = {name: round(value, 2) for name, value in seconds.items()}
    lost = {one["attack"]: one["reason"] for one in report["not_run"]}
    total = round(sum(seconds.values()), 2)
    return {
        **row,
        "not_run": lost,
        "seconds": {**parts, "total": total},
        **leak,
        "plan_s": round(watch.timing()["total_s"], 2),
    }


def describe(row: Outlook) -> list[str]:
    """The outlook as lines of text."""
    lines = list(row["lines"])
    if row["images"]:
        listed = ", ".join(f"{n:,} {name.replace('_', ' ')}" for name, n in row["images"].items())
        lines.append(f"images: {listed}")
    lines += row["epsilon"]
    if row["queries"]:
        lines.append("queries: " + ", ".join(f"{n} {q:,}" for n, q in row["queries"].items()))
    if "images_sent" in row:
        sent = f"{row['images_sent']:,} are sent, each once"
        lines.append(
            f"images for the API: {sent} ({row['images_sent_for_the_plan']:,} for this plan)"
        )
    lines += [f"not run: {name}: {why}" for name, why in row["not_run"].items()]
    parts = {name: s for name, s in row["seconds"].items() if name != "total" and s >= 0.5}
    listed = ", ".join(f"{name} {format_seconds(s)}" for name, s in parts.items())
    lines.append(
        f"time: about {format_seconds(row['seconds']['total'])} on this machine ({listed})"
    )
    return lines + describe_leak(row)


def describe_leak(row: Outlook) -> list[str]:
    """The smallest leak, and the images of the leak that was asked about."""
    n, m = row["scored"].values()
    sizes = f"{n:,} members and {m:,} non-members, tests: {row['tests']}"
    least = row["smallest_auc"]
    text = f"AUC {least:.3f} in 80 of 100 runs" if least else "not even a perfect attack"
    lines = [f"smallest leak that would show: {text} ({sizes})"]
    if "leak" not in row:
        return lines
    needed, have = row["images_needed"], row["available"]
    what = f"a leak of AUC {row['leak']:g} needs"
    if needed is None:
        return [*lines, f"{what} more than ten million images a side"]
    stock = f"{have['members']:,} members and {have['nonmembers']:,} non-members to score"
    verb = "are enough" if row["enough"] else "are too few"
    return [*lines, f"{what} {needed:,} scored members and as many others; {stock} {verb}"]


def show(invocation: Invocation, row: Outlook) -> int:
    """Print the outlook, as JSON where that is asked for; the exit code 0."""
    text = json_text(row) if invocation.json else "\n".join([*describe(row), ""])
    print(text, end="")
    return 0
