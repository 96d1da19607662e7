"""Weights in Flower's messages, which stay where they are until they leave the process."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord
from numpy.typing import NDArray
from torch import Tensor

from fedmia.ssl.base import State
from fedmia.untrusted.arrays import read_npy


class LazyArray(Array):
    """An array that is copied to the host, and serialized, only where it leaves the process.

    Flower's own parses NumPy's header whenever it is read: Python source, which no two threads may
    parse at once in CPython 3.11 (gh-106905: "AST constructor recursion depth mismatch").

    Attributes:
        values: the numbers, which must not be changed: a tensor, on any device, or an array that
            came from elsewhere.
    """

    values: Tensor | NDArray[Any]

    def __init__(self, values: Tensor | NDArray[Any]) -> None:
        dtype, shape = str(values.dtype).removeprefix("torch."), tuple(values.shape)
        self.__dict__.update(dtype=dtype, shape=shape, stype="numpy.ndarray", values=values)

    @property
    def data(self) -> bytes:  # type: ignore[override]
        """The bytes that Flower sends."""
        buffer = io.BytesIO()
        np.save(buffer, self.on_host(), allow_pickle=False)
        return buffer.getvalue()

    def numpy(self) -> NDArray[Any]:
        """A copy, which the caller may change."""
        copied: NDArray[Any] = self.on_host().copy()
        return copied

    def on_host(self) -> NDArray[Any]:
        """The numbers as NumPy has them; they must not be changed."""
        values = self.values
        return values.cpu().numpy() if isinstance(values, Tensor) else values

    def __reduce__(self) -> tuple[Any, ...]:
        return make_lazy_array, (self.on_host(),)  # so that Ray moves them without a copy


# Flower writes it before the bytes, and the other side knows its own.
LazyArray.__qualname__ = "Array"


def make_lazy_array(values: NDArray[Any]) -> LazyArray:
    """Make a lazy array; pickle calls it, as the class bears the name of Flower's own."""
    return LazyArray(values)


def record(state: State) -> ArrayRecord:
    """A record of tensors, on the device that they are on; they must not be changed from now on."""
    arrays = ArrayRecord()
    for name, tensor in state.items():
        arrays[name] = LazyArray(tensor.detach() if tensor.requires_grad else tensor)
    return arrays


def make_lazy(arrays: ArrayRecord) -> None:
    """Replace the arrays of a record by lazy ones, in place."""
    arrays.update(
        {n: LazyArray(a.numpy()) for n, a in arrays.items() if not isinstance(a, LazyArray)}
    )


def tensors(arrays: ArrayRecord) -> State:
    """The tensors of a record, on the device that they are on, of one that came from elsewhere on
    the host; they must not be changed."""
    return {name: _as_tensor(array) for name, array in arrays.items()}


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
    if not isinstance(array, LazyArray):  # it came from elsewhere
        return read_npy("an array", array.data)
    values = array.on_host()
    # Arrays that came through Ray are read-only; torch would warn of them.
    return values if values.flags.writeable else array.numpy()


def _as_tensor(array: Array) -> Tensor:
    values = vars(array).get("values")
    return values if isinstance(values, Tensor) else torch.from_numpy(_as_numpy(array))
