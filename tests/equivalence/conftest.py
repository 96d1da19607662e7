"""What the runs of this folder share."""

from __future__ import annotations

import shlex

TINY = (
    "--quiet --device cpu --clients 4 --rounds 4 --train.local_epochs 1 --model.width 4 "
    "--split.members 36 --split.nonmembers 60 --split.known 8 --split.test 20 "
    "--train.batch_size 8 --train.lr 0.06 "  # more than one step a round, that tells
)


def tiny(more: str) -> str:
    """A tiny run with other flags; one that is given again replaces the tiny one."""
    words = TINY.split()
    for flag in shlex.split(more)[::2]:
        if flag in words:
            at = words.index(flag)
            del words[at : at + 2]
    return " ".join([*words, more])
