"""Which column or array tells the classes, and what its values may be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from torch import nn
from torch.utils.data import DataLoader

import fedmia
from fedmia.data.folder import Folder
from fedmia.data.images import UNLABELLED, ImageSet
from fedmia.data.labels import absent_labels, check_labels, renumber_labels
from fedmia.data.npz import Npz
from fedmia.data.parquet import Parquet
from fedmia.report.words.notes import sentences
from fedmia.settings.errors import InputError
from tests.data.material import encode, load, write_image

COUNT = 6
PIXELS = np.random.default_rng(0).integers(0, 256, (COUNT, 8, 8), dtype=np.uint8)
TEXT = ["dog", "cat", "dog", "ape", "cat", "dog"]
NUMBERS = [2, 1, 2, 0, 1, 2]  # in the order of the names


def parquet(path: Path, source: Parquet | None = None, **columns: Any) -> ImageSet:
    pq.write_table(pa.table({"image": [*map(encode, PIXELS)], **columns}), path / "a.parquet")
    return load(source or Parquet(), path / "a.parquet")


def test_renumber_labels__ascending_and_named_by_their_values() -> None:
    numbers, classes = renumber_labels(np.array([7, -2, 7, 3]))
    assert numbers.tolist() == [2, 0, 2, 1] and numbers.dtype == np.int64
    assert classes == ("-2", "3", "7")


def test_check_labels__a_column_of_whole_numbers_is_flattened() -> None:
    labels = check_labels([[1.0], [0.0]], 2, "y")
    assert labels.tolist() == [1, 0] and labels.dtype == np.int64
    with pytest.raises(InputError, match="argmax"):
        check_labels(np.eye(2), 2, "y")


def test_absent_labels__one_class() -> None:
    labels, classes = absent_labels(3)
    assert labels.tolist() == [0, 0, 0] and classes == UNLABELLED


def test_parquet__text_labels_beside_numbers_of_rows(tmp_path: Path) -> None:
    """The numbers of the rows are no class, whatever the column of text is called."""
    data = parquet(tmp_path, image_id=list(range(COUNT)), label=TEXT)
    assert data.classes == ("ape", "cat", "dog") and data.labels.tolist() == NUMBERS
    (note,) = sentences(data.notes)
    assert "the labels are column 'label', 3 classes" in note
    named = Parquet(label_column="kind")
    by_option = parquet(tmp_path, named, image_id=list(range(COUNT)), kind=TEXT)
    assert by_option.labels.tolist() == NUMBERS
    without = parquet(tmp_path, image_id=list(range(COUNT)), kind=TEXT)
    (note,) = sentences(without.notes)
    assert not without.labelled and "'image_id' has another value in each row" in note
    with pytest.raises(InputError, match="'image_id' has another value .*, no class; label_column"):
        parquet(tmp_path, Parquet(label_column="image_id"), image_id=list(range(COUNT)))


def test_parquet__text_is_numbered_as_folders_are(tmp_path: Path) -> None:
    for at, kind in enumerate(TEXT):
        write_image(tmp_path / "f" / kind / f"{at}.png", PIXELS[at])
    folder = load(Folder(), tmp_path / "f")
    data = parquet(tmp_path, label=TEXT)
    assert folder.classes == data.classes
    number = dict(zip([x.tobytes() for x in folder.images], folder.labels, strict=True))
    assert [number[x.tobytes()] for x in data.images] == data.labels.tolist()


@pytest.mark.parametrize("name", ["label", "labels", "class", "target", "category", "fine_label"])
def test_parquet__a_column_that_is_called_like_classes_is_taken(tmp_path: Path, name: str) -> None:
    data = parquet(tmp_path, size=[3, 3, 4, 4, 4, 3], **{name: [9, 5, 9, 1, 5, 9]})
    assert data.labels.tolist() == NUMBERS and data.classes == ("1", "5", "9")


@pytest.mark.parametrize(
    "values",
    [[2.0, 1, 2, 0, 1, 2], [5, -1, 5, -7, -1, 5], TEXT, pa.array(TEXT).dictionary_encode()],
    ids=["whole floats", "negative", "text", "dictionary"],
)
def test_parquet__labels_of_other_types(tmp_path: Path, values: Any) -> None:
    assert parquet(tmp_path, label=values).labels.tolist() == NUMBERS


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ([0.5, 1, 1, 1, 1, 1], "integers or text (6,)"),
        ([float("nan"), 1.0, 1, 1, 1, 1], "integers or text (6,)"),
    ],
)
def test_parquet__labels_that_are_none(tmp_path: Path, values: Any, why: str) -> None:
    with pytest.raises(InputError) as refused:
        parquet(tmp_path, label=values)
    assert why in str(refused.value)


@pytest.mark.parametrize("name", ["y", "labels", "target"])
@pytest.mark.parametrize("values", [TEXT, np.array(NUMBERS, float), np.array(NUMBERS) - 9])
def test_npz__an_array_of_classes(tmp_path: Path, name: str, values: Any) -> None:
    np.savez(tmp_path / "a.npz", x=PIXELS, **{name: values})
    data = load(Npz(), tmp_path / "a.npz")
    assert data.labels.tolist() == NUMBERS
    assert len(data.notes) == (name != "y")
    np.savez(tmp_path / "b.npz", x=PIXELS, **{name: np.array(values)[:, None]})
    assert load(Npz(), tmp_path / "b.npz").labels.tolist() == NUMBERS


def audited(members: Any) -> Any:
    """An audit of these members in memory, beside as many others."""
    others = np.random.default_rng(1).integers(0, 256, (24, 8, 8), dtype=np.uint8)
    encoder = nn.Sequential(nn.Conv2d(1, 4, 3), nn.AdaptiveAvgPool2d(2), nn.Flatten())
    return fedmia.audit_encoder(encoder, members, others, attacks="lpla", known=4, quiet=True)


@pytest.mark.parametrize("batched", [False, True])
def test_a_dataset__keeps_its_labels_and_says_where_they_are_none(batched: bool) -> None:
    """Text is numbered in its order; a label of its own for each image is no class."""
    pixels = np.random.default_rng(2).integers(0, 256, (12, 1, 8, 8), dtype=np.uint8)
    labels = TEXT * 2 if batched else range(12)
    items: Any = list(zip(pixels, labels, strict=True))
    run = audited(DataLoader(items, batch_size=5) if batched else items)
    said = [n for n in run.records.notes if "each image has a label of its own" in n]
    assert len(said) == (not batched)
    if batched:
        ids = run.images.ids("scored_members")
        classes = run.images.classes("scored_members").tolist()  # among those of the others
        pairs = {(number, (TEXT * 2)[i]) for number, i in zip(classes, ids, strict=True)}
        assert [text for _, text in sorted(pairs)] == ["ape", "cat", "dog"]


@pytest.mark.parametrize("label", [{"boxes": 3}, [0, 1, 0], 0.5])
def test_a_dataset__with_labels_that_are_none(label: Any) -> None:
    with pytest.raises(InputError, match=r"labels of members must be integers or text \(6,\)"):
        audited([(x[None], label) for x in PIXELS])
    with pytest.raises(InputError, match="of one-hot labels give the argmax"):
        audited((PIXELS, np.eye(COUNT)))
