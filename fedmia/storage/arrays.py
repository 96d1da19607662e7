"""Weights in Flower's messages, serialized only where they leave the process."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord
from numpy.typing import NDArray

from fedmia.ssl.base import State
from fedmia.untrusted.arrays import read_npy


class LazyArray(Array):
    """An array that is serialized only where it leaves the process.

    Flower's own parses NumPy's header whenever it is read: Python source, which no two threads may
    parse at once in CPython 3.11 (gh-106905: "AST constructor recursion depth mismatch").

    Attributes:
        values: the numbers; they must not be changed.
    """

    values: NDArray[Any]

    def __init__(self, values: NDArray[Any]) -> None:
        self.__dict__.update(
            dtype=str(values.dtype), shape=tuple(values.shape), stype="numpy.ndarray", values=values
        )

    @property
    def data(self) -> bytes:  # type: ignore[override]
        """The bytes that Flower sends."""
        buffer = io.BytesIO()
        np.save(buffer, self.values, allow_pickle=False)
        return buffer.getvalue()

    def numpy(self) -> NDArray[Any]:
        """A copy, which the caller may change."""
        copied: NDArray[Any] = self.values.copy()
        return copied

    def __reduce__(self) -> tuple[Any, ...]:
        return make_lazy_array, (self.values,)  # so that Ray moves the numbers without copying them


# Flower writes it before the bytes, and the other side knows its own.
LazyArray.__qualname__ = "Array"


def make_lazy_array(values: NDArray[Any]) -> LazyArray:
    """Make a lazy array; pickle calls it, as the class bears the name of Flower's own."""
    return LazyArray(values)


def record(state: State) -> ArrayRecord:
    """A record of tensors, which must not be changed from now on."""
    arrays = ArrayRecord()
    for name, tensor in state.items():
        arrays[name] = LazyArray(tensor.detach().cpu().numpy())
    return arrays


def make_lazy(arrays: ArrayRecord) -> None:
    """Replace the arrays of a record by lazy ones, in place."""
    arrays.update(
        {n: LazyArray(a.numpy()) for n, a in arrays.items() if not isinstance(a, LazyArray)}
    )


def tensors(arrays: ArrayRecord) -> State:
    """The tensors of a record; they must not be changed."""
    return {name: torch.from_numpy(values) for name, values in numbers(arrays).items()}


def numbers(arrays: ArrayRecord) -> dict[str, NDArray[Any]]:
    """The arrays of a record by name; they must not be changed.

    Args:
        arrays: of a message.

    Returns:
        Name -> array.

    Raises:
        EOFError, TypeError, ValueError: one is no array, or promises more than it holds.
    """
    return {name: _as_numpy(array) for name, array in arrays.items()}


def _as_numpy(array: Array) -> NDArray[Any]:
    values: NDArray[Any] | None = vars(array).get("values")
    if values is None:  # it came from elsewhere
        return read_npy("an array", array.data)
    # Arrays that came through Ray are read-only; torch would warn of them.
    return values if values.flags.writeable else array.numpy()
