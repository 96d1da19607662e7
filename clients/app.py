"""Flower's side of every client: from a message to a client's work and back.

`answer` works one order, `together_app` many in one pass. Both are functions of the order and of
what the client keeps: a thread, a Ray worker and a Flower node call them, each with a store of its
own. Flower is imported where a client works: whoever lists the roles in this folder needs none.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence
from threading import Event
from typing import TYPE_CHECKING, Any

import torch

from clients.base import Role
from clients.client_group import form_groups, train_group
from clients.client_round import ClientRound
from clients.client_setup import ClientSetup, ClientTask
from fedmia.ssl import TwoView
from fedmia.ssl.base import State
from fedmia.storage.arena import Arena
from fedmia.storage.snapshot import ClientState, StateStore, Update

if TYPE_CHECKING:
    from flwr.app import Context, Message, RecordDict
    from flwr.clientapp import ClientApp

LocalState = ClientState | None  # of a client; None before its first round
Answer = tuple["Message", LocalState]  # what a client sends, and what it keeps; None: as before
Together = Callable[[Sequence[tuple["Message", int, LocalState]], Event], dict[int, Answer]]


def answer(
    client_setup: ClientSetup, message: Message, client: int, local_state: LocalState,
    halt: Event | None = None,
) -> Answer:  # fmt: skip
    """One client's round. A client that fails answers why.

    Args:
        client_setup: what all clients of the run share.
        message: the order.
        client: partition id of the client.
        local_state: what it keeps from before; stays as it is.
        halt: set when nobody waits for the client any more.

    Returns:
        The reply, and what the client keeps from now on; None: as before.
    """
    from flwr.app import Error, Message

    torch.set_num_threads(client_setup.threads)
    began = time.perf_counter()
    try:
        role: Role = client_setup.role_plugins[client_setup.roles[client]]
        task, (received, broadcast) = _read_task(message, client), _read_arrays(message)
        client_round = ClientRound(client_setup, local_state, task, received, broadcast, halt)
        update, new = role.answer(client_round)
        update.metrics.update(began=began, ended=time.perf_counter())
    except Exception as error:  # the strategy says whose it was; Ray would print pages of it
        reason = f"{type(error).__name__}: {error}"
        return Message(Error(code=0, reason=reason), reply_to=message), None
    return Message(write_content(update), reply_to=message), new


def together_app(client_setup: ClientSetup) -> Together:
    """Build what answers the orders of several clients in one pass, where they can train so.

    Returns:
        From orders of one round, each with its client and what this one keeps, and an event that
        is set when nobody waits for them any more, to the answers, by place, of those that train in
        one pass. All others have to work alone.
    """
    from flwr.app import Message

    plain, arena = copy.deepcopy(client_setup.first_method).cpu(), Arena()
    assert isinstance(plain, TwoView)  # no other method is stackable

    def train(orders: Sequence[tuple[Message, int, LocalState]], halt: Event) -> dict[int, Answer]:
        began, rounds = time.perf_counter(), list[ClientRound]()
        first = orders[0][0]
        received = _read_arrays(first)[0]
        for message, client, local_state in orders:
            if message.content is not first.content:
                break  # of another round
            task = _read_task(message, client)
            rounds.append(ClientRound(client_setup, local_state, task, received, halt=halt))
            received = rounds[0].received  # on the device
        answers = dict[int, Answer]()
        for group in form_groups(rounds):
            results = train_group([rounds[place] for place in group], plain, arena)
            for place, (update, new) in zip(group, results, strict=True):
                update.metrics.update(began=began, ended=time.perf_counter())
                answers[place] = Message(write_content(update), reply_to=orders[place][0]), new
        return answers

    return train


def client_app(client_setup: ClientSetup, store: StateStore) -> ClientApp:
    """Build the Flower app of clients whose server is anybody's: `query` answers the roll call,
    `train` works a round.

    Args:
        client_setup: what all clients of the run share.
        store: local states of the clients.

    Returns:
        The app.
    """
    from flwr.app import Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp

    app = ClientApp()

    @app.query()
    def roll_call(message: Message, context: Context) -> Message:
        record = MetricRecord({"client": int(context.node_config["partition-id"])})
        return Message(RecordDict({"metrics": record}), reply_to=message)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        task = _read_task(message, int(context.node_config["partition-id"]))
        local_state = store.load(task.branch, task.client)
        reply, new = answer(client_setup, message, task.client, local_state)
        if new is not None:
            store.save(task.branch, task.client, new)
        return reply

    return app


def _read_task(message: Message, client: int) -> ClientTask:
    order: Any = message.content.config_records["config"]
    return ClientTask(client, order["server-round"], order["branch"], order["craft"])


def _read_arrays(message: Message) -> list[State]:
    """The weights, and what the server sends beside them: others read them too, so they must not be
    changed."""
    from flwr.app import ArrayRecord

    from fedmia.storage.arrays import tensors

    records, names = message.content.array_records, ("arrays", "broadcast")
    return [tensors(records.get(n, ArrayRecord())) for n in names]


def write_content(update: Update) -> RecordDict:
    """What a reply holds.

    Args:
        update: of the client; its weights must not be changed from now on.

    Returns:
        The content.
    """
    from flwr.app import MetricRecord, RecordDict

    from fedmia.storage.arrays import record

    counts = {"client": update.client, "num-examples": update.examples}
    metrics = MetricRecord({**counts, **update.metrics})
    return RecordDict({"arrays": record(update.state), "metrics": metrics})
