"""The cast of a run in its recording: who is who, and nobody else than the images trained on."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedmia.cli.command import parse
from fedmia.cli.commands import SIMULATE
from fedmia.data.cast import SCORED, Cast
from fedmia.data.images import ImageSet
from fedmia.evaluation.audits.prepare import images_for
from fedmia.federation.plan import make_plan
from fedmia.flower.private import plan_server
from fedmia.recording.cast import read_cast, write_cast
from fedmia.recording.format import CAST, CAST_ABOUT, HEADER, Header, json_schema
from fedmia.recording.writer import RecordingWriter
from fedmia.runs import open_run
from fedmia.settings.commands.audit import Audit
from fedmia.settings.errors import InputError
from fedmia.settings.tree import from_tree
from fedmia.storage.snapshot import read_tensors, write_tensors
from tests.bank import Bank

FLAGS = (
    "--dataset synthetic --data.images 200 --data.pixels 8 --clients 4 --split.members 24 "
    "--split.nonmembers 30 --split.known 5 --split.test 12 --split.public 4 --attacker passive "
)
SOURCES = {
    "all roles": FLAGS + "--federation.placebo true",
    "no attacker": FLAGS.replace("passive", "none") + "--federation.placebo false",
    "server": FLAGS.replace("passive", "server"),
    "few are scored": FLAGS + "--split.scored 8",
}
ARRAYS = "parts", "placebo_parts"
NUMBERS = "malicious", "received", "duplicates_removed", "distinct"


def cast_by(flags: str) -> Cast:
    return make_plan(parse(SIMULATE, shlex.split(flags)).settings).cast


def head(folder: Path, digest: str = "") -> Path:
    """Say the SHA-256 of the cast in `recording.json`."""
    (folder / HEADER).write_text(json.dumps(asdict(Header(cast=digest))))
    return folder


def record(folder: Path, cast: Cast) -> Path:
    """A recording with a cast and nothing else."""
    folder.mkdir()
    return head(folder, write_cast(folder, cast))


def read(folder: Path, data: ImageSet) -> Cast:
    return read_cast(folder, lambda: data, Path("RUN"), "look elsewhere")


def same(one: Cast, other: Cast) -> None:
    for name in ARRAYS:
        left, right = getattr(one, name), getattr(other, name)
        assert [p.tolist() for p in left] == [p.tolist() for p in right], name
    for name in NUMBERS:
        assert getattr(one, name) == getattr(other, name), name
    for role in {*one.roles, *other.roles}:
        assert one.ids(role).dtype == other.ids(role).dtype == np.int64
        assert one.ids(role).tolist() == other.ids(role).tolist(), role
        assert torch.equal(one.pixels(role), other.pixels(role)), role
        assert one.classes(role).tolist() == other.classes(role).tolist(), role
        ours, theirs = one.owner(role), other.owner(role)
        assert ours is not None and theirs is not None and ours.tolist() == theirs.tolist()
    assert one.counts() == other.counts()


@pytest.mark.parametrize("flags", SOURCES.values(), ids=SOURCES)
def test_cast__comes_back_as_it_was(tmp_path: Path, flags: str) -> None:
    cast = cast_by(flags)
    same(read(record(tmp_path / "REC", cast), cast.data), cast)


def test_cast__of_owned_images_tells_whose_they_are(tmp_path: Path) -> None:
    """Those with a role: of no other does a reader ask."""
    cast = cast_by(FLAGS)
    whose = np.arange(len(cast.data)) % 3 - 1
    other = read(record(tmp_path / "REC", replace(cast, whose=whose)), cast.data)
    assert other.whose is not None
    assert other.whose[cast.used].tolist() == whose[cast.used].tolist()


def test_cast__is_its_owners_alone_and_holds_what_the_schema_says(tmp_path: Path) -> None:
    cast = cast_by(FLAGS)
    path = record(tmp_path / "REC", cast) / CAST
    assert path.stat().st_mode & 0o777 == 0o600
    table, about = read_tensors(path)
    assert about.keys() == CAST_ABOUT.keys() == json_schema()["$defs"]["cast"]["properties"].keys()
    assert len(table["id"]) == len(np.unique(table["id"])) == len(cast.used)


def swap(table: dict[str, Any], about: dict[str, Any]) -> None:
    """The members pose as non-members."""
    numbers = [about["roles"].index(f"scored_{side}") for side in ("members", "nonmembers")]
    role = table["role"]
    inside, outside = (role == number for number in numbers)
    role[inside], role[outside] = numbers[1], numbers[0]


def shift(table: dict[str, Any], about: dict[str, Any]) -> None:
    """Each id is that of another image."""
    table["id"][:] = table["id"].roll(1)


def outside(table: dict[str, Any], about: dict[str, Any]) -> None:
    """An image that the source does not have."""
    table["id"][0] = 10**6


def text(table: dict[str, Any], about: dict[str, Any]) -> None:
    """The number of clients is none."""
    about["clients"] = "4"


@pytest.mark.parametrize("change", [swap, shift, outside, text])
def test_cast__another_file_than_was_recorded_is_refused(
    tmp_path: Path, change: Callable[..., None]
) -> None:
    cast = cast_by(FLAGS)
    folder = record(tmp_path / "REC", cast)
    table, about = read_tensors(folder / CAST)
    change(table, about)
    write_tensors(table, folder / CAST, about)
    with pytest.raises(InputError, match="not the file that was recorded"):
        read(folder, cast.data)
    head(
        folder, hashlib.sha256((folder / CAST).read_bytes()).hexdigest()
    )  # and with a header that fits
    forged = change in (swap, text)
    what = "holds no cast" if forged else "no longer holds the images that 'RUN' was tr"
    with pytest.raises(InputError, match=what):
        read(folder, cast.data)


@pytest.mark.parametrize("role", ["scored_members", "test_fit", "public"])
def test_cast__a_changed_image_of_the_source_is_refused(tmp_path: Path, role: str) -> None:
    cast = cast_by(FLAGS)
    folder, images = record(tmp_path / "REC", cast), cast.data.images.copy()
    images[cast.ids(role)[0], 0, 0, 0] ^= 1
    with pytest.raises(InputError, match="no longer holds the images that 'RUN' was trained on"):
        read(folder, replace(cast.data, images=images))
    images = cast.data.images.copy()
    images[np.setdiff1d(np.arange(len(images)), cast.used)] ^= 1  # of no role
    same(read(folder, replace(cast.data, images=images)), cast)
    with pytest.raises(InputError, match="no longer holds"):
        read(folder, cast.data.take(np.arange(50)))


def test_cast__of_another_apps_recording_is_missed(tmp_path: Path) -> None:
    (tmp_path / "REC").mkdir()
    head(tmp_path / "REC")
    with pytest.raises(InputError, match=f"no {CAST}.: look elsewhere"):
        read(tmp_path / "REC", cast_by(FLAGS).data)


def test_cast__of_private_nodes_is_not_written_and_a_rewind_keeps_one(
    tmp_path: Path,
) -> None:
    cast = cast_by(FLAGS)
    server = plan_server(parse(SIMULATE, shlex.split(FLAGS)).settings, 3, 8).cast
    weights = {"w": torch.zeros(1)}
    for name, one in (("SERVER", server), ("RUN", cast)):
        recording = RecordingWriter(tmp_path / name, cast=one)
        recording.save("main", 0, weights)
        recording.rewind(0)
        assert (tmp_path / name / CAST).exists() is (one is cast)
        header = json.loads((tmp_path / name / HEADER).read_text())
        assert bool(header.get("cast")) is (one is cast)
    same(read(tmp_path / "RUN", cast.data), cast)


def test_run__records_its_cast_and_an_audit_reads_it(bank: Bank) -> None:
    flags = FLAGS.replace("--split.public 4 ", "") + (
        "--rounds 1 --train.local_epochs 1 --model.width 4 --ssl.dim 8 --attacks similarity "
        "--attack.similarity.views 2 --federation.placebo true"
    )
    run, cast = bank.run(flags), cast_by(flags)
    any_encoder: Any = None  # it is not asked for its size
    assert (run / "recording" / CAST).stat().st_mode & 0o777 == 0o600
    images = open_run(run).images
    same(images.only({role: np.argsort(images.ids(role)) for role in SCORED}), cast)
    audit = images_for(from_tree(Audit, {"encoder": str(run), "shadows": 1}), any_encoder)
    assert audit.own is None and audit.labels.of(audit.attacked()).tolist()
    for role in ("scored_members", "known_members", "known_nonmembers"):
        assert sorted(audit.ids(role)) == sorted(cast.ids(role))
    spare = {*cast.ids("scored_nonmembers")}.union(*map(set, cast.placebo_parts))
    assert {*audit.ids("spare")} == spare - {*audit.ids("scored_nonmembers")}
    of_rounds = from_tree(Audit, {"encoder": str(run), "federation": str(run / "recording")})
    own = images_for(of_rounds, any_encoder).own
    assert own is not None and torch.equal(own, cast.client_images(3))
    assert images_for(of_rounds, any_encoder).received == cast.received == {0}
