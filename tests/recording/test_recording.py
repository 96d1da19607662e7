"""A recording holds what happened, also where the disk fails or the process dies."""

from __future__ import annotations

import json
import math
import shutil
import stat
import weakref
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
import torch

from fedmia.options.errors import InputError
from fedmia.recording import Recording, RecordingWriter
from fedmia.recording.files import digest_of
from fedmia.recording.format import (
    HEADER,
    ROUNDS,
    Header,
    RoundRecord,
    json_schema,
    model_file,
    update_file,
)
from fedmia.recording.run import RunRecording
from fedmia.ssl.base import State
from fedmia.storage import durable
from fedmia.storage.snapshot import Snapshot, write_tensors


def state(value: float) -> State:
    return {"weight": torch.full((3, 2), value), "bias": torch.arange(4)}


def write(folder: Path, rounds: int = 3, **options: object) -> RecordingWriter:
    """A recording of two clients: the model of a round is full of its number."""
    lines = list[str]()
    writer = RecordingWriter(folder, Header({"flwr": "1"}, **options), lines.append)  # type: ignore[arg-type]
    writer.write_model(0, state(0))
    for round in range(1, rounds + 1):
        for client in (0, 1):
            writer.write_update(round, client, state(round + client / 10))
        metrics = {c: {"loss": 1 / round} for c in (0, 1)}
        writer.end_round(RoundRecord("main", round, "", {}, [0, 1], {0: 5, 1: 7}, metrics))
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
        assert RunRecording(tmp_path / "REC").rounds("main") == [*recording.models()]


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
    last = f"line {len(lines.splitlines()) + 1}: not a round"
    good: dict[str, Any] = {"branch": "main", "round": 1}
    kinds = {"model": 0, "cohort": [True], "examples": {"0": "3"}, "seconds": None, "updates": []}
    bad = [good | {name: value} for name, value in kinds.items()]
    for line in ([], 3, good | {"branch": "../.."}, {"branch": "main"}, *bad):
        (folder / ROUNDS).write_bytes(lines + json.dumps(line).encode() + b"\n")
        with pytest.raises(InputError, match=last):
            Recording(folder)
    (folder / HEADER).write_text(json.dumps({"format": 2}))
    with pytest.raises(InputError, match="format 2"):
        Recording(folder)


def test_models__are_compared_with_their_digest_the_first_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An attack reads a model again and again; each reader of the folder looks for itself."""
    run, hashed = RunRecording(tmp_path / "REC"), list[str]()
    for round in (1, 2):
        run.save("main", Snapshot(round, {"w": torch.full((2,), float(round))}, {}))
    plain = digest_of
    monkeypatch.setattr(
        "fedmia.recording.reader.digest_of", lambda path: hashed.append(path.name) or plain(path)
    )
    models = run.models("main")
    assert [float(models[r]["w"][0]) for r in (1, 2, 1, 1)] == [1.0, 2.0, 1.0, 1.0]
    assert hashed == ["0001.safetensors", "0002.safetensors"]
    write_tensors({"w": torch.zeros(2)}, tmp_path / "REC/models/main/0001.safetensors")
    with pytest.raises(InputError, match="0001.safetensors' is not the file that was recorded"):
        run.models("main")[1]


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
    writer.wait()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(durable, "force_all", full)
    writer.write_model(1, state(1))
    writer.wait()
    assert "No space left" in writer.failure
    for round in (1, 2):
        writer.write_model(round, state(round))
        writer.write_update(round, 0, state(0))
        writer.end_round(RoundRecord("main", round))
    writer.close()
    assert len(lines) == 1 and "No space left" in lines[0] and str(folder) in lines[0]
    assert list(Recording(folder).models()) == [0]


def test_writer__takes_updates_from_many_threads(tmp_path: Path) -> None:
    writer = RecordingWriter(tmp_path / "REC", Header(updates="all"), print)
    threads = [Thread(target=writer.write_update, args=(1, c, state(c))) for c in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    writer.end_round(RoundRecord("main", 1))
    writer.wait()
    updates = Recording(tmp_path / "REC").updates()[1]
    assert list(updates) == list(range(16))
    assert [int(updates[c]["weight"][0, 0]) for c in updates] == list(range(16))


def test_line__comes_after_what_it_names_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each file is forced, and so are the names above it, before any line holds its digest."""
    folder, forced = tmp_path / "REC", set[Path]()
    force = durable.force

    def note(path: Path) -> None:
        named = [*Recording(folder).rounds.get("main", {}).values()]
        assert path.suffix != ".safetensors" or digest_of(path) not in repr(named)
        force(path)
        forced.add(path)

    writer = RecordingWriter(folder, Header(updates="all"), pytest.fail)
    monkeypatch.setattr(durable, "force", note)
    writer.write_model(0, state(0))
    writer.write_update(1, 0, state(1))
    writer.end_round(RoundRecord("main", 1, cohort=[0]))
    writer.close()
    assert not writer.failure.startswith("'") and Recording(folder).updates()[1][0]
    files = [model_file(folder, "main", 0), update_file(folder, "main", 1, 0)]
    assert forced >= {*files, *(p for f in files for p in f.parents if p not in folder.parents)}


def test_writer__keeps_no_tensors_and_lags_by_one_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that takes its time holds a later round up, not the first; what waits are paths."""
    go, force_all = Event(), durable.force_all
    writer = RecordingWriter(tmp_path / "REC", Header(), pytest.fail)
    monkeypatch.setattr("fedmia.recording.writer.digest_of", lambda p: go.wait(99) and digest_of(p))
    monkeypatch.setattr(durable, "force_all", lambda files: go.wait(99) and force_all(files))
    models = [state(0), state(1)]
    gone = [weakref.ref(model["weight"]) for model in models]
    writer.write_model(0, models.pop(0))
    writer.end_round(RoundRecord("main", 1))
    while gone[0]() is not None:
        go.wait(0.01)
    assert not Recording(tmp_path / "REC").rounds
    second = Thread(target=lambda: writer.write_model(1, models[0]))
    second.start()
    second.join(0.2)
    assert second.is_alive()
    go.set()
    second.join()
    writer.close()
    assert list(Recording(tmp_path / "REC").models()) == [0, 1]


def test_folder__that_vanishes_ends_the_recording_alone(tmp_path: Path) -> None:
    lines, folder = list[str](), tmp_path / "REC"
    writer = RecordingWriter(folder, Header(updates="all"), lines.append)
    shutil.rmtree(folder)
    folder.write_text("a file in its place")
    writer.write_update(1, 0, state(0))
    writer.write_model(0, state(0))
    writer.close()
    assert len(lines) == 1 and str(folder) in lines[0] and "goes on" in lines[0]
    with pytest.raises(InputError, match="cannot be made"):
        RecordingWriter(folder / "REC", Header(), lines.append)


def test_schema__fits_what_is_written_and_nothing_else(tmp_path: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="nbformat, of the test extra, brings it")
    schema = json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    header = jsonschema.Draft202012Validator(schema)
    line = jsonschema.Draft202012Validator(schema["$defs"]["round"])
    write(tmp_path / "REC", rounds=4, every=3, updates=2)
    writer = RecordingWriter(tmp_path / "NAN", Header(), pytest.fail)
    writer.end_round(RoundRecord("main", 1, cohort=[3], metrics={3: {"loss": math.nan, "lr": 0.1}}))
    writer.close()
    for folder in (tmp_path / "REC", tmp_path / "NAN"):
        header.validate(json.loads((folder / HEADER).read_text()))
        for text in (folder / ROUNDS).read_text().splitlines():
            line.validate(json.loads(text, parse_constant=pytest.fail))
    assert Recording(tmp_path / "NAN").rounds["main"][1].metrics == {3: {"lr": 0.1}}
    for bad in ({}, {"format": 2}, {"format": 1, "every": "1"}, {"format": 1, "updates": 1.5}):
        assert not header.is_valid(bad), bad
    good = {"branch": "main", "round": 1}
    assert line.is_valid(good)
    for bad in ({"round": 1}, good | {"updates": {"a": ""}}, good | {"cohort": [0.5]}):
        assert not line.is_valid(bad), bad
