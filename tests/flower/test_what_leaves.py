"""Every byte that leaves a node with images of its own: weights and scores, and nothing of who is
in which role."""

from __future__ import annotations

import base64
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from torch import Tensor

from fedmia.attacks.similarity import Similarity
from fedmia.data.cast import Cast
from fedmia.data.images import digests
from fedmia.flower import answers, client, server
from fedmia.flower.node import Node
from fedmia.recording.format import ATTACKER, CAST
from fedmia.storage.arrays import numbers
from strategies.failure_policy import FederationError
from tests.flower.on_nodes import TINY, nodes, run

SIDES = ("members", "nonmembers")
KINDS = {"query", "query.begin", "train", "query.score", "query.end"}
ENTRIES = 6  # of a role, in its order: nobody writes so many by chance


def brightness(self: Similarity, view: object, images: Tensor) -> np.ndarray:
    """A score that tells images apart, under every model."""
    return images.double().mean(dim=(1, 2, 3)).numpy()


def as_sent(reply: Message) -> bytes:
    """All that a reply holds: raw bytes of arrays, and everything else as text."""
    if reply.has_error():
        return repr(reply.error).encode()
    parts = [repr(reply.metadata).encode()]
    for name, record in reply.content.items():
        parts.append(name.encode())
        if isinstance(record, ArrayRecord):
            for key, array in record.items():
                parts += [f"{key}|{array.dtype}|{array.shape}|{array.stype}|".encode(), array.data]
        else:
            assert isinstance(record, MetricRecord | ConfigRecord)
            values = dict(record)
            parts += [value for value in values.values() if isinstance(value, bytes)]
            parts += [value.encode() for value in values.values() if isinstance(value, str)]
            parts.append(json.dumps(values, default=repr).encode())
    return b"\n".join(parts)


def forms(data: bytes) -> tuple[bytes, ...]:
    """Bytes as they are, as hex and as base64."""
    return data, data.hex().encode(), base64.b64encode(data[: len(data) // 3 * 3])


def of_images(images: np.ndarray) -> Iterator[bytes]:
    """What shows that images (N, 1, H, W) left: a row of pixels, or a digest."""
    for row in images.reshape(-1, images.shape[-1]):
        yield from forms(row.tobytes())
        yield json.dumps(row.tolist()).encode()[1:-1]
        for scaled in (row.astype(np.float32), row.astype(np.float32) / np.float32(255)):
            yield scaled.tobytes()
    for digest in digests(images):
        yield from forms(digest)


def of_order(rows: np.ndarray) -> Iterator[bytes]:
    """What shows that the rows of a role left, or so many of them in their order."""
    for at in range(len(rows) - ENTRIES + 1):
        some = rows[at : at + ENTRIES]
        for kind in (np.int64, np.int32, np.int16, np.uint8):
            yield some.astype(kind).tobytes()
        for gap in (", ", ","):
            yield gap.join(map(str, some.tolist())).encode()


def of_cast(cast: Cast) -> Iterator[bytes]:
    """What shows that a cast left: the rows of a role in all images, or in those of its side."""
    for role in ("known_members", "scored_members", "known_nonmembers", "scored_nonmembers"):
        rows = cast.ids(role)
        yield from of_order(rows)
        own = np.concatenate(
            [cast.ids(f"{kind}_{role.partition('_')[2]}") for kind in ("known", "scored")]
        )
        yield from of_order(rows - own.min())


class Noted:
    """A private run of two nodes.

    Attributes:
        replies: type of a message, client and reply, in their order.
        casts: each that a node drew.
        scored: client -> the cast that its scores are of.
        failure: what ended the run before its time.
        images: (clients, sides, images, 1, 8, 8) of the nodes' files, by their order in them.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.out = folder, folder / "server"
        self.replies = list[tuple[str, int, Message]]()
        self.casts, self.scored = list[Cast](), dict[int, Cast]()
        self.failure: FederationError | None = None
        self.images = np.random.default_rng(0).integers(0, 256, (2, 2, 20, 1, 8, 8), np.uint8)

    def run(self, **config: Any) -> None:
        """Run it, with this in each node's `--node-config`."""
        with nodes() as grid:
            for number, sides in enumerate(self.images):
                for side, images in zip(SIDES, sides, strict=True):
                    file = self.folder / f"own-{side}-{number}.npz"
                    np.savez(file, x=images[:, 0], y=np.zeros(len(images), np.int64))
                    grid.give(number, **{side: f"npz:{file}"})
                grid.give(number, **config)
            # A grid of ours knows its clients: another asks each node first which it is.
            orders = [Message(RecordDict(), n, "query") for n in grid.get_node_ids()]
            assert all(reply.has_content() for reply in grid.send_and_receive(orders))
            try:
                run(server.gather, grid, TINY, self.out)
            except FederationError as error:  # what had left by then is looked at first
                self.failure = error

    def scores(self, number: int) -> dict[str, np.ndarray]:
        """The arrays of scores that a node sent."""
        (reply,) = (r for kind, c, r in self.replies if (kind, c) == ("query.score", number))
        return numbers(reply.content.array_records["scores"])


@pytest.fixture
def noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Noted:
    """A run whose nodes' replies and casts are kept; nothing that scores makes a temporary file."""
    noted = Noted(tmp_path)
    app, prepared, score_node = client.app, Node.prepared, answers.score_node

    def answer(message: Message, context: Context) -> Message:
        reply = app(message, context)
        number = int(context.node_config["partition-id"])
        noted.replies.append((message.metadata.message_type, number, reply))
        return reply

    def prepare(self: Node) -> Any:
        plan, context = prepared(self)
        noted.casts.append(plan.cast)
        return plan, context

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("a temporary file or folder of a node that scores")

    def score(plan: Any, context: Any, number: int, *rest: Any) -> RecordDict:
        noted.scored[number] = plan.cast
        with pytest.MonkeyPatch.context() as patch:
            for name in ("mkdtemp", "mkstemp", "NamedTemporaryFile", "TemporaryFile"):
                patch.setattr(tempfile, name, refuse)
            return score_node(plan, context, number, *rest)

    monkeypatch.setattr(client, "app", answer)
    monkeypatch.setattr(Node, "prepared", prepare)
    monkeypatch.setattr(answers, "score_node", score)
    monkeypatch.setattr(Similarity, "score", brightness)
    return noted


def check_bytes(noted: Noted) -> None:
    """No reply holds a pixel row, a digest, an order of a role or the path of a file."""
    assert len(noted.casts) >= 2 * 4
    wanted = {form for cast in noted.casts for form in of_cast(cast)}
    wanted |= {form for side in noted.images.reshape(4, 20, 1, 8, 8) for form in of_images(side)}
    wanted |= {str(noted.folder).encode(), b"own-members", b"own-nonmembers", b".npz"}
    for kind, number, reply in noted.replies:
        shown = as_sent(reply)
        leaks = [form for form in wanted if form in shown]
        assert not leaks, f"client {number} sent {leaks[0]!r} in {kind}"


@pytest.mark.parametrize("leave", [True, False])
def test_node__sends_nothing_of_its_images_nor_of_their_roles(
    leave: bool, noted: Noted, home: Path
) -> None:
    noted.run(scores=leave)
    assert {(kind, c) for kind, c, _ in noted.replies} == {(k, c) for k in KINDS for c in (0, 1)}
    check_bytes(noted)
    assert noted.failure is None and not any(reply.has_error() for *_, reply in noted.replies)
    for kind, _, reply in noted.replies:
        names = {*reply.content}
        assert names == {
            "query": {"metrics"}, "query.begin": {"found"}, "train": {"arrays", "metrics"},
            "query.score": {"told", "scores"} if leave else {"told"}, "query.end": set(),
        }[kind]  # fmt: skip
    assert sorted(noted.scored) == [0, 1]
    names = {path.name for path in noted.out.rglob("*")}
    assert not names & {CAST, ATTACKER, "notes"} and "recording.json" in names
    assert not [path for path in home.rglob("*") if path.is_file()] and not [*home.iterdir()]


def test_scores__come_in_an_order_that_the_node_drew(noted: Noted, tmp_path: Path) -> None:
    """The brightness of an image tells which it is: those of a side lie in no order of the file,
    and in another one in a second run with the same seed and the same files."""
    orders = list[list[list[int]]]()
    for again in ("server", "again"):
        noted.out = tmp_path / again
        noted.replies.clear()
        noted.run(scores=True)
        assert noted.failure is None
        orders.append([])
        for number, sides in enumerate(noted.images):
            for side, images in enumerate(sides):
                rows = noted.scored[number].ids(f"scored_{SIDES[side]}") - side * len(images)
                by_file = images.astype(np.float64).mean(axis=(1, 2, 3)).tolist()
                arrays = [a for a in noted.scores(number).values() if len(a) == len(rows)]
                sent = [a.tolist() for a in arrays if {*a.tolist()} <= {*by_file}]
                assert len(sent) == 2  # under the final and under the first encoder
                for scores in sent:
                    assert [by_file.index(score) for score in scores] == rows.tolist()
                orders[-1].append(rows.tolist())
    assert all(order not in (sorted(order), sorted(order)[::-1]) for order in sum(orders, []))
    assert not [one for one, other in zip(*orders, strict=True) if one == other]


def test_forms__are_seen_in_what_is_sent() -> None:
    """Each form that is looked for is found where it is planted."""
    images = np.random.default_rng(1).integers(0, 256, (8, 1, 8, 8), np.uint8)
    rows = np.random.default_rng(1).permutation(20)[:12]
    planted: dict[str, Any] = {
        "a": ArrayRecord({"x": Array(images)}),
        "b": ArrayRecord({"x": Array(images.astype(np.float32) / np.float32(255))}),
        "c": ConfigRecord({"json": json.dumps({"x": images[0].tolist()})}),
        "d": ConfigRecord({"names": [name.hex() for name in digests(images)]}),
        "e": ConfigRecord({"names": b"".join(digests(images))}),
        "f": ConfigRecord({"file": base64.b64encode(images[3].tobytes()).decode()}),
    }
    orders: dict[str, Any] = {
        "g": ArrayRecord({"x": Array(rows)}),
        "h": ArrayRecord({"x": Array(rows.astype(np.int32))}),
        "i": MetricRecord({"rows": rows.tolist()}),
        "j": ConfigRecord({"json": json.dumps({"rows": rows[3:].tolist()})}),
    }
    order = Message(RecordDict(), dst_node_id=1, message_type="query")
    for name, record in (planted | orders).items():
        shown = as_sent(Message(RecordDict({name: record}), reply_to=order))
        wanted = of_images(images) if name in planted else of_order(rows)
        assert any(form in shown for form in wanted), name
