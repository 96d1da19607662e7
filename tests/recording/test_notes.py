"""What an attacker inside read of its targets lies in the recording, and outlasts the controls."""

from __future__ import annotations

import hashlib
import json
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from fedmia.recording import Recording, RecordingWriter
from fedmia.recording.format import (
    ATTACKER,
    ATTACKER_ABOUT,
    HEADER,
    ROUNDS,
    RecordedRound,
    fits,
    json_schema,
    round_file,
)
from fedmia.settings.errors import InputError
from fedmia.ssl.base import State
from tests.recording.test_cast import read_file, sign, write_file

TARGETS = [bytes([number]) * 32 for number in (7, 0, 255)]
ABOUT: dict[str, Any] = {
    "attack": "ascent", "options": {"lr": 0.5}, "client": 3, "known": 2, "batches": False,
}  # fmt: skip


def readings(value: float) -> State:
    return {"sent": torch.full((3,), value).double(), "after": torch.arange(3.0).double()}


def note(writer: RecordingWriter, branch: str, *rounds: int) -> None:
    for round in rounds:
        digest = writer.save_file("notes", branch, round, readings(round), {"queries": round})
        writer.add(RecordedRound(branch, round, notes=digest))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Notes alone, as an attacker in somebody's app leaves them."""
    writer = RecordingWriter(tmp_path / "REC")
    writer.describe_attacker(TARGETS, ABOUT)
    note(writer, "main", 1, 2)
    writer.flush()
    return writer.folder


def files(folder: Path) -> list[str]:
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*.safetensors"))


def test_notes__without_a_model_come_back_as_they_were(folder: Path) -> None:
    recording = Recording(folder)
    assert recording.attacker() == (TARGETS, ABOUT) and recording.models() == {}
    notes = recording.notes()
    assert list(notes) == [1, 2]
    for round, (tensors, about) in notes.items():
        assert about == {"queries": round} and tensors.keys() == {"sent", "after"}
        assert torch.equal(tensors["sent"], readings(round)["sent"])
        assert tensors["after"].dtype == torch.float64
    assert Recording(folder).notes("zero") == {}
    lines = [json.loads(line) for line in (folder / ROUNDS).read_text().splitlines()]
    assert [{*line} for line in lines] == [{"branch", "round", "notes"}] * 2


def test_attacker__none_where_nobody_attacked(tmp_path: Path) -> None:
    writer = RecordingWriter(tmp_path / "REC")
    writer.begin()
    assert Recording(writer.folder).attacker() is None
    assert "attacker" not in json.loads((writer.folder / HEADER).read_text())


def test_notes__are_their_owners_alone(folder: Path) -> None:
    """They tell which images were under attack."""
    for path in (folder / ATTACKER, *folder.rglob("notes/*/*")):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for path in (folder, folder / "notes", folder / "notes/main"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700


def test_writer__goes_on_with_notes_round_by_round(folder: Path) -> None:
    """An app's client is another process in each round."""
    before = (folder / ATTACKER).read_bytes()
    writer = RecordingWriter(folder)
    writer.describe_attacker(TARGETS[:1], {**ABOUT, "known": 0})  # it is described
    note(writer, "main", 3)
    writer.flush()
    assert list(Recording(folder).notes()) == [1, 2, 3]
    assert (folder / ATTACKER).read_bytes() == before
    assert Recording(folder).attacker() == (TARGETS, ABOUT)


def test_notes__are_read_at_once_and_counted_once_forced(folder: Path) -> None:
    writer = RecordingWriter(folder)
    note(writer, "main", 3)
    assert list(writer.notes("main")) == [1, 2, 3] and list(Recording(folder).notes()) == [1, 2]
    assert writer.attacker() == (TARGETS, ABOUT)


def test_rewind__takes_notes_back_and_leaves_the_attacker(folder: Path) -> None:
    writer = RecordingWriter(folder)
    writer.rewind(1)
    assert list(Recording(folder).notes()) == list(writer.notes("main")) == [1]
    assert files(folder) == [ATTACKER, "notes/main/0001.safetensors"]
    writer.rewind(0)
    assert files(folder) == [ATTACKER] and Recording(folder).attacker() == (TARGETS, ABOUT)


def test_drop_controls__leaves_their_notes_alone(folder: Path) -> None:
    writer, state = RecordingWriter(folder), {"w": torch.zeros(2)}
    for branch in ("main", "zero", "placebo"):
        writer.save(branch, 2, state, {"queue": torch.ones(1)})
        digest = writer.save_update(branch, 3, 0, state)
        line = RecordedRound(branch, 3, updates={0: digest}, cohort=[0])
        if branch == "zero":
            line.notes = writer.save_file("notes", branch, 3, readings(9), {"queries": 9})
        writer.add(line)
    note(writer, "zero", 4)
    writer.drop_controls()
    for reader in (writer, Recording(folder)):
        assert reader.records.keys() == {"main", "zero"} and reader.records["zero"].keys() == {3, 4}
        assert reader.rounds("main") == [2] and reader.rounds("zero") == []
        assert reader.held("zero") == reader.updates("zero") == {}
        assert reader.records["zero"][3].cohort == [0]
        assert [about["queries"] for _, about in reader.notes("zero").values()] == [9, 4]
    assert files(folder) == [
        ATTACKER, "held/main/0002.safetensors", "models/main/0002.safetensors",
        "notes/main/0001.safetensors", "notes/main/0002.safetensors",
        "notes/zero/0003.safetensors", "notes/zero/0004.safetensors",
        "updates/main/0003/0000.safetensors",
    ]  # fmt: skip


def test_notes__that_were_damaged_are_refused(folder: Path) -> None:
    path, recording = round_file(folder, "notes", "main", 1), Recording(folder)
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(InputError, match="not the file that was recorded"):
        recording.notes()[1]
    path.unlink()
    with pytest.raises(InputError, match="cannot be read"):
        recording.notes()[1]
    assert recording.notes()[2]
    save_file({"sent": torch.zeros(3)}, path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    forged = replace(recording.records["main"][1], notes=digest)
    with (folder / ROUNDS).open("ab") as file:
        file.write(forged.to_line())
    with pytest.raises(InputError, match="holds no notes of an attacker"):
        Recording(folder).notes()[1]


def missing(tensors: State, about: dict[str, Any]) -> None:
    del tensors["targets"]


def short(tensors: State, about: dict[str, Any]) -> None:
    tensors["targets"] = tensors["targets"][:, :31].contiguous()


def text(tensors: State, about: dict[str, Any]) -> None:
    about["client"] = "3"


def listed(tensors: State, about: dict[str, Any]) -> None:
    about["options"] = [1]


def more(tensors: State, about: dict[str, Any]) -> None:
    about["known"] = 4


@pytest.mark.parametrize("change", [missing, short, text, listed, more])
def test_attacker__another_file_than_was_recorded_is_refused(
    folder: Path, change: Callable[..., None]
) -> None:
    tensors, about = read_file(folder / ATTACKER)
    change(tensors, about)
    write_file(folder / ATTACKER, tensors, about)
    with pytest.raises(InputError, match="not the file that was recorded"):
        Recording(folder).attacker()
    sign(folder, "attacker", ATTACKER)
    with pytest.raises(InputError, match="names no attacker and its targets"):
        Recording(folder).attacker()
    (folder / ATTACKER).unlink()
    with pytest.raises(InputError, match="cannot be read"):
        Recording(folder).attacker()


def test_schema__fits_the_attacker_and_its_notes(folder: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="nbformat, of the test extra, brings it")
    schema = json_schema()
    jsonschema.Draft202012Validator(schema).validate(json.loads((folder / HEADER).read_text()))
    line = jsonschema.Draft202012Validator(schema["$defs"]["round"])
    for text in (folder / ROUNDS).read_text().splitlines():
        line.validate(json.loads(text))
    attacker = jsonschema.Draft202012Validator(schema["$defs"]["attacker"])
    about = read_file(folder / ATTACKER)[1]
    assert about.keys() == ATTACKER_ABOUT.keys() == schema["$defs"]["attacker"]["properties"].keys()
    attacker.validate(about)
    for bad in ({}, about | {"options": []}, about | {"known": "2"}):
        assert not attacker.is_valid(bad)
    assert fits({"lr": [1]}, dict) and not fits([], dict)
