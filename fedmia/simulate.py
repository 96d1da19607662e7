"""python -m fedmia.simulate: simulate federated MoCo under attack, and say whether it leaks."""

from __future__ import annotations

import time

_STARTED = time.perf_counter()  # before the heavy imports, which the report's timing names

import sys  # noqa: E402

from fedmia.cli.command import (  # noqa: E402
    FAILED,
    INTERRUPTED,
    Arguments,
    Invocation,
    answer_page,
    pass_gate,
    run,
)
from fedmia.cli.commands import SIMULATE  # noqa: E402

if __name__ == "__main__" and isinstance(_flags := answer_page(SIMULATE, sys.argv[1:]), int):
    sys.exit(_flags)  # a page or a wrong flag, which take none of the heavy imports below

import os  # noqa: E402
import tempfile  # noqa: E402
from collections.abc import Iterator  # noqa: E402
from contextlib import contextmanager, suppress  # noqa: E402
from functools import partial  # noqa: E402
from pathlib import Path  # noqa: E402
from threading import Event  # noqa: E402

from fedmia.evaluation.outlook import show as show_plan  # noqa: E402
from fedmia.evaluation.run import score_run  # noqa: E402
from fedmia.federation.checkpoint import Checkpoint  # noqa: E402
from fedmia.federation.plan import Plan, fingerprint, make_plan  # noqa: E402
from fedmia.federation.train import train  # noqa: E402
from fedmia.observers.run_observers import ObserverGroup  # noqa: E402
from fedmia.pilot import plan_run  # noqa: E402
from fedmia.recording.writer import RecordingWriter  # noqa: E402
from fedmia.records.rows import Report  # noqa: E402
from fedmia.report.publish import publish, show  # noqa: E402
from fedmia.report.words.notes import sentences  # noqa: E402
from fedmia.runtime.device import bfloat16_note, oversubscription_note  # noqa: E402
from fedmia.runtime.interrupts import Interrupts  # noqa: E402
from fedmia.runtime.progress import Display  # noqa: E402
from fedmia.runtime.stopwatch import Stopwatch  # noqa: E402
from fedmia.settings.tree import to_tree  # noqa: E402
from fedmia.storage.durable import explain  # noqa: E402
from fedmia.storage.outfolder import OutFolder  # noqa: E402
from fedmia.storage.runfolder import RunFolder  # noqa: E402
from strategies.failure_policy import FederationError  # noqa: E402


def main(argv: Arguments | None = None) -> int:
    """Run the command line; returns the exit code: 0, 2 bad input, 1 failed, 130 interrupted."""
    watch = Stopwatch(_STARTED)
    watch.claim("import")
    arguments = sys.argv[1:] if argv is None else argv
    with Interrupts("rounds") as stop:
        work = partial(simulate, watch=watch, stop=stop)
        return run(SIMULATE, arguments, work, (FederationError,))


def simulate(invocation: Invocation, watch: Stopwatch, stop: Event) -> int:
    """Do one run; print and write what the user asked for.

    Args:
        invocation: what the user asked for; its settings are an `Experiment`.
        watch: the clock of the command.
        stop: set by the first Ctrl-C.

    Returns:
        The exit code: 0, or 130 where the user interrupted the run.

    Raises:
        InputError: before anything is written.
        FederationError: the rounds ended before their time; the finished ones are reported.
    """
    if invocation.plan:
        return show_plan(invocation, plan_run(invocation, watch, stop))
    report, code = run_experiment(invocation, watch, stop)
    show(report, invocation.out, json=invocation.json, quiet=invocation.quiet)
    if code == INTERRUPTED and invocation.out and RunFolder(invocation.out).begun():
        again = f"--resume {invocation.out} goes on with this run"
        print(f"fedmia: {again} from its last checkpoint", file=sys.stderr)
    if report.failure is not None:
        raise FederationError(f"{report.failure}; the finished rounds are reported on")
    return pass_gate(invocation.gate, report, code)


def run_experiment(invocation: Invocation, watch: Stopwatch, stop: Event) -> tuple[Report, int]:
    """Prepare, execute and publish one run. A finished run that is resumed is only read.

    Args:
        invocation: as of `simulate`.
        watch: the clock of the command.
        stop: set when the user interrupts.

    Returns:
        The report, and the exit code of the command: 0, 1 an attack failed, 130 interrupted. The
        files lie in the folder of the invocation, if there is one.

    Raises:
        InputError: before anything is written.
        FederationError: a client failed in the first round.
        DiskError: a file could not be written or read; what is finished stays.
    """
    if (
        invocation.out
        and invocation.resume
        and (finished_report := RunFolder(invocation.out).finished()) is not None
    ):
        return finished_report, 0
    place = OutFolder(invocation.out, "another run", lambda folder: invocation.resume)
    observing = ObserverGroup(invocation.observe, invocation.out)
    display = Display(0, invocation.quiet or invocation.json, observing.round)
    with display.beating(), place:
        with watch.part("data"):
            plan = make_plan(invocation.settings)
        display.plan(plan.total_rounds())
        machine = [
            bfloat16_note(invocation.settings.machine.device, invocation.settings.train.precision),
            oversubscription_note(
                "machine.threads_per_client", invocation.settings.machine.threads_per_client
            ),
        ]
        for line in filter(None, [*machine, *sentences(plan.cast.data.notes)]):
            display.line(line)
        tree = to_tree(invocation.settings)
        place.begin(None if invocation.resume else tree)
        with observing, open_checkpoint(plan, place) as checkpoint:
            observing.begin(tree)
            with tempfile.TemporaryDirectory(prefix="fedmia-") as folder, display:
                trained = train(
                    plan, Path(folder), place.folder, stop, watch, display,
                    checkpoint=checkpoint,
                )  # fmt: skip
                display.say("attacks")
                scores = score_run(trained, watch, display)
            report = publish(scores, place.folder, watch)
            observing.report(report)
            whole = scores.interrupted is None and scores.failure is None
            if checkpoint and whole and not scores.failed:  # else --resume scores those again
                checkpoint.delete()
                RecordingWriter(RunFolder(checkpoint.root.parent).recording).drop_controls()
    return report, INTERRUPTED if stop.is_set() else FAILED if scores.failed else 0


@contextmanager
def open_checkpoint(plan: Plan, place: OutFolder) -> Iterator[Checkpoint | None]:
    """Hold the checkpoint of a run while the context is open.

    Args:
        plan: the run.
        place: its folder, or nowhere.

    Yields:
        The checkpoint; None without a folder.

    Raises:
        DiskError: a file could not be written or read.
    """
    if place.folder is None:
        yield None
        return
    every = plan.experiment.machine.checkpoint_every
    checkpoint = Checkpoint(RunFolder(place.folder).checkpoint, every, fingerprint(plan))
    checkpoint.open()
    try:
        with explain(hint=f"--resume {place.folder} goes on with this run"):
            yield checkpoint
    except BaseException:  # but a kill: what was written so far stays
        with suppress(OSError):  # of a disk that failed
            if not checkpoint.exists():
                checkpoint.delete()
        raise
    finally:
        checkpoint.close()


if __name__ == "__main__":
    code = main(_flags)  # type: ignore[arg-type]  # an exit code ended it
    if code == INTERRUPTED:  # a thread of a client or of Flower's may wait for another yet
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)
