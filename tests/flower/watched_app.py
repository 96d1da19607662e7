"""A Flower app that leaks from its second round on, watched on images that stay on its nodes.

Each node notes the messages that come to it, and what leaves it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from flwr.app import Context, Message
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

import fedmia.flower
from tests.flower.leaking import App, first, images_of

NODES, LEAKS, ROUNDS = 2, 2, 4
PYPROJECT = """
[project]
name = "watched"
version = "1.0.0"
dependencies = []
[tool.flwr.app]
publisher = "somebody"
fab-include = ["*.py"]
[tool.flwr.app.components]
serverapp = "app:server"
clientapp = "app:client"
[tool.flwr.app.config]
folder = ""
"""


def note(message: Message, context: Context, call_next: Any) -> Message:
    """Write down the kind of a message, and each value that the reply to it holds."""
    reply: Message = call_next(message, context)
    name = f"node{context.node_config['partition-id']}.jsonl"
    values = {
        kind: {n: str(type(v)) for n, v in one.items()} for kind, one in reply.content.items()
    }
    with (Path(str(context.run_config["folder"])) / name).open("a") as file:
        file.write(json.dumps([message.metadata.message_type, values]) + "\n")
    return reply


client = App(leaks=LEAKS, images=images_of).make(note)
server = ServerApp()


@server.main()
def main(grid: Grid, context: Context) -> None:
    folder = Path(str(context.run_config["folder"]))
    watch = fedmia.flower.Watch(every=1, stop_above=0.6)
    with fedmia.flower.record(grid, folder / "REC", watch=watch) as recorded:
        strategy = FedAvg(
            min_train_nodes=NODES, min_evaluate_nodes=NODES, min_available_nodes=NODES
        )
        recorded.final(strategy.start(recorded, first(), ROUNDS).arrays)
    looks = {round: look.value for round, look in watch.looks.items()}
    (folder / "looks.json").write_text(json.dumps([looks, watch.limits]))
