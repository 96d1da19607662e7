"""Sources of encoded and of unlabelled images: what is decoded, and what an audit does without."""

from __future__ import annotations

import io
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from fedmia.data.images import digests
from tests.auditing.attacks import GIVEN, named
from tests.auditing.conftest import MEMBERS, NONMEMBERS, Audit, textures

MEAN = named("Mean")


def pictures() -> dict[str, np.ndarray]:
    """(N, H, W, C) of either side."""
    both = textures(MEMBERS + NONMEMBERS).images.transpose(0, 2, 3, 1)
    return {"members": both[:MEMBERS], "nonmembers": both[MEMBERS:]}


def encoded(image: np.ndarray, level: int = 6) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "PNG", compress_level=level)
    return buffer.getvalue()


def write(kind: str, folder: Path, side: str, files: list[bytes]) -> str:
    """The files of a side without any label, as a data source."""
    path = folder / side
    if kind == "folder":
        path.mkdir()
        for i, file in enumerate(files):
            (path / f"{i:03}.png").write_bytes(file)
    elif kind == "parquet":
        pq.write_table(pa.table({"image": files}), path)
    else:
        with path.open("wb") as buffer:
            np.savez(buffer, x=np.stack([np.asarray(Image.open(io.BytesIO(f))) for f in files]))
    return f"{kind}:{path}"


def flags(kind: str, folder: Path, **more: list[bytes]) -> str:
    """Both sides, with `more` files at their end."""
    found = ""
    for side, images in pictures().items():
        files = [*map(encoded, images), *more.get(side, [])]
        found += f"--{side} {write(kind, folder, side, files)} "
    return found


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The files that have been opened: once for their header, and to be decoded."""
    contents, plain = list[bytes](), Image.open

    def counted(file: io.BytesIO, **how: Any) -> Image.Image:
        contents.append(file.getvalue())
        return plain(file, **how)

    monkeypatch.setattr(Image, "open", counted)
    return contents


@pytest.mark.parametrize("kind", ["folder", "parquet"])
def test_sources__decode_only_what_a_role_uses(
    kind: str, audit: Audit, tmp_path: Path, seen: list[bytes]
) -> None:
    GIVEN.clear()
    line = flags(kind, tmp_path) + f"--attacks {MEAN} --known 3 --limit 5 "
    split = audit(line).report["split"]
    opened = Counter(seen)
    assert len(opened) == MEMBERS + NONMEMBERS and set(opened.values()) == {1, 2}
    assert sum(count == 2 for count in opened.values()) == 2 * (3 + 5)
    assert split["spare_nonmembers"] == NONMEMBERS - 8
    every = np.concatenate([*pictures().values()]).transpose(0, 3, 1, 2)
    roles = [digests(torch.cat([one.known.both()[0], one.images]).numpy()) for one in GIVEN[:1]]
    assert {*roles[0]} < {*digests(every)} and len({*roles[0]}) == 2 * (3 + 5)
    seen.clear()
    GIVEN.clear()
    shadows = "--shadows 1 --shadow.epochs 1 --shadow.knowledge data --shadow.model smallnet "
    assert audit(f"{line.replace(MEAN, f'{MEAN},encodermi-t')} {shadows}").code == 0
    decoded = sum(count == 2 for count in Counter(seen).values())
    assert decoded == 3 + 5 + NONMEMBERS
    again = digests(torch.cat([GIVEN[0].known.both()[0], GIVEN[0].images]).numpy())
    assert len({*roles[0]} - {*again}) <= 5  # all non-members are scored but half of the rest


def test_sources__copies_that_are_encoded_otherwise_have_one_role(
    audit: Audit, tmp_path: Path
) -> None:
    again = [encoded(x, level=0) for x in pictures()["members"]]
    line = flags("folder", tmp_path, members=again) + f"--known 3 --attacks {MEAN}"
    report = audit(line).report
    assert report["split"]["scored_members"] == MEMBERS - 3
    assert f"{MEMBERS} byte-equal copies among the members left out." in report["notes"]


def test_sources__one_image_on_both_sides_is_refused_however_it_is_encoded(
    audit: Audit, tmp_path: Path
) -> None:
    again = [encoded(pictures()["members"][7], level=0)]
    done = audit(flags("parquet", tmp_path, nonmembers=again) + "--known 3")
    want = f"share 1 byte-equal images (the first: member 7, non-member {NONMEMBERS}"
    assert done.code == 2 and want in done.err


def test_sources__unreadable_ones_are_left_out_where_that_is_asked_and_counted(
    audit: Audit, tmp_path: Path
) -> None:
    done = audit(flags("parquet", tmp_path, nonmembers=[b"no image"]))
    assert done.code == 2 and f"row {NONMEMBERS}: cannot" in done.err
    assert done.err.startswith("fedmia: error: nonmembers: parquet: ")
    (tmp_path / "folders").mkdir()
    line = flags("folder", tmp_path / "folders", members=[b"no image"] * 3)
    done = audit(line, tmp_path / "A")
    assert done.code == 2 and not (tmp_path / "A").exists()
    assert (
        "3 images (" in done.err
        and "data.skip_unreadable (--skip-unreadable) leaves them out" in done.err
    )
    done = audit(f"{line} --skip-unreadable")
    assert done.code == 0, done.err
    shown = audit(f"{line} --skip-unreadable", text=True).err
    split = done.report["split"]
    assert split["known_members"] + split["scored_members"] == MEMBERS
    assert "3 images" in shown and any("3 images" in note for note in done.report["notes"])


@pytest.mark.parametrize("kind", ["folder", "npz"])
def test_sources__without_labels_are_audited_without_probes(
    kind: str, audit: Audit, tmp_path: Path
) -> None:
    line = flags(kind, tmp_path) + "--known 4 --attacks similarity,baseline-b"
    done = audit(line)
    assert done.code == 0, done.err
    assert sum("The images have no labels" in note for note in done.report["notes"]) == 1
    assert done.report["utility"]["knn"] is None and done.report["utility"]["linear"] is None
    assert done.names() == ["similarity"] and "baseline-b" in done.not_run
