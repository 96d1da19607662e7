"""Clients of a grid of ours whose work is a Flower app of anybody's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp

from clients.app import Answer

NODES = 2  # the first client's node, of a grid of ours


def context_of(client: int, **config: Any) -> Context:
    """The context of a client's node."""
    return Context(1, NODES + client, {"partition-id": client, **config}, RecordDict(), {})


def answering(app: ClientApp) -> Callable[..., Answer]:
    """The app, whatever a client keeps and however it is told to end."""

    def work(message: Message, client: int, *_: Any) -> Answer:
        return app(message, context_of(client)), None

    return work
