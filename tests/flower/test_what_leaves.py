"""Every byte that leaves a node with images of its own: weights and scores, and nothing of who is
in which role."""

from __future__ import annotations

import base64
import csv
import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from torch import Tensor

from fedmia.attacks.base import Attack, Known
from fedmia.data.images import digests
from fedmia.threat import BlackBox, Threat
from tests.clock import Clock
from tests.flower.nodes import ROUNDS, Nodes, held

KINDS = {"query", "query.begin", "train", "query.score", "query.end"}
ENTRIES = 6  # of a role, in its order: nobody writes so many by chance
FLAGS = f"{ROUNDS}--attacker none --attacks {__name__}:Brightness "


@dataclass
class Brightness(Attack):
    """A score that tells images apart, under every model; it notes what it is given."""

    paper: ClassVar[str] = "none"
    needs: ClassVar[Threat] = Threat("black_box", "outsider")
    heard: ClassVar[list[np.ndarray]] = []
    files: ClassVar[list[str]] = []  # temporary ones, while it scores

    @property
    def learns(self) -> bool:
        return True

    def fit(self, view: BlackBox, known: Known, rng: np.random.Generator) -> None:
        for side in (known.members, known.nonmembers):
            self.heard.append(side.double().mean(dim=(1, 2, 3)).numpy())

    def score(self, view: BlackBox, images: Tensor) -> np.ndarray:
        self.files.extend(path.name for path in Path(tempfile.gettempdir()).iterdir())
        scores: np.ndarray = images.double().mean(dim=(1, 2, 3)).numpy()
        self.heard.append(scores)
        return scores


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


class Watched:
    """A private run of two nodes, each with 20 images a side.

    Attributes:
        grid: with all that left the nodes.
        images: (clients, sides, 20, 1, 8, 8) of the nodes' files, by their order in them.
        heard: brightness of what the attack was given, a role or a part of it at a time.
    """

    def __init__(self, folder: Path, **config: Any) -> None:
        draw = np.random.default_rng(0)
        self.folder, self.out, self.grid = folder, folder / "server", Nodes()
        self.images = draw.integers(0, 256, (2, 2, 20, 1, 8, 8), np.uint8)
        Brightness.heard.clear()
        Brightness.files.clear()
        self.grid.give_images(folder, self.images[:, :, :, 0], **config)
        failure = self.grid.start(FLAGS, self.out, private=True)
        self.check_bytes()  # also of a run that failed
        assert failure is None and not any(reply.has_error() for *_, reply in self.grid.sent)

    def rows(self, client: int, side: int, brightness: np.ndarray) -> list[int] | None:
        """Which images of a side these are; None: others are among them."""
        file = self.images[client, side].astype(np.float64).mean(axis=(1, 2, 3)).tolist()
        each = brightness.tolist()
        return [file.index(one) for one in each] if each and {*each} <= {*file} else None

    def check_bytes(self) -> None:
        """No reply holds a pixel row, a digest, an order of a role or the path of a file."""
        wanted = {form for i in self.images.reshape(4, 20, 1, 8, 8) for form in of_images(i)}
        wanted |= {str(self.folder).encode(), b"own-members", b"own-nonmembers", b".npz"}
        for client, side in np.ndindex(2, 2):
            for one in Brightness.heard:
                if rows := self.rows(client, side, one):
                    for first in (0, 20):  # in the side's file, and behind the other side
                        wanted |= {*of_order(np.array(rows) + first)}
        for kind, number, reply in self.grid.sent:
            shown = as_sent(reply)
            leaks = [form for form in wanted if form in shown]
            assert not leaks, f"client {number} sent {leaks[0]!r} in {kind}"

    def scores(self, client: int) -> list[np.ndarray]:
        """The arrays of scores that a node sent."""
        (reply,) = (r for kind, c, r in self.grid.sent if (kind, c) == ("query.score", client))
        return [array.numpy() for array in held(reply)["scores"].values()]


@pytest.fixture(autouse=True)
def temporary(home: Path, clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))


def check_left(run: Watched, home: Path, leave: bool) -> None:
    """What is in each reply, what the server writes, and that nothing stays on a node."""
    assert {(kind, c) for kind, c, _ in run.grid.sent} == {(k, c) for k in KINDS for c in (0, 1)}
    for kind, _, reply in run.grid.sent:
        assert {*reply.content} == {
            "query": {"metrics"}, "query.begin": {"found"}, "train": {"arrays", "metrics"},
            "query.score": {"told", "scores"} if leave else {"told"}, "query.end": set(),
        }[kind]  # fmt: skip
    names = {path.name for path in run.out.rglob("*")}
    assert "recording.json" in names
    assert not names & {"cast.safetensors", "attacker.safetensors", "notes"}
    assert not [*home.iterdir()] and not Brightness.files


def test_node__that_keeps_its_scores_sends_weights_alone(home: Path, tmp_path: Path) -> None:
    check_left(Watched(tmp_path, scores=False), home, False)
    assert not Brightness.heard


def test_node__sends_scores_in_an_order_that_it_drew_and_nothing_else_of_its_images(
    home: Path, tmp_path: Path
) -> None:
    """The brightness of an image tells which it is: those of a side lie in no order of the file,
    and in another one in a second run with the same seed and the same files."""
    orders = list[list[list[int]]]()
    for again in ("one", "again"):
        run = Watched(tmp_path / again, scores=True)
        check_left(run, home, True)
        orders.append([])
        for client, side in np.ndindex(2, 2):
            scored = [rows for a in run.scores(client) if (rows := run.rows(client, side, a))]
            assert len(scored) == 2 and scored[0] == scored[1]  # of the first encoder, too
            assert len({*scored[0]}) == len(scored[0]) == 12  # the other 8 are known
            orders[-1].append(scored[0])
            with (run.out / f"client-{client:04d}/scores.csv").open() as file:
                rows = [row for row in csv.DictReader(file) if row["truth"] == str(1 - side)]
            shown = [float(next(v for n, v in row.items() if "rightness" in n)) for row in rows]
            assert run.rows(client, side, np.array(shown)) == scored[0]
            assert {row["client"] for row in rows} == ({str(client)} if side == 0 else {""})
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
