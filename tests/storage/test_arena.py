"""Slots of an arena hold what was written until nobody refers to them, and take no more room."""

from __future__ import annotations

import copy
import gc
import pickle
import random
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from fedmia.ssl.base import State
from fedmia.ssl.stacked import stack
from fedmia.storage.arena import Arena, Slot, gather, nbytes, outline


def states(numbers: list[int], pointer: int = 3, width: int = 4) -> list[State]:
    """States that tell their number in every tensor."""
    return [
        {
            "queue": torch.full((width, 2), float(n)),
            "key.w": torch.full((5,), n, dtype=torch.float64),
            "pointer": torch.tensor(pointer),
        }
        for n in numbers
    ]


def write(arena: Arena, numbers: list[int], **more: int) -> list[Slot]:
    return arena.write(stack(states(numbers, **more), "cpu"), len(numbers))


def number(state: Slot) -> int:
    """Of the state in a row, whose every tensor must tell it."""
    values = {float(v) for n in ("queue", "key.w") for v in state[n].flatten()}
    assert len(values) == 1 and {*state} == {"queue", "key.w", "pointer"} and len(state) == 3
    return int(values.pop())


def places(arena: Arena) -> int:
    """Slots of all layouts, used or not."""
    blocks = [one for some in vars(arena)["_blocks"].values() for one in some]
    return sum(len(block.tensors["queue"]) for block in blocks)


def test_rows__keep_their_numbers_while_others_come_and_go() -> None:
    """Against a dictionary; passes of other sizes, clients that keep a row of before."""
    draw, arena = random.Random(0), Arena()
    rows, numbers, before = dict[int, Slot](), dict[int, int](), dict[int, tuple[Slot, int]]()
    for turn in range(200):
        clients = draw.sample(range(12), draw.randint(1, 8))
        new = [100 * turn + client for client in clients]
        for client in draw.sample(range(12), 3):  # a checkpoint that is being written
            if client in rows:
                before[client] = rows[client], numbers[client]
        for client, row, value in zip(clients, write(arena, new), new, strict=True):
            rows[client], numbers[client] = row, value
        del row
        assert {c: number(row) for c, row in rows.items()} == numbers
        assert all(number(row) == value for row, value in before.values())
        some = draw.sample(sorted(rows), draw.randint(1, len(rows)))
        together = gather([rows[c] for c in some], "cpu")
        assert together["queue"][:, 0, 0].tolist() == [numbers[c] for c in some]
        assert int(together["pointer"]) == 3 and together["key.w"].dtype == torch.float64
        together["queue"].fill_(-1)  # a copy
        assert number(rows[some[0]]) == numbers[some[0]]
    assert places(arena) <= 12 + 12 + 8 + 8  # all, those of before, and two passes


def test_rows__of_clients_that_are_gone_are_taken_again() -> None:
    arena = Arena()
    for turn in range(20):
        rows = write(arena, [turn] * 6)
    assert places(arena) <= 12 and [number(row) for row in rows] == [19] * 6


def test_gather__of_rows_beside_tensors_of_a_file_is_their_stack() -> None:
    """After a resume some states come from files; those of another width are apart."""
    arena = Arena()
    row, (alone,), wide = write(arena, [7])[0], states([8]), write(arena, [9], width=6)[0]
    assert outline(row) == outline(alone) == outline(dict(reversed(alone.items())))
    assert len({outline(one) for one in (row, wide, states([7], pointer=4)[0])}) == 3
    both = gather([row, alone], "cpu")
    assert both["queue"][:, 0, 0].tolist() == [7, 8] and both["queue"].shape == (2, 4, 2)
    assert nbytes(row) == nbytes(states([7])[0]) == 4 * 8 + 8 * 5 + 8


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, copy.copy, lambda r: pickle.loads(pickle.dumps(r))]
)
def test_copy__of_a_row_is_tensors_of_its_own(copied: object) -> None:
    """Two rows of one place would free it twice."""
    arena = Arena()
    (row,) = write(arena, [1])
    other = copied(row)
    assert type(other) is dict and float(other["queue"][0, 0]) == 1
    del row
    gc.collect()
    one, two = write(arena, [2]), write(arena, [3])
    assert (number(one[0]), number(two[0]), float(other["queue"][0, 0])) == (2, 3, 1)


def test_write__from_several_threads() -> None:
    """One writes while another asks for more."""
    arena = Arena()

    def work(thread: int) -> bool:
        rows = [write(arena, [1000 * thread + turn, -turn]) for turn in range(40)]
        return [[number(r) for r in two] for two in rows] == [
            [1000 * thread + turn, -turn] for turn in range(40)
        ]

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(4)))
