"""Files of strangers, and what a command says of each: exit code 2, and one line that names it."""

from __future__ import annotations

import gzip
import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import save

from tests.commands import fedmia

IMAGES = "simulate --dataset npz:{file}"
ROWS = "simulate --dataset parquet:{file}"
WEIGHTS = "audit --encoder {file} --members npz:{own} --nonmembers npz:{own}"
SETTINGS = "simulate --config {file}"
ENCODER = "audit --encoder tests.encoders.conftest:Tiny --members npz:{own} --nonmembers npz:{own} "
GROUPS = ENCODER + "--groups {file}"
RECORDING = ENCODER + "--federation {folder}"
VECTORS = "audit --member-embeddings {file} --nonmember-embeddings {file}"
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:0a\nsize 12345\n"


def saved(write: Callable[..., Any], *values: Any, **more: Any) -> bytes:
    """What a function writes into a file."""
    write(file := io.BytesIO(), *values, **more)
    return file.getvalue()


def header(*shape: int, kind: str = "<f8") -> bytes:
    """The header of an array that is not there."""
    of = {"descr": kind, "fortran_order": False, "shape": shape}
    return saved(np.lib.format.write_array_header_1_0, of)


def zipped(name: str, content: bytes) -> bytes:
    with zipfile.ZipFile(file := io.BytesIO(), "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, content)
    return file.getvalue()


def claiming(size: int) -> bytes:
    """An archive whose directory says that its one file is so large."""
    content = bytearray(zipped("x.npy", b"0" * 99))
    at = content.index(b"PK\x01\x02") + 24
    content[at : at + 4] = size.to_bytes(4, "little")
    return bytes(content)


def table(**columns: Any) -> bytes:
    return saved(lambda file: pq.write_table(pa.table(columns), file, store_schema=False))


def aliases() -> str:
    """A list of ten million entries, by seven lines."""
    lines = ["a0: &a0 [x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 7)]
    return "\n".join(lines)


class Planted:
    """A pickle that ends the process of who trusts it."""

    def __reduce__(self) -> tuple[Any, ...]:
        return exec, ("raise SystemExit('it ran')",)


def pickled(**how: Any) -> bytes:
    return saved(lambda file: torch.save({"w": torch.zeros(2), "x": Planted()}, file, **how))


ARCHIVE = saved(np.savez, x=np.zeros((9, 8, 8), np.uint8), y=np.zeros(9, np.int64))
OBJECTS = saved(np.savez, x=np.array([[1, None]], dtype=object), y=np.zeros(1, np.int64))
# Command, name of the file, its bytes, and what the line says beside the name.
FILES: dict[str, tuple[str, str, bytes | str, str]] = {
    "empty": (WEIGHTS, "w.pt", b"", "is empty: fetch it again"),
    "lfs": (WEIGHTS, "w.pt", POINTER, "is a Git LFS pointer"),
    "annex": (WEIGHTS, "w.pt", "/annex/objects/SHA256E-s3--0a\n", "is a git-annex pointer"),
    "page": (WEIGHTS, "w.pt", "\n <!DOCTYPE html>\n<html>", "is the page of a web server"),
    "marked page": (WEIGHTS, "w.pt", b"\xef\xbb\xbf<HTML>", "is the page of a web server"),
    "denied": (IMAGES, "a.npz", "<?xml version='1.0'?><Error/>", "is the page of a web server"),
    "gzip": (ROWS, "a.parquet", gzip.compress(b"images", mtime=0), "compressed with gzip"),
    "pickle": (WEIGHTS, "w.pth", pickled(), "'exec', which is no data and may run code"),
    "old pickle": (
        WEIGHTS, "w.pth", pickled(_use_new_zipfile_serialization=False),
        "'exec', which is no data and may run code",
    ),
    "cut tensors": (
        WEIGHTS, "w.safetensors", save({"a": torch.ones(2)})[:-1], "",
    ),
    "objects": (IMAGES, "a.npz", OBJECTS, "holds Python objects, which may run code"),
    "no archive": (IMAGES, "a.npz", ARCHIVE[:-20], "not an archive of arrays"),
    "terabytes first": (IMAGES, "a.npz", header(1 << 40), "not an archive of arrays"),
    "terabytes": (IMAGES, "a.npz", zipped("x.npy", header(1 << 40)), "x.npy promises (1099511627"),
    "one more": (
        IMAGES, "a.npz", zipped("x.npy", header(999, kind="|u1") + bytes(9)),
        "x.npy promises (999,)",
    ),
    "leads out": (IMAGES, "a.npz", zipped("../x.npy", b"x"), "leads out of the archive"),
    "leads to the root": (IMAGES, "a.npz", zipped("/x.npy", b"x"), "leads out of the archive"),
    "leads around": (IMAGES, "a.npz", zipped("a/../../x", b"x"), "leads out of the archive"),
    "bomb": (IMAGES, "a.npz", claiming((1 << 28) + 1), "unfolds to 256 MiB from 0.0 MiB; at most"),
    "no rows": (ROWS, "a.parquet", b"PAR1", ""),
    "many rows": (
        VECTORS, "a.parquet", table(a=pa.array(np.zeros(1 << 20, np.float32))),
        "unfolds to",
    ),
    "loop": (SETTINGS, "a.yaml", "a: &a [*a]", "not valid YAML: more than 100,000 values"),
    "aliases": (SETTINGS, "a.yaml", aliases(), "not valid YAML: more than 100,000 values"),
    "deep": (SETTINGS, "a.yaml", "[" * 100_000, "not valid YAML: nested more than 50 deep"),
    "no text": (GROUPS, "g.csv", b"\xff", "is not in UTF-8 (byte 0)"),
    "long cell": (GROUPS, "g.csv", "a" * 200_000, "no CSV: field larger"),
    "deep header": (RECORDING, "recording.json", "[" * 100_000, "nested deeper than 100 levels"),
    "no header": (RECORDING, "recording.json", "[]", ""),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_file__of_a_stranger_is_refused_in_one_line(name: str, tmp_path: Path) -> None:
    command, file, content, said = FILES[name]
    (path := tmp_path / file).write_bytes(content.encode() if isinstance(content, str) else content)
    (own := tmp_path / "own.npz").write_bytes(ARCHIVE)
    ran = fedmia(command.format(file=path, own=own, folder=tmp_path))
    assert ran.code == 2 and ran.err.count("\n") == 1, ran.err
    assert ran.err.startswith("fedmia: error: ") and said in ran.err and len(ran.err) < 700
    assert str(path) in ran.err or path.name in ran.err
