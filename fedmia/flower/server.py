"""The app of the server: a run over the nodes of a Flower grid, scored and reported here."""

from __future__ import annotations

import json
import logging
import shlex
import tempfile
import time
from pathlib import Path
from threading import Event

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedmia.cli.command import Invocation, parse
from fedmia.cli.commands import SIMULATE
from fedmia.evaluation.run import score_run
from fedmia.federation.plan import fingerprint
from fedmia.federation.train import train
from fedmia.flower.gather import gather
from fedmia.flower.node import plan_rehearsal
from fedmia.flower.nodes import check_agreement, open_nodes
from fedmia.flower.rounds import LogDisplay
from fedmia.flower.store import NodeStates
from fedmia.observers.run_observers import ObserverGroup
from fedmia.recording.writer import RecordingWriter
from fedmia.report.publish import publish, show
from fedmia.runtime.stopwatch import Stopwatch
from fedmia.settings.errors import InputError, opt
from fedmia.settings.tree import to_tree
from fedmia.settings.values import disk_path
from fedmia.storage.outfolder import OutFolder
from fedmia.storage.runfolder import RunFolder
from strategies.base import wait_for_nodes
from strategies.failure_policy import FederationError

app = ServerApp()


class OneLineErrors(logging.Filter):
    """Flower logs what an app raises with its traceback: an error that says all loses it."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Shorten the record of an input's or a client's error.

        Args:
            record: that Flower logs.

        Returns:
            True: every record is logged.
        """
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, InputError | FederationError):
            what = "error" if isinstance(error, InputError) else "the run failed"
            record.msg, record.args = "fedmia: %s: %s", (what, " ".join(str(error).split()))
            record.exc_info = None
        return True


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run once; Flower marks the run as failed where this raises.

    Args:
        context: of the app, with the values of `-c`.

    Raises:
        InputError: arguments that `python -m fedmia.simulate` would refuse.
        FederationError: a node is missing, failed, or reads other data.
    """
    logging.getLogger("flwr").addFilter(OneLineErrors())
    watch = Stopwatch(time.perf_counter())
    invoked = invocation(with_clients(str(context.run_config["arguments"]), grid))
    out = str(context.run_config["out"]) or f"fedmia-run-{context.run_id}"
    place = OutFolder(Path(disk_path(out)).absolute(), "another run")
    with place:
        (gather if context.run_config["private"] else rehearse)(grid, invoked, place, watch)
    print(f"fedmia: the results are in {place.folder}", flush=True)


def with_clients(arguments: str, grid: Grid) -> str:
    """The arguments with as many clients as there are nodes, unless they say how many.

    Args:
        arguments: of the run, in one line.

    Returns:
        The arguments.

    Raises:
        FederationError: no node came.
    """
    names = {word.partition("=")[0] for word in shlex.split(arguments)}
    if names & {"--clients", "--federation.clients", "--resume"}:  # the last is refused
        return arguments
    return f"{arguments} --clients {len(wait_for_nodes(grid))}"


def invocation(arguments: str) -> Invocation:
    """Parse the arguments of `python -m fedmia.simulate`, given in one line.

    Raises:
        InputError: a page in place of a run; a run to go on with; a gate; a folder or a backend,
            which are Flower's to say.
    """
    parsed = parse(SIMULATE, shlex.split(arguments))
    if parsed.resume:
        raise InputError("--resume: nodes keep nothing of a run that has ended, so begin a new one")
    if parsed.gate is not None:
        raise InputError("--fail-on sets an exit code, and a Flower app has none")
    if parsed.page is not None or parsed.out is not None:
        raise InputError("the app's arguments are those of a run; its folder is the app's 'out'")
    if parsed.settings.machine.backend != "inline":
        raise InputError(
            f"{opt('machine.backend', 'ray')}: the clients of a Flower app are its nodes"
        )
    if parsed.settings.federation.client_timeout is not None:
        raise InputError(f"{opt('federation.client_timeout')}: a node of Flower's cannot be halted")
    return parsed


def rehearse(grid: Grid, invoked: Invocation, place: OutFolder, watch: Stopwatch) -> None:
    """Run with nodes that all read the one data source that the server reads, too.

    Args:
        invoked: the parsed command.
        place: where the server keeps the run.
        watch: notes the seconds of each part.

    Raises:
        FederationError: the nodes are not the run's clients, or prepared another run.
    """
    observing = ObserverGroup(invoked.observe, place.folder)
    with watch.part("data"):
        plan, _ = plan_rehearsal(json.dumps(to_tree(invoked.settings)))
    with observing:
        with open_nodes(grid, invoked.settings, place, False) as (nodes, answers):
            check_agreement(answers, fingerprint=fingerprint(plan))
            observing.begin(to_tree(invoked.settings))
            store = NodeStates(grid, nodes)
            display = LogDisplay(plan.total_rounds(), observing)
            with tempfile.TemporaryDirectory(prefix="fedmia-") as folder, display:
                trained = train(
                    plan, Path(folder), place.folder, Event(), watch, display, grid, store
                )  # fmt: skip
                display.say("attacks")
                scores = score_run(trained, watch, display)
        report = publish(scores, place.folder, watch)
        observing.report(report)
    if place.folder is not None:
        RecordingWriter(RunFolder(place.folder).recording).drop_controls()
    show(report, place.folder, json=False, quiet=False)
    if scores.failure is not None:  # so that Flower marks the run as failed
        raise FederationError(f"{scores.failure}; the finished rounds are reported on")
    if scores.failed:
        raise FederationError(f"{', '.join(scores.failed)} failed; the others are reported on")
