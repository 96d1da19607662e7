"""`python -m fedmia.head`: a released head's membership leak under additive noise, and its use."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from fedmia.cli.command import answer_page, run
from fedmia.cli.commands import HEAD


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code: 0, 2 bad input, 130 interrupted."""
    arguments = sys.argv[1:] if argv is None else argv
    if (code := answer_page(HEAD, arguments)) is not None:
        return code
    from fedmia.study.heads import run_heads  # heavy, and no page has a use for it

    return run(HEAD, arguments, run_heads)


if __name__ == "__main__":
    sys.exit(main())
