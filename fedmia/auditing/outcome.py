"""The report of an audit: put together, written, printed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from fedmia.auditing.harness import Audited
from fedmia.auditing.views import ModelViews
from fedmia.errors import said
from fedmia.report.build import build_report, strict
from fedmia.report.files import json_text, write_report
from fedmia.report.terminal import render
from fedmia.results import RunScores
from fedmia.runtime.environment import describe
from fedmia.runtime.stopwatch import Stopwatch
from fedmia.settings.command import Invocation
from fedmia.settings.tree import to_tree


def gather(
    views: ModelViews,
    found: Audited,
    pixels: tuple[np.ndarray, np.ndarray],
    useful: list[Any],
    interrupted: bool,
) -> RunScores:
    """All that the report is made of."""
    audit, released, dealt = views.audit, views.released, views.dealt
    environment = describe()
    notes = [said(n, audit.tongue) for n in (*released.notes, *dealt.notes, *found.notes)]
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
        config=to_tree(audit) | {"views": vars(views.augment)},
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


def show(report: dict[str, Any], out: Path | None, asked: Invocation) -> None:
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
