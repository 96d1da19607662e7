"""The app of a node: `clients.app` on a site that is prepared where the node runs."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from flwr.app import ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from clients.app import answer
from fedmia import __version__
from fedmia.flower.node import Node
from fedmia.flower.private import gives_guarantee
from fedmia.flower.store import pack_state
from fedmia.recording.branches import MAIN

app = ClientApp()


def read_order(message: Message) -> dict[str, Any]:
    """The fields of a query."""
    return dict(message.content.config_records["order"])


@app.query()
def roll_call(message: Message, context: Context) -> Message:
    """Say which client this node is.

    Returns:
        The client's partition id.
    """
    record = MetricRecord({"client": Node(context).client})
    return Message(RecordDict({"metrics": record}), reply_to=message)


@app.query("begin")
def begin(message: Message, context: Context) -> Message:
    """Prepare the run whose settings the server sends.

    Returns:
        What the node prepared.
    """
    order, node = read_order(message), Node(context)
    answer: dict[str, Any] = {"client": node.client, "fedmia": __version__}
    answer |= node.begin(order["settings"], order["private"])
    return Message(RecordDict({"found": ConfigRecord(answer)}), reply_to=message)


@app.train()
def train(message: Message, context: Context) -> Message:
    """Work one round.

    Returns:
        The client's update.
    """
    node = Node(context)
    client_setup = node.prepared()[1]
    # Releases of private images are accounted together, whatever branch an order names.
    branch = MAIN if node.sources else str(message.content.config_records["config"]["branch"])
    work = partial(answer, client_setup, message, node.client)
    return node.store.answer(branch, node.client, message, work)


@app.query("fork")
def fork(message: Message, context: Context) -> Message:
    """Begin a branch from the state of another one.

    Returns:
        An empty reply.
    """
    order, node = read_order(message), Node(context)
    node.open().fork(order["source"], order["target"], order["clients"])
    return Message(RecordDict(), reply_to=message)


@app.query("kept")
def send_stored_state(message: Message, context: Context) -> Message:
    """Send the client's state of a branch; only in a rehearsal, where the server may read it.

    Returns:
        The client's local state.
    """
    node = Node(context)
    state = node.open().load(read_order(message)["branch"], node.client)
    return Message(pack_state(state), reply_to=message)


@app.query("score")
def score(message: Message, context: Context) -> Message:
    """Score the node's own images under the final and the first encoder, if scores may leave it.

    Returns:
        The scores, or the client's statement alone.
    """
    from fedmia.flower.answers import score_node  # what scores takes seconds to import

    node = Node(context)
    plan, client_setup = node.prepared()
    torch.set_num_threads(client_setup.threads)
    final, untrained = (
        message.content.array_records[name].to_torch_state_dict() for name in ("final", "untrained")
    )
    last = read_order(message)["last"]
    run = plan, client_setup, node.client, node.store
    leave = not gives_guarantee(plan.experiment) if node.scores is None else node.scores
    return Message(score_node(*run, last, final, untrained, leave), reply_to=message)


@app.query("end")
def end(message: Message, context: Context) -> Message:
    """Delete all that the run left on the node.

    Returns:
        An empty reply.
    """
    Node(context).end()
    return Message(RecordDict(), reply_to=message)
