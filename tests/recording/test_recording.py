"""A recording holds what happened, also where the disk fails or the process dies."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from threading import Thread

import pytest
import torch

from fedmia.options.errors import InputError
from fedmia.recording import Recording, RecordingWriter
from fedmia.recording.format import HEADER, ROUNDS, Header, RoundRecord, model_file, update_file
from fedmia.ssl.base import State
from fedmia.storage import durable


def state(value: float) -> State:
    return {"weight": torch.full((3, 2), value), "bias": torch.arange(4)}


def write(folder: Path, rounds: int = 3, **options: object) -> RecordingWriter:
    """A recording of two clients: the model of a round is full of its number."""
    lines = list[str]()
    writer = RecordingWriter(folder, Header({"flwr": "1"}, **options), lines.append)  # type: ignore[arg-type]
    writer.write_model(0, state(0))
    for round in range(1, rounds + 1):
        digests = {c: writer.write_update(round, c, state(round + c / 10)) for c in (0, 1)}
        metrics = {c: {"loss": 1 / round} for c in (0, 1)}
        writer.end_round(RoundRecord("main", round, "", digests, [0, 1], {0: 5, 1: 7}, metrics))
        writer.write_model(round, state(round))
    writer.close()
    return writer


def test_recording__is_what_was_written(tmp_path: Path) -> None:
    folder = tmp_path / "REC"
    write(folder, updates="all")
    recording = Recording(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert recording.header == Header({"flwr": "1"}, updates="all")
    assert list(recording.models()) == [0, 1, 2, 3] and recording.clients() == [0, 1]
    for round, model in recording.models().items():
        assert (
            torch.equal(model["weight"], state(round)["weight"])
            and model["bias"].dtype == torch.int64
        )
    updates = recording.updates()
    assert list(updates) == [1, 2, 3] and list(updates[2]) == [0, 1]
    assert torch.equal(updates[2][1]["weight"], state(2.1)["weight"])
    last = recording.rounds["main"][3]
    assert last.examples == {0: 5, 1: 7} and last.metrics[1] == {"loss": 1 / 3}


@pytest.mark.parametrize(
    ("every", "kept"), [(1, [0, 1, 2, 3, 4, 5]), (2, [0, 2, 4, 5]), (9, [0, 5])]
)
def test_models__of_every_so_many_rounds_and_the_last(
    tmp_path: Path, every: int, kept: list[int]
) -> None:
    write(tmp_path / "REC", rounds=5, every=every)
    assert list(Recording(tmp_path / "REC").models()) == kept
    assert len(list((tmp_path / "REC").rglob("models/main/*"))) == len(kept)


def test_updates__of_the_last_rounds(tmp_path: Path) -> None:
    write(tmp_path / "REC", rounds=5, updates=2)
    assert list(Recording(tmp_path / "REC").updates()) == [4, 5]
    assert len(list((tmp_path / "REC").rglob("updates/main/*/*"))) == 4


def test_lines__one_that_was_being_written_is_left_out(tmp_path: Path) -> None:
    write(tmp_path / "REC", rounds=2)
    file = tmp_path / "REC" / ROUNDS
    content = file.read_bytes()
    for cut in range(len(content) + 1):
        file.write_bytes(content[:cut])
        recording = Recording(tmp_path / "REC")
        assert len(recording.rounds.get("main", {})) <= 3
        for number in recording.models():
            assert recording.models()[number]["weight"][0, 0] == number


def test_reader__refuses_what_is_no_recording_or_was_changed(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=HEADER):
        Recording(tmp_path)
    folder = tmp_path / "REC"
    write(folder, updates="all")
    path = model_file(folder, "main", 2)
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(InputError, match="SHA-256"):
        Recording(folder).models()[2]
    update_file(folder, "main", 1, 0).unlink()
    with pytest.raises(InputError, match="0000.safetensors"):
        Recording(folder).updates()[1][0]
    lines = (folder / ROUNDS).read_bytes()
    for bad in (b'{"branch": "../..", "round": 1}\n', b"[]\n", b'{"branch": "main"}\n'):
        (folder / ROUNDS).write_bytes(lines + bad)
        with pytest.raises((InputError, ValueError)):
            Recording(folder)
    (folder / HEADER).write_text(json.dumps({"format": 2}))
    with pytest.raises(InputError, match="format 2"):
        Recording(folder)


def test_writer__wants_a_folder_of_its_own(tmp_path: Path) -> None:
    write(tmp_path / "REC")
    with pytest.raises(InputError, match="not empty"):
        write(tmp_path / "REC")


def test_disk__that_fails_ends_the_recording_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines, folder = list[str](), tmp_path / "REC"
    writer = RecordingWriter(folder, Header(), lines.append)
    writer.write_model(0, state(0))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(durable, "force_all", full)
    for round in (1, 2):
        writer.write_model(round, state(round))
        assert writer.write_update(round, 0, state(0)) in ("",)
        writer.end_round(RoundRecord("main", round))
    assert len(lines) == 1 and "No space left" in lines[0] and str(folder) in lines[0]
    assert list(Recording(folder).models()) == [0]


def test_writer__takes_updates_from_many_threads(tmp_path: Path) -> None:
    writer = RecordingWriter(tmp_path / "REC", Header(updates="all"), print)
    line = RoundRecord("main", 1)

    def send(client: int) -> None:
        line.updates[client] = writer.write_update(1, client, state(client))

    threads = [Thread(target=send, args=(client,)) for client in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    writer.end_round(line)
    updates = Recording(tmp_path / "REC").updates()[1]
    assert [int(updates[c]["weight"][0, 0]) for c in updates] == list(range(16))
