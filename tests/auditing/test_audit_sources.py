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
from PIL import Image

from fedmia.cli.command import parse
from fedmia.cli.commands import AUDIT
from fedmia.data.cast import Cast
from fedmia.data.images import digests
from fedmia.evaluation.audits.images import deal
from fedmia.records.note import Note
from fedmia.report.words.notes import in_words, sentences
from fedmia.settings.errors import InputError
from tests.auditing.conftest import MEMBERS, NONMEMBERS, Audit, textures

COUNTS = {"members": MEMBERS, "nonmembers": NONMEMBERS}


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


def dealt(line: str) -> Cast:
    return deal(parse(AUDIT, f"--encoder x {line}".split()).settings, None)


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
    kind: str, tmp_path: Path, seen: list[bytes]
) -> None:
    line = flags(kind, tmp_path) + "--known 3 --limit 5 "
    roles = dealt(line)
    opened = Counter(seen)
    assert len(opened) == MEMBERS + NONMEMBERS and set(opened.values()) == {1, 2}
    assert sum(count == 2 for count in opened.values()) == 2 * (3 + 5)
    assert roles.counts()["spare_nonmembers"] == NONMEMBERS - 8 and not len(roles.pixels("spare"))
    scored = roles.pixels("scored_nonmembers").numpy().transpose(0, 2, 3, 1)
    assert np.array_equal(scored, pictures()["nonmembers"][roles.ids("scored_nonmembers")])
    seen.clear()
    with_shadows = dealt(line + "--shadows 2")
    decoded = sum(count == 2 for count in Counter(seen).values())
    assert decoded == 3 + 5 + NONMEMBERS and len(with_shadows.pixels("spare")) == NONMEMBERS - 8
    for role in ("known_members", "scored_members", "known_nonmembers"):
        assert digests(roles.pixels(role).numpy()) == digests(with_shadows.pixels(role).numpy())


def test_sources__copies_that_are_encoded_otherwise_have_one_role(tmp_path: Path) -> None:
    again = [encoded(x, level=0) for x in pictures()["members"]]
    roles = dealt(flags("folder", tmp_path, members=again) + "--known 3")
    assert len(roles.pixels("scored_members")) == MEMBERS - 3
    assert f"{MEMBERS} byte-equal copies among the members left out." in sentences(roles.notes)


def test_sources__one_image_on_both_sides_is_refused_however_it_is_encoded(tmp_path: Path) -> None:
    again = [encoded(pictures()["members"][7], level=0)]
    want = f"share 1 byte-equal images .the first: member 7, non-member {NONMEMBERS}"
    with pytest.raises(InputError, match=want):
        dealt(flags("parquet", tmp_path, nonmembers=again) + "--known 3")


def test_sources__unreadable_ones_are_left_out_where_that_is_asked_and_counted(
    audit: Audit, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=f"^nonmembers: parquet: .*row {NONMEMBERS}: cannot"):
        dealt(flags("parquet", tmp_path, nonmembers=[b"no image"]))
    (tmp_path / "folders").mkdir()
    line = flags("folder", tmp_path / "folders", members=[b"no image"] * 3)
    done = audit(line, tmp_path / "A")
    assert done.code == 2 and not (tmp_path / "A").exists()
    assert (
        "3 images (" in done.err
        and "data.skip_unreadable (--skip-unreadable) leaves them out" in done.err
    )
    done = audit(f"{line} --skip-unreadable", tmp_path / "A")
    assert done.code == 0, done.err
    split = done.report["split"]
    assert split["known_members"] + split["scored_members"] == MEMBERS
    assert "3 images" in done.err and any("3 images" in note for note in done.report["notes"])


@pytest.mark.parametrize("kind", ["folder", "npz"])
def test_sources__without_labels_are_audited_without_probes(
    kind: str, audit: Audit, tmp_path: Path
) -> None:
    line = flags(kind, tmp_path) + "--known 4 --attacks similarity,baseline-b"
    done = audit(line, tmp_path / "out")
    assert done.code == 0, done.err
    assert done.report["notes"].count(in_words(Note("no-labels"))) == 1
    assert done.report["utility"]["knn"] is None and done.report["utility"]["linear"] is None
    assert done.names() == ["similarity"] and "baseline-b" in done.not_run
    roles = dealt(line)
    with pytest.raises(InputError, match="needs the images' true classes"):
        roles.labels.of(roles.pixels("scored_members"))
