"""Six runs that are made once in a session, whichever worker of the tests asks first, and then
only read: what a table of commands, numbers and paths is checked on."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

from tests.commands import fedmia

SMALL = (
    "simulate --train.local_epochs 1 --model.width 4 --split.members 32 --split.nonmembers 60 "
    "--split.known 8 --split.test 20 --device cpu --quiet "
)
# A name in braces is the folder of another run.
RUNS = {
    # An active attacker among four clients, two of them defended.
    "attacked": SMALL + "--clients 4 --rounds 4 --train.batch_size 8 --train.lr 0.06 "
    "--federation.snapshots 1 --attacker active --defense logistic --defended-clients 0-1 "
    "--attack.combined.views 4 --attack.ascent-static.steps 1 --attack.ascent-static.lr 0.01 "
    "--attack.ascent-static.pairs 1 --attack.ascent.pairs 1",
    # Every branch: the last two rounds with and without the attack, and the placebo.
    "branches": SMALL + "--clients 3 --rounds 4 --federation.snapshots 1 --attack-rounds 2 "
    "--attacker active --strategy scaffold --attacks similarity,ascent --federation.placebo true "
    "--attack.similarity.views 4 --attack.ascent.pairs 1",
    # What the server sees: an update of each client in each round.
    "server": SMALL + "--clients 4 --rounds 4 --federation.snapshots 2 --attacker server "
    "--partition iid --attacks similarity,all-for-one --attack.similarity.views 4",
    # Centralised training.
    "central": SMALL + "--clients 1 --rounds 2 --federation.snapshots 1 --attacks similarity,lpla "
    "--attack.similarity.views 4",
    # An audit of that encoder, by its recording.
    "audited": "audit --federation {central}/recording --attacks similarity,lpla "
    "--attack.similarity.views 4 --device cpu --threads 1 --quiet",
    # Two strategies side by side, each run a process of its own.
    "studied": "study " + SMALL.removeprefix("simulate ") + "--clients 2 --rounds 1 --jobs 1 "
    "--attacks similarity --attack.similarity.views 4 --over strategy=fedavg,fedprox --seeds 1",
}


class Bank:
    """Folders of finished runs.

    Args:
        root: a folder that all workers of the session share.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def run(self, name: str) -> Path:
        """The folder of the run that RUNS calls so, made by the first who asks; to be read only.
        Of other names it is that of `simulate` with these flags, which slow tests compare with."""
        line = RUNS.get(name) or f"simulate {name} --quiet"
        name = name if name in RUNS else sha256(name.encode()).hexdigest()[:16]
        folder = self.root / name
        line = re.sub(r"\{(\w+)\}", lambda other: str(self.run(other[1])), line)
        with exclusive(self.root / f"{name}.lock"):
            if not (self.root / f"{name}.finished").exists():
                ran = fedmia(line, folder)
                assert ran.code == 0, ran.err
                (self.root / f"{name}.finished").touch()
        return folder


@contextmanager
def exclusive(file: Path) -> Iterator[None]:
    """No other process is inside with the same file."""
    import fcntl

    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
