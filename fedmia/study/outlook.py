"""`fedmia study --plan`: what the runs of a study would do, from the plan of one run a point."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Event

from fedmia.cli.command import FAILED, INTERRUPTED, Invocation, print_failure
from fedmia.config.audit import Audit
from fedmia.config.study import Cell, Study
from fedmia.evaluation.outlook import Outlook, describe
from fedmia.options.yamlfile import dump
from fedmia.report.publish import json_text
from fedmia.runtime.cores import count_cores
from fedmia.runtime.heartbeat import format_seconds
from fedmia.study.engine import side_by_side
from fedmia.study.processes import LIMITS, command


def plan_study(invocation: Invocation, stop: Event) -> int:
    """Print what the runs of a study would do.

    Args:
        invocation: what the user asked for; its settings are a `Study`.
        stop: set when the user interrupts.

    Returns:
        The exit code: 0, 130 interrupted, or that of the first point whose plan failed.
    """
    settings: Study = invocation.settings
    own = time.process_time()  # what this process took to start
    points: dict[str, Outlook] = {}
    for cell in settings.points:
        began = time.perf_counter()
        answer = _ask(cell, settings, invocation.leak)
        if stop.is_set():
            return INTERRUPTED
        if answer.returncode:
            lines = answer.stderr.splitlines() or [f"exit code {answer.returncode}"]
            print_failure(f"{cell.point or 'run'}: {lines[-1].removeprefix('fedmia: ')}", FAILED)
            return answer.returncode
        points[cell.point or "run"] = row = json.loads(answer.stdout)
        row["seconds"]["process"] = round(time.perf_counter() - began - row["plan_s"], 2)
        row["seconds"]["total"] += row["seconds"]["process"]
        if not (invocation.quiet or invocation.json):
            each = format_seconds(row["seconds"]["total"])
            print(f"fedmia: {cell.point or 'run'}: {each} a run", file=sys.stderr)
    # Its page is drawn as that of a run.
    own += max(row["seconds"]["report"] for row in points.values())
    total = round(own + study_seconds(settings, points), 2)
    if invocation.json:
        about = {"runs": len(settings.cells), "jobs": side_by_side(settings), "seconds": total}
        print(json_text({**about, "points": points}), end="")
        return 0
    for point, row in points.items():
        print("\n  ".join([f"{point}:", *describe(row)]))
    runs, jobs = len(settings.cells), side_by_side(settings)
    print(f"study: {runs} runs, {jobs} at once: about {format_seconds(total)} on this machine")
    return 0


def study_seconds(settings: Study, points: Mapping[str, Outlook]) -> float:
    """Seconds of all runs, so many side by side; shadows in a cache are trained once.

    Args:
        settings: of the study.
        points: outlook of one run of each point.

    Returns:
        The seconds.
    """
    total, trained = 0.0, False
    for cell in settings.cells:
        seconds = points[cell.point or "run"]["seconds"]
        shared = isinstance(cell.first, Audit) and bool(cell.first.cache) and not cell.nth
        total += seconds["total"] - (seconds.get("shadows", 0.0) if shared and trained else 0.0)
        trained = trained or shared
    return total / min(side_by_side(settings), len(settings.cells))


def _ask(cell: Cell, settings: Study, leak: float | None) -> subprocess.CompletedProcess[str]:
    """The plan of one run, in a process of its own as the run."""
    module = "fedmia.audit" if isinstance(cell.first, Audit) else "fedmia.simulate"
    jobs = side_by_side(settings)
    threads = str(cell.threads or max(1, count_cores() // jobs))
    environment = dict.fromkeys(LIMITS, threads) | os.environ
    with tempfile.TemporaryDirectory(prefix="fedmia-") as folder:
        config = Path(folder) / "config.yaml"
        config.write_text(dump(cell.tree), encoding="utf-8")
        more: Sequence[object] = () if leak is None else (leak,)
        trust = ["--trust-plugins"] if settings.trust_plugins else []
        place = "--out", Path(folder) / "run"  # a run of a study also draws its figures
        line = command(module, "--config", config, *place, *trust, "--json", "--plan", *more)
        reads, holds = os.pipe()  # the process ends when its input does
        try:
            return subprocess.run(
                line, env=environment, stdin=reads, capture_output=True, text=True, check=False,
                start_new_session=True,
            )  # fmt: skip
        finally:
            os.close(reads)
            os.close(holds)
