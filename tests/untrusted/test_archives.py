"""Names in zip files that lead out of a folder."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from fedmia.settings.errors import InputError
from fedmia.untrusted.archives import check_zip


@pytest.mark.parametrize("name", ["../x", "/x", "a/../../x"])
def test_zip__names_that_lead_out(tmp_path: Path, name: str) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(name, b"x")
    with pytest.raises(InputError, match="leads out of the archive"):
        check_zip("a", path)
