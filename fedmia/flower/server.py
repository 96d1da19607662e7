"""The app of the server: a run over the nodes of a Flower grid, scored and reported here."""

from __future__ import annotations

import json
import shlex
import time
from pathlib import Path
from threading import Event

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedmia.errors import InputError, opt
from fedmia.federation.run import Nodes
from fedmia.flower.node import fingerprint, rehearsed
from fedmia.flower.store import NodeStates, ask
from fedmia.report.publish import publish, show
from fedmia import __version__
from fedmia.runtime.outfolder import OutFolder
from fedmia.runtime.stopwatch import Stopwatch
from fedmia.settings.command import Invocation, parse
from fedmia.settings.commands import SIMULATE
from fedmia.settings.tree import to_tree
from fedmia.simulate import execute
from strategies.base import FederationError, call_roll

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """One run; Flower marks it as failed where this raises.

    Raises:
        InputError: arguments that `python -m fedmia.simulate` would refuse.
        FederationError: a node is missing, failed, or reads other data.
    """
    watch = Stopwatch(time.perf_counter())
    asked = invocation(str(context.run_config["arguments"]))
    out = str(context.run_config["out"]) or f"fedmia-run-{context.run_id}"
    place = OutFolder(Path(out).expanduser().absolute(), "another run")
    rehearse(grid, asked, place, watch)


def invocation(arguments: str) -> Invocation:
    """What the arguments of `python -m fedmia.simulate`, in one line, ask of an app.

    Raises:
        InputError: a page in place of a run, a folder or a backend, which are Flower's to say.
    """
    asked = parse(SIMULATE, shlex.split(arguments))
    if asked.page is not None or asked.out is not None:
        raise InputError("the app's arguments are those of a run; its folder is the app's 'out'")
    if asked.settings.backend != "inline":
        raise InputError(f"{opt('backend', 'ray')}: the clients of a Flower app are its nodes")
    return asked


def rehearse(grid: Grid, asked: Invocation, place: OutFolder, watch: Stopwatch) -> None:
    """A run in which every node reads the one data source that the server reads too."""
    tree = to_tree(asked.settings)
    settings = json.dumps(tree, sort_keys=True)
    with watch.part("data"):
        prepared, _ = rehearsed(settings)
    clients = asked.settings.federation.clients
    nodes = call_roll(grid, clients)
    place.begin(tree)
    try:
        agree(grid, nodes, settings)
        beside = Nodes(grid, NodeStates(grid, nodes))
        scores = execute(prepared, place.folder, watch, Event(), True, beside)
        ask(grid, nodes, "end", dict.fromkeys(nodes, {}))
    except BaseException:
        place.give_up()
        raise
    show(publish(scores, place.folder, watch), place.folder, json=False, quiet=False)


def agree(grid: Grid, nodes: dict[int, int], settings: str) -> None:
    """Send the settings; see that every node has this fedmia, and made the same split of them.

    Raises:
        FederationError: naming the first client that did not.
    """
    ours = {"fedmia": __version__, "fingerprint": fingerprint(rehearsed(settings)[0])}
    begun = ask(grid, nodes, "begin", dict.fromkeys(nodes, {"settings": settings}))
    for client, content in sorted(begun.items()):
        for name, theirs in content.config_records["found"].items():
            if theirs != ours[name]:
                what = "reads other data" if name == "fingerprint" else f"has fedmia {theirs}"
                raise FederationError(f"client {client} {what} than the server ({ours[name]})")
