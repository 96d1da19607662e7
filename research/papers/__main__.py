"""`python -m research.papers`: tables and figures of the five papers, each by one command.

`TABLE` makes tables, `head` attacks a released head, `run RUN` draws one run as the federated paper
does, `protocols` says what departures from a fair protocol find. A clone alone holds it, and its
root must be on the path: `python -m` in the clone does that.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from fedmia.cli.command import answer_page, print_page, run
from research.papers.commands import HEAD, PROTOCOLS, RUN, TABLES
from research.papers.listing import list_page


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        argv: arguments without the program's name; None: those of the process.

    Returns:
        The exit code: 0, 2 bad input, 1 a job failed (the others are in the tables), 130
            interrupted or out of time.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments == ["--list"]:  # with a kind of plugin it is the page of every command
        return print_page(list_page())
    command = {"head": HEAD, "run": RUN, "protocols": PROTOCOLS}.get(
        arguments[0] if arguments else "", TABLES
    )
    rest = arguments if command is TABLES else arguments[1:]
    if isinstance(flags := answer_page(command, rest), int):
        return flags
    if command is HEAD:  # what each imports is heavy, and no page has a use for it
        from research.papers.heads.command import run_heads

        return run(HEAD, flags, run_heads)
    if command is RUN:
        from research.papers.federated.view import make

        return run(RUN, flags, make)
    from fedmia.runtime.interrupts import Interrupts

    if command is PROTOCOLS:
        from research.papers.protocols.command import measure_protocols

        with Interrupts("encoders") as stop:
            return run(PROTOCOLS, flags, lambda invocation: measure_protocols(invocation, stop))
    from research.papers.run import reproduce

    with Interrupts("tables") as stop:
        return run(TABLES, flags, lambda invocation: reproduce(invocation, stop))


if __name__ == "__main__":
    sys.exit(main())
