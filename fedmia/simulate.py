"""python -m fedmia.simulate: simulate federated MoCo under attack, and say whether it leaks."""

from __future__ import annotations

import time

_STARTED = time.perf_counter()  # before the heavy imports, which the report's timing names

import logging  # noqa: E402
import os  # noqa: E402
import shutil  # noqa: E402
import signal  # noqa: E402
import sys  # noqa: E402
import tempfile  # noqa: E402
from collections.abc import Sequence  # noqa: E402
from dataclasses import replace  # noqa: E402
from pathlib import Path  # noqa: E402
from threading import Event  # noqa: E402
from types import FrameType  # noqa: E402
from typing import Any  # noqa: E402

from rich.console import Console  # noqa: E402

from fedmia.errors import InputError  # noqa: E402
from fedmia.federation.run import Prepared, federate, make_site, prepare  # noqa: E402
from fedmia.federation.snapshot import SnapshotStore  # noqa: E402
from fedmia.report.build import build_report, strict  # noqa: E402
from fedmia.report.files import json_text, write_report  # noqa: E402
from fedmia.report.seeds import seeds_summary  # noqa: E402
from fedmia.report.terminal import render, seeds_table  # noqa: E402
from fedmia.results import RunScores  # noqa: E402
from fedmia.runtime.environment import describe  # noqa: E402
from fedmia.runtime.outfolder import make, refuse_occupied  # noqa: E402
from fedmia.runtime.progress import Display  # noqa: E402
from fedmia.runtime.stopwatch import Stopwatch  # noqa: E402
from fedmia.scoring.probes import Probes  # noqa: E402
from fedmia.scoring.score import score  # noqa: E402
from fedmia.settings.command import Invocation, bad_input, parse  # noqa: E402
from fedmia.settings.experiment import Experiment  # noqa: E402
from fedmia.settings.tree import dump  # noqa: E402
from strategies.base import FederationError  # noqa: E402

INTERRUPTED = 130  # exit code


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code: 0, 2 bad input, 1 failed, 130 interrupted."""
    watch = Stopwatch(_STARTED)
    watch.claim("import")
    logging.getLogger("flwr").setLevel(logging.ERROR)
    stop = Event()
    try:
        asked = parse(sys.argv[1:] if argv is None else argv)
        if asked.page is not None:
            sys.stdout.write(asked.page.rstrip("\n") + "\n")
            return 0
        if asked.out is not None:
            refuse_occupied(asked.out, "another run")
        with _Interrupts(stop):
            return simulate(asked, watch, stop)
    except InputError as error:
        return bad_input(error)
    except FederationError as error:
        print("fedmia: the run failed: " + " ".join(str(error).split()), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED


def simulate(asked: Invocation, watch: Stopwatch, stop: Event) -> int:
    """One run, or one for each of `--seeds`, printed and written where asked."""
    assert asked.experiment is not None
    reports: list[dict[str, Any]] = []
    for i in range(asked.seeds):
        if i:
            watch = Stopwatch(time.perf_counter())
        experiment = replace(asked.experiment, seed=asked.experiment.seed + i)
        folder = asked.out
        if asked.out is not None and asked.seeds > 1:
            folder = asked.out / f"seed-{experiment.seed}"
        reports.append(one(experiment, folder, asked, watch, stop))
        if stop.is_set():
            break
    if asked.seeds > 1:
        _summary(reports, asked)
    elif asked.json:
        sys.stdout.write(json_text(reports[0]))
    return INTERRUPTED if stop.is_set() else 0


def one(
    experiment: Experiment, out: Path | None, asked: Invocation, watch: Stopwatch, stop: Event
) -> dict[str, Any]:
    """One run: prepare, execute, report.

    Raises:
        InputError: before anything is written.
    """
    with watch.part("data"):
        prepared = prepare(experiment)
    created = out is not None and not out.exists()
    if out is not None:
        make(out, dump(experiment, describe()))
    try:
        scores = execute(prepared, out, watch, stop, asked.quiet or asked.json)
    except BaseException:
        if out is not None and created and not (out / "snapshots").exists():
            shutil.rmtree(out, ignore_errors=True)
        raise
    with watch.part("report"):
        report = build_report(scores)
        if out is not None:
            from fedmia.report.figures.draw import draw_all

            figures = draw_all(scores, report)
    report["timing"] = strict(watch.timing())
    if out is not None:
        write_report(out, scores, report, figures)
    if not asked.json and not (asked.quiet and asked.seeds > 1):
        _show(report, out, asked.quiet)
    return report


def execute(
    prepared: Prepared, out: Path | None, watch: Stopwatch, stop: Event, quiet: bool
) -> RunScores:
    """Train, attack and score. The snapshots of `main` stay in `out` where it is given.

    Raises:
        FederationError: a client failed; nothing is reported.
    """
    with (
        tempfile.TemporaryDirectory(prefix="fedmia-") as made,
        Display(prepared.total_rounds(), quiet) as display,
    ):
        folder = Path(made)
        site = make_site(prepared, folder, stop)
        snapshots = SnapshotStore((out or folder) / "snapshots")
        probes = Probes(site, prepared.data, prepared.split)
        finished = federate(
            prepared, site, folder, snapshots, probe=probes.knn, watch=watch, display=display
        )
        display.say("attacks")
        scores = score(finished, probes, watch)
        for branch in ("zero", "placebo"):
            snapshots.drop(branch)
        return scores


def _show(report: dict[str, Any], out: Path | None, quiet: bool) -> None:
    console = Console()
    if quiet:
        console.print(report["verdict"], highlight=False, soft_wrap=True)
        return
    console.print(render(report))
    if out is not None:
        console.print(f"Report: {out / 'report.html'}", highlight=False, soft_wrap=True)


def _summary(reports: list[dict[str, Any]], asked: Invocation) -> None:
    summary = seeds_summary(reports)
    if asked.out is not None:
        (asked.out / "summary.json").write_text(json_text(summary), encoding="utf-8")
    if asked.json:
        sys.stdout.write(json_text({"summary": summary, "runs": reports}))
    else:
        if not asked.quiet:
            Console().print(seeds_table(summary))
        print(summary["sentence"])


class _Interrupts:
    """First Ctrl-C: finish nothing more, report on the finished rounds. Second: stop at once."""

    def __init__(self, stop: Event) -> None:
        self.stop = stop

    def __enter__(self) -> None:
        self._before = signal.signal(signal.SIGINT, self._handle)

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.stop.is_set():
            raise KeyboardInterrupt
        self.stop.set()
        print(
            "\nfedmia: interrupted; reporting on the finished rounds (Ctrl-C again stops at once)",
            file=sys.stderr,
        )


if __name__ == "__main__":
    code = main()
    if code == INTERRUPTED:  # a thread of a client or of Flower's may wait for another yet
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)
