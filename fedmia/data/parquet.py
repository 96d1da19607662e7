"""Hugging Face style parquet: a column of encoded images, and mostly one of integer labels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from fedmia.data._pixels import Encoded
from fedmia.data._source import absent_labels, file_path, renumber_labels
from fedmia.data.base import FileDataset, Request
from fedmia.data.encoded import EncodedSet
from fedmia.options.bounded import batch_rows, check_unfolded
from fedmia.options.errors import InputError, opt
from fedmia.options.option import option

if TYPE_CHECKING:
    import pyarrow as pa

ROW = 256  # bytes of memory that a row takes beside its image
KINDS = {"image": "encoded images", "label": "integers", "partition": "strings or integers"}


@dataclass(frozen=True)
class Parquet(FileDataset):
    """A parquet file of encoded images, as Hugging Face stores them: `parquet:PATH`."""

    takes_path: ClassVar[bool] = True
    columns: ClassVar[str] = "columns of the file"

    image_column: str | None = option(None, "column of images (none: img or image)")
    label_column: str | None = option(
        None, "column of labels (none: label, or the one of integers)"
    )
    limit: int = option(0, "read the first so many rows (0: all)", ge=0)

    def encoded(self, request: Request) -> EncodedSet:
        """The images of the file, in its order; labels renumbered 0..classes-1 by value.

        The image column holds structs with a field `bytes`, or bytes. Grey images give one
        channel; with a size, the largest central square is resized. Without a column of integers
        the images have no labels.

        Raises:
            InputError: the file is missing, empty or corrupt, a column is missing or of another
                type, or a row lacks a value.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        path = file_path(request, "parquet")
        try:
            with pq.ParquetFile(path) as file:
                image, label = self._columns(file.schema_arrow, path, request.column)
                rows = file.metadata.num_rows
                count = min(self.limit, rows) if self.limit else rows
                if count == 0:
                    raise InputError(f"parquet: {path} has no rows")
                where, length = f"parquet: {path}", path.stat().st_size
                more = list(dict.fromkeys(filter(None, [label, request.column])))
                rows_at_once = batch_rows(where, file.metadata, length)
                batches = file.iter_batches(rows_at_once, columns=[image, *more])
                files, columns = _read(batches, image, more, count, where, length)
                labels_classes = (
                    renumber_labels(np.array(columns[label])) if label else absent_labels(count)
                )
                labels, classes = labels_classes
                column = None if request.column is None else np.array(columns[request.column])
                return EncodedSet(where, files, labels, path.stem, request.size, classes, column)
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            text = " ".join(str(error).split())
            raise InputError(f"parquet: cannot read {path}: {text}") from None

    def _columns(self, schema: pa.Schema, path: Path, column: str | None) -> tuple[str, str | None]:
        """Names of the image column, and of the label column where there are integers."""
        import pyarrow as pa

        images = [f.name for f in schema if _holds_bytes(f.type)]
        numbers = [f.name for f in schema if pa.types.is_integer(f.type)]
        common = [n for n in ("img", "image") if n in images]
        image = self.image_column or (common[0] if common else None)
        _demand("data.image_column", image, images, schema.names, path)
        label = self.label_column or ("label" if "label" in numbers else None)
        if label is None and len(numbers) == 1:
            label = numbers[0]
        if numbers or label is not None:
            _demand("data.label_column", label, numbers, schema.names, path)
        if column is not None:
            plain = [f.name for f in schema if _holds_names(f.type)]
            _demand("partition.column", column, plain, schema.names, path)
        assert image is not None
        return image, label


def _read(
    batches: Iterator[pa.RecordBatch],
    image: str,
    more: list[str],
    count: int,
    where: str,
    length: int,
) -> tuple[list[Encoded], dict[str, list[Any]]]:
    """Images and the other columns of the first `count` rows of a file of that length."""
    size = 0
    files: list[Encoded] = []
    rows: dict[str, list[Any]] = {name: [] for name in more}
    for batch in batches:
        first = len(files)
        batch = batch.slice(0, count - first)
        encoded, *values = (batch.column(name) for name in (image, *more))
        encoded = encoded.field("bytes") if hasattr(encoded, "field") else encoded
        for column, values_read in zip((image, *more), (encoded, *values), strict=True):
            if values_read.null_count:
                row = first + values_read.is_null().to_pylist().index(True)
                raise InputError(f"{where}: row {row} has no value in '{column}'")
        contents: list[bytes] = encoded.to_pylist()
        files += [(f"row {first + i}", content) for i, content in enumerate(contents)]
        size += sum(len(content) + ROW for content in contents)
        check_unfolded(where, size, length)
        for name, values_read in zip(more, values, strict=True):
            rows[name] += values_read.to_pylist()
        if len(files) == count:
            break
    if len(files) != count:
        raise InputError(f"{where}: {len(files)} images, expected {count}")
    return files, rows


def _demand(
    option: str, name: str | None, fitting: list[str], columns: list[str], path: Path
) -> None:
    """Raise InputError unless column `name`, which `option` gives, is one of the `fitting` ones."""
    what = option.removeprefix("data.").removesuffix("column").strip("._")
    flag = opt(option)
    kind = KINDS[what]
    listed = ", ".join(fitting) or "none"
    if name is None:
        raise InputError(
            f"parquet: {path}: cannot tell the {what} column; give {flag} (columns of {kind}: "
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
