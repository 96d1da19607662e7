"""python -m fedmia.simulate: simulate federated MoCo under attack, and say whether it leaks."""

from __future__ import annotations

import time

_STARTED = time.perf_counter()  # before the heavy imports, which the report's timing names

import os  # noqa: E402
import sys  # noqa: E402
import tempfile  # noqa: E402
from collections.abc import Sequence  # noqa: E402
from functools import partial  # noqa: E402
from pathlib import Path  # noqa: E402
from threading import Event  # noqa: E402

from fedmia.federation.run import Nodes, Prepared, federate, make_site, prepare  # noqa: E402
from fedmia.federation.snapshot import SnapshotStore  # noqa: E402
from fedmia.report.publish import publish, show  # noqa: E402
from fedmia.results import RunScores  # noqa: E402
from fedmia.runtime.interrupts import Interrupts  # noqa: E402
from fedmia.runtime.outfolder import OutFolder  # noqa: E402
from fedmia.runtime.progress import Display  # noqa: E402
from fedmia.runtime.stopwatch import Stopwatch  # noqa: E402
from fedmia.scoring.observer import Observer  # noqa: E402
from fedmia.scoring.probes import Probes  # noqa: E402
from fedmia.scoring.readings import Notebook  # noqa: E402
from fedmia.scoring.score import score  # noqa: E402
from fedmia.settings.command import INTERRUPTED, Invocation, run  # noqa: E402
from fedmia.settings.commands import SIMULATE  # noqa: E402
from fedmia.settings.tree import to_tree  # noqa: E402
from strategies.crew import FederationError  # noqa: E402


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code: 0, 2 bad input, 1 failed, 130 interrupted."""
    watch = Stopwatch(_STARTED)
    watch.claim("import")
    arguments = sys.argv[1:] if argv is None else argv
    with Interrupts("rounds") as stop:
        work = partial(simulate, watch=watch, stop=stop)
        return run(SIMULATE, arguments, work, (FederationError,))


def simulate(asked: Invocation, watch: Stopwatch, stop: Event) -> int:
    """One run, printed and written where asked: prepare, execute, publish.

    Raises:
        InputError: before anything is written.
        FederationError: the rounds ended before their time; those that are finished are reported.
    """
    with watch.part("data"):
        prepared = prepare(asked.settings)
    place = OutFolder(asked.out, "another run")
    place.begin(to_tree(asked.settings))
    try:
        scores = execute(prepared, place.folder, watch, stop, asked.quiet or asked.json)
    except BaseException:
        place.give_up()
        raise
    report = publish(scores, place.folder, watch)
    show(report, place.folder, json=asked.json, quiet=asked.quiet)
    if scores.failure is not None:
        raise FederationError(f"{scores.failure}; the finished rounds are reported on")
    return INTERRUPTED if stop.is_set() else 0


def execute(
    prepared: Prepared, out: Path | None, watch: Stopwatch, stop: Event, quiet: bool,
    nodes: Nodes | None = None,
) -> RunScores:  # fmt: skip
    """Train, attack and score. The snapshots of `main` stay in `out` where it is given.

    Args:
        nodes: clients that Flower runs elsewhere, in place of a backend's.

    Raises:
        FederationError: a client failed in the first round; nothing is reported.
    """
    shown = Display(prepared.total_rounds(), quiet)
    with tempfile.TemporaryDirectory(prefix="fedmia-") as made, shown as display:
        folder = Path(made)
        site = make_site(prepared, folder, stop)
        snapshots = SnapshotStore((out or folder) / "snapshots")
        probes = Probes(site, prepared.data.labels, prepared.split)
        notes, active = None, prepared.active
        if active is not None:
            notes = Notebook(Observer(prepared.experiment, site), active, site.turns)
        finished = federate(
            prepared, site, folder, snapshots, reader=notes, probe=probes.knn, watch=watch,
            display=display, nodes=nodes,
        )  # fmt: skip
        display.say("attacks")
        scores = score(finished, probes, watch, notes)
        for branch in ("zero", "sets", "placebo"):
            snapshots.drop(branch)
        return scores


if __name__ == "__main__":
    code = main()
    if code == INTERRUPTED:  # a thread of a client or of Flower's may wait for another yet
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)
