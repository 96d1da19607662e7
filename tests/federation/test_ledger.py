"""The clients' states on disk stay those of the index that names them, until another is written."""

from __future__ import annotations

from pathlib import Path

import torch

from fedmia.federation.ledger import Ledger
from fedmia.storage.snapshot import ClientState


def state(number: int) -> ClientState:
    return ClientState({"w": torch.full((4,), float(number))}, {"n": number})


def numbers(ledger: Ledger) -> list[int]:
    """What each of two clients keeps."""
    kept = [ledger.load("main", client) for client in (0, 1)]
    return [one.memory["n"] for one in kept if one is not None]


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
