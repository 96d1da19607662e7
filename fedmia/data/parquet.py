"""Hugging Face style parquet: a column of encoded images, and mostly one of integer labels."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from fedmia.data._source import (
    check_path,
    embedding_line,
    refuse_arrow,
    require_path,
)
from fedmia.data.base import FileDataset, Request
from fedmia.data.decoding import Encoded
from fedmia.data.encoded import EncodedSet
from fedmia.data.labels import (
    CLASS_NAMES,
    absent_labels,
    check_labels,
    renumber_labels,
)
from fedmia.records.note import Note
from fedmia.settings import option
from fedmia.settings.errors import InputError
from fedmia.settings.values import escape_name
from fedmia.untrusted.filetype import check_file_type
from fedmia.untrusted.limits import unreadable
from fedmia.untrusted.parquet import read_batches, read_schema

if TYPE_CHECKING:
    import pyarrow as pa

KINDS = {"image": "encoded images", "label": "integers or text"}
NAMES = "text or integers"


@dataclass(frozen=True)
class Parquet(FileDataset):
    """A parquet file of encoded images, or a folder of its parts: `parquet:PATH`.

    Its columns are those of Hugging Face.
    """

    takes_path: ClassVar[bool] = True
    columns: ClassVar[str] = "columns of the file"

    image_column: str | None = option(None, "column of images (none: img or image)")
    label_column: str | None = option(
        None,
        "column of labels, integers or text (none: label or its like, else the one of integers)",
    )
    limit: int = option(0, "read the first so many rows (0: all)", ge=0)

    def encoded(self, request: Request) -> EncodedSet:
        """The images of the file, in its order, or of a folder's files, in order of their names;
        labels renumbered 0..classes-1 by value.

        The image column holds structs with a field `bytes`, or bytes. Grey images give one
        channel; with a size, the largest central square is resized. A column that has another
        value in each row tells no classes; without any the images have no labels.

        Raises:
            InputError: a file is missing, empty or corrupt, a column is missing or of another
                type, or a row lacks a value.
        """
        root = Path(require_path(request, "parquet"))
        shards, where = _shards(root), f"parquet: {root}"
        files: list[Encoded] = []
        columns: dict[str, list[Any]] = {}
        for path in shards:
            check_file_type(path, "parquet")
            with unreadable(f"parquet: cannot read {path}"):
                schema, rows = read_schema(path)
                if not columns:
                    image, labels = self._columns(schema, root, request)
                    more = list(dict.fromkeys([*labels, *request.columns.values()]))
                    columns = {name: [] for name in more}
                elif missing := {image, *more} - {*schema.names}:
                    raise InputError(f"parquet: {path} lacks the column '{min(missing)}'")
                count = min(self.limit - len(files), rows) if self.limit else rows
                _read(path, image, count, files, columns)
            if self.limit and len(files) == self.limit:
                break
        if not files:
            raise InputError(f"{where} has no rows")
        notes = list[Note]()
        if len(shards) > 1:
            notes.append(Note("files-in-order", {"where": where, "files": len(shards)}))
        label = self._choose_labels(labels, columns, where, notes)
        numbers, classes = absent_labels(len(files))
        if label:
            values = check_labels(columns[label], len(files), f"{where}: column '{label}'")
            numbers, classes = renumber_labels(values)
            notes.append(
                Note("label-column", {"where": where, "column": label, "classes": len(classes)})
            )
        for name in request.columns.values():
            _refuse_gaps(columns[name], name, where)
        by_option = {option: np.array(columns[name]) for option, name in request.columns.items()}
        return EncodedSet(
            where, files, numbers, escape_name(root.stem), request.size, classes, by_option,
            tuple(notes), request.pixel_range, request.fit,
        )  # fmt: skip

    def _columns(self, schema: pa.Schema, path: Path, request: Request) -> tuple[str, list[str]]:
        """Names of the image column, and of those that may hold the labels."""
        import pyarrow as pa

        images = [f.name for f in schema if _holds_bytes(f.type)]
        fitting = [f.name for f in schema if _holds_names(f.type) or pa.types.is_floating(f.type)]
        common = [n for n in ("img", "image") if n in images]
        image = self.image_column or (common[0] if common else None)
        _demand("image_column", image, images, schema.names, path)
        usual = [n for n in CLASS_NAMES if n in fitting][:1]
        labels = usual or [f.name for f in schema if pa.types.is_integer(f.type)]
        if self.label_column is not None:
            labels = [self.label_column]
            _demand("label_column", self.label_column, fitting, schema.names, path)
        plain = [f.name for f in schema if _holds_names(f.type)]
        for asking, name in request.columns.items():
            _demand(asking, name, plain, schema.names, path)
        assert image is not None
        return image, labels

    def _choose_labels(
        self, names: list[str], columns: dict[str, list[Any]], where: str, notes: list[Note]
    ) -> str | None:
        """The column of labels, if one of those with these names tells classes."""
        known = {n: [v for v in columns[n] if v is not None] for n in names}
        unique = [n for n, values in known.items() if len({*values}) == len(values) > 1]
        left = [n for n in names if n not in unique]
        if unique and self.label_column is not None:
            raise InputError(
                f"{where}: column '{unique[0]}' has another value in each row, no class; "
                "label_column names a column of classes"
            )
        if len(left) > 1:
            _demand("label_column", None, left, left, Path(where.partition(": ")[2]))
        if unique and not left:
            notes.append(Note("no-class-column", {"where": where, "columns": unique}))
        if left:
            _refuse_gaps(columns[left[0]], left[0], where)
        return left[0] if left else None


def _shards(root: Path) -> list[Path]:
    """The parquet files of a folder, sorted, or the one file."""
    if not root.is_dir():
        refuse_arrow(root, "parquet")
        return [check_path(root, "parquet", "file")]
    shards = sorted(p for p in root.glob("*.parquet") if not p.name.startswith("."))
    if not shards:
        refuse_arrow(root, "parquet")
        raise InputError(f"parquet: {root} is a folder without .parquet files")
    parts = sorted({re.sub(r"(^|[-_.])\d+($|[-_.].*)", "", p.stem) for p in shards})
    if len(parts) > 1:
        raise InputError(
            f"parquet: {root} holds files of {len(parts)} data sets ({', '.join(parts[:5])}): put "
            "those of one in a folder of their own, or name one file"
        )
    return shards


def _refuse_gaps(values: list[Any], name: str, where: str) -> None:
    """Raise InputError where a row has no value."""
    if None in values:
        raise InputError(f"{where}: row {values.index(None)} has no value in '{name}'")


def _read(
    path: Path, image: str, count: int, files: list[Encoded], columns: dict[str, list[Any]]
) -> None:
    """Add the images and the other columns of the first `count` rows of a file."""
    where, start = f"parquet: {path}", len(files)
    for batch in read_batches(where, path, [image, *columns]):
        first = len(files) - start
        batch = batch.slice(0, count - first)
        encoded = batch.column(image)
        paths = encoded.field("path") if hasattr(encoded, "field") else None
        encoded = encoded.field("bytes") if hasattr(encoded, "field") else encoded
        contents: list[Any] = encoded.to_pylist()
        if None in contents:
            row = contents.index(None)
            why = f"{where}: row {first + row} has no value in '{image}'"
            if paths is not None and paths[row].is_valid:
                line = embedding_line(
                    f"Dataset.from_parquet({str(path)!r})", f"{path.stem}-whole.parquet"
                )
                why += f" but the path '{paths[row]}'; {line}"
            raise InputError(why)
        shard = f"{path.name}, " * (start > 0)
        files += [(f"{shard}row {first + i}", content) for i, content in enumerate(contents)]
        for name, values in columns.items():
            values += batch.column(name).to_pylist()
        if len(files) - start == count:
            break
    if len(files) - start != count:
        raise InputError(f"{where}: {len(files) - start} images, expected {count}")


def _demand(
    option: str, name: str | None, fitting: list[str], columns: list[str], path: Path
) -> None:
    """Raise InputError unless column `name`, which `option` gives, is one of the `fitting` ones."""
    what = option.removesuffix("column").strip("._")
    kind = KINDS.get(what, NAMES)
    listed = ", ".join(fitting) or "none"
    if name is None:
        raise InputError(
            f"parquet: {path}: cannot tell the {what} column; give {option} (columns of {kind}: "
            f"{listed})"
        )
    if name not in fitting:
        why = f"does not hold {kind}" if name in columns else "does not exist"
        raise InputError(f"parquet: {path}: {what} column '{name}' {why} (those that do: {listed})")


def _holds_bytes(kind: pa.DataType) -> bool:
    import pyarrow as pa

    if pa.types.is_struct(kind):
        at = kind.get_field_index("bytes")
        return at >= 0 and _holds_bytes(kind.field(at).type)
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _holds_names(kind: pa.DataType) -> bool:
    import pyarrow as pa

    of = kind.value_type if pa.types.is_dictionary(kind) else kind
    is_text = pa.types.is_string(of) or pa.types.is_large_string(of)
    return bool(is_text or pa.types.is_integer(of) or pa.types.is_boolean(of))
