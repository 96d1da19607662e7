"""`python -m fedmia.paper RUN`: tables and figures of the federated paper, from one run."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from fedmia.cli.command import answer_page, run
from fedmia.cli.commands import PAPER


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code: 0, 2 bad input, 130 interrupted."""
    arguments = sys.argv[1:] if argv is None else argv
    if (code := answer_page(PAPER, arguments)) is not None:
        return code
    from fedmia.study.views.paper import make  # heavy, and no page has a use for it

    return run(PAPER, arguments, make)


if __name__ == "__main__":
    sys.exit(main())
