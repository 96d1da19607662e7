"""`python -m fedmia.audit`: every attack that can run, on an encoder that somebody brings."""

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
from fedmia.cli.commands import AUDIT  # noqa: E402

if __name__ == "__main__" and isinstance(_flags := answer_page(AUDIT, sys.argv[1:]), int):
    sys.exit(_flags)  # a page or a wrong flag, which take none of the heavy imports below

from collections.abc import Callable  # noqa: E402
from dataclasses import replace  # noqa: E402
from threading import Event  # noqa: E402

import torch  # noqa: E402

from fedmia.encoders.memory import InMemory  # noqa: E402
from fedmia.evaluation import outlook  # noqa: E402
from fedmia.evaluation.audits.prepare import NOTHING, device_of, prepare  # noqa: E402
from fedmia.evaluation.audits.threads import settle_threads  # noqa: E402
from fedmia.evaluation.encoder import examine, folder  # noqa: E402
from fedmia.evaluation.steps.failures import rarest_reason  # noqa: E402
from fedmia.records import Evaluation  # noqa: E402
from fedmia.records.note import Note  # noqa: E402
from fedmia.records.rows import Report  # noqa: E402
from fedmia.report.publish import publish, show  # noqa: E402
from fedmia.report.words.notes import in_words, sentences  # noqa: E402
from fedmia.runtime.cores import count_cores  # noqa: E402
from fedmia.runtime.device import bfloat16_note, oversubscription_note  # noqa: E402
from fedmia.runtime.interrupts import Interrupts  # noqa: E402
from fedmia.runtime.progress import AuditDisplay  # noqa: E402
from fedmia.runtime.stopwatch import Stopwatch  # noqa: E402
from fedmia.settings.errors import InputError  # noqa: E402
from fedmia.shadows.train import TrainingStopped  # noqa: E402
from fedmia.storage.durable import explain  # noqa: E402


def main(argv: Arguments | None = None) -> int:
    """Run the command line of an audit.

    Args:
        argv: arguments without the program's name; None: those of the process.

    Returns:
        The exit code: 0, 1 an attack failed (the others are reported), 2 bad input or no attack
            could run, 3 the report fails a condition of --fail-on, 74 a disk that failed, 130
        interrupted.
    """
    watch = Stopwatch(_STARTED)
    watch.claim("import")
    with Interrupts("attacks and audits") as stop:
        arguments = sys.argv[1:] if argv is None else argv
        return run(AUDIT, arguments, lambda invocation: run_audit(invocation, watch, stop))


def run_audit(
    invocation: Invocation,
    watch: Stopwatch,
    stop: Event,
    present: Callable[..., None] = show,
    objects: InMemory = NOTHING,
) -> int:
    """Load the encoder and the images, run the attacks, write the report.

    Args:
        invocation: what the user asked for; its settings are an `Audit`.
        watch: the clock of the command.
        stop: set by the first Ctrl-C.
        present: shows the report to the user, with the arguments of `show`.
        objects: what a Python session hands over in place of names.

    Returns:
        The exit code, as of `main`.

    Raises:
        InputError: bad input, or no attack could run.
        DiskError: a file could not be written or read; finished attacks stay.
    """
    if invocation.plan:
        return outlook.show(invocation, outlook.plan_audit(invocation, watch, stop))
    quiet = invocation.quiet or invocation.json
    display = AuditDisplay(len(invocation.settings.attacks), quiet, in_words)
    try:
        with display.beating():
            scores, report = score_and_publish(invocation, watch, stop, display, objects)
    except TrainingStopped:
        return INTERRUPTED
    if report is None:
        return report_nothing_ran(scores, stop.is_set())
    present(report, invocation.out, json=invocation.json, quiet=invocation.quiet)
    if stop.is_set() and invocation.out is not None:
        print("fedmia: the same command again goes on with this audit", file=sys.stderr)
    code = INTERRUPTED if stop.is_set() else FAILED if scores.failed else 0
    return pass_gate(invocation.gate, report, code)


def score_and_publish(
    invocation: Invocation,
    watch: Stopwatch,
    stop: Event,
    display: AuditDisplay,
    objects: InMemory = NOTHING,
) -> tuple[Evaluation, Report | None]:
    """Load the encoder and the images, run the attacks, write the report.

    Args:
        invocation: as of `run_audit`.
        watch: the clock of the command.
        stop: set by the first Ctrl-C.
        display: progress on the terminal.
        objects: as of `run_audit`.

    Returns:
        The scores and their report; no report where no attack has scores.

    Raises:
        InputError: bad input.
        DiskError: a file could not be written or read; finished attacks stay.
    """
    audit = invocation.settings
    audit = settle_threads(audit, invocation.out, display.line)
    place = folder(audit, invocation.out)
    torch.set_num_threads(audit.machine.threads or count_cores())
    device = device_of(audit)
    with watch.part("data"):
        rounds, data_split = prepare(audit, device, objects)
    # Constants and sizes that were guessed, images left out, which model of its run it is.
    notes = [*rounds.encoder.notes, *data_split.notes]
    machine = [
        bfloat16_note(audit.machine.device, audit.encoder.precision),
        bfloat16_note(audit.machine.device, audit.shadow.training.get("precision", "float32")),
        oversubscription_note("machine.threads", audit.machine.threads),
    ]
    for line in filter(None, [*dict.fromkeys(machine), *sentences(notes)]):
        display.line(line)
    if audit.machine.threads != invocation.settings.machine.threads:
        busy = Note("machine-busy", {"threads": audit.machine.threads})
        data_split = replace(data_split, notes=(*data_split.notes, busy))
    hint = "" if place.folder is None else "the same command again goes on with this audit"
    with explain(hint=hint), place:
        scores = examine(audit, rounds, data_split, device, place, display, watch, stop.is_set)
        if not (scores.attacks or scores.inferences):
            return scores, None
        return scores, publish(scores, place.folder, watch)


def report_nothing_ran(scores: Evaluation, interrupted: bool) -> int:
    """Print in one line why there is nothing to report.

    Args:
        scores: the results of the audit; no attack in them has scores.
        interrupted: whether the user ended the audit.

    Returns:
        The exit code: 130 interrupted, 1 every attack failed.

    Raises:
        InputError: no attack could run.
    """
    if interrupted:
        print("fedmia: interrupted before the first attack was done", file=sys.stderr)
        return INTERRUPTED
    others = len(scores.not_run) - 1
    more = f" (and {others} others could not run)" if others > 0 else ""
    line = f"no attack could run; {': '.join(rarest_reason(scores.not_run))}{more}"
    if not scores.failed:
        raise InputError(line)
    print(f"fedmia: error: {line}", file=sys.stderr)
    return FAILED


if __name__ == "__main__":
    sys.exit(main(_flags))  # type: ignore[arg-type]  # an exit code ended it
