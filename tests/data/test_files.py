"""npz, folder, parquet and Tiny ImageNet: what goes in comes out; broken input is one line."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from fedmia.data.base import Dataset, Request
from fedmia.data.folder import Folder
from fedmia.data.images import ImageSet
from fedmia.data.npz import Npz
from fedmia.data.parquet import Parquet
from fedmia.data.tinyimagenet import TinyImageNet
from fedmia.settings.errors import InputError
from tests.data.material import channels_first, encode, load, refusal, write_image, write_parquet

RNG = np.random.default_rng(0)
COLOUR = RNG.integers(0, 256, (6, 8, 8, 3), dtype=np.uint8)
GREY = COLOUR[..., 0]


# columns


def column(source: Dataset, path: Path, name: str) -> list[object]:
    request = Request(str(path), None, None, 0, {"partition.column": name})
    return source.load(request).columns["partition.column"].tolist()


def test_column__of_parquet_is_any_of_names_or_integers(tmp_path):
    images, sites = [encode(x) for x in COLOUR], ["a", "b", "a", "c", "c", "b"]
    columns = {"label": [0, 1] * 3, "site": sites, "at": [0.5] * 6, "seen": [True, False] * 3}
    columns["kind"] = pa.array(sites).dictionary_encode()
    path = write_parquet(tmp_path / "a.parquet", images, **columns)
    assert column(Parquet(), path, "site") == column(Parquet(), path, "kind") == sites
    assert column(Parquet(limit=2), path, "label") == [0, 1]
    assert column(Parquet(), path, "seen") == [True, False] * 3
    for name, why in (("town", "does not exist"), ("at", "does not hold text or integers")):
        with pytest.raises(InputError, match=f"partition column '{name}' {why} .*: label, site, s"):
            column(Parquet(), path, name)
    gap = write_parquet(tmp_path / "b.parquet", images[:2], label=[0, 0], site=["a", None])
    with pytest.raises(InputError, match="row 1 has no value in 'site'"):
        column(Parquet(), gap, "site")


def test_column__of_npz_is_an_array_of_one_value_an_image(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, x=GREY, y=np.arange(6), site=np.array(list("abcabc")), at=np.zeros(6), few=[1])
    assert column(Npz(), path, "site") == list("abcabc")
    assert column(Npz(), path, "y") == [0, 1, 2, 3, 4, 5]
    for name, why in (
        ("town", "has no array 'town' (it has: x, y, site, at, few)"),
        ("at", "at must be strings, integers or booleans (6,), one an image, got float64 (6,)"),
        ("few", "few must be strings, integers or booleans (6,), one an image, got int64 (1,)"),
    ):
        with pytest.raises(InputError) as caught:
            column(Npz(), path, name)
        assert why in str(caught.value)


def test_column__of_a_folder_is_a_depth(tmp_path):
    for at, name in enumerate(("cat/north/0", "cat/south/old/1", "dog/north/2")):
        write_image(tmp_path / f"{name}.png", COLOUR[at])
    assert column(Folder(), tmp_path, "1") == ["cat", "cat", "dog"]
    assert column(Folder(), tmp_path, "2") == ["north", "south", "north"]
    for depth, why in (
        ("3", r"north/0\.png lies 2 folders below .*, partition\.column 3 asks for 3"),
        ("0", "partition.column: '0', must be a depth >= 1"),
        ("site", "partition.column: 'site', must be a depth >= 1"),
    ):
        with pytest.raises(InputError, match=why):
            column(Folder(), tmp_path, depth)


def test_column__goes_with_its_images(tmp_path):
    data = ImageSet(
        channels_first(COLOUR), np.arange(6), "a", columns={"c": np.array(list("abcdef"))}
    )
    assert data.take(np.array([4, 1])).columns["c"].tolist() == ["e", "b"]
    with pytest.raises(InputError, match="6 images but c of"):
        ImageSet(channels_first(COLOUR), np.arange(6), "a", columns={"c": np.zeros(5, int)})


# parquet


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "BMP"])
@pytest.mark.parametrize("column", ["img", "image"])
def test_parquet__gives_back_the_pixels(tmp_path, kind, column):
    images = [encode(x, kind) for x in COLOUR]
    path = write_parquet(tmp_path / "a.parquet", images, column, label=[0, 1, 2, 0, 1, 2])
    data = load(Parquet(), path)
    assert np.array_equal(data.images, channels_first(COLOUR))
    assert data.labels.tolist() == [0, 1, 2, 0, 1, 2] and data.name == "a"


def test_parquet__limit_takes_the_first_rows(tmp_path):
    """In a batch of 1024, at its end, in a later one, and all."""
    images = [encode(np.full((2, 2), i, np.uint8)) for i in range(251)]
    labels = [(i + 1) // 2 % 3 for i in range(1100)]
    path = write_parquet(tmp_path / "a.parquet", (images * 5)[:1100], label=labels)
    for limit in (3, 1024, 1030, 9999):
        data = load(Parquet(limit=limit), path)
        assert data.images[:, 0, 0, 0].tolist() == [i % 251 for i in range(1100)][:limit]
        assert data.labels.tolist() == labels[:limit]


def test_parquet__columns_by_option_or_only_integer(tmp_path):
    images = [encode(x) for x in COLOUR]
    path = write_parquet(tmp_path / "a.parquet", images, coarse=[5, 5, 9, 9, 9, 7])
    assert load(Parquet(), path).labels.tolist() == [0, 0, 2, 2, 2, 1]
    two = write_parquet(tmp_path / "b.parquet", images, "photo", fine=[0] * 6, coarse=[0, 1] * 3)
    assert "give image_column" in refusal(Parquet(), two)
    named = Parquet(image_column="photo")
    assert "give label_column (columns of integers or text: fine, coarse)" in refusal(named, two)
    chosen = Parquet(image_column="photo", label_column="coarse")
    assert load(chosen, two).labels.tolist() == [0, 1] * 3
    assert "'other' does not exist" in refusal(Parquet(image_column="other"), two)
    wrong = Parquet(image_column="photo", label_column="photo")
    assert "'photo' does not hold integers" in refusal(wrong, two)


def test_parquet__sizes_differ_need_size(tmp_path):
    tall = RNG.integers(0, 256, (9, 8, 3), dtype=np.uint8)
    path = write_parquet(tmp_path / "a.parquet", [encode(COLOUR[0]), encode(tall)], label=[0, 1])
    assert "give data.size" in refusal(Parquet(), path)
    assert load(Parquet(), path, 4).images.shape == (2, 3, 4, 4)
    oblong = write_parquet(tmp_path / "b.parquet", [encode(tall)], label=[0])
    assert "9x8 pixels are not square; give data.size" in refusal(Parquet(), oblong)


def test_parquet__broken_image_names_its_row(tmp_path):
    good = encode(COLOUR[0])
    path = write_parquet(tmp_path / "a.parquet", [good, good, good[:60]], label=[0, 1, 2])
    assert "row 2: cannot decode" in refusal(Parquet(), path)
    missing = write_parquet(tmp_path / "b.parquet", [good, None], label=[0, 1])
    assert "row 1 has no value in 'image'" in refusal(Parquet(), missing)
    unlabelled = write_parquet(tmp_path / "c.parquet", [good] * 3, label=[None, 1, 1])
    assert "row 0 has no value in 'label'" in refusal(Parquet(), unlabelled)


@pytest.mark.skipif("FEDMIA_DATA" not in os.environ, reason="FEDMIA_DATA is not set")
def test_parquet__real_cifar10():
    data = load(Parquet(limit=3000), Path(os.environ["FEDMIA_DATA"]) / "cifar10-train.parquet")
    assert data.images.shape == (3000, 3, 32, 32) and set(data.labels) == set(range(10))
    # First training image: a frog (6); the channel means are the published ones.
    assert data.labels[0] == 6
    means = data.images.mean(axis=(0, 2, 3)) / 255
    assert np.allclose(means, (0.4914, 0.4822, 0.4465), atol=0.01)


# npz


@pytest.mark.parametrize(
    ("x", "expected"),
    [(COLOUR, channels_first(COLOUR)), (GREY, GREY[:, None]), (GREY[..., None], GREY[:, None])],
)
def test_npz__gives_back_the_pixels(tmp_path, x, expected):
    path = tmp_path / "a.npz"
    np.savez_compressed(path, x=x, y=np.array([3, 1, 3, 1, 8, 8], np.uint8))
    data = load(Npz(), path)
    assert np.array_equal(data.images, expected)
    assert data.labels.tolist() == [1, 0, 1, 0, 2, 2] and data.labels.dtype == np.int64


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"y": np.zeros(6, int)}, "no array 'x' (it has: y)"),
        ({"x": GREY, "y": np.zeros(5, int)}, "y must be integers or text (6,)"),
        ({"x": GREY, "y": np.full(6, 0.5)}, "y must be integers or text"),
        ({"x": GREY, "y": np.eye(6, dtype=int)}, "of one-hot labels give the argmax"),
        ({"x": GREY[:0], "y": np.zeros(0, int)}, "no images"),
        ({"x": GREY[:, :7], "y": np.zeros(6, int)}, "7x8 pixels are not square; give data.size"),
        ({"x": np.array([{}]), "y": np.zeros(1, int)}, "x.npy holds Python objects"),
    ],
)
def test_npz__refuses(tmp_path, arrays, message):
    path = tmp_path / "a.npz"
    np.savez(path, **arrays)
    found = refusal(Npz(), path)
    assert message in found and str(path) in found


# folder


def write_images(folder: Path, images: np.ndarray, suffix: str = ".png") -> None:
    for i, x in enumerate(images):
        write_image(folder / f"{i}{suffix}", x)


def test_folder__one_class_a_subfolder(tmp_path):
    write_images(tmp_path / "cats", COLOUR[:2])
    write_images(tmp_path / "dogs" / "deep", COLOUR[2:], ".PNG")
    (tmp_path / "empty").mkdir()
    write_images(tmp_path / ".hidden", COLOUR)
    (tmp_path / "cats" / "notes.txt").write_text("no image")
    (tmp_path / "cats" / ".thumb.png").write_text("no image")
    data = load(Folder(), tmp_path)
    assert np.array_equal(data.images, channels_first(COLOUR))
    assert data.labels.tolist() == [0, 0, 1, 1, 1, 1] and data.name == tmp_path.name
    assert data.classes == ("cats", "dogs") and data.class_labels()[1:3].tolist() == [
        "cats",
        "dogs",
    ]


def test_folder__refuses(tmp_path):
    assert "no images in" in refusal(Folder(), tmp_path)
    write_images(tmp_path / "cats", COLOUR)
    (tmp_path / "cats" / "3.png").write_bytes(b"broken")
    assert "cats/3.png: cannot decode" in refusal(Folder(), tmp_path)
    write_images(tmp_path, COLOUR)
    assert "holds 6 images beside 1 subfolders" in refusal(Folder(), tmp_path)
    assert "expected a folder" in refusal(Folder(), tmp_path / "0.png")


# tinyimagenet


def test_tinyimagenet__reads_the_training_images(tmp_path):
    root = tmp_path / "tiny-imagenet-200"
    for wnid in ("n01", "n02"):
        write_images(root / "train" / wnid / "images", COLOUR, ".JPEG")
        (root / "train" / wnid / f"{wnid}_boxes.txt").write_text("0.JPEG 0 0 1 1")
    by_path = load(TinyImageNet(), root)
    by_dir = TinyImageNet().load(Request(None, tmp_path, None, 0))
    inside = TinyImageNet().load(Request(None, root, None, 0))
    assert by_path.images.shape == (12, 3, 8, 8)
    assert by_path.labels.tolist() == [0] * 6 + [1] * 6
    for other in (by_dir, inside):
        assert np.array_equal(by_path.images, other.images)


def test_tinyimagenet__validation_images_have_the_classes_of_the_training_images(tmp_path):
    """Its annotations give the class; a class has the same number in either part."""
    for at, wnid in enumerate(("n02", "n07")):
        write_images(tmp_path / "train" / wnid / "images", COLOUR[2 * at : 2 * at + 2], ".PNG")
    write_images(tmp_path / "val" / "images", COLOUR[3:], ".PNG")
    notes = tmp_path / "val" / "val_annotations.txt"
    notes.write_text("0.PNG\tn07\t0\t0\t1\t1\n1.PNG\tn02\t0\t0\t1\t1\n2.PNG\tn07\t0\t0\t1\t1\n")
    train, val, both = (load(TinyImageNet(subset=s), tmp_path) for s in ("train", "val", "all"))
    assert train.labels.tolist() == [0, 0, 1, 1] and both.classes == ("n02", "n07")
    assert val.labels.tolist() == [0, 1, 1] and both.labels.tolist() == [0, 0, 1, 1, 0, 1, 1]
    assert np.array_equal(both.images, np.concatenate([train.images, val.images]))
    assert np.array_equal(val.images, channels_first(COLOUR[[4, 3, 5]]))
    notes.write_text("".join(f"{i}.PNG\tn07\n" for i in range(3)))  # a part may lack a class
    alone, both = (load(TinyImageNet(subset=s), tmp_path).labels for s in ("val", "all"))
    assert alone.tolist() == [0, 0, 0] and both.tolist() == [0, 0, 1, 1, 1, 1, 1]
    notes.write_text("0.PNG\tn07\n1.PNG\tn02\n")
    assert "names no class of 2.PNG" in refusal(TinyImageNet(subset="val"), tmp_path)
    notes.unlink()
    assert "cannot read" in refusal(TinyImageNet(subset="all"), tmp_path)


def test_tinyimagenet__without_training_images(tmp_path):
    assert "no images train/" in refusal(TinyImageNet(), tmp_path)


# all of them


@pytest.mark.parametrize("source", [Parquet(), Npz(), Folder(), TinyImageNet()])
def test_source__needs_a_path_that_is_there(source, tmp_path):
    assert "data.name (--dataset) " in refusal(source, None)
    assert str(tmp_path / "nowhere") in refusal(source, tmp_path / "nowhere")


@pytest.mark.parametrize("source", [Parquet(), Npz()])
def test_source__without_images_cut_short_corrupt_or_a_folder(source, tmp_path):
    path = tmp_path / "data.npz"
    for images in (COLOUR[:0], COLOUR):
        if isinstance(source, Npz):
            np.savez(path, x=images)
        else:
            write_parquet(path, map(encode, images))
        if not len(images):
            assert re.search("no (rows|images)", refusal(source, path))
    for content in (path.read_bytes()[:-20], bytes(range(256)) * 4):
        path.write_bytes(content)
        assert f"cannot read {path}" in refusal(source, path)
    assert "is a folder" in refusal(source, tmp_path)


def test_sources__without_labels(tmp_path):
    np.savez(tmp_path / "a.npz", x=COLOUR)
    path = write_parquet(tmp_path / "a.parquet", [encode(x) for x in COLOUR])
    for data in (load(Npz(), tmp_path / "a.npz"), load(Parquet(), path)):
        assert np.array_equal(data.images, channels_first(COLOUR))
        assert data.labels.tolist() == [0] * 6 and not data.labelled
    assert "'fine' does not exist" in refusal(Parquet(label_column="fine"), path)
    two = write_parquet(tmp_path / "b.parquet", [encode(x) for x in COLOUR], a=[0] * 6, b=[1] * 6)
    assert "cannot tell the label column" in refusal(Parquet(), two)
    assert load(Parquet(label_column="a"), two).labelled


def test_folder__images_know_the_names_of_their_files_wherever_they_go(tmp_path: Path) -> None:
    for at in range(4):
        Image.new("L", (4, 4), 40 * at).save(tmp_path / f"scan-{at}.png")
    data = Folder().load(Request(str(tmp_path), None, None, 0))
    assert data.files == ("scan-0.png", "scan-1.png", "scan-2.png", "scan-3.png")
    some = data.take(np.array([3, 1])).with_channels("rgb")
    assert some.files == ("scan-3.png", "scan-1.png")
    assert some.images[:, 0, 0, 0].tolist() == [120, 40]
