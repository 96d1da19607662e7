"""Images, tables, settings and replies: honest ones, and hostile ones by hand."""

from __future__ import annotations

import io
import json
import pickle
import struct
import zipfile
import zlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from _mutations import VALUES
from _stranger_encoders import Files, bomb, planted
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from PIL import Image

from fedmia.cli.command import parse
from fedmia.cli.commands import COMMANDS
from fedmia.data.base import Request
from fedmia.data.images import ImageSet
from fedmia.flower.gather import report_node
from fedmia.records import ScoredAttack
from fedmia.records.defence_rows import DefenceRow
from fedmia.records.privacy import Epsilon
from fedmia.runtime.stopwatch import Stopwatch
from fedmia.settings import registry
from fedmia.storage.archive import pack
from strategies.replies import ReplyReader

SIDE = 8
WEIGHTS = {"a": torch.zeros(4, 3), "b": torch.zeros(5)}  # that a client received
FORMATS = ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "PPM")


def picture(mode: str = "RGB", size: tuple[int, int] = (SIDE, SIDE)) -> Image.Image:
    """Noise of a fixed seed."""
    noise = np.random.default_rng(0).integers(0, 256, (*size[::-1], 3), dtype=np.uint8)
    return Image.fromarray(noise).convert(mode)


def encoded(image: Image.Image, form: str = "PNG", **options: Any) -> bytes:
    """The bytes of a file of that image."""
    buffer = io.BytesIO()
    image.save(buffer, form, **options)
    return buffer.getvalue()


@cache
def images() -> Files:
    """One file a format, and one of 12 million pixels, which takes 35 MiB once it is decoded."""
    large = Image.linear_gradient("L").resize((3500, 3500)).convert("RGB")
    small = {f"a.{f.lower()}": encoded(picture(), f) for f in FORMATS}
    return {**small, "large.png": encoded(large)}


def png(width: int, height: int, data: bytes = b"", depth: int = 8, colour: int = 0) -> bytes:
    """A PNG whose header promises that size."""

    def chunk(name: bytes, content: bytes) -> bytes:
        checked = name + content
        return struct.pack(">I", len(content)) + checked + struct.pack(">I", zlib.crc32(checked))

    head = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    parts = (chunk(b"IHDR", head), chunk(b"IDAT", data), chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def hostile_images(marker: Path) -> Iterator[tuple[str, bytes]]:
    """By name of the file."""
    for side in (13_000, 60_000):
        yield (
            f"bomb-{side}.png",
            png(side, side, zlib.compress(bytes(side * min(side + 1, 13_001)), 9)),
        )
    yield "promise.png", png(0x7FFFFFFF, 0x7FFFFFFF)
    yield "thin.png", png(1, 80_000_000, zlib.compress(bytes(160_000_000), 9))
    yield (
        "promise.bmp",
        b"BM"
        + struct.pack(
            "<IHHIIiiHHIIiiII", 60, 0, 0, 54, 40, 1 << 30, 1 << 30, 1, 24, 0, 0, 0, 0, 0, 0
        ),
    )
    yield "promise.ppm", b"P6 999999 999999 255\n"
    yield (
        "promise.gif",
        b"GIF89a"
        + struct.pack("<HHBBB", 65535, 65535, 0, 0, 0)
        + b","
        + struct.pack("<HHHHB", 0, 0, 65535, 65535, 0)
        + b"\x08\x01\x01\0;",
    )
    yield "empty.png", b""
    for mode in ("I;16", "F", "CMYK", "P", "1", "LA"):
        base = (
            Image.fromarray(np.zeros((SIDE, SIDE), np.uint16)) if mode == "I;16" else picture(mode)
        )
        yield f"mode-{mode}.tiff", encoded(base, "TIFF")
    frames = [picture("P") for _ in range(50)]
    yield "animated.gif", encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])
    text = zlib.compress(bytes(1 << 28), 9)
    body = images()["a.png"]
    chunk = b"zTXt" + b"a\0\0" + text
    packed = struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk))
    yield "text.png", body[:33] + packed + body[33:]
    eps = f"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\n({marker}) (w) file\n"
    yield "postscript.png", eps.encode()


def read_images(path: Path) -> object:
    """As a run does."""
    source = registry.build("dataset", "folder", {})
    return source.encoded(Request(str(path), None, SIDE, 0)).all()


def read_images_as_they_are(path: Path) -> object:
    """Without a size."""
    source = registry.build("dataset", "folder", {})
    return source.encoded(Request(str(path), None, None, 0)).drop_unreadable().all()


@cache
def tables() -> Files:
    """Parquet files of encoded images, npz files and partitions."""
    return {
        "nested.parquet": parquet([encoded(picture())] * 6),
        "flat.parquet": parquet([encoded(picture())] * 6, flat=True),
        "plain.npz": npz(x=np.zeros((6, SIDE, SIDE, 3), np.uint8), y=np.arange(6)),
        "packed.npz": npz(np.savez_compressed, x=np.zeros((6, SIDE, SIDE), np.uint8)),
        "clients.json": b'{"0": [0, 1, 2], "1": [3, 4]}',
        "clients.csv": b"image,client\n0,0\n1,0\n2,1\n3,1\n",
        "clients.npy": npy(np.array([0, 0, 1, 1, -1, -1])),
    }


def parquet(rows: list[Any], flat: bool = False, times: int = 1, **options: Any) -> bytes:
    """As Hugging Face stores images, or with bare bytes; `times`: the one row so often, once in the
    file's dictionary."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    column: Any = rows if flat else [{"bytes": r, "path": None} for r in rows]
    if times > 1:
        places = pa.array(np.zeros(times, np.int32))
        column = pa.DictionaryArray.from_arrays(places, pa.array(rows, pa.binary()))
    table = pa.table({"image": column, "label": np.arange(len(column)) % 3})
    buffer = io.BytesIO()
    pq.write_table(table, buffer, store_schema=times == 1, **options)
    return buffer.getvalue()


def npz(save: Any = np.savez, **arrays: Any) -> bytes:
    """An archive of arrays."""
    buffer = io.BytesIO()
    save(buffer, **arrays)
    return buffer.getvalue()


def npy(array: Any, **options: Any) -> bytes:
    """One array."""
    buffer = io.BytesIO()
    np.save(buffer, array, **options)
    return buffer.getvalue()


def npy_header(shape: str, kind: str = "|u1", data: bytes = b"") -> bytes:
    """An array whose header promises that shape."""
    head = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    head += b" " * (64 - (len(head) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\0" + struct.pack("<H", len(head)) + head + data


def zipped(members: Files, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """An archive of these members."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def hostile_tables(marker: Path) -> Iterator[tuple[str, bytes]]:
    """By name of the file."""
    objects = np.array([planted(marker)[1]] * 6, dtype=object)
    yield "code.npz", npz(x=objects)
    yield "code.npy", npy(objects, allow_pickle=True)
    yield "pickle.npy", pickle.dumps(planted(marker)[1])
    yield "pickle.npz", pickle.dumps(planted(marker)[1])
    yield "bomb.npz", bomb("x.npy")
    yield "terabytes.npz", zipped({"x.npy": npy_header("(1099511627776, 8, 8)")})
    yield (
        "labels.npz",
        zipped(
            {
                "x.npy": npy(np.zeros((2, 8, 8), np.uint8)),
                "y.npy": npy_header("(1099511627776,)", "<i8"),
            }
        ),
    )
    yield "strings.npz", zipped({"x.npy": npy_header("(1,)", "<U1000000000")})
    yield "terabytes.npy", npy_header("(1099511627776,)", "<i8")
    yield "overflow.npy", npy_header("(4611686018427387904, 4)", "<i8")
    yield "deep.npy", npy_header("(" * 5000)
    yield "expression.npy", npy_header("__import__('os').system('x')")
    yield (
        "names.npz",
        zipped({"../../outside/x.npy": b"x", "x.npy": npy(np.zeros((2, 8, 8), np.uint8))}),
    )
    big = png(9000, 9000, zlib.compress(bytes(9000 * 9001), 9))
    yield "bombs.parquet", parquet([png(30_000, 30_000, b"x")] * 3)
    yield "large.parquet", parquet([big] * 5)
    yield "repeated.parquet", parquet([bytes(1 << 20)], flat=True, times=4000)
    yield "same.parquet", parquet([b"x"], flat=True, times=3_000_000)
    yield "null.parquet", parquet([None, encoded(picture())], flat=True)
    yield "empty.parquet", parquet([])
    yield "columns.parquet", parquet(["text"] * 3, flat=True)
    yield "code.json", b'{"0": ' + b"[" * 100_000
    yield "large.json", b"[[" + b"9" * 5000 + b"]]"
    yield "many.csv", b"image,client\n0,999999999999\n"
    yield "long.csv", b"image,client\n" + b"1" * 5000 + b",1\n"
    yield "field.csv", b'image,client\n"' + b"x" * 300_000


def read_table(path: Path) -> object:
    """As a run does: a parquet file or an archive of images, else a partition of six images."""
    if path.suffix in (".parquet", ".npz"):
        source = registry.build("dataset", path.suffix[1:], {})
        request = Request(str(path), None, SIDE, 0)
        not_decoded = source.encoded(request)
        return source.load(request) if not_decoded is None else not_decoded.all()
    partition = registry.build("partition", "file", {"path": str(path)})
    return partition.kinds(
        ImageSet(np.zeros((6, 1, 8, 8), np.uint8), np.zeros(6, np.int64), "six"), 2
    )


SETTINGS = b"""\
seed: 3
data: {name: digits, size: 8}
federation: &here
  clients: 4
  rounds: 2
train: {lr: 1e-2, batch_size: 8}
split: {members: 40, known: 8}
attacks: [similarity, {name: internal, clients: 1}]
defenses:
  - gaussian: {}
"""


def settings() -> Files:
    """A file of settings."""
    return {
        "settings.yaml": SETTINGS.split(b"defenses:")[0].replace(
            b", {name: internal, clients: 1}", b""
        )
    }


def hostile_settings(marker: Path) -> Iterator[tuple[str, bytes]]:
    """By name of the file."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12)]
    yield "laughs.yaml", "\n".join([*lines, "seed: *a11"]).encode()
    yield (
        "laughs-inside.yaml",
        (
            "data: {name: ["
            + ", ".join(
                f"&b{i} [{', '.join([f'*b{i - 1}'] * 10) if i else 'x'}]" for i in range(12)
            )
            + "]}"
        ).encode(),
    )
    merges = ["seed: 1", "m0: &m0 {a: 1}"]
    merges += [f"m{i}: &m{i} {{<<: [{', '.join([f'*m{i - 1}'] * 10)}]}}" for i in range(1, 10)]
    yield "merges.yaml", "\n".join(merges).encode()
    yield "itself.yaml", b"data: &a {name: digits, more: *a}"
    yield "list-itself.yaml", b"attacks: &a [*a]"
    for depth in (80, 900, 100_000):
        yield f"deep-{depth}.yaml", b"data: " + b"[" * depth + b"]" * depth
    yield "deep-map.yaml", b"data: " + b"{a: " * 300 + b"1" + b"}" * 300
    for tag in ("python/object/apply:os.system", "python/name:os.system", "python/module:os"):
        yield f"tag-{tag[7:11]}.yaml", f"seed: !!{tag} ['touch {marker}']".encode()
    for value in (
        "2001-01-01",
        "!!binary aGk=",
        "!!set {a, b}",
        "!!omap [a: 1]",
        ".nan",
        ".inf",
        "9" * 4000,
        "1" + ":59" * 40_000,
        "0x" + "f" * 400_000,
        "1e999",
        "? [a]",
        "\\x00",
        "!!float x",
        "!!int ''",
        "!!timestamp x",
        "'" + "x" * 3_000_000 + "'",
    ):
        yield f"value-{value[:9].replace('/', '')}.yaml", f"seed: {value}\n".encode()
    yield "many.yaml", b"attacks: [" + b"[],\n" * 2_000_000 + b"]"
    yield "keys.yaml", b"".join(b"k%d: 1\n" % i for i in range(300_000))
    yield "base.yaml", b"base: base.yaml"
    yield "zero.yaml", bytes(1000)
    yield "latin.yaml", b"seed: \xff\xfe"


def read_settings(path: Path) -> object:
    """As `simulate --config` does, up to the first thing that it would write."""
    return parse(COMMANDS["simulate"], ["--config", str(path)])


def read_reply(arrays: dict[str, Array], metrics: dict[str, Any]) -> object:
    """As the server does, of client 0."""
    content = RecordDict({"arrays": ArrayRecord(arrays), "metrics": MetricRecord(metrics)})
    about: Any = SimpleNamespace(src_node_id=7)
    message: Any = SimpleNamespace(metadata=about, has_error=lambda: False, content=content)
    return ReplyReader(WEIGHTS, {7: 0}, 1)(message)


@cache
def answer() -> tuple[dict[str, Any], dict[str, Array]]:
    """What a node of private images answers: fields as JSON has them, arrays."""
    rng = np.random.default_rng(0)
    sides = {f"scores_{s}": rng.normal(size=6) for s in ("members", "nonmembers")}
    scored = ScoredAttack("similarity", "", "black_box", "outside", **sides)
    size = {"n": 8, "members": 8, "scored_members": 6, "scored_nonmembers": 6}
    fields: dict[str, Any] = {
        "size": 8,
        "defence": DefenceRow(
            name="gaussian",
            epsilon=Epsilon(
                value=3.0, delta=1e-6, rounds=4, standing="guaranteed", assumptions="It holds."
            ),
        ),
        "split": size,
        "pixels": (rng.normal(size=6), rng.normal(size=6)),
        "attacks": [scored],
        "untrained": [scored],
    }
    arrays: dict[str, np.ndarray] = {}
    tree = {name: pack(value, arrays) for name, value in fields.items()}
    return tree, {n: array(npy(a), dtype="float64", shape=a.shape) for n, a in arrays.items()}


def read_node(text: str, arrays: dict[str, Array], path: Path) -> object:
    """As the server of a run on private images does, up to the report."""
    content = RecordDict({"told": ConfigRecord({"json": text}), "scores": ArrayRecord(arrays)})
    experiment = parse(COMMANDS["simulate"], ["--clients", "2"]).settings
    done: Any = SimpleNamespace(
        plan=SimpleNamespace(experiment=experiment),
        aggregation=None,
        complete=True,
        rounds=[],
        failure=None,
        faults=[],
    )
    return report_node(0, content, done, None, Stopwatch(0.0))


def hostile_answers() -> Iterator[tuple[str, str, dict[str, Array]]]:
    """Name, text, arrays."""
    tree, arrays = answer()
    for key in tree:
        for value in VALUES:
            yield f"{key} {value!r:.20}", json.dumps({**tree, key: value}), arrays
    for of in ("dataclass", "np", "Evaluation", "__name__"):
        odd = {**tree, "defence": {"of": of, "is": {"name": "x"}}}
        yield f"record {of}", json.dumps(odd), arrays
    for text in ("", "[]", "null", "[" * 100_000, '{"size": 8}'):
        yield f"text {text[:5]}", text, arrays
    first = next(iter(arrays))
    for name, data in {
        "terabytes": npy_header("(1099511627776,)", "<f8"),
        "objects": npy(np.array([None] * 6, dtype=object), allow_pickle=True),
        "text": npy(np.full(6, "x")),
        "short": npy(np.zeros(2)),
        "square": npy(np.zeros((6, 6))),
        "nan": npy(np.full(6, np.nan)),
        "pickle": pickle.dumps([1]),
    }.items():
        yield f"array {name}", json.dumps(tree), {**arrays, first: array(data, shape=(6,))}


def array(
    data: bytes, stype: str = "numpy.ndarray", dtype: str = "float32", shape: Any = (4, 3)
) -> Array:
    """An array as it lies in a message."""
    return Array(dtype=dtype, shape=tuple(shape), stype=stype, data=data)


def replies() -> Iterator[tuple[str, dict[str, Array], dict[str, Any]]]:
    """Name, arrays, metrics; the first is honest."""
    a, b = (array(npy(np.zeros(s, np.float32)), shape=s) for s in ((4, 3), (5,)))
    own: dict[str, Any] = {"client": 0, "num-examples": 4, "loss": 1.0}
    yield "honest", {"a": a, "b": b}, own
    for name, data in {
        "terabytes": npy_header("(1099511627776,)", "<f4"),
        "larger": npy(np.zeros((1 << 20, 3), np.float32)),
        "objects": npy(np.array([None] * 12, dtype=object), allow_pickle=True),
        "pickle": pickle.dumps([1]),
        "cut": npy(np.zeros((4, 3), np.float32))[:-5],
        "text": npy(np.full((4, 3), "x")),
        "complex": npy(np.zeros((4, 3), np.complex64)),
        "double": npy(np.zeros((4, 3))),
        "whole": npy(np.zeros((4, 3), np.int64)),
        "nan": npy(np.full((4, 3), np.nan, np.float32)),
        "infinite": npy(np.full((4, 3), np.inf, np.float32)),
        "shape": npy(np.zeros((3, 4), np.float32)),
        "empty": b"",
        "npz": npz(x=np.zeros(3)),
        "bomb": bomb("x.npy", 1 << 30),
        "date": npy(np.zeros((4, 3), "M8[s]")),
        "deep": npy_header("(" * 5000),
        "record": npy(np.zeros((4, 3), [("a", "f4")])),
    }.items():
        yield f"array-{name}", {"a": array(data), "b": b}, own
    yield "stype", {"a": array(a.data, "torch"), "b": b}, own
    yield "missing", {"a": a}, own
    yield "unknown", {"a": a, "b": b, "c": b}, own
    for value in (float("nan"), float("inf"), -1, -(10**9), 10**18, 2.5, [1, 2], []):
        yield f"examples-{value}", {"a": a, "b": b}, {**own, "num-examples": value}
        yield f"client-{value}", {"a": a, "b": b}, {**own, "client": value}
        yield f"metric-{value}", {"a": a, "b": b}, {**own, "loss": value}
