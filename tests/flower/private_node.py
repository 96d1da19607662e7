"""A node with images of its own, as each message's process has it, and what it answers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, Context, Message, RecordDict

from clients.client_round import ClientRound
from clients.client_setup import ClientTask
from clients.honest import Honest
from fedmia.flower import client, private, server
from fedmia.flower.answers import read_answer
from fedmia.flower.node import Node
from fedmia.flower.private import plan_own
from fedmia.flower_internals import set_identity
from fedmia.records import ClientInfo
from fedmia.settings.tree import to_tree
from fedmia.ssl.base import State
from fedmia.storage.arrays import record, tensors

TINY = (
    "--clients 2 --rounds 4 --train.local_epochs 1 --model.width 2 --device cpu --split.known 2 "
    "--train.batch_size 8 --federation.snapshots 1 --attack.similarity.views 2 "
    "--attacks similarity "
)
CLIP, SCALE = 0.005, 0.003
GAUSSIAN = f"--train.lr 30 --defense gaussian --defense.scale {SCALE} --defense.clip {CLIP} "


class Private:
    """A node of client 0 with 8 members and 8 others, as each message's process has it."""

    def __init__(self, folder: Path, flags: str, **config: Any) -> None:
        folder.mkdir(exist_ok=True)
        set_identity(1)
        images = np.random.default_rng(0).integers(0, 256, (2, 8, 8, 8), np.uint8)
        for side, own_images in zip(private.SIDES, images, strict=True):
            np.savez(folder / f"{side}.npz", x=own_images, y=np.zeros(8, np.int64))
        self.config = {
            "partition-id": 0, "folder": str(folder),
            **{side: f"npz:{folder / side}.npz" for side in private.SIDES}, **config,
        }  # fmt: skip
        settings = server.invocation(TINY + flags).settings
        order = {"settings": json.dumps(to_tree(settings)), "private": True}
        self.tell("query.begin", {"order": ConfigRecord(order)})
        _, self.client_setup = self.node.prepared()
        self.start = self.client_setup.method(-1, None).shared_state()

    @property
    def context(self) -> Context:
        return Context(1, 1, dict(self.config), RecordDict(), {})

    @property
    def node(self) -> Node:
        return Node(self.context)

    def tell(self, kind: str, content: dict[str, Any]) -> Message:
        plan_own.cache_clear()  # another message, another process
        message = Message(RecordDict(content), dst_node_id=1, message_type=kind)
        return client.app(message, self.context)

    def train(self, round: int = 1, received: State | None = None, branch: str = "main") -> Message:
        config = ConfigRecord({"server-round": round, "craft": False, "branch": branch})
        arrays = record(self.start if received is None else received)
        return self.tell("train", {"arrays": arrays, "config": config})

    def simulated(self) -> State:
        """What the same client of a simulation sends in its first round."""
        file = Path(str(self.config["folder"])) / "images.npy"
        np.save(file, self.client_setup.images)
        client_setup = replace(self.client_setup, noise_source="seeded", image_array=file)
        client_round = ClientRound(client_setup, None, ClientTask(0, 1, "main", False), self.start)
        return Honest().answer(client_round)[0].state

    def spent(self) -> float:
        """Epsilon by what the node keeps."""
        client_state = self.node.store.load("main", 0)
        assert client_state is not None
        stated = self.client_setup.build_defenses(0).statement(client_state.memory["defense"])
        assert stated is not None and stated.epsilon is not None
        assert stated.epsilon.noise_source == "entropy"
        return float(stated.epsilon.value or 0.0)


def flat(state: State) -> np.ndarray:
    """In an order of names."""
    return np.concatenate([state[n].double().flatten().numpy() for n in sorted(state)])


def sent(reply: Message) -> State:
    assert not reply.has_error(), reply.error
    return tensors(reply.content.array_records["arrays"])


def as_bytes(reply: Message) -> tuple[dict[str, bytes], dict[str, Any]]:
    arrays = reply.content.array_records["arrays"]
    return {n: a.data for n, a in arrays.items()}, dict(reply.content.metric_records["metrics"])


def scored(node: Private) -> tuple[RecordDict, ClientInfo, dict[str, Any]]:
    node.train()
    models = {name: record(node.start) for name in ("final", "untrained")}
    reply = node.tell("query.score", {"order": ConfigRecord({"last": 1}), **models})
    assert not reply.has_error(), reply.error
    return reply.content, *read_answer(0, reply.content)
