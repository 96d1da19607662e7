"""Which files of a place are read, what is said of the others, and files that are no images."""

from __future__ import annotations

import ast
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedmia.data.base import Dataset, Request
from fedmia.data.cifar import Cifar10, Cifar100
from fedmia.data.folder import Folder
from fedmia.data.images import ImageSet
from fedmia.data.npz import Npz
from fedmia.data.parquet import Parquet
from fedmia.report.words.notes import sentences
from fedmia.storage.json_rows import to_json
from tests.commands import fedmia
from tests.data.material import POINTER, encode, load, refusal, write_image, write_parquet

PIXELS = np.random.default_rng(0).integers(0, 256, (40, 8, 8, 3), dtype=np.uint8)


def png(at: int) -> bytes:
    return encode(PIXELS[at])


def put(path: Path, at: int) -> None:
    write_image(path, PIXELS[at])


def numbers(data: ImageSet) -> list[int]:
    """Which of PIXELS the images are."""
    return [
        int(np.flatnonzero((x.transpose(1, 2, 0) == PIXELS).all((1, 2, 3)))[0]) for x in data.images
    ]


# folders


@pytest.mark.parametrize(
    "hidden", [".ipynb_checkpoints", ".thumbnails/normal", "@eaDir/1.png", "__MACOSX", "deep/.x/y"]
)
def test_folder__hidden_folders_are_left_out_at_any_depth(tmp_path: Path, hidden: str) -> None:
    for at, kind in enumerate(("cat", "dog")):
        put(tmp_path / kind / "1.png", at)
        put(tmp_path / kind / hidden / "1-checkpoint.png", at)
        put(tmp_path / kind / hidden / "2.png", at + 2)
    (tmp_path / "cat" / "._1.png").write_bytes(b"Mac")
    (tmp_path / "cat" / "Thumbs.db").write_bytes(b"Windows")
    data = load(Folder(), tmp_path)
    assert numbers(data) == [0, 1] and data.classes == ("cat", "dog")
    (note,) = sentences(data.notes)
    assert "4 hidden files or folders left out" in note


def test_folder__links_are_followed_at_any_depth_and_circles_end(tmp_path: Path) -> None:
    root = tmp_path / "images"
    put(root / "cat" / "0.png", 0)
    put(root / "dog" / "1.png", 1)
    put(tmp_path / "elsewhere" / "more" / "2.png", 2)
    put(tmp_path / "third" / "3.png", 3)
    (root / "cat" / "more").symlink_to(tmp_path / "elsewhere")
    (root / "fox").symlink_to(tmp_path / "third")
    (tmp_path / "elsewhere" / "back").symlink_to(root)
    (root / "ant").symlink_to(root / "dog")  # before "dog" by its name
    (root / "dog" / "gone.png").symlink_to(tmp_path / "nowhere.png")
    data = load(Folder(), root)
    assert numbers(data) == [0, 2, 1, 3] and data.class_labels().tolist() == [
        "cat", "cat", "dog", "fox"
    ]  # fmt: skip
    (note,) = sentences(data.notes)
    assert "4 links to folders followed" in note and "2 links to folders that were read" in note
    assert "1 broken links left out" in note


def test_folder__other_files_are_counted(tmp_path: Path) -> None:
    put(tmp_path / "0.png", 0)
    (tmp_path / "1.nii").write_bytes(b"n+1")
    (note,) = sentences(load(Folder(), tmp_path).notes)
    assert "1 files that are not called like images left out" in note
    (tmp_path / "0.png").unlink()
    assert "1 files that are not called like images" in refusal(Folder(), tmp_path)


# parquet's parts


def write_part(path: Path, ats: list[int], **columns: object) -> None:
    write_parquet(path, map(png, ats), **columns)


@pytest.mark.parametrize(
    "names",
    [
        ("train-00000-of-00002.parquet", "train-00001-of-00002-af.parquet"),
        ("0.parquet", "1.parquet"),
    ],
)
def test_parquet__a_folder_of_parts_is_one_source(tmp_path: Path, names: tuple[str, str]) -> None:
    write_part(tmp_path / names[1], [3, 4], label=["b", "a"])
    write_part(tmp_path / names[0], [0, 1, 2], label=["b", "b", "c"])
    data = load(Parquet(), tmp_path)
    assert numbers(data) == [0, 1, 2, 3, 4] and data.labels.tolist() == [1, 1, 2, 1, 0]
    assert "read 2 files, in order of their names" in sentences(data.notes)[0]
    assert numbers(load(Parquet(limit=4), tmp_path)) == [0, 1, 2, 3]
    write_part(tmp_path / names[1], [3, 4], other=["b", "a"])
    assert f"{names[1]} lacks the column 'label'" in refusal(Parquet(), tmp_path)
    (tmp_path / names[1]).write_bytes(POINTER)
    assert f"{names[1]} is a Git LFS pointer" in refusal(Parquet(), tmp_path)


def test_parquet__parts_of_several_sets_are_not_joined(tmp_path: Path) -> None:
    for name in ("test-00000-of-00001", "train-00000-of-00001"):
        write_part(tmp_path / f"{name}.parquet", [0, 1])
    assert "files of 2 data sets (test, train)" in refusal(Parquet(), tmp_path)
    assert "is a folder without .parquet files" in refusal(Parquet(), tmp_path.parent)


# what the library datasets writes


def check_line(message: str, *words: str) -> None:
    """The message holds a line of Python that names these."""
    code = message.partition('python -c "')[2].partition('"')[0]
    ast.parse(code)
    assert all(word in code for word in (*words, "embed_table_storage", ".to_parquet("))


@pytest.mark.parametrize("source", [Folder(), Parquet()])
def test_arrow_folders_are_refused_with_the_line_that_converts_them(
    tmp_path: Path, source: Dataset
) -> None:
    one, several = tmp_path / "one", tmp_path / "several"
    for place in (one, several / "train"):
        place.mkdir(parents=True)
        table = pa.table({"image": [png(0)], "label": [0]})
        with pa.ipc.new_stream(str(place / "data-00000-of-00001.arrow"), table.schema) as stream:
            stream.write_table(table)
        (place / "state.json").write_text("{}")
    check_line(refusal(source, one), f"load_from_disk('{one}').", f"'{one}.parquet'")
    check_line(refusal(source, several), f"load_from_disk('{several}')['train']")
    file = one / "data-00000-of-00001.arrow"
    if isinstance(source, Parquet):
        check_line(refusal(source, file), f"Dataset.from_file('{file}')")


def test_parquet__rows_of_paths_are_refused_with_the_line_that_converts_them(
    tmp_path: Path,
) -> None:
    rows = [{"bytes": png(0), "path": "0.png"}, {"bytes": None, "path": "far/1.png"}]
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    file = tmp_path / "a.parquet"
    pq.write_table(pa.table({"image": pa.array(rows, kind)}), file)
    message = refusal(Parquet(), file)
    assert "row 1 has no value in 'image' but the path 'far/1.png'" in message
    check_line(message, f"Dataset.from_parquet('{file}')", "'a-whole.parquet'")


# files that are something else


@pytest.mark.parametrize("source", [Parquet(), Npz(), Folder()])
@pytest.mark.parametrize(
    ("content", "what"),
    [
        (POINTER, "is a Git LFS pointer, not the file: `git lfs pull` fetches"),
        (b"", "is empty"),
    ],
)
def test_sources__name_what_a_file_is(
    tmp_path: Path, source: Dataset, content: bytes, what: str
) -> None:
    file = tmp_path / "data"
    file.write_bytes(content)
    assert what in refusal(source, file)


def test_sources__name_what_images_are(tmp_path: Path) -> None:
    for at in range(3):
        put(tmp_path / f"{at}.png", at)
    (tmp_path / "1.png").write_bytes(POINTER)
    assert "1.png: cannot decode the image: it is a Git LFS pointer" in refusal(Folder(), tmp_path)
    (tmp_path / "2.png").write_bytes(POINTER)
    message = refusal(Folder(), tmp_path)
    assert "2 images (" in message and "; the first: it is a Git LFS pointer" in message


def test_npz__never_advises_to_unpickle(tmp_path: Path) -> None:
    file = tmp_path / "a.npy"
    np.save(file, PIXELS)
    message = refusal(Npz(), file)
    assert "not an archive of arrays" in message and "pickle" not in message


# names


def test_names_that_are_no_utf8_are_escaped(tmp_path: Path) -> None:
    """Python holds the bytes of such a name as half characters, which no file takes."""
    root = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"))
    put(root / os.fsdecode(b"h\xfcnd") / "0.png", 0)
    put(root / "katze" / "1.png", 1)
    encoded = Folder().encoded(Request(str(root), None, None, 0, {"groups": "1"}))
    assert encoded.columns
    data = encoded.all()
    assert data.name == "caf\\xe9" and data.classes == ("h\\xfcnd", "katze")
    assert encoded.columns["groups"].tolist() == ["h\\xfcnd", "katze"] and numbers(data) == [0, 1]
    np.savez(root / os.fsdecode(b"\xe9.npz"), x=PIXELS)
    assert load(Npz(), root / os.fsdecode(b"\xe9.npz")).name == "\\xe9"
    assert to_json({str(root): [root]}) == {f"{tmp_path}/caf\\xe9": [f"{tmp_path}/caf\\xe9"]}
    # In an ASCII locale the bytes of an umlaut are half characters, too.
    assert to_json("/m\udcc3\udcbcll") == "/müll"
    ran = fedmia("simulate --clients 2 --attacks none", root)
    assert ran.code == 2 and "caf\\xe9' is no UTF-8; name another folder" in ran.err


# the files of reproduce


@pytest.mark.parametrize(
    ("source", "name", "column"),
    [(Cifar10, "cifar10", "label"), (Cifar100, "cifar100", "fine_label")],
)
def test_cifar__reads_the_parquet_files_of_the_data_folder(
    tmp_path: Path, source: type[Dataset], name: str, column: str
) -> None:
    for part, ats in (("train", [0, 1, 2]), ("test", [3, 4])):
        columns = {column: [11, 2, 2][: len(ats)], "coarse_label": [0] * len(ats)}
        write_part(tmp_path / f"{name}-{part}.parquet", ats, **columns)
    data = source().load(Request(None, tmp_path, None, 0))
    assert numbers(data) == [0, 1, 2] and data.name == name
    assert data.labels.tolist() == [1, 0, 0] and data.classes == ("2", "11")
    assert f"{name}-train.parquet: the labels are column '{column}'" in sentences(data.notes)[0]
