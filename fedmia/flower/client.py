"""The app of a node: `clients.app` on a site that is prepared where the node runs."""

from __future__ import annotations

from typing import Any

import torch
from flwr.app import ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from clients.app import client_app
from fedmia import __version__
from fedmia.flower.node import Node
from fedmia.flower.store import kept_record

app = ClientApp()


def told(message: Message) -> dict[str, Any]:
    """What a query asks, by name."""
    return dict(message.content.config_records["order"])


@app.query()
def roll_call(message: Message, context: Context) -> Message:
    """Which client this node is."""
    record = MetricRecord({"client": Node.of(context).client})
    return Message(RecordDict({"metrics": record}), reply_to=message)


@app.query("begin")
def begin(message: Message, context: Context) -> Message:
    """Prepare the run whose settings the server sends; say what was found."""
    order, node = told(message), Node.of(context)
    found: dict[str, Any] = {"client": node.client, "fedmia": __version__}
    found |= node.begin(order["settings"], order["private"])
    return Message(RecordDict({"found": ConfigRecord(found)}), reply_to=message)


@app.train()
def train(message: Message, context: Context) -> Message:
    """One round."""
    node, task = Node.of(context), message.content.config_records["config"]
    client_context = node.prepared()[1]
    if node.sources:
        return node.releases().answer(
            message, lambda r: client_app(client_context, r)(message, context)
        )
    return client_app(client_context, node.store(int(str(task["round"]))))(message, context)


@app.query("fork")
def fork(message: Message, context: Context) -> Message:
    """Begin a branch where another stands."""
    order, node = told(message), Node.of(context)
    node.open().fork_one(order["source"], order["target"], node.client)
    return Message(RecordDict(), reply_to=message)


@app.query("kept")
def kept(message: Message, context: Context) -> Message:
    """What the client keeps of a branch: in a rehearsal the server reads what an attacker would."""
    node = Node.of(context)
    state = node.open().load(told(message)["branch"], node.client)
    return Message(kept_record(state), reply_to=message)


@app.query("score")
def score(message: Message, context: Context) -> Message:
    """Scores of the node's own images, under the final encoder and under the first one, if they may
    leave it."""
    from fedmia.evaluation.node import scored, state_defenses  # what scores takes seconds to import

    node = Node.of(context)
    prepared, client_context = node.prepared()
    torch.set_num_threads(client_context.threads)
    final, untrained = (
        message.content.array_records[name].to_torch_state_dict() for name in ("final", "untrained")
    )
    last = told(message)["last"]
    run = prepared, client_context, node.client, node.releases()
    found = scored(*run, last, final, untrained) if node.scores else state_defenses(*run)
    return Message(found, reply_to=message)


@app.query("end")
def end(message: Message, context: Context) -> Message:
    """Leave nothing of the run behind."""
    Node.of(context).end()
    return Message(RecordDict(), reply_to=message)
