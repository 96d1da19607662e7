"""`python -m fedmia.sweep`: one experiment at every point of a grid, with several seeds."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from fedmia.cli.command import answer_page, run
from fedmia.cli.commands import SWEEP
from fedmia.runtime.interrupts import Interrupts


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code: 0, 2 bad input, 1 a run failed (the others are
    reported), 130 interrupted."""
    flags = answer_page(SWEEP, sys.argv[1:] if argv is None else argv)
    if isinstance(flags, int):
        return flags
    from fedmia.study.simulations import sweep  # heavy, and no page has a use for it

    with Interrupts("runs") as stop:
        return run(SWEEP, flags, lambda invocation: sweep(invocation, stop))


if __name__ == "__main__":
    sys.exit(main())
