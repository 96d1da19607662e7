"""Runs that are made once in a session, whichever worker of the tests asks first, and then read."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

# An active attacker among four clients, two of them defended; then with options of the attacks.
ATTACKED = (
    "--clients 4 --rounds 4 --train.local_epochs 1 --train.batch_size 8 --train.lr 0.06 "
    "--model.width 4 --split.members 32 --split.nonmembers 60 --split.known 8 --split.test 20 "
    "--device cpu --federation.snapshots 1 --attacker active --defense logistic "
    "--defended-clients 0-1 "
)
EVERY_ATTACK = ATTACKED + (
    "--attack.combined.views 4 --attack.ascent-static.steps 1 --attack.ascent-static.lr 0.01 "
    "--attack.ascent-static.pairs 1 --attack.ascent.pairs 1"
)


class Bank:
    """Folders of finished runs, one for each line of flags.

    Args:
        root: a folder that all workers of the session share.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def run(self, flags: str) -> Path:
        """The folder `RUN` of `fedmia.simulate` with `flags`, made by the first who asks."""
        home = self.root / sha256(flags.encode()).hexdigest()[:16]
        with exclusive(home.with_suffix(".lock")):
            if not (home / "finished").exists():
                from fedmia.simulate import main

                assert main([*shlex.split(flags), "--quiet", "--out", str(home / "RUN")]) == 0
                (home / "finished").touch()
        return home / "RUN"


@contextmanager
def exclusive(file: Path) -> Iterator[None]:
    """No other process is inside with the same file."""
    import fcntl

    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
