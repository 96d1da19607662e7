"""`python -m fedmia.reproduce`: tables and figures of the five papers, each by one command."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from fedmia.cli.command import answer_page, run
from fedmia.cli.commands import REPRODUCE
from fedmia.reproduction.listing import list_page
from fedmia.runtime.interrupts import Interrupts


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code: 0, 2 bad input, 1 a job failed (the others are in the
    tables), 130 interrupted or out of time."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments == ["--list"]:  # with a kind of plugin it is the page of every command
        print(list_page())
        return 0
    if (code := answer_page(REPRODUCE, arguments)) is not None:
        return code
    from fedmia.reproduction.run import reproduce  # heavy, and no page has a use for it

    with Interrupts("tables") as stop:
        return run(REPRODUCE, arguments, lambda invocation: reproduce(invocation, stop))


if __name__ == "__main__":
    sys.exit(main())
