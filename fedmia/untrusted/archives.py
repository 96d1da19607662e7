"""Zip files of others: what their directory promises, and the names in it."""

from __future__ import annotations

import zipfile
from pathlib import Path

from fedmia.settings.errors import InputError
from fedmia.untrusted.limits import check_unfolded


def check_zip(where: str, path: Path) -> list[zipfile.ZipInfo]:
    """The members of a zip file, whose directory promises no more than it may unfold to.

    Args:
        where: names the file.
        path: of the file.

    Returns:
        Its members.

    Raises:
        InputError: it promises more, or a member's name leads out of a folder.
        zipfile.BadZipFile: it is none.
    """
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
    check_unfolded(where, sum(m.file_size for m in members), path.stat().st_size)
    for member in members:
        if member.filename.startswith("/") or ".." in member.filename.split("/"):
            raise InputError(f"{where}: the name '{member.filename}' leads out of the archive")
    return members
