"""States of clients side by side: of one layout one tensor a name, with a slot for each state."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from threading import Lock
from typing import Any

import torch
from torch import Tensor

from fedmia.ssl.base import State
from fedmia.ssl.stacked import stack

Layout = tuple[tuple[str, torch.Size, torch.dtype, torch.device], ...]


class Arena:
    """Slots for states, on the device where these were made.

    A slot is written once. It is free again when nobody refers to it, so whoever needs a state of
    before, such as a checkpoint that is being written, keeps it and is in nobody's way. Slots come
    in blocks as large as a pass: none is moved as more are needed.
    """

    def __init__(self) -> None:
        self._blocks: dict[Layout, list[_Block]] = {}
        self._lock = Lock()

    def write(self, state: State, count: int) -> list[Slot]:
        """Copy the states of several clients to free slots.

        Args:
            state: of all, as `fedmia.ssl.stacked.stack` gives it: floating tensors (count, ..).
            count: number of clients.

        Returns:
            A slot for each.
        """
        floating = {n: t for n, t in state.items() if t.is_floating_point()}
        alike = {n: t for n, t in state.items() if n not in floating}
        layout = tuple((n, t.shape[1:], t.dtype, t.device) for n, t in floating.items())
        slots = list[Slot]()
        with self._lock:
            blocks = self._blocks.setdefault(layout, [])
            if sum(len(block.free) for block in blocks) < count:
                blocks.append(_Block(layout, count))
            for block in sorted(blocks, key=lambda one: -len(one.free)):
                first, last = len(slots), min(count, len(slots) + len(block.free))
                numbers = [block.free.pop() for _ in range(first, last)]
                block.write({n: t[first:last] for n, t in floating.items()}, numbers)
                slots += [Slot(block, number, alike) for number in numbers]
                if last == count:
                    break
        return slots


class _Block:
    """Slots of one layout, and the numbers of those that are free."""

    def __init__(self, layout: Layout, count: int) -> None:
        self.layout, self.free = layout, [*range(count)]
        self.row_bytes = sum(shape.numel() * kind.itemsize for _, shape, kind, _ in layout)
        self.tensors: State = {
            n: torch.empty(count, *shape, dtype=kind, device=at) for n, shape, kind, at in layout
        }

    def write(self, rows: State, numbers: Sequence[int]) -> None:
        """Copy rows to slots."""
        at = _indices(numbers, rows)
        for name, row in rows.items():
            self.tensors[name].index_copy_(0, at[row.device], row)


class Slot(Mapping[str, Tensor]):
    """The tensors of one client in an arena, which nobody may change.

    They are views: whoever needs one for longer than it keeps the slot makes a copy.

    Args:
        block: the tensors of all.
        number: of the slot.
        alike: what is not floating, and the same in all that were written with it.
    """

    def __init__(self, block: _Block, number: int, alike: State) -> None:
        self._block, self._number, self._alike = block, number, alike

    def __getitem__(self, name: str) -> Tensor:
        if (alike := self._alike.get(name)) is not None:
            return alike
        return self._block.tensors[name][self._number]

    def __iter__(self) -> Iterator[str]:
        yield from self._block.tensors
        yield from self._alike

    def __len__(self) -> int:
        return len(self._block.tensors) + len(self._alike)

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, ({name: tensor.clone() for name, tensor in self.items()},)

    def __del__(self) -> None:
        self._block.free.append(self._number)

    @property
    def outline(self) -> Hashable:
        """What is equal in states that `gather` takes together."""
        return _outline(self._block.layout, self._alike)

    @property
    def device(self) -> torch.device:
        """Where its tensors are."""
        return self._block.layout[0][3]

    @property
    def nbytes(self) -> int:
        """Bytes of its tensors."""
        return self._block.row_bytes + sum(t.nbytes for t in self._alike.values())


def nbytes(tensors: Mapping[str, Tensor]) -> int:
    """Bytes of the tensors of a state."""
    if isinstance(tensors, Slot):
        return tensors.nbytes
    return sum(tensor.nbytes for tensor in tensors.values())


def on_host(tensors: Mapping[str, Tensor]) -> bool:
    """Whether all tensors of a state are in the machine's memory."""
    if isinstance(tensors, Slot):
        return tensors.device.type == "cpu"
    return all(tensor.device.type == "cpu" for tensor in tensors.values())


def outline(tensors: Mapping[str, Tensor]) -> Hashable:
    """What is equal in states that can be put side by side: names, shapes, types, and the numbers
    that are not floating."""
    if isinstance(tensors, Slot):
        return tensors.outline
    alike = {n: t for n, t in tensors.items() if not t.is_floating_point()}
    layout = [(n, t.shape, t.dtype) for n, t in tensors.items() if n not in alike]
    return _outline(layout, alike)


def _outline(layout: Sequence[tuple[Any, ...]], alike: State) -> Hashable:
    numbers = ((n, tuple(t.flatten().tolist())) for n, t in alike.items())
    return frozenset(shape[:3] for shape in layout), frozenset(numbers)


def gather(states: Sequence[Mapping[str, Tensor]], device: torch.device | str) -> State:
    """The states of several clients as one, copied.

    Args:
        states: of one `outline`.
        device: of the result.

    Returns:
        Floating tensors with a row for each state; others as the first state has them.
    """
    slots = [state for state in states if isinstance(state, Slot)]
    if len(slots) < len(states) or any(slot._block is not slots[0]._block for slot in slots):
        return stack(states, device)
    block, numbers = slots[0]._block, [slot._number for slot in slots]
    at = _indices(numbers, block.tensors)
    chosen = {n: t.index_select(0, at[t.device]) for n, t in block.tensors.items()}
    return {n: t.to(device) for n, t in (chosen | slots[0]._alike).items()}


def _indices(numbers: Sequence[int], tensors: State) -> dict[torch.device, Tensor]:
    """The numbers on each device that has tensors: each goes there once."""
    devices, indices = {tensor.device for tensor in tensors.values()}, torch.tensor(numbers)
    return {device: indices.to(device) for device in devices}
