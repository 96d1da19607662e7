"""The clients' states on disk stay those of the index that names them, until another is written."""

from __future__ import annotations

from pathlib import Path

import torch

from fedmia.federation.ledger import Ledger
from fedmia.storage.arena import Arena, nbytes
from fedmia.storage.snapshot import ClientState
from tests.pretend_card import CARD, pretend_card


def state(number: int) -> ClientState:
    return ClientState({"w": torch.full((4,), float(number))}, {"n": number})


def numbers(ledger: Ledger, branch: str = "main") -> list[int]:
    """What each client keeps."""
    kept = [one for client in range(4) if (one := ledger.load(branch, client)) is not None]
    assert all(float(one.tensors["w"][3]) == one.memory["n"] for one in kept)
    return [one.memory["n"] for one in kept]


def test_resumed__writes_over_no_file_of_the_index_that_it_began_from(tmp_path: Path) -> None:
    """A run that is killed between its states and their index goes on from the index before."""
    first = Ledger(tmp_path)
    for client in (0, 1):
        first.save("main", client, state(client))
    index = first.index()
    first.flush()
    resumed = Ledger(tmp_path)
    resumed.restore(index)
    for client in (0, 1):
        resumed.save("main", client, state(10 + client))
    later = resumed.index()
    resumed.flush()  # and killed, before its index is written
    again = Ledger(tmp_path)
    again.restore(index)
    assert numbers(again) == [0, 1] and numbers(resumed) == [10, 11]
    assert not {name for *_, name in later["files"]} & {name for *_, name in index["files"]}


def test_room__the_oldest_go_to_disk_and_forks_are_where_they_are(tmp_path: Path) -> None:
    """Of a state that is replaced, forked or put on disk; what stays is the last that was saved."""
    store = Ledger(tmp_path, room=3 * nbytes(state(0).tensors))
    for number in (0, 1, 2, 0, 2):
        store.save("main", number, state(10 + number))
    assert nbytes(state(0).tensors) == 16 and not list(tmp_path.glob("*"))
    store.save("main", 3, state(13))  # 1 is the one that was saved longest ago
    assert [f.name[:9] for f in tmp_path.glob("*")] == ["main-0001"]
    store.fork("main", "zero", 4)
    store.save("main", 1, state(21))
    store.save("zero", 2, state(32))
    index = store.index()
    store.flush()
    again = Ledger(tmp_path)
    again.restore(index)
    for one in (store, again):
        assert numbers(one) == [10, 21, 12, 13] and numbers(one, "zero") == [10, 11, 32, 13]


def test_card__the_oldest_go_to_the_machine_s_memory_and_then_to_disk(tmp_path: Path) -> None:
    """What comes back has the numbers that it had."""
    with pretend_card():
        store, arena = Ledger(tmp_path, room=2 * 16, device_room=2 * 16), Arena()
        numbers = torch.arange(5.0).reshape(5, 1).expand(5, 4).to(CARD)
        for client, slot in enumerate(arena.write({"w": numbers}, 5)):
            store.save("main", client, ClientState(slot, {"n": client}))
        del slot
        states = [one for c in range(5) if (one := store.load("main", c)) is not None]
        places = [one.tensors["w"].device.type for one in states]
        assert places == ["cpu", "cpu", "cpu", CARD.type, CARD.type]
        assert [f.name[:9] for f in tmp_path.glob("*")] == ["main-0000"]
        assert [one.tensors["w"].tolist() for one in states] == [[n] * 4 for n in range(5)]
        store.save("main", 3, ClientState({"w": torch.full((4,), 9.0)}, {"n": 9}))  # now elsewhere
        index = store.index()
        store.flush()
        again = Ledger(tmp_path)
        again.restore(index)
        last = [one for c in range(5) if (one := again.load("main", c)) is not None]
        assert [one.memory["n"] for one in last] == [0, 1, 2, 9, 4]
        assert [float(one.tensors["w"][3]) for one in last] == [0, 1, 2, 9, 4]
