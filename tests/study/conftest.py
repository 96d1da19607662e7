"""Studies whose runs are tiny processes: they write a finished report, or break as told."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Event

import pytest

from fedmia.cli.command import parse
from fedmia.cli.commands import STUDY
from fedmia.study.command import run_command
from fedmia.study.views.sweep import SweepView
from fedmia.study.views.tradeoff import TradeoffView

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "active.json"
# config.yaml as it was given, a golden report with AUCs moved by the seed, one line in `done`.
RUN = """
import json, os, shutil, signal, sys, time
golden, tell, config, folder = sys.argv[1:]
name = os.path.basename(folder)
with open(os.path.join(tell, "begun"), "a") as begun:
    mine = ",".join(map(str, getattr(os, "sched_getaffinity", lambda _: ())(0)))
    print(name, os.getpid(), os.environ["OMP_NUM_THREADS"], mine, file=begun)
os.makedirs(os.path.join(folder, "recording"))
shutil.copy(config, os.path.join(folder, "config.yaml"))
how = os.path.join(tell, name)
if os.path.exists(how):
    exec(open(how).read())
text = open(config).read()
seed = int(text.partition("seed: ")[2].split()[0])
prox = "name: fedprox" in text
report = json.load(open(golden))
for row in report["attacks"]:
    row["auc"] = round(0.5 + 0.01 * seed + 0.1 * prox, 6)
report.setdefault("sets", [])
report["paired"] = report["paired"][:1]
report["paired"][0]["difference"] = 0.01 * (1 + seed) * prox
stored = os.path.join(os.path.dirname(golden), "..", "stored", "run", "report.json")
stored = json.load(open(stored))
report["versions"] = stored["versions"] | {"commit": None}
report["hardware"] = stored["hardware"]
report["timing"] = {"total_s": 1.5}
json.dump(report, open(os.path.join(folder, "report.json"), "w"))
"""
ONE = "--attacks similarity --jobs 1 --seed 3 "
GRID = ONE + "--over strategy=fedavg,fedprox --seeds 2 "
Studying = Callable[..., int]


@pytest.fixture
def tell(tmp_path: Path) -> Path:
    """Folder of what each run shall do, `NAME` holding its Python, and of `begun`: one line a run
    that began, with its process, its threads and its cores."""
    made = tmp_path / "tell"
    made.mkdir()
    return made


def start_of(tell: Path) -> Callable[[Path, Path], Sequence[str]]:
    """What makes the command line of a run."""

    def start(config: Path, folder: Path) -> Sequence[str]:
        own = [str(GOLDEN), str(tell), str(config), str(folder)]
        return [sys.executable, "-I", "-S", "-c", RUN, *own]

    return start


@pytest.fixture
def studying(tmp_path: Path, tell: Path, monkeypatch: pytest.MonkeyPatch) -> Studying:
    """`studying(flags, stop=..)`: the exit code of a study into `OUT`, without figures."""
    for view in (SweepView, TradeoffView):
        monkeypatch.setattr(view, "figures", lambda self, study: {})
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)

    def study(flags: str = GRID, stop: Event | None = None) -> int:
        words = [*shlex.split(flags), "--quiet", "--out", str(tmp_path / "OUT")]
        return run_command(parse(STUDY, words), stop or Event(), start_of(tell))

    return study


def begun(tell: Path) -> list[str]:
    """Names of the runs that began since the last call, in order."""
    file = tell / "begun"
    lines = file.read_text().splitlines() if file.exists() else []
    file.unlink(missing_ok=True)
    return [line.split()[0] for line in lines]
