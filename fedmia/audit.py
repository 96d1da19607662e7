"""`python -m fedmia.audit`: every attack that can run, on an encoder that somebody brings."""

from __future__ import annotations

import time

_STARTED = time.perf_counter()  # before the heavy imports, which the report's timing names

import sys  # noqa: E402

from fedmia.cli.command import INTERRUPTED, Invocation, answer, run  # noqa: E402
from fedmia.cli.commands import AUDIT  # noqa: E402

if __name__ == "__main__" and (_code := answer(AUDIT, sys.argv[1:])) is not None:
    sys.exit(_code)  # a page or a wrong flag, which take none of the heavy imports below

from collections.abc import Sequence  # noqa: E402
from dataclasses import replace  # noqa: E402
from threading import Event  # noqa: E402

from fedmia.evaluation.run import conduct  # noqa: E402
from fedmia.options.errors import Tongue  # noqa: E402
from fedmia.runtime.interrupts import Interrupts  # noqa: E402
from fedmia.runtime.stopwatch import Stopwatch  # noqa: E402
from fedmia.series.run import conduct as several  # noqa: E402
from fedmia.shadows.train import Stopped  # noqa: E402


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
            return run(AUDIT, arguments, lambda asked: audited(asked, watch, stop, tongue))
    except Stopped:
        return INTERRUPTED


def audited(asked: Invocation, watch: Stopwatch, stop: Event, tongue: Tongue | None) -> int:
    """One audit, or a series of them; the exit code."""
    if len(asked.settings.cells) > 1:
        return several(asked, stop)
    one = asked.settings.cells[0].first
    one = replace(one, tongue=tongue or one.tongue)
    return conduct(replace(asked, settings=one), watch, stop)


if __name__ == "__main__":
    sys.exit(main())
