"""Images trained on only after a round are non-members of its model; what differs otherwise is not
taken for a leak."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import fedmia
from fedmia.recording import RecordingWriter
from fedmia.recording.format import Header, RecordedRound
from fedmia.ssl.augment import Augment
from fedmia.ssl.base import State
from tests.auditing.conftest import Audit, Audited, textures, write
from tests.evaluation.memory import Net
from tests.evaluation.test_federation_audit import FLAGS, MILD

IMAGES, LAST = 80, 5
OWNERS = [i % 4 for i in range(IMAGES)]
BEGINS = [1, 1, 3, 4]  # first round of each client
FIRST = [BEGINS[owner] for owner in OWNERS]
ENCODER = "--encoder tests.evaluation.test_later:net --mean 0 --std 1 --size 8"
BASE = f"{ENCODER} {FLAGS} --attacks similarity --attack.similarity.views 3 --nonmembers later "


def net() -> Net:
    return Net(IMAGES)


def knowing(known: Sequence[bool], strength: float) -> State:
    """The model that knows some images."""
    network, at = net(), torch.tensor([*known])[:, None]
    images = torch.from_numpy(textures(IMAGES).images).flatten(1).float() / 255
    with torch.no_grad():
        network.late.stored.copy_(torch.where(at, images, torch.full_like(images, -9)))
        network.late.strength.fill_(strength)
    return dict(network.state_dict())


def record(
    folder: Path, cohorts: dict[int, list[int]] | None = None, shift: bool = False,
    named_by: str = "roster", kept: Sequence[int] = range(LAST + 1),
    begins: Sequence[int] = tuple(BEGINS), strength: float = 1,
) -> Path:  # fmt: skip
    """Rounds whose model knows all that was trained on; `shift`: every one those of round 2."""
    usual = {r: [c for c in range(4) if begins[c] <= r] for r in range(1, LAST + 1)}
    writer = RecordingWriter(folder, Header({"flwr": "1"}))
    for round in range(LAST + 1):
        known = [begins[owner] <= (2 if shift else round) for owner in OWNERS]
        if round:
            cohort = (usual if cohorts is None else cohorts).get(round, [])
            writer.add(RecordedRound("main", round, "", {}, cohort, named_by=named_by))
        if round in kept:
            writer.save("main", round, knowing(known, strength * (round > 0)))
    writer.flush()
    return folder


def table(path: Path, key: str, values: Sequence[object]) -> Path:
    path.write_text(f"image,{key}\n" + "".join(f"{i},{v}\n" for i, v in enumerate(values)))
    return path


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> str:
    every = textures(IMAGES)
    file = tmp_path_factory.mktemp("trained") / "all.npz"
    return f"--members npz:{write(file, every.images, every.labels)} "


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(tmp_path_factory.mktemp("joined") / "REC")


def row_of(audited: Audited, name: str = "similarity") -> dict[str, Any]:
    return next(row for row in audited.report["attacks"] if row["name"] == name)


def scores_of(out: Path) -> list[tuple[str, str, str]]:
    """Image, truth and score: of a file of rounds no client is known."""
    with (out / "scores.csv").open() as file:
        return [(r["image"], r["truth"], r["similarity"]) for r in csv.DictReader(file)]


def sides_of(out: Path) -> dict[int, bool]:
    """Whether each scored image counts as a member, by its number."""
    return {int(image): truth == "1" for image, truth, _ in scores_of(out)}


@pytest.mark.parametrize(("flags", "round"), [("", 2), ("--federation.round 3 ", 3)])
def test_sides__are_what_clients_had_trained_on_until_the_round(
    audit: Audit, members: str, recording: Path, tmp_path: Path, flags: str, round: int
) -> None:
    owners = table(tmp_path / "owners.csv", "client", OWNERS)
    line = f"--federation {recording} --owners {owners} {members}{BASE}{flags}"
    audited = audit(line, tmp_path / "OUT")
    assert audited.code == 0, audited.err
    scored = sides_of(tmp_path / "OUT")
    assert len(scored) > 30 and set(scored.values()) == {True, False}
    for image, member in scored.items():
        assert member == (FIRST[image] <= round), image
    report = audited.report
    assert report["encoder"]["round"] == round
    assert [row["round"] for row in report["rounds"]] == [*range(1, round + 1)]
    assert [row["id"] for row in report["clients"]] == [c for c in range(4) if BEGINS[c] <= round]
    (last,) = report["controls"]["last-model"]
    assert last["round"] == LAST and last["auc"] < 0.7 < row_of(audited)["auc"]
    assert report["verdict_code"] == "leaks"
    (note,) = (one for one in report["notes"] if one.startswith("Non-members are images that were"))
    early = sum(first <= round for first in FIRST)
    assert f"{early} images were trained on until then, {IMAGES - early} later" in note
    assert ("--round" in note) == (not flags) and "different clients" in note
    assert note in " ".join(audited.out.split()) + " ".join(audited.err.split())


def test_control__what_the_last_model_shows_as_well_is_no_leak(
    audit: Audit, members: str, tmp_path: Path
) -> None:
    """The models of all rounds tell the earlier images apart, those before any later one too."""
    folder = record(tmp_path / "REC", shift=True)
    owners = table(tmp_path / "owners.csv", "client", OWNERS)
    audited = audit(f"--federation {folder} --owners {owners} {members}{BASE}", tmp_path / "OUT")
    assert audited.code == 0, audited.err
    row, (last,) = row_of(audited), audited.report["controls"]["last-model"]
    assert row["auc"] == last["auc"] > 0.8 and row["lower_limit"] > 0.5
    assert row["over_control"]["control"] == "last-model"
    assert row["over_control"]["difference"] == 0 and row["over_control"]["lower_limit"] <= 0
    assert audited.report["verdict_code"] == "not-established"
    assert "On the last model" in audited.report["means"]


@pytest.mark.parametrize("shift", [False, True])
def test_control__is_a_model_of_neither_side_where_one_was_kept(
    audit: Audit, members: str, tmp_path: Path, shift: bool
) -> None:
    """Clients 1 and 2 joined in round 2, client 3 in round 4: the model of round 1 knows none."""
    begins = [1, 2, 2, 4]
    folder = record(tmp_path / "REC", begins=begins, shift=shift)
    owners = table(tmp_path / "owners.csv", "client", OWNERS)
    audited = audit(f"--federation {folder} --owners {owners} {members}{BASE}", tmp_path / "OUT")
    assert audited.code == 0, audited.err
    scored = sides_of(tmp_path / "OUT")
    assert {OWNERS[image] for image, member in scored.items() if member} == {1, 2}
    assert {OWNERS[image] for image, member in scored.items() if not member} == {3}
    report = audited.report
    (control,) = report["controls"]["earlier-model"]
    assert control["round"] == 1 and "last-model" not in report["controls"]
    assert (control["auc"] > 0.8) == shift and row_of(audited)["auc"] > 0.8
    assert report["verdict_code"] == ("control-failed" if shift else "leaks")
    (note,) = (one for one in report["notes"] if one.startswith("Non-members are images that were"))
    assert "40 images were first trained on until then, after round 1, 20 later" in note


def test_stream__equals_clients_of_the_same_order_and_python(
    audit: Audit, members: str, recording: Path, tmp_path: Path
) -> None:
    owners = table(tmp_path / "owners.csv", "client", OWNERS)
    order = table(tmp_path / "order.csv", "round", FIRST)
    line = f"--federation {recording} --owners {owners} {members}{BASE}"
    assert audit(line, tmp_path / "O").code == 0
    files = tmp_path / "files"
    files.mkdir()
    for round in range(LAST + 1):
        known = [first <= round for first in FIRST]
        torch.save(knowing(known, float(round > 0)), files / f"{round}.pth")
    line = f"--checkpoint '{files}/*.pth' --order {order} {members}{BASE}"
    assert audit(line, tmp_path / "C").code == 0
    every = textures(IMAGES)
    fedmia.audit_federation(
        recording, net, (every.images, every.labels), "later", order=FIRST, attacks="similarity",
        attack={"similarity": {"views": 3}}, mean=[0], std=[1], size=8, augment=Augment(**MILD),
        out=tmp_path / "P", quiet=True, threads=1,
    )  # fmt: skip
    columns = [scores_of(tmp_path / name) for name in "OCP"]
    assert columns == columns[:1] * 3


def test_copies__of_an_image_count_as_trained_on_with_the_first(
    audit: Audit, tmp_path: Path, recording: Path
) -> None:
    """A copy that comes later is a member's."""
    every, again = textures(IMAGES), FIRST.index(1)
    images, labels = (
        np.concatenate([one, one[again : again + 1]]) for one in (every.images, every.labels)
    )
    order = table(tmp_path / "order.csv", "round", [*FIRST, 4])
    trained = f"--members npz:{write(tmp_path / 'all.npz', images, labels)} "
    line = f"--federation {recording} --federation.order {order} {trained}{BASE}"
    audited = audit(line, tmp_path / "OUT")
    assert audited.code == 0, audited.err
    scored = sides_of(tmp_path / "OUT")
    assert scored.get(IMAGES, True) and all(m == (FIRST[i] <= 2) for i, m in scored.items())


def test_images__of_the_audit_are_those_that_it_scored(
    audit: Audit, members: str, recording: Path, tmp_path: Path
) -> None:
    order = table(tmp_path / "order.csv", "round", FIRST)
    line = f"--federation {recording} --order {order} {members}{BASE}"
    assert audit(line, tmp_path / "OUT").code == 0
    cast, every = fedmia.open_run(tmp_path / "OUT").images, textures(IMAGES).images
    for role in ("scored_members", "scored_nonmembers"):
        assert np.array_equal(cast.pixels(role).numpy(), every[cast.ids(role)])


def test_control__is_missing_where_no_model_was_trained_on_all(
    audit: Audit, members: str, tmp_path: Path
) -> None:
    folder = record(tmp_path / "REC", kept=(0, 1, 2, 3))
    owners = table(tmp_path / "owners.csv", "client", OWNERS)
    audited = audit(f"--federation {folder} --owners {owners} {members}{BASE}", tmp_path / "OUT")
    assert audited.code == 0 and "last-model" not in audited.report["controls"]
    assert any("so none is a control" in note for note in audited.report["notes"])


ALWAYS = {r: [0, 1, 2, 3] for r in range(1, LAST + 1)}
GAP = {r: [c for c in range(4) if BEGINS[c] <= r] for r in (1, 3, 4, 5)}


@pytest.mark.parametrize(
    ("says", "how", "message"),
    [
        ("", {}, "nothing says when each image was trained on: federation.order (--order) FILE"),
        ("--owners OWNERS ", {"cohorts": ALWAYS}, "were first trained on in round 1, so none is"),
        ("--owners OWNERS ", {"named_by": "nodes"}, "has no roster"),
        ("--owners OWNERS ", {"cohorts": GAP}, "who took part in rounds 2:"),
        ("--owners OWNERS ", {"kept": (0, 4, 5)}, "no model of rounds 1 to 3 was kept (4, 5 were)"),
        ("--owners OWNERS --round 4 ", {}, "(--round) 4: must be one of 1, 2, 3, rounds of"),
        ("--owners STRANGER ", {}, "client 9 trained in no recorded round"),
        ("--order SHORT ", {}, "1 of 80 members have no round (the first: image 79)"),
        ("--order WORDS ", {}, "line 2: an image and a round, got '0,soon'"),
        ("--order SAME ", {}, "were first trained on in round 2, so none is later"),
    ],
)
def test_refusals__name_what_is_missing_and_what_helps(
    audit: Audit, members: str, tmp_path: Path, says: str, how: dict[str, Any], message: str
) -> None:
    files = {
        "OWNERS": ("client", OWNERS), "STRANGER": ("client", [9, *OWNERS[1:]]),
        "SHORT": ("round", FIRST[:-1]), "WORDS": ("round", ["soon"]), "SAME": ("round", [2] * 80),
    }  # fmt: skip
    for name, (key, values) in files.items():
        says = says.replace(name, str(table(tmp_path / f"{name}.csv", key, values)))
    folder = record(tmp_path / "REC", **how)
    audited = audit(f"--federation {folder} {says}{members}{BASE}", tmp_path / "OUT")
    assert audited.code == 2 and message in audited.err, audited.err
    assert len(audited.err.splitlines()) == 1 and not (tmp_path / "OUT").exists()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--nonmembers later ", "is given without federation.recording (--federation) RECORDING"),
        ("--nonmembers npz:x --round 2 ", "has no effect without nonmembers later"),
    ],
)
def test_options__that_need_others_say_so(
    audit: Audit, members: str, flags: str, message: str
) -> None:
    audited = audit(f"--encoder tests.auditing.brought:tiny {members}{flags}")
    assert audited.code == 2 and message in audited.err, audited.err


def test_list__says_the_round_of_each_image(audit: Audit, recording: Path, tmp_path: Path) -> None:
    lines = ["file,first"]
    for i, image in enumerate(textures(IMAGES).images):
        pixels = image[0] if len(image) == 1 else image.transpose(1, 2, 0)
        Image.fromarray(pixels).save(tmp_path / f"{i:03}.png")
        lines.append(f"{i:03}.png,{FIRST[i]}")
    (tmp_path / "trained.csv").write_text("\n".join(lines))
    members = f"--members list:{tmp_path / 'trained.csv'} "
    audited = audit(f"--federation {recording} {members}{BASE}", tmp_path / "OUT")
    assert audited.code == 0, audited.err
    for image, member in sides_of(tmp_path / "OUT").items():
        assert member == (FIRST[image] <= 2), image
    (tmp_path / "trained.csv").write_text("\n".join([*lines[:-1], lines[-1].split(",")[0] + ","]))
    audited = audit(f"--federation {recording} {members}{BASE}", tmp_path / "NO")
    assert audited.code == 2 and "1 of 80 members have no round" in audited.err
