"""What a file is by its first bytes, where it cannot be what its name promises."""

from __future__ import annotations

from pathlib import Path

from fedmia.settings.errors import InputError

HEAD = 512  # bytes that are looked at
# What a file begins with, lower case -> what it is, and the way out.
MISFITS: dict[bytes | tuple[bytes, ...], str] = {
    b"version https://git-lfs": "a Git LFS pointer, not the file: `git lfs pull` fetches the file",
    b"/annex/objects/": "a git-annex pointer, not the file: `git annex get` fetches the file",
    (b"<!doctype html", b"<html", b"<?xml"): (
        "the page of a web server, saved in place of the file: download the file itself"
    ),
    b"\x1f\x8b": "compressed with gzip: unpack it, and give what it contains",
}


def name_misfit(head: bytes) -> str | None:
    """What a file with these first bytes is, with the way out.

    Args:
        head: its first bytes; 512 are enough.

    Returns:
        `a Git LFS pointer, not the file: ..`; None: nothing that is known to be out of place.
    """
    if not head:
        return "empty: fetch it again"
    start = head[:HEAD].removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    return next((text for begin, text in MISFITS.items() if start.startswith(begin)), None)


def check_file_type(path: Path, where: str = "") -> None:
    """Refuse a file that is a pointer, a web page, empty or compressed. Call it before any reader:
    `check_file_type(path, "parquet")`.

    Args:
        path: of a file of weights or of data. One that is missing or a folder passes.
        where: what the message begins with, without a colon; empty: the path.

    Raises:
        InputError: the file is one of these; the message says which, and the way out.
    """
    if not path.is_file():
        return
    try:
        with path.open("rb") as file:
            misfit = name_misfit(file.read(HEAD))
    except OSError as error:
        misfit = f"not readable: {error.strerror}"
    if misfit is not None:
        raise InputError(f"{where}: {path} is {misfit}" if where else f"{path} is {misfit}")
