"""A client trains on its own digits; `roster` says with each reply which partition it holds."""

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

import fedmia.flower
from federated_simclr.task import DigitNet, read_own, train

app = ClientApp(mods=[fedmia.flower.roster])


@app.train()
def fit(message: Message, context: Context) -> Message:
    config, node = context.run_config, context.node_config
    client, round = node["partition-id"], message.content["config"]["server-round"]
    torch.manual_seed(1000 * round + client)
    net = DigitNet()
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    pixels = read_own(client, node["num-partitions"], config["alpha"])
    loss = train(net, pixels, config["local-epochs"], config["learning-rate"])
    metrics = MetricRecord({"loss": loss, "num-examples": len(pixels)})
    content = RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": metrics})
    return Message(content, reply_to=message)
