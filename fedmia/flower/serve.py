"""A watch on private images: each node scores its own, and an AUC with its variance leaves it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from flwr.app import ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid

from fedmia.encoders.memory import Network
from fedmia.flower.leakage import Leakage
from fedmia.flower.messages import log
from fedmia.settings.errors import InputError
from fedmia.ssl.base import State
from fedmia.statistics.auc import AucEstimate
from fedmia.statistics.spending import pool
from fedmia.storage.arrays import record, tensors
from strategies.replies import PAUSE, Exchange

ACTION = "fedmia_leakage"  # of the query
PATIENCE = 3600.0  # seconds in which every node answers
SENT = ("value", "variance", "freedom", "smaller")


def serve(
    app: ClientApp, net: Network, images: Callable[[Context], tuple[Any, Any]], **leakage: Any
) -> ClientApp:
    """Add to a client app the query of a `Watch` that has no images of its own.

    Args:
        app: with functions that are registered by `@app.train()` and its like.
        net: as of `Watch`.
        images: of the node's context: its members, which it trains on, and others of the same
            distribution, each uint8 (N, C, H, W). They stay on the node, and so do their scores.
        leakage: further options of `Watch`: `options`, `mean`, `std`, `augment`, `device`, `seed`.

    Returns:
        The app.

    Raises:
        InputError: an app by `client_fn`, which takes no query.
    """

    def measure(message: Message, context: Context) -> Message:
        order: Any = message.content.config_records["order"]
        try:
            members, others = images(context)
            meter = Leakage(net, members, others, str(order["attack"]), **leakage)
            arrays = message.content.array_records["arrays"]
            estimate = meter.measure(int(order["round"]), tensors(arrays))
        except InputError as error:
            return Message(Error(code=0, reason=f"watch: {error}"), reply_to=message)
        values = {name: getattr(estimate, name) for name in SENT} | {"members": len(members)}
        return Message(RecordDict({"leakage": MetricRecord(values)}), reply_to=message)

    try:
        app.query(ACTION)(measure)
    except ValueError as error:
        raise InputError(f"serve: {' '.join(str(error).split())}") from None
    return app


def ask_nodes(grid: Grid, attack: str, round: int, state: State) -> AucEstimate:
    """The mean AUC of the nodes' own images, weighted by their members.

    A node that fails is named in the log, and the others count.

    Args:
        grid: Flower's way to the nodes.
        attack: by name.
        round: after which the model was made.
        state: its weights.

    Returns:
        The AUC, with its variance.

    Raises:
        InputError: before the first round a node fails, or no node answers.
    """
    order = ConfigRecord({"attack": attack, "round": round})
    content = RecordDict({"order": order, "arrays": record(state)})
    nodes = list(grid.get_node_ids())
    orders = {node: Message(content, node, f"query.{ACTION}") for node in nodes}
    exchange, answered = Exchange(grid, orders, idempotent=True), dict[int, Message]()
    for node in nodes:
        exchange.send(node)
    end = time.monotonic() + PATIENCE
    while exchange.waiting and time.monotonic() < end:
        answered |= exchange.pull()
        time.sleep(PAUSE)
    estimates, failed = list[tuple[AucEstimate, float]](), list[str]()
    for node in nodes:
        reply = answered.get(node)
        if reply is None or reply.has_error():
            why = "no answer" if reply is None else " ".join(str(reply.error.reason).split())
            failed.append(f"node {node}: {why}")
            continue
        values: Any = reply.content.metric_records["leakage"]
        estimates.append((AucEstimate(*(values[n] for n in SENT)), values["members"]))
    if not estimates or (failed and not round):
        first = failed[0] if failed else "there is no node"
        raise InputError(f"{first} ({len(failed)} of {len(nodes)} nodes failed)")
    if failed:
        log.warning("watch: round %d: without %s", round, "; ".join(failed))
    return pool(estimates)
