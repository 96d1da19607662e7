"""Small runs on nodes of this process, beside the same runs inline."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fedmia.report.figures import draw
from strategies import replies
from tests.small_runs import simulate


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The nodes' disk; no figures are drawn, and nodes that left are soon looked for."""
    monkeypatch.setenv("FLWR_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(draw, "draw_all", lambda scores, report: {})
    monkeypatch.setattr(replies, "RECOUNT", 0.01)
    return tmp_path / "home" / "fedmia"


@pytest.fixture(scope="package")
def inline(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """`inline(flags)`: the folder of that run on the inline backend, made once."""
    folders: dict[str, Path] = {}

    def run(flags: str) -> Path:
        if flags not in folders:
            folders[flags] = tmp_path_factory.mktemp("inline") / "RUN"
            assert simulate(flags, folders[flags]) == 0
        return folders[flags]

    return run
