"""`python -m fedmia.tradeoff`: defences at several strengths, what they stop at what price."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from fedmia.cli.command import answer_page, run
from fedmia.cli.commands import TRADEOFF
from fedmia.runtime.interrupts import Interrupts


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code: 0, 2 bad input, 1 a run failed (the others are
    compared), 130 interrupted."""
    flags = answer_page(TRADEOFF, sys.argv[1:] if argv is None else argv)
    if isinstance(flags, int):
        return flags
    from fedmia.study.simulations import tradeoff  # heavy, and no page has a use for it

    with Interrupts("runs") as stop:
        return run(TRADEOFF, flags, lambda invocation: tradeoff(invocation, stop))


if __name__ == "__main__":
    sys.exit(main())
