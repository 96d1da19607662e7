"""A client trains on its images; it takes weights by name, or as a bare list."""

from __future__ import annotations

from pathlib import Path

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

import fedmia.flower
from my_app.task import Net, read_images, train

app = ClientApp(mods=[fedmia.flower.roster])


@app.train()
def fit(message: Message, context: Context) -> Message:
    torch.manual_seed(int(context.node_config["partition-id"]))
    net, received = Net(), message.content["arrays"]
    values = [torch.tensor(array.numpy()) for array in received.values()]
    net.load_state_dict(dict(zip(net.state_dict(), values, strict=True)))
    name = f"client{context.node_config['partition-id']}"
    images = read_images(Path(str(context.run_config["folder"])), name)
    loss = train(net, images, int(context.run_config["epochs"]))
    weights = [tensor.numpy() for tensor in net.state_dict().values()]
    bare = "0" in received
    sent = ArrayRecord(weights) if bare else ArrayRecord(net.state_dict())
    metrics = MetricRecord({"loss": loss, "num-examples": len(images)})
    return Message(RecordDict({"arrays": sent, "metrics": metrics}), reply_to=message)
