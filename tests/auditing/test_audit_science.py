"""What an audit's numbers may depend on, and what they must not."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import torch

import fedmia
from fedmia.attacks.similarity import Similarity
from fedmia.data.images import digests
from tests.auditing.attacks import GIVEN, means, named
from tests.auditing.conftest import Audit, Sides, numbers, sides, textures, write
from tests.test_api import made

MEAN = named("Mean")


def scores(folder: Path) -> dict[str, list[dict[str, str]]]:
    """Rows of scores.csv by truth."""
    rows = list(csv.DictReader((folder / "scores.csv").read_text().splitlines()))
    return {truth: [r for r in rows if r["truth"] == truth] for truth in "10"}


def test_order__of_the_images_changes_their_places_only(
    audit: Audit, archives: Sides, tmp_path: Path
) -> None:
    """Known, scored and posing images, scores and probes: all are decided by content."""
    places = {}
    for side in ("members", "nonmembers"):
        with np.load(getattr(archives, side)) as archive:
            places[side] = np.random.default_rng(1).permutation(len(archive["x"]))
            np.savez(
                tmp_path / f"{side}.npz", x=archive["x"][places[side]], y=archive["y"][places[side]]
            )
    flags = "--attacks similarity,lpla,internal --limit 12 --seed 5 "
    first = audit(flags, tmp_path / "A")
    other = Sides(tmp_path / "members.npz", tmp_path / "nonmembers.npz")
    again = audit(flags + other.flags, tmp_path / "B")
    assert (first.code, again.code) == (0, 0)
    a, b = numbers(first.report), numbers(again.report)
    for report in (a, b):
        del report["config"]
    assert a == b
    for truth, side in (("1", "members"), ("0", "nonmembers")):
        ours, theirs = scores(tmp_path / "A")[truth], scores(tmp_path / "B")[truth]
        assert len(ours) == 12
        for mine, its in zip(ours, theirs, strict=True):
            assert int(mine.pop("image")) == places[side][int(its.pop("image"))]
            assert mine == its


def test_sides_swapped__mirror_the_auc(audit: Audit, archives: Sides) -> None:
    """Members that pose as non-members: what told them as members tells them as non-members."""
    flags = "--attacks similarity,lpla --limit 16 --known 6 "
    swapped = Sides(archives.nonmembers, archives.members)
    there = audit(flags).report
    back = audit(flags + swapped.flags).report
    for a, b in zip(there["attacks"], back["attacks"], strict=True):
        assert a["auc"] != 0.5 and b["n_members"] == 16
        if a["name"] == "similarity":
            assert a["auc"] + b["auc"] == pytest.approx(1, abs=1e-5)
        else:  # LpLA learns the direction, on the same known images: it is as good either way
            assert a["auc"] == pytest.approx(b["auc"], abs=1e-5)


def test_roles__no_image_has_two(audit: Audit, archives: Sides, tmp_path: Path) -> None:
    """And a score stands beside the image that has it."""
    GIVEN.clear()
    split = audit(f"--attacks {MEAN} --known 5 --limit 10", tmp_path / "A").report["split"]
    given = GIVEN[0]
    known, _ = given.known.both()
    roles = "known_members", "scored_members", "spare_nonmembers"
    assert [split[name] for name in roles] == [5, 10, 25]
    role_digests = digests(torch.cat([known, given.images]).numpy())
    assert len(role_digests) == 2 * (5 + 10) == len({*role_digests})
    for truth, side in (("1", "members"), ("0", "nonmembers")):
        with np.load(getattr(archives, side)) as archive:
            pixels = archive["x"].transpose(0, 3, 1, 2)
        rows = scores(tmp_path / "A")[truth]
        at = [int(row["image"]) for row in rows]
        assert [float(row[MEAN]) for row in rows] == pytest.approx(means(pixels[at]))
        mine = given.known.members if truth == "1" else given.known.nonmembers
        assert {*digests(mine.numpy())} < {*digests(pixels)} - {*digests(pixels[at])}


@pytest.mark.slow
def test_random_weights__leak_nothing(audit: Audit, tmp_path: Path) -> None:
    """A torchvision network that nobody trained, and its untrained control."""
    there = sides(tmp_path, pixels=32)
    flags = "--encoder torchvision:squeezenet1_1 --size 32 --attacks similarity,lpla "
    done = audit(flags + there.flags)
    assert done.code == 0 and done.report["verdict_code"] == "not-established"
    rows = [*done.report["attacks"], *done.report["controls"]["untrained"]]
    intervals = [(row["low"], row["high"]) for row in rows]
    assert len(rows) == 4 and all(low <= 0.5 <= high for low, high in intervals)
    assert any("random weights: nothing was trained" in n for n in done.report["notes"])


SHADOW = {"knowledge": ("data",), "epochs": 1, "model": "smallnet", "momentum": 0.5, "size": 12,
          "model.width": 4}  # fmt: skip


@pytest.mark.slow
def test_python__reports_what_the_command_line_does(
    audit: Audit, archives: Sides, tmp_path: Path
) -> None:
    """The shadows' images have another size than the audited ones."""
    own, name = textures(24, pixels=16, seed=9), "tests.test_api:made"
    flags = "--attacks similarity,lpla,encodermi-t --shadows 1 --shadow.knowledge data "
    flags += "--shadow.epochs 1 --shadow.model smallnet --shadow.size 12 --shadow.momentum 0.5 "
    flags += f"--shadow.model.width 4 --seed 3 --size 8 --encoder {name} --shadow-data npz:"
    flags += str(write(tmp_path / "own.npz", own.images, own.labels))
    printed = audit(flags).report
    both = [np.load(file) for file in (archives.members, archives.nonmembers)]
    run = fedmia.audit_encoder(
        made(), *((one["x"], one["y"]) for one in both), size=8, name=name, seed=3, threads=1,
        attacks=[Similarity(views=3), "lpla", "encodermi-t"], shadows=1, shadow=SHADOW,
        shadow_data=(own.images, own.labels), quiet=True,
    )  # fmt: skip
    report = json.loads((run.folder / "report.json").read_text())
    assert [row["name"] for row in report["attacks"]] == ["similarity", "lpla", "encodermi-t"]
    for one in (printed, report):  # what each calls the sides
        one["split"] = {k: v for k, v in one["split"].items() if k not in ("members", "nonmembers")}
    differ = {key for key in printed if report[key] != printed[key]} | set(printed) ^ set(report)
    assert differ == {"config", "timing"}
    same = set(printed["config"]) & set(report["config"])
    differ = {key for key in same if printed["config"][key] != report["config"][key]}
    assert differ == {"encoder", "members", "nonmembers", "shadow"}
