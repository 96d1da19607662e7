"""`python -m fedmia.audit`: every attack that can run, on an encoder that somebody brings."""

from __future__ import annotations

import time

_STARTED = time.perf_counter()  # before the heavy imports, which the report's timing names

import sys  # noqa: E402

from fedmia.cli.command import FAILED, INTERRUPTED, Invocation, answer_page, run  # noqa: E402
from fedmia.cli.commands import AUDIT  # noqa: E402

if __name__ == "__main__" and (_code := answer_page(AUDIT, sys.argv[1:])) is not None:
    sys.exit(_code)  # a page or a wrong flag, which take none of the heavy imports below

from collections.abc import Sequence  # noqa: E402
from dataclasses import replace  # noqa: E402
from threading import Event  # noqa: E402

import torch  # noqa: E402

from fedmia.evaluation.encoder import device_of, examine, folder, prepare  # noqa: E402
from fedmia.options.errors import InputError, Tongue, format_error  # noqa: E402
from fedmia.records import RunScores  # noqa: E402
from fedmia.report.publish import publish, show  # noqa: E402
from fedmia.runtime.cores import count_cores  # noqa: E402
from fedmia.runtime.device import bfloat16_note  # noqa: E402
from fedmia.runtime.interrupts import Interrupts  # noqa: E402
from fedmia.runtime.progress import AuditDisplay  # noqa: E402
from fedmia.runtime.stopwatch import Stopwatch  # noqa: E402
from fedmia.shadows.train import TrainingStopped  # noqa: E402
from fedmia.study.audits import encoders as several  # noqa: E402


def main(argv: Sequence[str] | None = None, tongue: Tongue | None = None) -> int:
    """Run the command line; the exit code: 0, 2 bad input or nothing could run, 1 an attack
    broke (the others are reported), 130 interrupted.

    Args:
        tongue: how the report of one audit says its options; None: as they were given.
    """
    watch = Stopwatch(_STARTED)
    watch.claim("import")
    try:
        with Interrupts("attacks and audits") as stop:
            arguments = sys.argv[1:] if argv is None else argv
            return run(AUDIT, arguments, lambda asked: run_audits(asked, watch, stop, tongue))
    except TrainingStopped:
        return INTERRUPTED


def run_audits(asked: Invocation, watch: Stopwatch, stop: Event, tongue: Tongue | None) -> int:
    """One audit, or a series of them; the exit code."""
    if len(asked.settings.cells) > 1:
        return several(asked, stop)
    one = asked.settings.cells[0].first
    one = replace(one, tongue=tongue or one.tongue)
    return run_audit(replace(asked, settings=one), watch, stop)


def run_audit(asked: Invocation, watch: Stopwatch, stop: Event) -> int:
    """Load, attack, report; the exit code.

    Raises:
        InputError: bad input, or no attack could run.
    """
    audit, quiet = asked.settings, asked.quiet or asked.json
    place = folder(audit, asked.out)
    torch.set_num_threads(audit.threads or count_cores())
    device = device_of(audit)
    with watch.part("data"):
        released, audit_split = prepare(audit, device)
    display = AuditDisplay(len(audit.attacks), quiet)
    own = [] if released.weights.round is None else released.notes  # which model of its run it is
    for note in filter(None, [bfloat16_note(audit.device, audit.precision), *own]):
        display.say(format_error(note, audit.tongue))
    scores = examine(audit, released, audit_split, device, place, display, watch, stop.is_set)
    if not (scores.attacks or scores.inferences):
        return report_nothing_ran(scores, stop.is_set())
    show(publish(scores, place.folder, watch), asked.out, json=asked.json, quiet=asked.quiet)
    return INTERRUPTED if stop.is_set() else FAILED if scores.failed else 0


def report_nothing_ran(scores: RunScores, interrupted: bool) -> int:
    """Say in one line why there is nothing to report; the exit code.

    Raises:
        InputError: no attack could run.
    """
    reasons = [f"{name}: {reason}" for name, reason in scores.not_run.items()]
    if interrupted:
        print("fedmia: interrupted before the first attack was done", file=sys.stderr)
        return INTERRUPTED
    more = f" (and {len(reasons) - 1} others could not run)" if len(reasons) > 1 else ""
    line = f"no attack could run; {reasons[0]}{more}"
    if not scores.failed:
        raise InputError(line)
    print(f"fedmia: error: {line}", file=sys.stderr)
    return FAILED


if __name__ == "__main__":
    sys.exit(main())
