"""Arrays that promise more than they hold."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest

from fedmia.settings.errors import InputError
from fedmia.untrusted.arrays import check_array, open_npz, read_npy


def test_array__honest_ones_of_any_shape_pass_and_one_byte_less_does_not() -> None:
    for array in (np.zeros(()), np.zeros((0, 3)), np.zeros((3, 4), np.uint8), np.array(["a"])):
        file = io.BytesIO()
        np.save(file, array)
        file.seek(0)
        check_array("a", file, len(file.getvalue()))
    file.seek(0)
    with pytest.raises(InputError, match="promises"):
        check_array("a", file, array.nbytes - 1)


@pytest.mark.parametrize("objects", [False, True])
def test_npy__from_a_file_or_from_bytes(tmp_path: Path, objects: bool) -> None:
    array = np.array([[1, 2]], dtype=object if objects else np.int16)
    np.save(path := tmp_path / "a.npy", array)
    for source in (path, path.read_bytes()):
        if objects:
            with pytest.raises(InputError, match="^a holds Python objects"):
                read_npy("a", source)
        else:
            assert np.array_equal(read_npy("a", source), array)
            with pytest.raises(ValueError, match="magic"):
                read_npy("a", b"PK")


def test_npz__is_an_archive_none_of_whose_arrays_promises_more_than_it_holds(
    tmp_path: Path,
) -> None:
    np.savez_compressed(path := tmp_path / "a.npz", x=np.arange(3), y=np.zeros(2))
    with open_npz("a", path) as archive:
        assert archive.files == ["x", "y"] and archive["x"].tolist() == [0, 1, 2]
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(tmp_path / "b.npz", "w") as target:
        text = source.read("x.npy").replace(b"(3,), } ", b"(99,), }")
        target.writestr("x.npy", text)
    with (
        pytest.raises(InputError, match=r"^b: x.npy promises \(99,\)"),
        open_npz("b", tmp_path / "b.npz"),
    ):
        pass
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ValueError, match="not an archive of arrays"), open_npz("a", path):
        pass


@pytest.mark.parametrize("name", ["../x", "/x", "a/../../x"])
def test_zip__names_that_lead_out(tmp_path: Path, name: str) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(name, b"x")
    with pytest.raises(InputError, match="leads out of the archive"), open_npz("a", path):
        pass


def test_npz__that_begins_as_one_array_is_read_as_the_archive_that_it_is(tmp_path: Path) -> None:
    """NumPy itself goes by the first bytes, here those of an array of terabytes."""
    np.savez(path := tmp_path / "a.npz", x=np.arange(3))
    header = io.BytesIO()
    shape = {"descr": "<f8", "fortran_order": False, "shape": (1 << 40,)}
    np.lib.format.write_array_header_1_0(header, shape)
    path.write_bytes(header.getvalue() + path.read_bytes())
    with pytest.raises((MemoryError, ValueError)):
        np.load(path)
    with open_npz("a", path) as archive:
        assert archive["x"].tolist() == [0, 1, 2]
