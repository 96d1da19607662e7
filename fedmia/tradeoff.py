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
    arguments = sys.argv[1:] if argv is None else argv
    if (code := answer_page(TRADEOFF, arguments)) is not None:
        return code
    from fedmia.study.simulations import tradeoff  # heavy, and no page has a use for it

    with Interrupts("runs") as stop:
        return run(TRADEOFF, arguments, lambda invocation: tradeoff(invocation, stop))


if __name__ == "__main__":
    sys.exit(main())
