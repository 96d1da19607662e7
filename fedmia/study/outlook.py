"""`fedmia study --plan`: what the runs of a study would do, from the plan of one run a point."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from threading import Event

from fedmia.cli.command import Invocation
from fedmia.evaluation.outlook import Outlook, describe, plan_audit
from fedmia.report.publish import json_text
from fedmia.runtime.cores import bind_cores, share_cores
from fedmia.runtime.forecast import makespan
from fedmia.runtime.heartbeat import format_seconds
from fedmia.runtime.stopwatch import Stopwatch
from fedmia.settings.commands.audit import Audit
from fedmia.settings.commands.study import Cell, Study
from fedmia.settings.errors import prefix_errors
from fedmia.study.engine import count_at_once


def plan_study(invocation: Invocation, stop: Event) -> int:
    """Print what the runs of a study would do.

    Args:
        invocation: what the user asked for; its settings are a `Study`.
        stop: set when the user interrupts.

    Returns:
        The exit code 0.

    Raises:
        InputError: a run that would be refused, or that cannot be planned.
        KeyboardInterrupt: the user ended it.
    """
    settings: Study = invocation.settings
    jobs, points = count_at_once(settings), dict[str, Outlook]()
    own = time.process_time()  # what this process took to start
    from fedmia.pilot import plan_run  # with Flower, as a run

    loaded = time.process_time()
    for cell in settings.points:
        watch = Stopwatch(time.perf_counter())
        watch.add({"import": loaded})
        # A run of a study also draws its figures.
        one = replace(invocation, settings=cell.first, out=Path())
        plan = plan_audit if isinstance(cell.first, Audit) else plan_run
        name = cell.point or "run"
        with prefix_errors(name), bind_cores(share_cores(jobs)[0]):
            points[name] = row = plan(one, watch, stop)
        if not invocation.json:
            print("\n  ".join([f"{name}:", *describe(row)]), flush=True)
    # Its page is drawn as that of a run.
    total = own + max(row["seconds"]["report"] for row in points.values())
    seconds = [points[cell.point or "run"]["seconds"]["total"] for cell in settings.cells]
    sharing = [at for at, cell in enumerate(settings.cells) if shares(cell)]
    for at in sharing[1:]:  # the first of them trains the shadows of all
        seconds[at] -= points[settings.cells[at].point or "run"]["seconds"]["shadows"]
    total += makespan(seconds, min(jobs, len(seconds)))
    runs = len(settings.cells)
    peaks = sorted(points[cell.point or "run"]["memory"]["peak_mb"] for cell in settings.cells)
    most = sum(peaks[-jobs:])
    line = (
        f"study: {runs} runs, {jobs} at once: about {format_seconds(total)} on this machine, at "
        f"most {most:,.0f} MB of memory\n"
    )
    if invocation.json:
        about = {"runs": runs, "jobs": jobs, "seconds": total, "peak_mb": most}
        line = json_text({**about, "points": points})
    print(line, end="")
    return 0


def shares(cell: Cell) -> bool:
    """Whether an audit takes its shadows from a cache."""
    return isinstance(cell.first, Audit) and bool(cell.first.shadow.cache) and not cell.nth
