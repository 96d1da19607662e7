"""Values by number, such as a model for each round, read as they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Generic, TypeVar

from fedmia.ssl.base import State

Value = TypeVar("Value")


class ReadLate(Mapping[int, Value], Generic[Value]):
    """Values by number, each read when it is asked for; none stays in memory.

    Args:
        numbers: in their order.
        read: reads the value of a number.
    """

    def __init__(self, numbers: Iterable[int], read: Callable[[int], Value]) -> None:
        self._numbers, self._read = tuple(numbers), read

    def __getitem__(self, number: int) -> Value:
        if number not in self._numbers:
            raise KeyError(number)
        return self._read(number)

    def __iter__(self) -> Iterator[int]:
        return iter(self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)


States = ReadLate[State]
