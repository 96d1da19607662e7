"""What an audit's numbers may depend on, and what they must not."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.auditing.conftest import MEMBERS, Audit, Sides, numbers, sides, textures, write


def scores(folder: Path) -> dict[tuple[str, str], list[dict[str, str]]]:
    """Rows of scores.csv by truth."""
    rows = list(csv.DictReader((folder / "scores.csv").read_text().splitlines()))
    return {truth: [r for r in rows if r["truth"] == truth] for truth in "10"}  # type: ignore


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


@pytest.mark.slow
def test_names_of_files__change_nothing(audit: Audit, tmp_path: Path) -> None:
    """A folder is read in the order of its names; here they run backwards the second time."""
    images = textures(40).images.transpose(0, 2, 3, 1)
    reports = []
    for turn in (1, -1):
        root = tmp_path / f"turn{turn}"
        for side, part in (("members", images[:16]), ("nonmembers", images[16:])):
            (root / side).mkdir(parents=True)
            for i, image in enumerate(part):
                Image.fromarray(image).save(root / side / f"{50 + turn * i}.png")
        flags = f"--members folder:{root}/members --nonmembers folder:{root}/nonmembers"
        done = audit(flags, tmp_path / f"AUDIT{turn}")
        reports.append({k: v for k, v in numbers(done.report).items() if k != "config"})
    assert reports[0] == reports[1]


@pytest.mark.slow
def test_sides_swapped__mirror_the_auc(audit: Audit, archives: Sides, tmp_path: Path) -> None:
    """Members that pose as non-members: what told them as members tells them as non-members."""
    flags = "--attacks similarity, --limit 16 --known 6 "
    swapped = Sides(archives.nonmembers, archives.members)
    there = audit(flags.replace(", ", ",lpla "), tmp_path / "A").report
    back = audit(flags.replace(", ", ",lpla ") + swapped.flags, tmp_path / "B").report
    for a, b in zip(there["attacks"], back["attacks"], strict=True):
        assert a["auc"] != 0.5 and b["n_members"] == 16
        if a["name"] == "similarity":
            assert a["auc"] + b["auc"] == pytest.approx(1, abs=1e-5)
        else:  # LpLA learns the direction, on the same known images: it is as good either way
            assert a["auc"] == pytest.approx(b["auc"], abs=1e-5)


@pytest.mark.slow
def test_copies__are_left_out_and_counted(audit: Audit, tmp_path: Path) -> None:
    here = sides(tmp_path)
    with np.load(here.members) as archive:
        x, y = archive["x"], archive["y"]
    twice = np.concatenate([x, x[3:7]]), np.concatenate([y, y[3:7]])
    other = Sides(
        write(tmp_path / "twice.npz", twice[0].transpose(0, 3, 1, 2), twice[1]), here.nonmembers
    )
    plain, copied = (audit(s.flags, tmp_path / n) for s, n in ((here, "A"), (other, "B")))
    assert "4 byte-equal copies among the members left out." in copied.report["notes"]
    split = copied.report["split"]
    assert split["known_members"] + split["scored_members"] == MEMBERS
    assert copied.report["attacks"] == plain.report["attacks"]


def test_roles__no_image_has_two(archives: Sides) -> None:
    from fedmia.cli.command import parse
    from fedmia.cli.commands import AUDIT
    from fedmia.data.images import digests
    from fedmia.evaluation.audits.images import deal

    flags = archives.flags + "--encoder x --shadows 2 --known 5 --limit 10"
    settings = parse(AUDIT, flags.split()).settings
    roles = deal(settings, None)
    parts = [
        roles.known_members, roles.known_nonmembers, roles.scored_members, roles.scored_nonmembers,
        roles.spare,
    ]  # fmt: skip
    assert [len(p) for p in parts] == [5, 5, 10, 10, 25]
    role_digests = [d for p in parts for d in digests(p.numpy())]
    assert len(set(role_digests)) == len(role_digests)
    with np.load(archives.members) as archive:
        at = digests(archive["x"].transpose(0, 3, 1, 2)[roles.member_ids])
    assert at == digests(roles.scored_members.numpy())


def interval_holds(row: dict[str, Any]) -> bool:
    low, high = row["auc_ci_simultaneous"]
    return low <= 0.5 <= high


@pytest.mark.slow
def test_random_weights__leak_nothing(audit: Audit, tmp_path: Path) -> None:
    """A torchvision network that nobody trained, its untrained control and the posers."""
    there = sides(tmp_path, pixels=32)
    flags = "--encoder torchvision:squeezenet1_1 --size 32 --attacks similarity,lpla "
    done = audit(flags + there.flags, tmp_path / "AUDIT")
    assert done.code == 0 and done.report["verdict_code"] == "not-established"
    rows = [*done.report["attacks"], *sum((done.report["controls"][k] for k in (
        "untrained", "posers")), [])]  # fmt: skip
    assert len(rows) == 6 and all(map(interval_holds, rows))
    assert any("random weights: nothing was trained" in n for n in done.report["notes"])
