"""Vectors that somebody's encoder gave, in place of the encoder: `--member-embeddings FILE`."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedmia.data.images import UNLABELLED, ImageSet
from fedmia.encoders._program import Program, load_black_box
from fedmia.encoders.base import EncoderFacts, LoadedEncoder, LoadOptions
from fedmia.records.note import Note
from fedmia.settings.errors import InputError
from fedmia.settings.values import escape_name
from fedmia.untrusted.arrays import open_npz, read_npy
from fedmia.untrusted.filetype import check_file_type
from fedmia.untrusted.limits import unreadable
from fedmia.untrusted.parquet import read_batches, read_schema
from fedmia.untrusted.tensors import read_safetensors

Vectors = NDArray[np.float32]  # (N, V, D): V views of each image
SUFFIXES = (".npy", ".npz", ".parquet", ".safetensors")
SIDE = 4  # an image is known by a digest of its vectors, as so many pixels a side


@dataclass(frozen=True)
class VectorSet:
    """The vectors of one side.

    Attributes:
        vectors: float32 (N, V, D).
        name: what the report calls them.
        column: (N,) values of the column that was asked for, or None.
        notes: what of the file was left out.
    """

    vectors: Vectors
    name: str
    column: NDArray[Any] | None = None
    notes: tuple[Note, ...] = ()

    def images(self) -> ImageSet:
        """Stand-ins for the images: uint8 (N, 1, 4, 4), each the digest of an image's vectors.
        Equal vectors have equal stand-ins."""
        names = [hashlib.sha256(one.tobytes()).digest()[: SIDE**2] for one in self.vectors]
        pixels = np.frombuffer(b"".join(names), np.uint8).reshape(-1, 1, SIDE, SIDE)
        labels = np.zeros(len(pixels), np.int64)
        columns = {} if self.column is None else {"groups": self.column}
        return ImageSet(pixels, labels, self.name, UNLABELLED, columns)

    def digest(self) -> str:
        """SHA-256 of the vectors and their shape, in hexadecimal."""
        return hashlib.sha256(f"{self.vectors.shape}".encode() + self.vectors.tobytes()).hexdigest()


def read_vectors(path: Path, where: str, column: str | None = None) -> VectorSet:
    """The vectors in a file.

    Args:
        path: of (N, D) numbers, or (N, V, D) with V views of each image: .npy; .npz or .safetensors
            of one array; .parquet of one column of lists, or of a column a number, all of them
            integers or none. The index that pandas stored is left out.
        where: names it in errors.
        column: a column of a .parquet beside them; None: none.

    Returns:
        The vectors.

    Raises:
        InputError: no such file or column, another kind of file, or something else than vectors in
            it.
    """
    if path.suffix not in SUFFIXES:
        raise InputError(f"{where}: a file that ends in one of {', '.join(SUFFIXES)} is read")
    if column is not None and path.suffix != ".parquet":
        raise InputError(f"{where}: has no columns; a CSV file or two .npy files "
                         "tell subjects")  # fmt: skip
    check_file_type(path, where)
    with unreadable(f"{where}: cannot be read"):
        if path.suffix == ".parquet":
            array, values, notes = _read_table(path, where, column)
        else:
            array, values, notes = _read_array(path, where), None, ()
    vectors = as_vectors(array, where, path.name)
    return replace(vectors, column=values, notes=(*vectors.notes, *notes))


def as_vectors(array: Any, where: str, name: str) -> VectorSet:
    """Numbers in memory as vectors.

    Args:
        array: (N, D), or (N, V, D) with V views of each image: an array or a tensor.
        where: names it in errors and notes.
        name: what the report calls them.

    Returns:
        The vectors, float32.

    Raises:
        InputError: another shape, no numbers, or some that are not finite.
    """
    kind = str(getattr(array, "dtype", "")).removeprefix("torch.")
    values = np.asarray(array.detach().cpu().float() if isinstance(array, Tensor) else array)
    if values.dtype.kind not in "fiu" or values.ndim not in (2, 3) or 0 in values.shape:
        raise InputError(f"{where}: {values.dtype} {values.shape}, must be numbers (N, D) or "
                         "(N, views, D)")  # fmt: skip
    vectors = np.ascontiguousarray(values, dtype=np.float32).reshape(
        len(values), -1, values.shape[-1]
    )
    bad = np.flatnonzero(~np.isfinite(vectors).all(axis=(1, 2)))
    if len(bad):
        raise InputError(f"{where}: {len(bad)} rows are not finite (the first: {bad[0]})")
    # What stands for an image that failed would be told from the others by that alone.
    same = (vectors == vectors[..., :1]).all(axis=(1, 2)) & (vectors.shape[-1] > 1)
    if same.any():
        first = int(np.flatnonzero(same)[0])
        raise InputError(
            f"{where}: {same.sum()} of {len(same)} rows hold one number throughout (the first: row "
            f"{first}, {vectors[first, 0, 0]:g}), as placeholders do: leave these images out"
        )
    usual = kind in ("float32", "float64", "")
    notes = () if usual else (Note("vectors-as-float32", {"where": where, "kind": kind}),)
    return VectorSet(vectors, escape_name(name), notes=notes)


def _read_table(
    path: Path, where: str, column: str | None
) -> tuple[Any, NDArray[Any] | None, tuple[Note, ...]]:
    """The numbers of a .parquet, the values of `column`, and what was left out."""
    import pyarrow as pa

    schema, _ = read_schema(path)
    table, values = pa.Table.from_batches(read_batches(where, path), schema), None
    if column is not None:
        if column not in table.column_names:
            listed = ", ".join(table.column_names[:20])
            raise InputError(f"{where}: has no column '{column}' (it has: {listed})")
        values, table = np.array(table[column].to_pylist()), table.drop_columns([column])
    lists = [n for n in table.column_names if "list" in str(table.schema.field(n).type)]
    if len(lists) > 1:
        raise InputError(f"{where}: several columns of lists ({', '.join(lists)}), must be one")
    if lists:
        return np.array(table[lists[0]].to_pylist()), values, ()
    stored = (table.schema.pandas_metadata or {}).get("index_columns", [])
    index = [n for n in table.column_names if n in stored]  # a dict there is no column
    table = table.drop_columns(index)
    # The number of a row, its class or its side tells members from non-members by itself.
    others = [f.name for f in table.schema if not pa.types.is_floating(f.type)]
    if 0 < len(others) < table.num_columns:
        raise InputError(
            f"{where}: columns that hold no floats stand beside columns of floats, leave them out: "
            f"{', '.join(map(escape_name, others[:20]))}"
        )
    columns = list(map(escape_name, index))
    notes = (Note("pandas-index-out", {"where": where, "columns": columns}),) if index else ()
    return np.stack([one.to_numpy() for one in table.columns], axis=1), values, notes


def _read_array(path: Path, where: str) -> Any:
    if path.suffix == ".npy":
        return read_npy(where, path)
    arrays: dict[str, Any]
    if path.suffix == ".npz":
        with open_npz(where, path) as archive:
            arrays = {name: archive[name] for name in archive.files}
    else:
        arrays, _ = read_safetensors(path)
    if len(arrays) != 1:
        raise InputError(f"{where}: {len(arrays)} arrays ({', '.join(arrays)}), must be one")
    return next(iter(arrays.values()))


class Lookup(Program):
    """Gives each stand-in the first of its image's vectors.

    Args:
        facts: of the encoder.
        sides: vectors of members and of non-members.

    Attributes:
        views: V, of each image.
    """

    def __init__(self, facts: EncoderFacts, *sides: VectorSet) -> None:
        super().__init__(facts, (None, 1, SIDE, SIDE))
        self._rows = torch.from_numpy(np.concatenate([one.vectors for one in sides]))
        names = [image.tobytes() for one in sides for image in one.images().images]
        self._places = {name: at for at, name in enumerate(names)}
        self.views = int(self._rows.shape[1])

    def of(self, images: Tensor) -> Tensor:
        """Vectors (N, V, D) of stand-ins uint8 (N, 1, 4, 4).

        Raises:
            InputError: other pixels.
        """
        try:
            return self._rows[[self._places[one.tobytes()] for one in images.numpy()]]
        except KeyError:
            raise InputError("needs the encoder, and only vectors are given") from None

    def run(self, pixels: Tensor) -> Any:
        images = (pixels * 255).round().to("cpu", torch.uint8)
        if not images.any():  # the blank images of a first look
            return self._rows.new_zeros(len(images), self._rows.shape[2])
        return self.of(images)[:, 0].to(pixels.device)


def load_vectors(
    members: VectorSet, nonmembers: VectorSet, seed: int, name: str | None = None
) -> LoadedEncoder:
    """The encoder of which these vectors are all that is known: a black box without a control.

    Args:
        members: vectors of images that it was trained on.
        nonmembers: of images that it was not trained on.
        seed: of the audit.
        name: what the report calls the encoder; None: after the members' vectors.

    Returns:
        The encoder, which takes stand-ins for images (`VectorSet.images`).

    Raises:
        InputError: the sides have vectors of another length or number.
    """
    shapes = [one.vectors.shape[1:] for one in (members, nonmembers)]
    if shapes[0] != shapes[1]:
        sides = " and ".join(f"{views} of length {length}" for views, length in shapes)
        raise InputError(f"the embeddings of the two sides must be alike: {sides} an image")
    facts = EncoderFacts(name or f"the encoder of {members.name}", LoadOptions(seed=seed))
    facts.constants = (0.0,), (1.0,)

    lookup = Lookup(facts, members, nonmembers)
    loaded = load_black_box(lookup)
    loaded.stored = lookup
    loaded.notes.append(Note("vectors-given", {"views": lookup.views}))
    loaded.notes += [*members.notes, *nonmembers.notes]
    return loaded
