"""A server by a loop of its own, with bare lists of arrays, which says nothing of its rounds."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import torch
from flwr.app import ArrayRecord, Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp

import fedmia.flower
from my_app.task import Net

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    config = context.run_config
    torch.manual_seed(0)
    weights = [tensor.numpy() for tensor in Net().state_dict().values()]
    with fedmia.flower.record(grid, str(config["recording"]), updates="all") as grid:
        while len(nodes := list(grid.get_node_ids())) < 2:
            time.sleep(0.2)
        for _ in range(int(config["rounds"])):
            content = RecordDict({"arrays": ArrayRecord(weights)})
            orders = [Message(content, message_type="train", dst_node_id=node) for node in nodes]
            waiting, sent = set(grid.push_messages(orders)), []
            while waiting:
                for reply in grid.pull_messages(waiting):
                    waiting.discard(reply.metadata.reply_to_message_id)
                    sent.append([array.numpy() for array in reply.content["arrays"].values()])
                time.sleep(0.1)
            weights = [
                np.asarray(np.mean(each, 0), each[0].dtype) for each in zip(*sent, strict=True)
            ]
        grid.final(ArrayRecord(weights))
    last = dict(zip(Net().state_dict(), weights, strict=True))
    np.savez(Path(str(config["folder"])) / "final.npz", **last)
