"""What the server asks of its nodes, and how it comes by what they keep in a rehearsal."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from fedmia.flower_internals import NODE_UNAVAILABLE
from fedmia.storage.arrays import tensors as read_arrays
from fedmia.storage.snapshot import ClientState, StateStore
from fedmia.untrusted.text import parse_json
from strategies.failure_policy import FederationError
from strategies.replies import RETURN, Exchange

PATIENCE = 3600.0  # seconds in which every node answers
PAUSE = 0.1  # seconds between questions to Flower whether a node has answered
SAY = 30.0  # seconds between two lines that name the clients that have not answered
Who = Callable[[Collection[int]], str]


class NodeStates(StateStore):
    """The server's way to the states on its nodes. Only nodes of a rehearsal answer.

    Args:
        grid: Flower's way to the clients.
        nodes: partition id -> Flower node id.
    """

    def __init__(self, grid: Grid, nodes: dict[int, int]) -> None:
        self._grid, self._nodes = grid, nodes

    def load(self, branch: str, client: int) -> ClientState | None:
        """What a node keeps of a branch; None before its first round."""
        orders = {client: {"branch": branch}}
        content = ask(self._grid, self._nodes, "kept", orders)[client]
        if "memory" not in content.config_records:
            return None
        memory = parse_json(str(content.config_records["memory"]["json"]))
        return ClientState(read_arrays(content.array_records["tensors"]), memory)

    def save(self, branch: str, client: int, state: ClientState) -> None:
        """Not allowed: a node's state is its own."""
        raise NotImplementedError("a node's state is its own")

    def fork(self, source: str, target: str, clients: int) -> None:
        order = {"source": source, "target": target, "clients": clients}
        ask(self._grid, self._nodes, "fork", dict.fromkeys(range(clients), order))


def pack_state(state: ClientState | None) -> RecordDict:
    """What a node answers to `kept`."""
    if state is None:
        return RecordDict()
    memory = ConfigRecord({"json": json.dumps(state.memory)})
    return RecordDict(
        {"memory": memory, "tensors": ArrayRecord(torch_state_dict=dict(state.tensors))}
    )


def name_clients(clients: Collection[int]) -> str:
    """Clients in a sentence: `client 3`, `clients [0, 1]`."""
    return f"client {min(clients)}" if len(clients) == 1 else f"clients {sorted(clients)}"


def ask(
    grid: Grid, nodes: dict[int, int], action: str, orders: dict[int, dict[str, Any]], **how: Any
) -> dict[int, RecordDict]:
    """Send a query to the node of each client in `orders`, and wait for all answers.

    Args:
        nodes: client -> Flower node id; before the roll call nodes stand for clients.
        action: name of the query.
        orders: client -> values to send.
        how: as `ask_each` takes it.

    Returns:
        The answer of each client.

    Raises:
        FederationError: nodes failed, each named by its client, or did not answer.
    """
    each = ask_each(grid, nodes, action, orders, **how)
    answers = {client: answer for client, answer in sorted(each, key=lambda one: one[0])}
    if failed := [str(a) for a in answers.values() if isinstance(a, FederationError)]:
        raise FederationError("; ".join(failed))
    return {c: a for c, a in answers.items() if isinstance(a, RecordDict)}


def ask_each(
    grid: Grid, nodes: dict[int, int], action: str, orders: dict[int, dict[str, Any]],
    tensors: dict[str, ArrayRecord] | None = None, who: Who = name_clients,
    patience: float = PATIENCE, comeback: float = RETURN, tries: int = 1,
) -> Iterator[tuple[int, RecordDict | FederationError]]:  # fmt: skip
    """Send a query to the node of each client in `orders`, and take the answers as they come.

    What is asked here can be asked twice. The log says whom one waits for.

    Args:
        nodes: client -> Flower node id; before the roll call nodes stand for clients.
        action: name of the query.
        orders: client -> values to send.
        tensors: records to send with each order, by name.
        who: what the log calls some of the clients.
        patience: seconds to wait.
        comeback: seconds in which a node that left may be back, to be asked again.
        tries: how often a node is asked that fails.

    Yields:
        Each client with its answer, or with the error why there is none.
    """
    messages = {
        client: Message(
            RecordDict({"order": ConfigRecord(order), **(tensors or {})}),
            dst_node_id=nodes[client], message_type=f"query.{action}",
        )
        for client, order in orders.items()
    }  # fmt: skip
    exchange, failures = Exchange(grid, messages, idempotent=True), Counter[int]()
    began = last_line = time.monotonic()
    end, back = began + patience, began + comeback
    for client in orders:
        exchange.send(client)
    while exchange.waiting:
        for client, reply in exchange.pull().items():
            if not reply.has_error():
                yield client, reply.content
                continue
            left = reply.error.code == NODE_UNAVAILABLE
            failures[client] += not left
            why = f"{action}: {who({client})} failed: {reply.error.reason}"
            if time.monotonic() < back if left else failures[client] < tries:
                print(f"fedmia: {why} (asked again)", flush=True)
                exchange.send_again(client)
            else:
                yield client, FederationError(why)
        now = time.monotonic()
        late = exchange.waiting if now > end else exchange.away if now > back else ()
        for client in sorted(late):
            exchange.drop(client)
            yield client, FederationError(f"{action}: no answer from {who({client})}")
        if exchange.waiting and now > last_line + SAY:
            last_line = now
            print(f"fedmia: {action}: waiting for {who(exchange.waiting)}", flush=True)
        time.sleep(PAUSE)
