"""The app of a node: `clients.app` on a site that is prepared where the node runs."""

from __future__ import annotations

from typing import Any

from flwr.app import ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from clients.app import client_app
from fedmia.flower.node import Node
from fedmia.flower.store import kept_record
from fedmia import __version__

app = ClientApp()


@app.query()
def roll_call(message: Message, context: Context) -> Message:
    """Which client this node is."""
    record = MetricRecord({"client": Node.of(context).client})
    return Message(RecordDict({"metrics": record}), reply_to=message)


@app.query("begin")
def begin(message: Message, context: Context) -> Message:
    """Prepare the run whose settings the server sends; say what was found."""
    settings = str(message.content.config_records["config"]["settings"])
    found = {"fingerprint": Node.of(context).begin(settings), "fedmia": __version__}
    return Message(RecordDict({"found": ConfigRecord(found)}), reply_to=message)


@app.train()
def train(message: Message, context: Context) -> Message:
    """One round."""
    node = Node.of(context)
    return client_app(node.site(), node.store)(message, context)


@app.query("fork")
def fork(message: Message, context: Context) -> Message:
    """Begin a branch where another stands."""
    order: dict[str, Any] = dict(message.content.config_records["config"])
    node = Node.of(context)
    node.store.fork_one(order["source"], order["target"], node.client)
    return Message(RecordDict(), reply_to=message)


@app.query("kept")
def kept(message: Message, context: Context) -> Message:
    """What the client keeps of a branch: in a rehearsal the server reads what an attacker would."""
    node, branch = Node.of(context), str(message.content.config_records["config"]["branch"])
    return Message(kept_record(node.store.load(branch, node.client)), reply_to=message)


@app.query("end")
def end(message: Message, context: Context) -> Message:
    """Leave nothing of the run behind."""
    Node.of(context).end()
    return Message(RecordDict(), reply_to=message)
