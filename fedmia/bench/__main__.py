"""`python -m fedmia.bench`: an attack on frozen targets, beside every other."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from fedmia.cli.command import answer_page, run
from fedmia.cli.commands import COMMANDS


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code: 0, or 2 bad input or an entry refused."""
    flags = answer_page(COMMANDS["bench"], sys.argv[1:] if argv is None else argv)
    if isinstance(flags, int):
        return flags
    from fedmia.bench.command import run_command  # heavy, and no page has a use for it

    return run(COMMANDS["bench"], flags, run_command)


if __name__ == "__main__":
    sys.exit(main())
