"""What is kept on disk comes back as it was, branch by branch, and forks do not share memory."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from fedmia.federation.ledger import Ledger
from fedmia.recording import RecordingWriter
from fedmia.recording.format import RecordedRound
from fedmia.ssl.base import State
from fedmia.storage.snapshot import ClientState, StateStore


def some_state(seed: int) -> State:
    generator = torch.Generator().manual_seed(seed)
    return {
        "a.weight": torch.randn(2, 3, generator=generator),
        "pointer": torch.tensor(seed),
        "layout": torch.randn(1, 2, 3, 3, generator=generator).to(
            memory_format=torch.channels_last
        ),
    }


def same(a: State, b: State) -> bool:
    return a.keys() == b.keys() and all(
        torch.equal(a[n], b[n]) and a[n].dtype == b[n].dtype for n in a
    )


@pytest.fixture(params=["memory", "ledger", "ledger on disk"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> StateStore:
    if request.param == "memory":
        return Ledger()
    return Ledger(tmp_path / "local", **({"room": 1} if "disk" in request.param else {}))


def test_store__gives_back_what_was_kept(store: StateStore) -> None:
    assert store.load("main", 0) is None
    memory = {"epsilon": [1.5, 2.0], "note": "x", "rounds": 3}
    store.save("main", 12, ClientState(some_state(2), {}))
    for state in (ClientState(some_state(1), memory), ClientState(some_state(3), {"rounds": 4})):
        store.save("main", 0, state)
        for client, want in ((0, state), (12, ClientState(some_state(2), {}))):
            found = store.load("main", client)
            assert found is not None and found.memory == want.memory
            assert same(found.tensors, want.tensors)
    assert store.load("zero", 0) is None and store.load("main", 1) is None


def test_fork__copies_what_exists_and_shares_nothing(store: StateStore) -> None:
    store.save("main", 0, ClientState(some_state(1), {"list": [1]}))
    store.save("main", 2, ClientState(some_state(2), {}))
    store.fork("main", "zero", 3)
    forked = store.load("zero", 0)
    assert forked is not None and same(forked.tensors, some_state(1))
    assert store.load("zero", 1) is None
    store.save("zero", 0, ClientState(some_state(3), {"list": [1, 2]}))
    source = store.load("main", 0)
    assert source is not None and same(source.tensors, some_state(1))
    assert source.memory == {"list": [1]}


def test_save__that_dies_midway_leaves_the_old_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = RecordingWriter(tmp_path)
    store.save("main", 1, some_state(1))

    def dies(tensors: object, path: Path, metadata: object) -> None:
        path.write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr("safetensors.torch.serialize_file", dies)
    for round in (1, 2):
        with pytest.raises(KeyboardInterrupt):
            store.save("main", round, some_state(9))
    assert store.rounds("main") == [1]
    assert same(store.load("main", 1)[0], some_state(1))


def test_snapshots__round_trip_by_branch(tmp_path: Path) -> None:
    """Also names of tensors that hold the prefixes."""
    store = RecordingWriter(tmp_path)
    assert store.rounds("main") == []
    held = {"queue": torch.full((2,), 7.0), "global.x": torch.ones(1), "holder.x": torch.zeros(1)}
    for round in (12, 2, 100):
        state = {**some_state(round), "global.x": torch.zeros(1), "holder.x": torch.ones(1)}
        store.save("main", round, state, held)
        weights, tensors = store.load("main", round)
        assert same(weights, state) and same(tensors, held)
    store.save("zero", 2, some_state(5))
    assert store.rounds("main") == [2, 12, 100] and store.rounds("zero") == [2]
    assert same(store.load("zero", 2)[0], some_state(5)) and store.load("zero", 2)[1] == {}
    store.drop_controls()
    assert store.rounds("zero") == [] and store.rounds("main") == [2, 12, 100]
    assert [folder.name for folder in (tmp_path / "models").iterdir()] == ["main"]


def test_updates__by_round_and_client_and_what_they_started_from(tmp_path: Path) -> None:
    store = RecordingWriter(tmp_path)
    assert store.updates("main") == {} and len(store.before("main", [])) == 0
    for round in (12, 3):
        store.save("main", round - 1, some_state(round))
        digests = {
            client: store.save_update("main", round, client, some_state(100 * round + client))
            for client in (11, 2)
        }
        store.add(RecordedRound("main", round, updates=digests, cohort=[2, 11]))
    store.save_update("main", 13, 0, some_state(5))  # half a round: an interruption came between
    assert store.rounds("main") == [2, 11]  # updates are no models
    kept = store.updates("main")
    assert list(kept) == [3, 12] and [*kept[3]] == [2, 11]
    assert all(same(kept[3][c], some_state(300 + c)) for c in kept[3])
    assert same(store.before("main", kept)[12], some_state(12))
    with pytest.raises(KeyError):
        kept[3][0]


def test_rewind__goes_back_to_what_a_checkpoint_counts_on(tmp_path: Path) -> None:
    """Files that no line names any more are gone; what lines name is whole after a reopening."""
    store = RecordingWriter(tmp_path / "recording")
    for round in (1, 2):
        digest = store.save_update("main", round, 0, some_state(round))
        store.add(RecordedRound("main", round, updates={0: digest}))
        store.save("main", round, some_state(10 * round), {"queue": torch.ones(1)})
    lines, force = store.lines, store.pending()
    force()
    store.save("main", 3, some_state(3))  # after the checkpoint
    again = RecordingWriter(tmp_path / "recording")
    assert again.rounds("main") == [1, 2]
    again.rewind(lines)
    assert same(again.updates("main")[2][0], some_state(2))
    assert same(again.load("main", 2)[1], {"queue": torch.ones(1)})
    again.rewind(2)
    assert again.rounds("main") == [1] and list(again.updates("main")) == [1]
    assert sorted(p.relative_to(again.folder).as_posix() for p in tmp_path.rglob("*.safe*")) == [
        "held/main/0001.safetensors",
        "models/main/0001.safetensors",
        "updates/main/0001/0000.safetensors",
    ]
