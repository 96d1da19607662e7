"""Weights in Flower's messages, as numbers for as long as they stay in this process."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord
from numpy.typing import NDArray

from fedmia.ssl.base import State


class LazyArray(Array):
    """An array whose bytes are made where it leaves the process, and not before.

    Flower's own parses NumPy's header whenever it is read: Python source, which no two threads may
    parse at once in CPython 3.11 (gh-106905: "AST constructor recursion depth mismatch").

    Attributes:
        values: which nobody changes.
    """

    values: NDArray[Any]

    def __init__(self, values: NDArray[Any]) -> None:
        self.__dict__.update(
            dtype=str(values.dtype), shape=tuple(values.shape), stype="numpy.ndarray", values=values
        )

    @property
    def data(self) -> bytes:  # type: ignore[override]
        """As Flower sends it."""
        buffer = io.BytesIO()
        np.save(buffer, self.values, allow_pickle=False)
        return buffer.getvalue()

    def numpy(self) -> NDArray[Any]:
        """A copy, which whoever asks may change."""
        copied: NDArray[Any] = self.values.copy()
        return copied

    def __reduce__(self) -> tuple[Any, ...]:
        return make_lazy_array, (self.values,)  # so that Ray moves the numbers without copying them


LazyArray.__qualname__ = (
    "Array"  # Flower writes it before the bytes, and the other side knows its own
)


def make_lazy_array(values: NDArray[Any]) -> LazyArray:
    """What pickle calls, as it cannot find a class by another's name."""
    return LazyArray(values)


def record(state: State) -> ArrayRecord:
    """A record of tensors that nobody changes from now on."""
    found = ArrayRecord()
    for name, tensor in state.items():
        found[name] = LazyArray(tensor.detach().cpu().numpy())
    return found


def make_lazy(arrays: ArrayRecord) -> None:
    """Read what is not `Live` yet, for all who ask."""
    arrays.update(
        {n: LazyArray(a.numpy()) for n, a in arrays.items() if not isinstance(a, LazyArray)}
    )


def tensors(arrays: ArrayRecord) -> State:
    """The tensors of a record, to be read and not changed."""
    return {name: torch.from_numpy(_shared(array)) for name, array in arrays.items()}


def _shared(array: Array) -> NDArray[Any]:
    values: NDArray[Any] | None = vars(array).get("values")
    # What came through Ray cannot be written, of which torch would warn.
    return array.numpy() if values is None or not values.flags.writeable else values
