"""fedmia as a Flower app on nodes of this process: begun as Flower does, seen at its messages."""

from __future__ import annotations

import copy
import functools
import json
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.common.constant import ErrorCode

from fedmia import __version__
from fedmia.flower import client, server
from strategies.failure_policy import FederationError
from tests.recording.plain import PlainGrid
from tests.small_runs import SIMILARITY, SMALL

ROUNDS = SMALL.replace("--quiet ", "") + "--clients 2 --rounds 2 "
TINY = f"{ROUNDS}{SIMILARITY}--attacker none "
SIDES = ("members", "nonmembers")
Fault = Callable[[str, int, Message], Message | None]


class Nodes(PlainGrid):
    """Nodes of an app, of which the first holds client 0.

    Attributes:
        config: what the `--node-config` of each client says beside its partition.
        orders: messages to the nodes, by their type.
        sent: type of each message, its client, and the reply that left the node.
        fault: of the type of a message, its client and the message: the reply in place of the
            node's; None: the node answers.
    """

    def __init__(self, clients: int = 2, app: Any = client.app) -> None:
        super().__init__(self._answer, clients)
        self._nodes = self._nodes[::-1]
        self._node_app = app
        self.config = {number: dict[str, Any]() for number in range(clients)}
        self.orders = dict[str, list[Message]]()
        self.sent = list[tuple[str, int, Message]]()
        self.fault: Fault = lambda *_: None

    def _answer(self, message: Message, context: Context) -> Message:
        number, kind = int(context.node_config["partition-id"]), message.metadata.message_type
        self.orders.setdefault(kind, []).append(message)
        reply = self.fault(kind, number, message)
        if reply is None:
            context.node_config |= self.config[number]
            reply = self._node_app(message, context)
        self.sent.append((kind, number, reply))
        return reply

    def client_of(self, node: int) -> int:
        return len(self._nodes) - 1 - self._nodes.index(node)

    def asked(self, kind: str) -> list[int]:
        """Clients that were sent messages of a type, ascending."""
        return sorted(number for one, number, _ in self.sent if one == kind)

    def give_images(self, folder: Path, images: Iterable[Any], **config: Any) -> None:
        """Images of its own to each node, by client and side."""
        for number, sides in enumerate(images):
            self.config[number] |= own_images(folder, sides, number) | config

    def start(
        self, arguments: str, out: Path | str, private: bool = False
    ) -> FederationError | None:
        """`flwr run`; why it failed."""
        config: Any = {"arguments": arguments, "out": str(out), "private": private}
        try:
            server.app(self, Context(1, 1, {}, RecordDict(), config))
        except FederationError as error:
            return error
        return None


class SuperLink(Nodes):
    """Client 1's node leaves with the first message of a kind in its hands, and the SuperLink says
    so; it is back after `looks` looks for it. Or it begins anew, and nobody says so."""

    def __init__(self, kind: str, looks: float, anew: bool = False, app: Any = client.app) -> None:
        super().__init__(2, app)
        self.kind, self.looks, self.anew = kind, looks, anew
        self.lost = 0
        self.fault = self.leave

    def leave(self, kind: str, client: int, message: Message) -> Message | None:
        if (kind, client) != (self.kind, 1) or (self.lost and self.looks < 1e6):
            return None
        self.lost += 1
        return broken(message, "Error: Node Unavailable", ErrorCode.NODE_UNAVAILABLE)

    def get_node_ids(self) -> Iterable[int]:
        away = bool(self.lost) and self.looks > 0
        self.looks -= away
        return [node for node in self._nodes if not (away and self.client_of(node) == 1)]

    def get_nodes(self) -> Iterable[Any]:
        began = str(bool(self.lost) and self.anew)
        nodes = {node: began if self.client_of(node) == 1 else "" for node in self._nodes}
        return [SimpleNamespace(node_id=n, last_activated_at=at) for n, at in nodes.items()]

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        replies = super().pull_messages(message_ids)
        return [r for r in replies if not (self.anew and r.has_error())]


def own_images(folder: Path, sides: Sequence[Any], number: int = 0) -> dict[str, Any]:
    """Files of a node's images (N, 8, 8), as its `--node-config` names them."""
    folder.mkdir(exist_ok=True)
    named = {}
    for side, images in zip((*SIDES, "public"), sides, strict=False):
        file = folder / f"own-{side}-{number}.npz"
        np.savez(file, x=images, y=np.zeros(len(images), np.int64))
        named[side] = f"npz:{file}"
    return named


def drawn(*counts: int, seed: int = 0) -> list[np.ndarray]:
    """Images, so many a side."""
    draw = np.random.default_rng(seed)
    return [draw.integers(0, 256, (count, 8, 8), np.uint8) for count in counts]


def broken(message: Message, why: str = "no more memory", code: int = 0) -> Message:
    """What Flower sends of a node that failed."""
    return Message(Error(code, why), reply_to=message)


def held(message: Message) -> Any:
    """The records of a message, by their names."""
    return message.content


def replied(message: Message, **records: Any) -> Message:
    return Message(RecordDict(records), reply_to=message)


def echo(message: Message, context: Context) -> Message:
    """A node that does no work, and sends what it received."""
    client, kind = int(context.node_config["partition-id"]), message.metadata.message_type
    found: dict[str, Any] = {"client": client, "fedmia": __version__, "channels": 1, "size": 8}
    metrics: dict[str, Any] = {
        "client": client,
        "num-examples": 8,
        "loss": 0.5,
        "began": 0.0,
        "ended": 0.1,
    }
    records: dict[str, Any] = {
        "query": {"metrics": MetricRecord({"client": client})},
        "query.begin": {"found": ConfigRecord(found)},
        "train": {"arrays": held(message).get("arrays"), "metrics": MetricRecord(metrics)},
        "query.score": {"told": ConfigRecord({"json": '{"size": 8, "defence": null}'})},
        "query.end": {},
    }
    return replied(message, **records[kind])


def report_of(out: Path, client: int) -> dict[str, Any]:
    report: dict[str, Any] = json.loads((out / f"client-{client:04d}/report.json").read_text())
    return report


def told(reply: Message) -> dict[str, Any]:
    """What a node says in words when it is asked for scores."""
    assert not reply.has_error(), reply.error
    return plain(json.loads(held(reply)["told"]["json"]))


def plain(value: Any) -> Any:
    """Values of JSON without the types of their records."""
    if isinstance(value, list):
        return [plain(one) for one in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {"of", "is"}:
        return plain(value["is"])
    for shape in ("list", "tuple"):
        if value.keys() == {shape}:
            return plain(value[shape])
    if value.keys() == {"dict"}:
        return {str(name): plain(one) for name, one in value["dict"]}
    return {name: plain(one) for name, one in value.items()}


@functools.cache
def orders_of(arguments: str) -> dict[str, Any]:
    """What the server of a private run sends, by the type of the message: of the rounds the first.

    No node scores, so nothing is reported.
    """
    grid = Nodes(2, echo)
    grid.fault = lambda kind, _, message: broken(message) if kind == "query.score" else None
    with tempfile.TemporaryDirectory() as folder:
        grid.start(arguments, Path(folder) / "out", private=True)
    return {kind: messages[0].content for kind, messages in grid.orders.items()}


class Node:
    """A node of client 0, to which messages come one by one: those that the server of a run sends.

    Args:
        folder: of its images, and of what it keeps.
        arguments: of the run.
        sides: its images.
        config: more of its `--node-config`.
    """

    def __init__(
        self, folder: Path, arguments: str = "", sides: Sequence[Any] | None = None, **config: Any
    ) -> None:
        PlainGrid(client.app)  # tells Flower which task this is
        known = "" if "--split.known" in arguments else "--split.known 2 "
        self.orders = orders_of(HAND + known + arguments)
        sides = drawn(8, 8) if sides is None else sides
        self.folder = folder
        self.config = {
            "partition-id": 0, "folder": str(folder / "kept"), **own_images(folder, sides), **config
        }  # fmt: skip
        self.begin()

    def tell(self, kind: str, content: RecordDict) -> Message:
        message = Message(content, dst_node_id=1, message_type=kind)
        return client.app(message, Context(1, 1, dict(self.config), RecordDict(), {}))

    def begin(self, private: bool = True) -> Message:
        order = RecordDict({"order": ConfigRecord({**self.orders["query.begin"]["order"]})})
        order["order"]["private"] = private
        return self.tell("query.begin", order)

    def train(self, round: int = 1, shift: float = 0.0, **more: Any) -> Message:
        """An order of a round, with the first model, or one a little off."""
        content = copy.deepcopy(self.orders["train"])
        config = content["config"]
        for name, value in {"server-round": round, **more}.items():
            if name in config:
                config[name] = value
            else:
                content[name] = value
        if shift:
            state = {n: t + shift for n, t in content["arrays"].to_torch_state_dict().items()}
            content["arrays"] = type(content["arrays"])(state)
        return self.tell("train", content)

    def score(self) -> Message:
        return self.tell("query.score", self.orders["query.score"])

    def kept(self) -> list[Path]:
        """Files of its state."""
        return [*(self.folder / "kept").rglob("main-*")]

    def first(self) -> np.ndarray:
        return flat(self.orders["train"])


HAND = (
    "--clients 2 --rounds 1 --train.local_epochs 1 --model.width 2 --device cpu "
    "--train.batch_size 8 --federation.snapshots 1 --attack.similarity.views 2 "
    "--attacks similarity "
)


def flat(content: Any) -> np.ndarray:
    """All weights of a message, in the order of their names."""
    arrays = sorted(content["arrays"].items())
    return np.concatenate([np.ravel(a.numpy()).astype(float) for _, a in arrays])


def as_bytes(reply: Message) -> tuple[dict[str, bytes], dict[str, Any]]:
    assert not reply.has_error(), reply.error
    arrays, metrics = held(reply)["arrays"], held(reply)["metrics"]
    return {name: a.data for name, a in arrays.items()}, dict(metrics)
