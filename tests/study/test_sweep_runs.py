"""Runs of a sweep: done once, side by side, gone on with, named where they break."""

from __future__ import annotations

import csv
import json
import os
import shutil
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from fedmia.cli.command import parse
from fedmia.cli.commands import SWEEP
from fedmia.options.errors import InputError
from fedmia.options.yamlfile import dump
from fedmia.runtime.cores import count_cores
from fedmia.runtime.progress import SweepDisplay
from fedmia.storage.durable import DiskError
from fedmia.study.folder import StudyFolder
from fedmia.study.formats import SweepReport
from fedmia.study.views.baseline import is_score
from fedmia.table import read
from tests.report.test_report_rows import wrong
from tests.snapshots import Snapshot
from tests.study.conftest import GRID, ONE, Sweeping, begun

NAMES = [f"strategy={s}_seed={i}" for i in (3, 4) for s in ("fedavg", "fedprox")]


def swept(out: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((out / "sweep.json").read_text(encoding="utf-8"))
    return content


def cells(out: Path) -> list[str]:
    return sorted(p.name for p in (out / "cells").iterdir())


def test_sweep__a_folder_a_run_and_what_compares_them(
    sweeping: Sweeping, tell: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "OUT"
    assert sweeping() == 0
    assert begun(tell) == NAMES  # all points at the first seed first
    assert cells(out) == sorted(NAMES)
    assert sorted(p.name for p in (out / "cells" / NAMES[0]).iterdir()) == [
        "config.yaml", "report.json", "settings.json",
    ]  # fmt: skip
    assert {p.name for p in out.iterdir()} == {
        ".lock", "cells", "config.yaml", "points.csv", "sweep.html", "sweep.json", "table.csv",
        "table.parquet",
    }  # fmt: skip
    report = swept(out)
    assert capsys.readouterr().out == report["sentence"] + "\n"
    assert not list(wrong(report, SweepReport, "sweep")) and list(report)[-1] == "timing"
    rows = report["cells"]
    assert [(r["grid"], r["seed"]) for r in rows] == [
        ({"strategy": s}, i) for s in ("fedavg", "fedprox") for i in (3, 4)
    ]
    assert all((out / r["path"] / "report.json").is_file() for r in rows)
    fedprox = report["points"][1]
    assert fedprox["finished"] == 2 and fedprox["verdicts"] == {"not-established": 2}
    auc = fedprox["attacks"][0]["auc"]
    assert (auc["n"], auc["mean"], auc["least"], auc["greatest"]) == (2, 0.635, 0.63, 0.64)
    (pair,) = fedprox["pairs"]
    assert pair["difference"]["mean"] == 0.045 and pair["p"] == pair["p_holm"] is not None
    (row,) = [r for r in report["differences"] if r["attack"] == "similarity"]
    assert (row["option"], row["first"], row["second"]) == ("strategy", "fedavg", "fedprox")
    assert row["difference"] == {"n": 2, "mean": 0.1, "ci": None, "sd": 0.0, "least": 0.1,
                                 "greatest": 0.1}  # fmt: skip
    # Every number of every run, and each over the models of its point.
    mine = [r for r in read(out) if r["point"] == "strategy=fedprox"
            and r["attack"] == "similarity" and r["metric"] == "auc" and is_score(r)]  # fmt: skip
    assert {r["run"] for r in read(out)} == {*NAMES}
    assert [(r["seed"], r["value"]) for r in mine] == [(3, 0.63), (4, 0.64)]
    with (out / "points.csv").open(encoding="utf-8", newline="") as file:
        mean = next(p for p in csv.DictReader(file) if p["point"] == "strategy=fedprox"
                    and p["metric"] == "auc" and p["attack"] == "similarity")  # fmt: skip
    assert (mean["n"], mean["mean"], mean["sd"], mean["control"]) == ("2", "0.635", "0.007071", "")
    assert float(mean["low"]) == pytest.approx(0.635 - 12.7062 * 0.005, abs=1e-5)
    # Again: nothing that is finished runs, and no other sweep, nor a second one at the same time.
    assert sweeping() == 0
    assert swept(out) == {**report, "timing": swept(out)["timing"]}
    fewer = ONE + "--grid strategy=fedavg --seeds 2"
    for flags in (fewer, GRID + "--rounds 2", ONE, GRID.replace("--seeds 2", "")):
        with pytest.raises(InputError, match="holds strategy=fed.*, which this sweep does not ask"):
            sweeping(flags)
    fcntl = pytest.importorskip("fcntl")
    with (out / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(InputError, match="another sweep is at work"):
            sweeping()
    assert begun(tell) == [] and cells(out) == sorted(NAMES)


@pytest.mark.slow
def test_again__only_what_is_new_or_what_a_kill_left_runs(
    sweeping: Sweeping, tell: Path, tmp_path: Path
) -> None:
    out = tmp_path / "OUT"
    assert sweeping(ONE) == 0 and begun(tell) == ["seed=3"]
    assert sweeping() == 0
    assert begun(tell) == NAMES[1:]  # fedavg at seed 3 is known by its settings, not its name
    (out / "unfinished").mkdir()
    # As if the sweep had been killed inside the last run, and another had been broken since.
    (out / "cells" / NAMES[3]).rename(out / "unfinished" / NAMES[3])
    (out / "cells" / NAMES[2] / "report.json").write_text('{"half": ')
    report = (out / "cells" / NAMES[1] / "report.json").stat()
    assert sweeping() == 0
    assert begun(tell) == NAMES[2:]
    assert (out / "cells" / NAMES[1] / "report.json").stat().st_mtime_ns == report.st_mtime_ns
    assert not (out / "unfinished").exists() and swept(out)["finished"] == 4


def test_again__an_unfinished_run_of_other_settings_is_not_gone_on_with(tmp_path: Path) -> None:
    """It has the name of a run that is asked for, and a checkpoint; another is gone on with."""
    settings = parse(SWEEP, [*GRID.split(), "--quiet", "--out", str(tmp_path)])
    sweep, tree = settings.settings, settings.settings.tree()
    folder = StudyFolder(tmp_path / "OUT", sweep, tree, lambda path: True)
    for cell, name in zip(sweep.cells[:2], NAMES, strict=False):
        made = folder.unfinished / name
        made.mkdir(parents=True)
        (made / "config.yaml").write_text(dump(cell.tree))
    other = {**sweep.cells[1].tree, "seed": 9}
    (folder.unfinished / NAMES[1] / "config.yaml").write_text(dump(other))
    with folder.locked():
        assert [p.name for p in folder.unfinished.iterdir()] == [NAMES[0]]


def test_out__of_something_else_is_refused(sweeping: Sweeping, tmp_path: Path) -> None:
    out = tmp_path / "OUT"
    out.mkdir()
    (out / "config.yaml").write_text("seed: 3\n")
    with pytest.raises(InputError, match="another run"):
        sweeping()
    assert [p.name for p in out.iterdir()] == ["config.yaml"]


BREAKS = {
    "raise ValueError('no images')": "ValueError: no images",
    "print('fedmia: error: split.members: 9 in', config); sys.exit(2)": "split.members: 9",
    "os.kill(os.getpid(), signal.SIGKILL)": "killed by SIGKILL (out of memory?)",
    "sys.exit(3)": "ended with exit code 3",
    "sys.exit(0)": "its report cannot be read",
    "open(folder + '/config.yaml', 'a').write('extra: 2')": "its report is of another run, or of a "
    "part of it",
}


@pytest.mark.slow
def test_broken_runs__are_named_left_out_and_tried_again(
    sweeping: Sweeping, tell: Path, tmp_path: Path
) -> None:
    out, flags = tmp_path / "OUT", ONE + f"--seeds {len(BREAKS) + 1} "
    broken = [f"seed={4 + i}" for i in range(len(BREAKS))]
    for name, how in zip(broken, BREAKS, strict=True):
        (tell / name).write_text(how)
    assert sweeping(flags.replace("--jobs 1", "--jobs 2")) == 1
    assert cells(out) == ["seed=3"]
    report = swept(out)
    assert not list(wrong(report, SweepReport, "sweep"))
    rows = [r for r in report["cells"] if r["state"] != "finished"]
    assert [r["name"] for r in rows] == broken and {r["state"] for r in rows} == {"failed"}
    assert [r["reason"] for r in rows] == list(BREAKS.values())
    (point,) = report["points"]
    auc = point["attacks"][0]["auc"]
    assert (auc["n"], auc["mean"], auc["ci"], point["failed"]) == (1, 0.53, None, len(BREAKS))
    assert broken[0] in (out / "sweep.html").read_text()
    assert (out / "failed" / f"{broken[0]}.log").is_file()
    begun(tell)
    for name in broken:
        (tell / name).unlink()
    assert sweeping(flags) == 0 and begun(tell) == broken
    assert not (out / "failed").exists()


def test_run_of_which_an_attack_failed__is_kept(
    sweeping: Sweeping, tell: Path, tmp_path: Path
) -> None:
    """It ends with exit code 1, and a whole report that names the attack."""
    ends = "import atexit; atexit.register(os._exit, 1); os.makedirs(folder + '/checkpoint')"
    (tell / "seed=3").write_text(ends)
    assert sweeping(ONE) == 0 and begun(tell) == ["seed=3"]
    assert swept(tmp_path / "OUT")["finished"] == 1
    assert not (tmp_path / "OUT" / "cells" / "seed=3" / "checkpoint").exists()
    assert sweeping(ONE) == 0 and begun(tell) == []


FULL = """
os.makedirs(os.path.join(folder, "checkpoint"))
open(os.path.join(folder, "checkpoint", "index.json"), "w").write("{}")
print("fedmia: the run failed: cannot write 'x': No space left on device")
sys.exit(74)
"""


@pytest.mark.slow
def test_full_disk__ends_the_study_in_one_line_and_what_was_begun_stays(
    sweeping: Sweeping, tell: Path, tmp_path: Path, snapshot: Snapshot
) -> None:
    """All other runs would fail as well, each after its rounds."""
    (tell / NAMES[1]).write_text(FULL)
    with pytest.raises(DiskError) as error:
        sweeping()
    snapshot(error.value)
    out = tmp_path / "OUT"
    assert begun(tell) == NAMES[:2] and cells(out) == NAMES[:1]
    assert (out / "unfinished" / NAMES[1] / "checkpoint" / "index.json").is_file()
    (tell / NAMES[1]).unlink()
    shutil.rmtree(out / "unfinished" / NAMES[1] / "recording")  # the next one makes them
    assert sweeping() == 0 and begun(tell) == NAMES[1:] and cells(out) == sorted(NAMES)


def test_interrupted__running_ones_are_ended_and_finished_ones_reported(
    sweeping: Sweeping, tell: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    stop, told = Event(), SweepDisplay.ended

    def ended(self: SweepDisplay, name: str, reason: str | None) -> None:
        told(self, name, reason)
        stop.set()

    monkeypatch.setattr(SweepDisplay, "ended", ended)
    (tell / NAMES[1]).write_text("time.sleep(600)")
    out = tmp_path / "OUT"
    assert sweeping(GRID.replace("--jobs 1", "--jobs 2"), stop) == 130
    assert cells(out) == [NAMES[0]] and swept(out)["not_run"] == 3
    assert "the same command again goes on" in capsys.readouterr().err
    assert not (out / "unfinished").exists()
    for line in (tell / "begun").read_text().splitlines():
        name, process = line.split()[:2]
        if name != NAMES[0]:
            with pytest.raises(ProcessLookupError):
                os.kill(int(process), 0)


@pytest.mark.slow
def test_jobs__side_by_side_with_the_threads_of_a_client_and_a_share_of_the_cores(
    sweeping: Sweeping, tell: Path
) -> None:
    wait = "while open(os.path.join(tell, 'begun')).read().count('\\n') < 2: time.sleep(0.01)"
    for name in NAMES[:2]:
        (tell / name).write_text(wait)  # the first ends only once the second has begun
    whole = count_cores()
    assert sweeping(GRID.replace("--jobs 1", "--jobs 2 --threads-per-client 3")) == 0
    lines = [line.split() for line in (tell / "begun").read_text().splitlines()]
    assert {line[2] for line in lines} == {"3"}
    if whole > 1 and hasattr(os, "sched_getaffinity"):
        shares = [set(line[3].split(",")) for line in lines]
        assert not shares[0] & shares[1]  # no core for two runs at once
        assert {len(share) for share in shares} <= {whole // 2, -(-whole // 2)}
    assert count_cores() == whole


def test_keep_snapshots__stay_where_asked(sweeping: Sweeping, tmp_path: Path) -> None:
    assert sweeping(ONE + "--keep-snapshots true") == 0
    assert (tmp_path / "OUT" / "cells" / "seed=3" / "recording").is_dir()
