"""Flower's side of every client: from a message to a client's work and back."""

from __future__ import annotations

import time
from typing import Any

import torch
from flwr.app import ArrayRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from clients.base import Role
from clients.client_context import ClientContext, RoundTask
from clients.client_round import ClientRound
from fedmia.options import registry
from fedmia.storage.arrays import record
from fedmia.storage.snapshot import StateStore, Update


def client_app(client_context: ClientContext, store: StateStore) -> ClientApp:
    """Build the Flower app of the clients: `query` answers the roll call, `train` works a round.

    Args:
        store: local states of the clients.

    Returns:
        An app that answers the roll call and works the rounds.
    """
    app = ClientApp()

    @app.query()
    def roll_call(message: Message, context: Context) -> Message:
        record = MetricRecord({"client": int(context.node_config["partition-id"])})
        return Message(RecordDict({"metrics": record}), reply_to=message)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        torch.set_num_threads(client_context.threads)
        try:
            client = int(context.node_config["partition-id"])
            update = _work_round(client_context, store, message, client)
        except Exception as error:  # the strategy says whose it was; Ray would print pages of it
            reason = f"{type(error).__name__}: {error}"
            return Message(Error(code=0, reason=reason), reply_to=message)
        return Message(_write_content(update), reply_to=message)

    return app


def _work_round(
    client_context: ClientContext, store: StateStore, message: Message, client: int
) -> Update:
    """One client's round."""
    order: Any = message.content.config_records["config"]
    began = time.perf_counter()
    role: Role = registry.build("role", client_context.roles[client], {})
    task = RoundTask(client, order["server-round"], order["branch"], order["craft"])
    records, names = message.content.array_records, ("arrays", "broadcast")
    sent = [dict(records.get(n, ArrayRecord()).to_torch_state_dict()) for n in names]
    update = role.answer(ClientRound(client_context, store, task, *sent))
    update.metrics.update(began=began, ended=time.perf_counter())
    return update


def _write_content(update: Update) -> RecordDict:
    counts = {"client": update.client, "num-examples": update.examples}
    metrics = MetricRecord({**counts, **update.metrics})
    own = {n: t.detach().clone() for n, t in update.state.items()}  # the next client's train on
    return RecordDict({"arrays": record(own), "metrics": metrics})
