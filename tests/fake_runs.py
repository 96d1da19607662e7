"""Studies of runs that take no time: the Python that a study starts for each run is a tiny program,
which copies the report that a test planted for that run, or does what the test tells it."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fedmia import StudyResult, open_study
from tests.commands import PLAIN, Ran, fedmia

GOLDEN = Path(__file__).resolve().parent / "golden"
WRITTEN = ("study.json", "study.html", "table.csv", "table.parquet")  # of what compares the runs
RUN = """#!{python} -IS
import json, os, shutil, signal, sys, time
tell, flags = {tell!r}, sys.argv
folder = flags[flags.index("--resume" if "--resume" in flags else "--out") + 1]
name = os.path.basename(folder)
with open(os.path.join(tell, "begun"), "a") as begun:
    mine = ",".join(map(str, getattr(os, "sched_getaffinity", lambda _: ())(0)))
    how = "on" if "--resume" in flags else "anew"
    print(name, how, os.getpid(), os.environ.get("OMP_NUM_THREADS"), mine, file=begun)
if "--resume" not in flags:
    os.makedirs(os.path.join(folder, "recording"), exist_ok=True)
    shutil.copy(flags[flags.index("--config") + 1], os.path.join(folder, "config.yaml"))
how = os.path.join(tell, name)
if os.path.exists(how):
    exec(open(how).read())
planted = os.path.join(tell, name + ".json")
planted = planted if os.path.exists(planted) else {usual!r}
shutil.copy(planted, os.path.join(folder, "report.json"))
shutil.rmtree(os.path.join(folder, "checkpoint"), ignore_errors=True)
"""
Reports = Callable[[str], Any]  # name of a run -> its report, why it failed, or None: not run
Planted = Callable[..., StudyResult]


def golden(name: str = "active") -> dict[str, Any]:
    """A report of a real run, with the versions and the machine of another."""
    report: dict[str, Any] = json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))
    stored = json.loads((GOLDEN.parent / "stored/run/report.json").read_text(encoding="utf-8"))
    more = {"versions": stored["versions"] | {"commit": None}, "hardware": stored["hardware"]}
    return {"sets": [], **report, **more, "timing": {"total_s": 1.5}}


@contextmanager
def runs_of(tell: Path) -> Iterator[None]:
    """Inside, the runs of studies are tiny programs. `NAME` in the folder holds Python that the run
    of that name executes first, `NAME.json` its report; `begun` has a line a run that began: its
    name, `anew` or `on`, its process, its threads and its cores."""
    tell.mkdir(parents=True, exist_ok=True)
    usual, python = tell / "usual.json", tell / "python"
    if not python.exists():
        usual.write_text(json.dumps(golden()), encoding="utf-8")
        python.write_text(RUN.format(python=sys.executable, tell=str(tell), usual=str(usual)))
        python.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "executable", str(python))
        patch.delenv("OMP_NUM_THREADS", raising=False)
        yield


def begun(tell: Path) -> list[str]:
    """Names of the runs that began since the last call, in order."""
    file = tell / "begun"
    lines = file.read_text().splitlines() if file.exists() else []
    file.unlink(missing_ok=True)
    return [line.split()[0] for line in lines]


def about(out: Path) -> dict[str, Any]:
    """What study.json says."""
    content: dict[str, Any] = json.loads((out / "study.json").read_text(encoding="utf-8"))
    return content


class Studies:
    """Folders of studies whose runs are finished, with reports that tests plant.

    Args:
        root: a folder of its own.
    """

    def __init__(self, root: Path) -> None:
        self.root, self.made = root, dict[str, Path]()

    def folder(self, flags: str) -> Path:
        """A study of these settings, made once; to be read only."""
        if flags not in self.made:
            out, tell = self.root / str(len(self.made)), self.root / "tell"
            with runs_of(tell):
                bare = golden() | {"attacks": [], "paired": [], "controls": {}}
                bare["verdict_code"] = "collapsed"  # and no scores are read
                bare["utility"] |= {"knn": None, "linear": None}
                (tell / "usual.json").write_text(json.dumps(bare))  # there is nothing to draw
                ran = fedmia(["study", *shlex.split(flags), "--quiet"], out)
            assert ran.code == 0, ran.err
            for name in WRITTEN:
                (out / name).unlink()
            self.made[flags] = out
        return self.made[flags]

    def plant(self, flags: str, reports: Reports, out: Path) -> StudyResult:
        """A copy of that study whose runs have these reports, and which has compared nothing yet.

        Args:
            flags: settings of the study.
            reports: name of a run -> its report, the text that it printed when it failed, or None:
                it has not run.
            out: its folder, written anew.

        Returns:
            The study.
        """
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(self.folder(flags), out)
        for cell in (out / "cells").iterdir():
            report = reports(cell.name)
            if isinstance(report, Mapping):
                (cell / "report.json").write_text(json.dumps(report), encoding="utf-8")
                continue
            shutil.rmtree(cell)
            if report is not None:
                (out / "failed").mkdir(exist_ok=True)
                (out / "failed" / f"{cell.name}.log").write_text(report, encoding="utf-8")
        return open_study(out, trust_plugins=True)


def compare(out: Path, flags: str = "", wide: int = 120) -> Ran:
    """Let a study compare its finished runs again, and write its page; those that are not finished
    fail, as their log says."""
    tell = out.with_name(f"{out.name}-tell")
    tell.mkdir(exist_ok=True)
    for log in (out / "failed").glob("*.log"):
        (tell / log.stem).write_text(f"sys.exit({log.read_text(encoding='utf-8')!r})")
    with runs_of(tell), pytest.MonkeyPatch.context() as patch:
        patch.setitem(PLAIN, "COLUMNS", str(wide))
        return fedmia(["study", str(out / "config.yaml"), *shlex.split(flags)], out)


def tables(study: StudyResult, view: str | None = None) -> dict[str, list[dict[str, Any]]]:
    """Title of each table of a view -> its rows, each cell as text by its head."""
    name = next(iter(study.views)) if view is None else view
    found = {}
    for section in study.views[name].sections(study):
        table = section.table()
        heads = [head.text for head in table.head]
        found[section.title] = [dict(zip(heads, map(text_of, row), strict=True))
                                for row in table.rows]  # fmt: skip
    return found


def text_of(cell: Any) -> str:
    """A cell of a table in one line."""
    return cell if isinstance(cell, str) else " ".join((cell.text, *cell.small))
