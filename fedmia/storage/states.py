"""States by number, such as a model for each round, read as they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from fedmia.ssl.base import State


class States(Mapping[int, State]):
    """States by number, each read when it is asked for; none stays in memory.

    Args:
        numbers: in their order.
        read: reads the state of a number.
    """

    def __init__(self, numbers: Iterable[int], read: Callable[[int], State]) -> None:
        self._numbers, self._read = tuple(numbers), read

    def only(self, numbers: Iterable[int]) -> States:
        """The same, of some numbers alone."""
        return States(numbers, self._read)

    def __getitem__(self, number: int) -> State:
        if number not in self._numbers:
            raise KeyError(number)
        return self._read(number)

    def __iter__(self) -> Iterator[int]:
        return iter(self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)
