"""A Flower app of somebody's, whose model knows its members from one round on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

import fedmia.flower
from fedmia.flower import Watch
from fedmia.ssl.augment import Augment
from tests.auditing.conftest import MEMBERS, textures
from tests.evaluation.memory import Net, state_of
from tests.evaluation.test_federation_audit import MILD
from tests.recording.plain import NODES

IMAGES = textures(MEMBERS + 40).images
ROUNDS, LEAKS = 12, 7  # the model of round 7 leaks, those before do not
VIEWS: dict[str, Any] = {
    "options": {"views": 3}, "mean": [0], "std": [1], "augment": Augment(**MILD),
}  # fmt: skip
QUIET = {"fraction_evaluate": 0.0, "min_train_nodes": 5, "min_available_nodes": 5}


@dataclass
class App:
    """Clients who send a model that knows its members from a round on; counts its orders."""

    orders: list[tuple[str, int]] = field(default_factory=list)
    bare: bool = False
    images: Any = None  # of a node's context, for a watch on the nodes
    leaks: int = LEAKS

    def __call__(self, message: Message, context: Context) -> Message:
        return self.make()(message, context)

    def make(self, *mods: Any) -> ClientApp:
        app = ClientApp(mods=[*mods, fedmia.flower.roster])

        @app.train()
        def train(message: Message, context: Context) -> Message:
            round = int(message.content["config"]["server-round"])
            self.orders.append(("train", round))
            state = state_of(float(round >= self.leaks))
            arrays = [t.detach().numpy() for t in state.values()] if self.bare else state
            metrics = MetricRecord({"num-examples": 1})
            content = RecordDict({"arrays": ArrayRecord(arrays), "metrics": metrics})
            return Message(content, reply_to=message)

        @app.evaluate()
        def evaluate(message: Message, context: Context) -> Message:
            self.orders.append(("evaluate", int(message.content["config"]["server-round"])))
            metrics = MetricRecord({"num-examples": 1})
            return Message(RecordDict({"metrics": metrics}), reply_to=message)

        @app.query("hello")
        def hello(message: Message, context: Context) -> Message:
            return Message(RecordDict(), reply_to=message)

        if self.images is not None:
            fedmia.flower.serve(app, Net, self.images, **VIEWS)
        return app


def first() -> ArrayRecord:
    return ArrayRecord(state_of(0.0))


def watch(**how: Any) -> Watch:
    usual: dict[str, Any] = {
        "net": Net, "members": IMAGES[:MEMBERS], "others": IMAGES[MEMBERS:], "every": 2,
        "stop_above": 0.6, "looks": 6, **VIEWS,
    }  # fmt: skip
    return Watch(**{**usual, **how})


def images_of(context: Context) -> tuple[Any, Any]:
    """A node's share of the members, and of the others."""
    at, parts = (int(context.node_config[name]) for name in ("partition-id", "num-partitions"))
    return IMAGES[:MEMBERS][at::parts], IMAGES[MEMBERS:][at::parts]


def orders(arrays: ArrayRecord, round: int, kind: str = "train") -> list[Message]:
    content = RecordDict({"arrays": arrays, "config": ConfigRecord({"server-round": round})})
    return [Message(content, node, kind) for node in NODES]
