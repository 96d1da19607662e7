"""Studies whose runs are tiny processes: they write a finished report, or break as told."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.commands import Ran, fedmia
from tests.fake_runs import Studies, golden, runs_of

ONE = "--attacks similarity --jobs 1 --seed 3 "
GRID = ONE + "--over strategy=fedavg,fedprox --seeds 2 "
NAMES = [f"strategy={s}_seed={i}" for i in (3, 4) for s in ("fedavg", "fedprox")]
Studying = Callable[..., Ran]


@pytest.fixture
def tell(tmp_path: Path) -> Iterator[Path]:
    """The folder in which a test tells runs what to do; see `runs_of`."""
    with runs_of(tmp_path / "tell"):
        yield tmp_path / "tell"


@pytest.fixture
def studying(tmp_path: Path, tell: Path) -> Studying:
    """`studying(flags)`: what a study into `OUT` did, whose runs have AUCs of strategy and seed."""
    for strategy in ("fedavg", "fedprox"):
        for seed in (3, 4):
            report, more = golden(), strategy == "fedprox"
            for row in report["attacks"]:
                row["auc"] = round(0.5 + 0.01 * seed + 0.1 * more, 6)
            pair = report["paired"][0] | {"difference": 0.01 * (1 + seed) * more}
            text = json.dumps(report | {"paired": [pair]})
            (tell / f"strategy={strategy}_seed={seed}.json").write_text(text, encoding="utf-8")

    def study(flags: str = GRID) -> Ran:
        return fedmia(["study", *shlex.split(flags), "--quiet"], tmp_path / "OUT")

    return study


@pytest.fixture(scope="session")
def studies(tmp_path_factory: pytest.TempPathFactory) -> Studies:
    """Finished studies, in copies of which tests plant reports."""
    return Studies(tmp_path_factory.mktemp("studies"))
