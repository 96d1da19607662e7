"""The cast of a run in its recording: who is who, and nobody else than the images trained on."""

from __future__ import annotations

import csv
import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

import fedmia
from fedmia.data.cast import Cast
from fedmia.recording import RecordingWriter
from fedmia.recording.format import CAST, CAST_ABOUT, HEADER, json_schema
from tests import commands
from tests.bank import Bank

ARRAYS = "parts", "placebo_parts"
NUMBERS = "malicious", "received", "duplicates_removed", "distinct"
SIMILARITY = "--attacks similarity --attack.similarity.views 4 --device cpu --threads 1 --quiet "


def read_file(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Tensors of a file, and what is said about them."""
    with safe_open(path, "pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        return tensors, json.loads(file.metadata()["about"])


def write_file(path: Path, tensors: dict[str, Any], about: dict[str, Any]) -> None:
    save_file(tensors, path, {"about": json.dumps(about)})


def sign(recording: Path, field: str, name: str) -> None:
    """Have `recording.json` name the file that is there by now."""
    header = json.loads((recording / HEADER).read_text())
    header[field] = hashlib.sha256((recording / name).read_bytes()).hexdigest()
    (recording / HEADER).write_text(json.dumps(header))


@pytest.fixture
def run(bank: Bank, tmp_path: Path) -> Path:
    """A copy of a run that can be changed."""
    folder = tmp_path / "RUN"
    shutil.copytree(bank.run("server"), folder, ignore=shutil.ignore_patterns("figures"))
    return folder


def same(one: Cast, other: Cast) -> None:
    for name in ARRAYS:
        left, right = getattr(one, name), getattr(other, name)
        assert [p.tolist() for p in left] == [p.tolist() for p in right], name
    for name in NUMBERS:
        assert getattr(one, name) == getattr(other, name), name
    for role in {*one.roles, *other.roles}:
        assert one.ids(role).tolist() == other.ids(role).tolist(), role
        assert torch.equal(one.pixels(role), other.pixels(role)), role
        assert one.classes(role).tolist() == other.classes(role).tolist(), role
        ours, theirs = one.owner(role), other.owner(role)
        assert ours is not None and theirs is not None and ours.tolist() == theirs.tolist()
    assert one.counts() == other.counts()


def test_cast__of_a_run_is_that_of_its_scores_and_counts(bank: Bank) -> None:
    """What the recording says is who scores.csv and the report say that they are."""
    for name in ("server", "attacked", "central"):
        folder = bank.run(name)
        cast, report = (
            fedmia.open_run(folder).images,
            json.loads((folder / "report.json").read_text()),
        )
        with (folder / "scores.csv").open() as file:
            rows = list(csv.DictReader(file))
        for truth, side in (("1", "members"), ("0", "nonmembers")):
            mine = [row for row in rows if row["truth"] == truth]
            ids = [int(row["image"]) for row in mine]
            assert sorted(ids) == sorted(cast.ids(f"scored_{side}").tolist())
            assert [int(row["label"]) for row in mine] == cast.data.labels[ids].tolist()
            for row in mine if side == "members" else ():
                assert int(row["image"]) in cast.parts[int(row["client"])]
        counts = cast.counts()
        assert {n: report["split"][n] for n in counts} == counts
        honest = report["clients"]
        assert [row["size"] for row in honest] == [len(part) for part in cast.parts[: len(honest)]]
        assert (folder / "recording" / CAST).stat().st_mode & 0o777 == 0o600


def dealt(data: Any, **more: Any) -> Cast:
    """A cast of three clients, of which the last is the attacker's; no two of its numbers alike."""
    order = np.random.default_rng(3).permutation(len(data))[:60].astype(np.int64)
    names = ["known_members", "scored_members", "known_nonmembers", "scored_nonmembers",
             "test_fit", "test_eval", "public"]  # fmt: skip
    cuts = np.split(order[:49], np.cumsum([5, 9, 6, 11, 7, 8]))
    roles = dict(zip(names, cuts, strict=True))
    own, beside = np.sort(np.concatenate(cuts[:2])), np.sort(order[49:52])
    parts = (np.sort(own[:8]), np.sort(np.append(own[8:], beside)), np.sort(order[52:56]))
    usual = {"malicious": 1, "received": frozenset({0, 2}), "duplicates_removed": 4, "distinct": 9}
    return Cast.of_run(data, roles, parts=parts, **{**usual, **more})


@pytest.mark.parametrize(
    "kind", ["usual", "nobody attacks", "placebo", "few are scored", "owned", "rewound"]
)
def test_cast__comes_back_as_it_was(kind: str, run: Path) -> None:
    data = fedmia.open_run(run).images.data
    cast = dealt(data)
    if kind == "nobody attacks":
        cast = dealt(data, malicious=0, received=frozenset())
    if kind == "placebo":
        spare = np.setdiff1d(np.arange(len(data)), cast.used)
        cast = replace(cast, placebo_parts=(spare[:3], spare[3:7]))
    if kind == "few are scored":  # the others are trained on
        few = {**cast.roles, "scored_members": cast.ids("scored_members")[:2]}
        cast = Cast.of_run(data, few, cast.parts, 1, received=frozenset())
    if kind == "owned":
        cast = replace(cast, whose=np.arange(len(data)) % 3 - 1)
    shutil.rmtree(run / "recording")
    (run / "scores.csv").unlink()  # of those that were scored
    writer = RecordingWriter(run / "recording", cast=cast)
    writer.save("main", 0, {"w": torch.zeros(1)})
    if kind == "rewound":
        writer.rewind(0)
    again = fedmia.open_run(run).images
    same(again, cast)
    if kind == "owned":  # of no image without a role does a reader ask
        assert again.whose is not None and cast.whose is not None
        assert again.whose[cast.used].tolist() == cast.whose[cast.used].tolist()
    table, about = read_file(run / "recording" / CAST)
    schema = json_schema()["$defs"]["cast"]["properties"]
    assert about.keys() == CAST_ABOUT.keys() == schema.keys()
    assert len(table["id"]) == len(np.unique(table["id"])) == len(cast.used)


def swap(table: dict[str, Any], about: dict[str, Any]) -> None:
    """The members pose as non-members."""
    numbers = [about["roles"].index(f"scored_{side}") for side in ("members", "nonmembers")]
    role = table["role"]
    inside, outside = (role == number for number in numbers)
    role[inside], role[outside] = numbers[1], numbers[0]


def shift(table: dict[str, Any], about: dict[str, Any]) -> None:
    """Each id is that of another image: as if one of the source had changed."""
    table["id"][:] = table["id"].roll(1)


def outside(table: dict[str, Any], about: dict[str, Any]) -> None:
    """An image that the source does not have."""
    table["id"][0] = 10**6


def text(table: dict[str, Any], about: dict[str, Any]) -> None:
    """The number of clients is none."""
    about["clients"] = "4"


def pixel(table: dict[str, Any], about: dict[str, Any]) -> None:
    """One image had another pixel when it was trained on."""
    table["digest"][-1, 0] ^= 1


@pytest.mark.parametrize("change", [swap, shift, outside, text, pixel])
def test_cast__another_than_was_recorded_is_refused(run: Path, change: Callable[..., None]) -> None:
    file = run / "recording" / CAST
    table, about = read_file(file)
    change(table, about)
    write_file(file, table, about)
    line = f"audit --encoder {run} {SIMILARITY}"
    refused = commands.fedmia(line)
    assert refused.code == 2 and "is not the file that was recorded" in refused.err
    sign(run / "recording", "cast", CAST)  # and with a header that fits
    refused = commands.fedmia(line)
    forged = change in (swap, text)
    what = "holds no cast" if forged else f"no longer holds the images that '{run}' was trained on"
    assert refused.code == 2 and what in refused.err and refused.err.count("\n") == 1
    (run / "recording" / HEADER).write_text('{"format": 1}')
    refused = commands.fedmia(line)
    assert refused.code == 2 and f"(no {CAST})" in refused.err


def test_images__of_clients_that_a_run_dropped_are_left_out_and_of_retried_ones_stay(
    run: Path,
) -> None:
    """In the audit's counts and scores; nobody else is lost."""
    report = json.loads((run / "report.json").read_text())
    every = [("retried", 0), ("dropped", 1), ("left out", 2), ("dropped", 1), ("retried", 1)]
    report["faults"] = [
        {"branch": "main", "round": 2, "client": client, "reason": "no memory", "action": action}
        for action, client in every
    ]
    (run / "report.json").write_text(json.dumps(report))
    with (run / "scores.csv").open() as file:
        rows = list(csv.DictReader(file))
    mine = [row for row in rows if row["truth"] == "1"]
    left = {int(row["image"]) for row in mine if row["client"] != "1"}
    assert {row["client"] for row in mine} == {"0", "1", "2", "3"}
    audited = commands.fedmia(f"audit --encoder {run} {SIMILARITY}", run.with_name("A"))
    (row,), split = audited.report["attacks"], audited.report["split"]
    assert row["n_members"] == split["scored_members"] == len(left) < len(mine)
    assert row["n_nonmembers"] == len(rows) - len(mine)
    with (run.with_name("A") / "scores.csv").open() as file:
        scored = {int(row["image"]) for row in csv.DictReader(file) if row["truth"] == "1"}
    assert scored == left


def test_audit__of_a_run_scores_the_images_that_the_run_scored(bank: Bank, tmp_path: Path) -> None:
    """To the bit, by its recording or by its folder; client 3's images are the attacker's."""
    ran = json.loads((bank.run("central") / "report.json").read_text())
    audited = json.loads((bank.run("audited") / "report.json").read_text())
    for one, other in zip(ran["attacks"], audited["attacks"], strict=True):
        for name in ("name", "auc", "low", "high", "n_members", "n_nonmembers", "tpr"):
            assert one.get(name) == other.get(name), name
    line = f"audit --encoder {bank.run('central')} {SIMILARITY}"
    whole = commands.fedmia(line, tmp_path / "A").report
    assert whole["attacks"][0]["auc"] == ran["attacks"][0]["auc"]
    assert {n: ran["split"][n] for n in ("known_members", "scored_nonmembers")} == {
        n: whole["split"][n] for n in ("known_members", "scored_nonmembers")
    }
