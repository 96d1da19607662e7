"""Labels of images: of any type, numbered from zero, or absent."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmia.data.images import UNLABELLED, IntArray
from fedmia.settings.errors import InputError
from fedmia.settings.values import escape_name

# What a column or an array of classes is called, the likeliest first.
CLASS_NAMES = ("label", "labels", "class", "target", "targets", "category", "fine_label")


def renumber_labels(labels: NDArray[Any]) -> tuple[IntArray, tuple[str, ...]]:
    """Labels as numbers of classes.

    Args:
        labels: (N,) of integers or text.

    Returns:
        int64 (N,) in 0..classes-1, in ascending order of the values of `labels`, and these values
        as text.
    """
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
