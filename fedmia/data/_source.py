"""What data sources share: their path, and labels numbered from zero."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmia.data.base import Request
from fedmia.data.images import UNLABELLED, IntArray
from fedmia.options.errors import InputError, opt
from fedmia.options.filetype import check_file_type
from fedmia.options.values import escape_name

# What a column or an array of classes is called, the likeliest first.
CLASS_NAMES = ("label", "labels", "class", "target", "targets", "category", "fine_label")


def file_path(request: Request, name: str) -> Path:
    """The file that `name:PATH` names, which may be what it promises.

    Raises:
        InputError: no path given, or it is missing, a folder, empty, a pointer or compressed.
    """
    path = check_path(require_path(request, name), name, "file")
    check_file_type(path, name)
    return path


def check_path(path: Path, name: str, what: str) -> Path:
    """`path` itself; InputError if it is missing or no `what`, `file` or `folder`."""
    if not path.exists():
        raise InputError(f"{name}: no such {what}: {path}")
    if not (path.is_file() if what == "file" else path.is_dir()):
        check_file_type(path, name)
        other = "folder" if what == "file" else "file"
        packed = ": unpack it, and give its folder" * (path.suffix in (".zip", ".tar"))
        raise InputError(f"{name}: {path} is a {other}, expected a {what}{packed}")
    return path


def refuse_arrow(path: Path, name: str) -> None:
    """Refuse what the library `datasets` saved for itself, with the line that converts it.

    Args:
        path: of a file or folder without what the source reads.
        name: of the source, for the error.

    Raises:
        InputError: it is a file or a folder in Arrow's format.
    """
    where = repr(str(path))
    if path.suffix == ".arrow":
        dataset = f"Dataset.from_file({where})"
    elif any(path.glob("*.arrow")):
        dataset = f"load_from_disk({where})"
    elif parts := sorted(path.glob("*/*.arrow")):
        dataset = f"load_from_disk({where})[{parts[0].parent.name!r}]"
    else:
        return
    target = f"{path.with_suffix('')}.parquet"
    raise InputError(
        f"{name}: {path} is in Arrow's format, which is not read; {embedding_line(dataset, target)}"
    )


def embedding_line(dataset: str, target: str) -> str:
    """The line that writes a data set of the library `datasets` to a file, images and all."""
    return (
        'python -c "from datasets import Dataset, load_from_disk; from datasets.table import '
        f"embed_table_storage as embed; {dataset}.with_format('arrow').map(embed, batched=True)"
        f'.to_parquet({target!r})" writes parquet:{target}'
    )


def require_path(request: Request, name: str) -> Path:
    """The path after the colon of `name:PATH`; InputError without one."""
    if not request.path:
        raise InputError(f"{name} needs a path: {opt('data.name', f'{name}:PATH')}")
    return Path(request.path)


def renumber_labels(labels: NDArray[Any]) -> tuple[IntArray, tuple[str, ...]]:
    """Labels as 0..classes-1, in ascending order of their values, and these values."""
    values, numbers = np.unique(labels, return_inverse=True)
    return numbers.astype(np.int64), tuple(map(str, values.tolist()))


def check_labels(labels: Any, count: int, where: str) -> NDArray[Any]:
    """Labels of any source, one an image.

    Args:
        labels: array or list, (N,) or (N, 1), of integers, text, booleans or floats that are whole
            numbers.
        count: number of images.
        where: what errors call the labels.

    Returns:
        int64 or text, (N,).

    Raises:
        InputError: another type or another shape, as of one-hot labels.
    """
    try:
        values = np.asarray(labels)
    except ValueError:  # lists of several lengths
        values = np.array([None])
    if values.shape == (count, 1):
        values = values[:, 0]
    if values.dtype.kind == "O" and all(isinstance(v, str) for v in values.flat):
        values = values.astype(str)
    if values.dtype.kind == "U":
        names = [escape_name(text) for text in values.flat]
        values = np.array(names, dtype=str).reshape(values.shape)
    if values.dtype.kind == "f" and (np.isfinite(values) & (values % 1 == 0)).all():
        values = values.astype(np.int64)
    if values.shape != (count,) or values.dtype.kind not in "iubU":
        onehot = values.ndim == 2 and len(values) == count
        raise InputError(
            f"{where} must be integers or text ({count},), one an image; got {values.dtype} "
            f"{values.shape}" + ": of one-hot labels give the argmax of each row" * onehot
        )
    return values if values.dtype.kind == "U" else values.astype(np.int64)


def absent_labels(count: int) -> tuple[IntArray, tuple[str, ...]]:
    """Labels and classes of so many images whose source tells none."""
    return np.zeros(count, dtype=np.int64), UNLABELLED
