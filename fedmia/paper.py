"""`python -m fedmia.paper RUN`: tables and figures of the federated paper, from one run."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from fedmia.cli.command import run
from fedmia.cli.commands import PAPER
from fedmia.study.views.paper import make


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code: 0, 2 bad input, 130 interrupted."""
    return run(PAPER, sys.argv[1:] if argv is None else argv, make)


if __name__ == "__main__":
    sys.exit(main())
