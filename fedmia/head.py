"""`python -m fedmia.head`: a released head's membership leak under additive noise, and its use."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from fedmia.cli.command import run
from fedmia.cli.commands import HEAD
from fedmia.study.heads import conduct


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code: 0, 2 bad input, 130 interrupted."""
    return run(HEAD, sys.argv[1:] if argv is None else argv, conduct)


if __name__ == "__main__":
    sys.exit(main())
