"""Every stored sentence belongs to a test that there is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.snapshots import ROOT, read_snapshots

FILES = sorted((ROOT / "tests").rglob("snapshots.yaml"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.parent.name)
def test_no_sentence_is_left_over(file: Path) -> None:
    names = {name.partition("[")[0] for name in read_snapshots(file)}
    for test, _, function in (name.partition("::") for name in names):
        assert f"def {function.rpartition('::')[2]}(" in (file.parent / test).read_text()
