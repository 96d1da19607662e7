"""`scripts/names.py`: which files it reads, and which names it refuses."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize("folder", ["fedmia", "clients", "strategies", "docs/_ext", "docs"])
def test_names__refuses_participles_in_the_packages_and_in_the_sites_code(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = importlib.util.spec_from_file_location("names", ROOT / "scripts" / "names.py")
    assert spec is not None and spec.loader is not None
    names = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(names)
    monkeypatch.setattr(names, "ROOT", tmp_path)
    file = tmp_path / folder / "one.py"
    file.parent.mkdir(parents=True)
    file.write_text("images = 1\n")
    assert names.main() == 0
    file.write_text("found = 1\n")
    assert names.main() == 1
    assert f"{folder}/one.py:1: found" in capsys.readouterr().out
