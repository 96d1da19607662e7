"""digits, synthetic, the torchvision sources and the resizing that all share."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn.functional import interpolate

from fedmia.data.base import Request
from fedmia.data.cifar import Cifar10, Cifar100
from fedmia.data.decoding import resize_all, to_square
from fedmia.data.digits import Digits
from fedmia.data.stl10 import Stl10
from fedmia.data.svhn import Svhn
from fedmia.data.synthetic import Synthetic
from fedmia.settings.errors import InputError

RNG = np.random.default_rng(0)


def request(size: int | None = None, seed: int = 0, data_dir: Path | None = None) -> Request:
    return Request(None, data_dir, size, seed)


# digits


def test_digits__known_pixels():
    data = Digits().load(request())
    assert data.images.shape == (1797, 1, 8, 8) and data.labels[:10].tolist() == list(range(10))
    # First row of the first digit is 0 0 5 13 9 1 0 0 of 16.
    assert data.images[0, 0, 0].tolist() == [0, 0, 80, 207, 143, 16, 0, 0]
    assert data.images.max() == 255
    assert data.images.mean() / 255 == pytest.approx(Digits.mean[0], abs=1e-3)
    assert data.images.std() / 255 == pytest.approx(Digits.std[0], abs=1e-3)


def test_digits__size():
    small, large = (Digits().load(request(size=size)).images for size in (None, 16))
    assert large.shape == (1797, 1, 16, 16)
    blocks = large.reshape(1797, 1, 8, 2, 8, 2).mean(axis=(3, 5))
    assert np.corrcoef(blocks.flatten(), small.flatten())[0, 1] > 0.95


# resizing


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", [5, 8, 24])
def test_resize__is_bilinear_with_antialias(channels, size):
    images = RNG.integers(0, 256, (3, channels, 12, 12), dtype=np.uint8)
    expected = interpolate(
        torch.from_numpy(images).float(), (size, size), mode="bilinear", antialias=True
    )
    # Pillow rounds after each of its two passes.
    assert np.abs(resize_all(images, size, "x") - expected.numpy()).max() <= 1.01


def test_resize__own_size_is_untouched_and_crop_is_central():
    images = RNG.integers(0, 256, (2, 3, 6, 6), dtype=np.uint8)
    assert resize_all(images, None, "x") is images and resize_all(images, 6, "x") is images
    wide = RNG.integers(0, 256, (6, 10), dtype=np.uint8)
    assert np.array_equal(np.asarray(to_square(Image.fromarray(wide), 6)), wide[:, 2:8])
    assert np.array_equal(resize_all(wide[None, None], 6, "x")[0, 0], wide[:, 2:8])
    with pytest.raises(InputError, match="6x10 pixels are not square; give data.size"):
        resize_all(wide[None, None], None, "x")


# synthetic


@pytest.mark.parametrize(
    "source",
    [Synthetic(images=300), Synthetic(classes=3, images=301, channels=1, pixels=9)],
)
def test_synthetic__shape_and_even_classes(source):
    data = source.load(request())
    shape = (source.images, source.channels, source.pixels, source.pixels)
    assert data.images.shape == shape and data.images.dtype == np.uint8
    counts = np.bincount(data.labels)
    assert len(counts) == source.classes and counts.max() - counts.min() <= 1
    assert np.any(np.diff(data.labels) < 0)  # not sorted by class


def test_synthetic__all_images_differ():
    data = Synthetic(images=1000, channels=1, pixels=8).load(request())
    assert len(np.unique(data.images.reshape(1000, -1), axis=0)) == 1000
    grown = data.images.astype(int)
    same = data.labels[:, None] == data.labels[None, :]
    far = np.abs(grown[:50, None] - grown[None, :50]).mean(axis=(2, 3, 4))
    assert far[same[:50, :50] & ~np.eye(50, dtype=bool)].min() > 3


def test_synthetic__seeded():
    first, again, other = (Synthetic(images=50).load(request(seed=s)) for s in (4, 4, 5))
    assert np.array_equal(first.images, again.images)
    assert np.array_equal(first.labels, again.labels)
    assert not np.array_equal(first.images, other.images)


def test_synthetic__classes_can_be_told_apart():
    # Phase is random, so texture shows in the amplitude spectrum: nearest class mean there.
    data = Synthetic(images=600, channels=1).load(request())
    spectra = np.abs(np.fft.rfft2(data.images[:, 0] / 255.0))
    spectra[:, 0, 0] = 0
    fit_on, test_on = slice(0, 400), slice(400, 600)
    means = [spectra[fit_on][data.labels[fit_on] == c].mean(axis=0) for c in range(10)]
    distance = [((spectra[test_on] - m) ** 2).sum(axis=(1, 2)) for m in means]
    assert (np.argmin(distance, axis=0) == data.labels[test_on]).mean() > 0.8


def test_synthetic__size_and_refusals():
    assert Synthetic(images=10).load(request(size=12)).images.shape == (10, 3, 12, 12)
    with pytest.raises(InputError, match="2, must be 1 or 3"):
        Synthetic(channels=2)
    with pytest.raises(InputError, match="5 images for 10 classes"):
        Synthetic(images=5).load(request())


# torchvision's


def write_cifar(root: Path, hundred: bool) -> dict[str, np.ndarray]:
    """CIFAR's own layout with 2 images a file; returns the images of each part."""
    folder = root / ("cifar-100-python" if hundred else "cifar-10-batches-py")
    folder.mkdir(parents=True)
    train = ["train"] if hundred else [f"data_batch_{i}" for i in range(1, 6)]
    parts = {"train": [], "test": []}
    for name in [*train, "test" if hundred else "test_batch"]:
        rows = RNG.integers(0, 256, (2, 3, 32, 32), dtype=np.uint8)
        key = "fine_labels" if hundred else "labels"
        (folder / name).write_bytes(pickle.dumps({"data": rows.reshape(2, -1), key: [0, 1]}))
        parts["test" if name.startswith("test") else "train"].append(rows)
    meta = {"fine_label_names": ["a", "b"], "label_names": ["a", "b"]}
    (folder / ("meta" if hundred else "batches.meta")).write_bytes(pickle.dumps(meta))
    return {part: np.concatenate(rows) for part, rows in parts.items()}


@pytest.mark.parametrize(("source", "hundred"), [(Cifar10, False), (Cifar100, True)])
def test_cifar__reads_a_local_folder(tmp_path, monkeypatch, source, hundred):
    parts = write_cifar(tmp_path, hundred)
    monkeypatch.setattr("torchvision.datasets.cifar.check_integrity", lambda *a: True)
    for subset in ("train", "test"):
        data = source(subset=subset).load(request(data_dir=tmp_path))
        assert np.array_equal(data.images, parts[subset])
        assert data.labels.tolist() == [0, 1] * (len(data) // 2)
    both = source(subset="all").load(request(data_dir=tmp_path))
    assert np.array_equal(both.images, np.concatenate([parts["train"], parts["test"]]))
    assert source().load(request(data_dir=tmp_path, size=8)).images.shape[2:] == (8, 8)


def test_svhn__reads_a_local_folder(tmp_path, monkeypatch):
    from scipy.io import savemat

    rows = RNG.integers(0, 256, (4, 3, 32, 32), dtype=np.uint8)
    savemat(
        tmp_path / "train_32x32.mat",
        {"X": rows.transpose(2, 3, 1, 0), "y": np.array([[1], [10], [2], [1]])},
    )
    monkeypatch.setattr("torchvision.datasets.svhn.check_integrity", lambda *a: True)
    data = Svhn().load(request(data_dir=tmp_path))
    assert np.array_equal(data.images, rows) and data.labels.tolist() == [1, 0, 2, 1]


def stl10_binary(folder: Path, **counts: int) -> dict[str, np.ndarray]:
    """Files PART_X.bin of so many images, each channel column by column; the images."""
    (folder / "stl10_binary").mkdir()
    images = {p: RNG.integers(0, 256, (n, 3, 96, 96), dtype=np.uint8) for p, n in counts.items()}
    for part, rows in images.items():
        file = folder / "stl10_binary" / f"{part}_X.bin"
        file.write_bytes(rows.transpose(0, 1, 3, 2).tobytes())
    return images


def test_stl10__reads_a_local_folder(tmp_path, monkeypatch):
    rows = stl10_binary(tmp_path, train=2)["train"]
    (tmp_path / "stl10_binary" / "train_y.bin").write_bytes(bytes([2, 1]))
    (tmp_path / "stl10_binary" / "class_names.txt").write_text("a\nb\n")
    monkeypatch.setattr("torchvision.datasets.STL10._check_integrity", lambda self: True)
    data = Stl10().load(request(data_dir=tmp_path))
    assert np.array_equal(data.images, rows) and data.labels.tolist() == [1, 0]


def test_stl10__unlabelled_images_are_read_one_by_one(tmp_path):
    rows = stl10_binary(tmp_path, train=2, unlabeled=5)
    whole = Stl10("unlabeled").load(request(data_dir=tmp_path))
    assert np.array_equal(whole.images, rows["unlabeled"])
    assert whole.labels.tolist() == [0] * 5 and not whole.labelled
    found = Stl10("train+unlabeled").encoded(request(size=32, data_dir=tmp_path))
    assert len(set(found.digests())) == len(found) == 7
    some, apart = found.decode(np.array([1, 4]))
    assert apart
    both = np.stack([rows["train"][1], rows["unlabeled"][2]])
    assert np.array_equal(some.images[[1, 4]], resize_all(both, 32, "x"))
    assert not some.images[[0, 2, 3, 5, 6]].any()


def test_stl10__unlabelled_file_cut_short(tmp_path):
    stl10_binary(tmp_path, unlabeled=2)
    file = tmp_path / "stl10_binary" / "unlabeled_X.bin"
    for content, size in ((file.read_bytes()[:-1], 55295), (b"", 0)):
        file.write_bytes(content)
        with pytest.raises(InputError, match=f"unlabeled_X.bin has {size} bytes, .* of 27648"):
            Stl10("unlabeled").load(request(data_dir=tmp_path))


@pytest.mark.parametrize(
    ("source", "subset"),
    [*((s, {}) for s in (Cifar10, Cifar100, Svhn, Stl10)), (Stl10, {"subset": "unlabeled"})],
)
def test_archive__absent_without_a_network(tmp_path, monkeypatch, source, subset, capsys):
    def no_network(*args, **kwargs):
        raise OSError("no route to host")

    monkeypatch.setattr("urllib.request.urlopen", no_network)
    root = tmp_path / "deep" / "data"
    with pytest.raises(InputError) as caught:
        source(**subset).load(request(data_dir=root))
    message = str(caught.value)
    assert str(root) in message and "data.dir" in message and "no route to host" in message
    assert message.startswith(f"{source.__name__.lower()}: ") and "\n" not in message
    assert not (tmp_path / "deep").exists()
    assert capsys.readouterr().out == ""
