"""Flower's side of every client: from a message to a client's work and back.

Flower is imported where a client works: whoever lists the roles in this folder needs none.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from threading import Event
from typing import TYPE_CHECKING, Any

import torch

from clients.base import Role
from clients.client_context import ClientContext, RoundTask
from clients.client_group import ClientGroup, form_groups
from clients.client_round import ClientRound
from fedmia.ssl import TwoView
from fedmia.ssl.base import State
from fedmia.storage.snapshot import StateStore, Update

if TYPE_CHECKING:
    from flwr.app import Context, Message, RecordDict
    from flwr.clientapp import ClientApp

Together = Callable[[Sequence[tuple["Message", int, StateStore]], Event], dict[int, "Message"]]


def client_app(client_context: ClientContext, store: StateStore) -> ClientApp:
    """Build the Flower app of the clients: `query` answers the roll call, `train` works a round.

    Args:
        store: local states of the clients.

    Returns:
        An app that answers the roll call and works the rounds.
    """
    from flwr.app import Error, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp

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
        own = {n: t.detach().clone() for n, t in update.state.items()}  # the next client's train on
        return Message(_write_content(update, own), reply_to=message)

    return app


def together_app(client_context: ClientContext) -> Together:
    """Build what answers the orders of several clients in one pass, where they can train so.

    Returns:
        From orders of one round, each with its client and this client's states, and an event that
        is set when nobody waits for them any more, to the replies, by place, of those that train in
        one pass. All others have to work alone.
    """
    from flwr.app import Message

    plain = replace(client_context, device="cpu").method(-1, None)
    assert isinstance(plain, TwoView)  # no other method is stackable

    def train(orders: Sequence[tuple[Message, int, StateStore]], halt: Event) -> dict[int, Message]:
        began, rounds = time.perf_counter(), list[ClientRound]()
        first, own_context = orders[0][0], client_context.with_halt(halt)
        received = _read_arrays(first)[0]
        for message, client, store in orders:
            if message.content is not first.content:
                break  # of another round
            task = _read_task(message, client)
            rounds.append(ClientRound(own_context, store, task, received))
            received = rounds[0].received  # on the device
        replies = dict[int, Message]()
        for group in form_groups(rounds):
            updates = ClientGroup([rounds[place] for place in group], plain).work()
            for place, update in zip(group, updates, strict=True):
                update.metrics.update(began=began, ended=time.perf_counter())
                content = _write_content(update, update.state)
                replies[place] = Message(content, reply_to=orders[place][0])
        return replies

    return train


def _work_round(
    client_context: ClientContext, store: StateStore, message: Message, client: int
) -> Update:
    """One client's round."""
    began = time.perf_counter()
    role: Role = client_context.role_plugins[client_context.roles[client]]
    task, sent = _read_task(message, client), _read_arrays(message)
    update = role.answer(ClientRound(client_context, store, task, *sent))
    update.metrics.update(began=began, ended=time.perf_counter())
    return update


def _read_task(message: Message, client: int) -> RoundTask:
    order: Any = message.content.config_records["config"]
    return RoundTask(client, order["server-round"], order["branch"], order["craft"])


def _read_arrays(message: Message) -> list[State]:
    """The weights, and what the server sends beside them."""
    from flwr.app import ArrayRecord

    records, names = message.content.array_records, ("arrays", "broadcast")
    return [dict(records.get(n, ArrayRecord()).to_torch_state_dict()) for n in names]


def _write_content(update: Update, own: State) -> RecordDict:
    """The reply's content, with the weights `own`, which must not be changed from now on."""
    from flwr.app import MetricRecord, RecordDict

    from fedmia.storage.arrays import record

    counts = {"client": update.client, "num-examples": update.examples}
    metrics = MetricRecord({**counts, **update.metrics})
    return RecordDict({"arrays": record(own), "metrics": metrics})
