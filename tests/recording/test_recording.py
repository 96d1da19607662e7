"""A recording holds what happened, also where the disk fails or the process dies."""

from __future__ import annotations

import json
import math
import stat
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from fedmia.recording import Recording, RecordingWriter
from fedmia.recording.format import (
    HEADER,
    ROUNDS,
    Header,
    RecordedRound,
    json_schema,
    round_file,
    update_file,
)
from fedmia.settings.errors import InputError
from fedmia.ssl.base import State


def state(value: float) -> State:
    return {"weight": torch.full((3, 2), value), "bias": torch.arange(4)}


def write(folder: Path, rounds: int = 3, **options: object) -> RecordingWriter:
    """A recording of two clients: the model of a round is full of its number."""
    writer = RecordingWriter(folder, Header({"flwr": "1"}, **options))  # type: ignore[arg-type]
    writer.save("main", 0, state(0))
    for round in range(1, rounds + 1):
        sent = {c: state(round + c / 10) for c in (0, 1) if writer.header.updates != "none"}
        digests = {c: writer.save_update("main", round, c, one) for c, one in sent.items()}
        metrics = {c: {"loss": 1 / round} for c in (0, 1)}
        writer.add(RecordedRound("main", round, "", digests, [0, 1], {0: 5, 1: 7}, metrics))
        writer.save("main", round, state(round))
        writer.flush()
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
    last = recording.records["main"][3]
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
        assert len(recording.records.get("main", {})) <= 3
        for number in recording.models():
            assert recording.models()[number]["weight"][0, 0] == number
        assert RecordingWriter(tmp_path / "REC").rounds("main") == [*recording.models()]


def test_reader__refuses_what_is_no_recording_or_was_changed(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=HEADER):
        Recording(tmp_path)
    folder = tmp_path / "REC"
    write(folder, updates="all")
    path = round_file(folder, "model", "main", 2)
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
    bad += [{"branch": "main"}, good | {"branch": "../.."}]
    for line in ("[]", "3", "[" * 100_000, *map(json.dumps, bad)):
        (folder / ROUNDS).write_bytes(lines + line.encode() + b"\n")
        with pytest.raises(InputError, match=last):
            Recording(folder)
    (folder / HEADER).write_text(json.dumps({"format": 2}))
    with pytest.raises(InputError, match="format 2"):
        Recording(folder)


def test_models__are_compared_with_their_digest_the_first_time(tmp_path: Path) -> None:
    """An attack reads a model again and again; each reader of the folder looks for itself."""
    run = RecordingWriter(tmp_path / "REC")
    for round in (1, 2):
        run.save("main", round, {"w": torch.full((2,), float(round))})
    models = run.models("main")
    assert [float(models[r]["w"][0]) for r in (1, 2, 1)] == [1.0, 2.0, 1.0]
    for round in (1, 2):
        path = tmp_path / f"REC/models/main/000{round}.safetensors"
        save_file({"w": torch.full((2,), round + 0.5)}, path)
    assert models[1]["w"][0] == 1.5
    with pytest.raises(InputError, match="0001.safetensors' is not the file that was recorded"):
        run.models("main")[1]


def test_writer__forgets_on_the_disk_before_it_deletes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut in between leaves a file too many, never a line that names none."""
    folder, unlink = tmp_path / "REC", Path.unlink

    def note(path: Path, *rest: Any, **options: Any) -> None:
        if path.suffix == ".safetensors" and path.exists():
            kept = Recording(folder)
            named = [f for one in kept.records["main"].values() for f in one.files(folder)]
            assert path not in named and len(list(kept.models())) > 1
        unlink(path, *rest, **options)

    monkeypatch.setattr(Path, "unlink", note)
    write(folder, rounds=5, every=9, updates=1)
    assert len(list(folder.rglob("*.safetensors"))) == 4


def test_line__that_was_torn_gives_way_to_the_next(tmp_path: Path) -> None:
    """A writer that goes on where a process died writes no line behind half a one."""
    folder = tmp_path / "REC"
    write(folder, rounds=2)
    whole = (folder / ROUNDS).read_bytes()
    for cut in (1, 20):
        (folder / ROUNDS).write_bytes(whole[:-cut])
        writer = RecordingWriter(folder)
        writer.save("main", 7, state(7))
        writer.flush()
        assert list(Recording(folder).models()) == [0, 1, 7]


def test_schema__fits_what_is_written_and_nothing_else(tmp_path: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="nbformat, of the test extra, brings it")
    schema = json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    header = jsonschema.Draft202012Validator(schema)
    line = jsonschema.Draft202012Validator(schema["$defs"]["round"])
    write(tmp_path / "REC", rounds=4, every=3, updates=2)
    writer = RecordingWriter(tmp_path / "NAN")
    writer.begin()
    writer.add(RecordedRound("main", 1, cohort=[3], metrics={3: {"loss": math.nan, "lr": 0.1}}))
    writer.flush()
    for folder in (tmp_path / "REC", tmp_path / "NAN"):
        header.validate(json.loads((folder / HEADER).read_text()))
        for text in (folder / ROUNDS).read_text().splitlines():
            line.validate(json.loads(text, parse_constant=pytest.fail))
    assert Recording(tmp_path / "NAN").records["main"][1].metrics == {3: {"lr": 0.1}}
    for bad in ({}, {"format": 2}, {"format": 1, "every": "1"}, {"format": 1, "updates": 1.5}):
        assert not header.is_valid(bad), bad
    good = {"branch": "main", "round": 1}
    assert line.is_valid(good)
    for bad in ({"round": 1}, good | {"updates": {"a": ""}}, good | {"cohort": [0.5]}):
        assert not line.is_valid(bad), bad
