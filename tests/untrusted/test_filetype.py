"""One look at the first bytes, before any reader."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from fedmia.settings.errors import InputError
from fedmia.untrusted.filetype import check_file_type

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:0a\nsize 12345\n"


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "empty"),
        (POINTER, "Git LFS pointer"),
        (b"/annex/objects/SHA256E-s3--0a\n", "git-annex pointer"),
        (b"\n <!DOCTYPE html>\n<html>", "page"),
        (b"\xef\xbb\xbf<HTML>", "page"),
        (b"<?xml version='1.0'?><Error><Code>AccessDenied</Code></Error>", "page"),
        (gzip.compress(b"images", mtime=0), "gzip"),
    ],
)
def test_what_is_no_file_of_data_is_named_with_its_place(
    tmp_path: Path, content: bytes, what: str
) -> None:
    file = tmp_path / "weights.pt"
    file.write_bytes(content)
    with pytest.raises(InputError) as refused:
        check_file_type(file, "checkpoint")
    assert str(refused.value).startswith(f"checkpoint: {file} is ")
    assert what in str(refused.value)


def test_a_file_of_data_passes_as_do_a_folder_and_none(tmp_path: Path) -> None:
    for content in (b"PK\x03\x04", b"PAR1", b"\x89PNG\r\n", b"\x80\x02}", b"\x08\x07"):
        (tmp_path / "file").write_bytes(content)
        check_file_type(tmp_path / "file")
    check_file_type(tmp_path)
    check_file_type(tmp_path / "absent")
