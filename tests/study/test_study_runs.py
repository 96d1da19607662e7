"""Runs of a study: done once, side by side, gone on with, named where they break."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from fedmia import open_study
from fedmia.cli.command import parse
from fedmia.cli.commands import STUDY
from fedmia.runtime.cores import count_cores
from fedmia.runtime.progress import StudyDisplay
from fedmia.settings.errors import InputError
from fedmia.settings.yamlfile import dump
from fedmia.storage.durable import DiskError
from fedmia.study.__main__ import main
from fedmia.study.folder import StudyFolder
from fedmia.study.rows import OverModels
from fedmia.study.views import sweep, tradeoff
from tests.snapshots import Snapshot
from tests.study.conftest import GRID, ONE, Studying, begun

NAMES = [f"strategy={s}_seed={i}" for i in (3, 4) for s in ("fedavg", "fedprox")]


def about(out: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((out / "study.json").read_text(encoding="utf-8"))
    return content


def cells(out: Path) -> list[str]:
    return sorted(p.name for p in (out / "cells").iterdir())


def test_study__a_folder_a_run_and_what_compares_them(
    studying: Studying, tell: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "OUT"
    assert studying() == 0
    assert begun(tell) == NAMES  # all points at the first seed first
    assert cells(out) == sorted(NAMES)
    assert sorted(p.name for p in (out / "cells" / NAMES[0]).iterdir()) == [
        "config.yaml", "report.json", "settings.json",
    ]  # fmt: skip
    assert {p.name for p in out.iterdir()} == {
        "cells", "config.yaml", "study.html", "study.json", "table.csv", "table.parquet",
    }  # fmt: skip
    report, study = about(out), open_study(out)
    assert capsys.readouterr().out == report["sentence"] + "\n" == study.sentence + "\n"
    assert [(c.grid, c.seed) for c in study.cells] == [
        ({"strategy": s}, i) for s in ("fedavg", "fedprox") for i in (3, 4)
    ]
    assert all((out / str(c.path) / "report.json").is_file() for c in study.cells)
    assert {*study.runs} == {c.name for c in study.cells} and not study.failed
    fedprox = sweep.point_rows(study)[1]
    assert fedprox.finished == 2 and fedprox.verdicts == {"not-established": 2}
    aucs = {(r.point, r.attack): r.auc for r in sweep.attack_rows(study)}
    auc = aucs["strategy=fedprox", "similarity"]
    assert (auc.n, auc.mean, auc.least, auc.greatest) == (2, 0.635, 0.63, 0.64)
    pairs, _ = sweep.control_rows(study)
    (pair,) = [row for row in pairs if row.point == "strategy=fedprox"]
    assert pair.difference.mean == 0.045 and pair.p == pair.p_holm is not None
    (row,) = [r for r in sweep.differences(study) if r.attack == "similarity"]
    assert (row.option, row.first, row.second) == ("strategy", "fedavg", "fedprox")
    assert row.difference == OverModels(
        n=2, mean=0.1, ci=None, ci_simultaneous=None, sd=0.0, least=0.1, greatest=0.1, void=""
    )
    # Every number of every run, and each over the models of its point.
    mine = study.select("auc", point="strategy=fedprox", attack="similarity")
    assert {*study.table["run"]} == {*NAMES}
    assert [*zip(mine["seed"], mine["value"], strict=True)] == [(3, 0.63), (4, 0.64)]
    means = study.points
    (mean,) = means[
        (means["point"] == "strategy=fedprox") & (means["attack"] == "similarity")
        & (means["metric"] == "auc") & (means["subject"] == "attack") & means["control"].isna()
    ].to_dict("records")  # fmt: skip
    assert (mean["n"], mean["mean"], mean["sd"]) == (2, 0.635, 0.007071)
    assert mean["low"] == pytest.approx(0.635 - 12.7062 * 0.005, abs=1e-5)
    # Again: nothing that is finished runs, and no other study, nor a second one at the same time.
    assert studying() == 0
    assert about(out) == {**report, "timing": about(out)["timing"]}
    fewer = ONE + "--over strategy=fedavg --seeds 2"
    for flags in (fewer, GRID + "--rounds 2", ONE, GRID.replace("--seeds 2", "")):
        with pytest.raises(InputError, match="holds strategy=fed.*, which this study does not ask"):
            studying(flags)
    fcntl = pytest.importorskip("fcntl")
    with (out / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(InputError, match="another command is at work"):
            studying()
    assert begun(tell) == [] and cells(out) == sorted(NAMES)


DEFENCES = "--attacks similarity --jobs 1 --seed 3 --seeds 2 --defenses fedprox,gaussian "
POINTS = ("defense=none", "strategy=fedprox", "defense=gaussian_defense.scale=0.1")
DEFENDED = [f"{point}_seed={seed}" for seed in (3, 4) for point in POINTS]


@pytest.mark.slow
def test_defences__runs_what_is_new_and_fails_by_name(
    studying: Studying, tell: Path, tmp_path: Path
) -> None:
    out, strong = tmp_path / "OUT", DEFENCES + "--strengths gaussian=0.1"
    (tell / DEFENDED[4]).write_text("raise ValueError('no images')")
    assert studying(strong) == 1 and begun(tell) == DEFENDED
    page = (out / "study.html").read_text(encoding="utf-8")
    sections = set(re.findall(r'section id="([^"]+)"', page))
    assert sections and sections == set(re.findall(r'href="#([^"]+)"', page))
    study = open_study(out)
    aucs = {point: dict(by_seed) for (point, _), by_seed in
            study.values("auc", "attack", attack="similarity").items()}  # fmt: skip
    assert aucs == {
        "no defence": {3: 0.53, 4: 0.54}, "fedprox": {3: 0.63},
        "gaussian scale=0.1": {3: 0.53, 4: 0.54},
    }  # fmt: skip
    assert study.failed == {DEFENDED[4]: "ValueError: no images"}
    assert [row.failed for row in tradeoff.point_rows(study)] == [0, 1, 0]
    (tell / DEFENDED[4]).unlink()
    assert studying(DEFENCES + "--strengths gaussian=0.1,0.2") == 0
    assert begun(tell) == [
        "defense=gaussian_defense.scale=0.2_seed=3", DEFENDED[4],
        "defense=gaussian_defense.scale=0.2_seed=4",
    ]  # fmt: skip
    report = about(out)
    assert (report["finished"], report["failed"], report["views"]) == (8, 0, ["tradeoff", "sweep"])
    assert studying(str(out / "config.yaml")) == 0 and begun(tell) == []  # its file repeats it
    again = about(out)
    assert again == report | {"timing": again["timing"]}
    flags = "--attacks similarity --attacker passive --federation.snapshots 1 --seed 3 --seeds 2 "
    with pytest.raises(InputError, match="does not ask for"):
        studying(flags + "--over defense=none,gaussian")
    assert begun(tell) == []


def test_bad_input__without_a_folder_is_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--defenses", "gaussian"]) == 2
    assert "--out FOLDER" in capsys.readouterr().err


@pytest.mark.slow
def test_again__only_what_is_new_or_what_a_kill_left_runs(
    studying: Studying, tell: Path, tmp_path: Path
) -> None:
    out = tmp_path / "OUT"
    assert studying(ONE) == 0 and begun(tell) == ["seed=3"]
    assert studying() == 0
    assert begun(tell) == NAMES[1:]  # fedavg at seed 3 is known by its settings, not its name
    (out / "unfinished").mkdir()
    # As if the sweep had been killed inside the last run, and another had been broken since.
    (out / "cells" / NAMES[3]).rename(out / "unfinished" / NAMES[3])
    (out / "cells" / NAMES[2] / "report.json").write_text('{"half": ')
    report = (out / "cells" / NAMES[1] / "report.json").stat()
    assert studying() == 0
    assert begun(tell) == NAMES[2:]
    assert (out / "cells" / NAMES[1] / "report.json").stat().st_mtime_ns == report.st_mtime_ns
    assert not (out / "unfinished").exists() and about(out)["finished"] == 4


def test_again__an_unfinished_run_of_other_settings_is_not_gone_on_with(tmp_path: Path) -> None:
    """It has the name of a run that is asked for, and a checkpoint; another is gone on with."""
    settings = parse(STUDY, [*GRID.split(), "--quiet", "--out", str(tmp_path)]).settings
    runs = settings.cells
    (tmp_path / "OUT").mkdir()
    (tmp_path / "OUT/config.yaml").write_text(dump(settings.tree()))
    folder = StudyFolder(tmp_path / "OUT", runs, settings)
    for cell, name in zip(runs[:2], NAMES, strict=False):
        made = folder.unfinished / name
        (made / "checkpoint").mkdir(parents=True)
        (made / "checkpoint/index.json").write_text("{}")
        (made / "config.yaml").write_text(dump(cell.tree))
    other = {**runs[1].tree, "seed": 9}
    (folder.unfinished / NAMES[1] / "config.yaml").write_text(dump(other))
    with folder.locked():
        assert [p.name for p in folder.unfinished.iterdir()] == [NAMES[0]]


def test_out__of_something_else_is_refused(studying: Studying, tmp_path: Path) -> None:
    out = tmp_path / "OUT"
    out.mkdir()
    (out / "config.yaml").write_text("seed: 3\n")
    with pytest.raises(InputError, match="another run"):
        studying()
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
    studying: Studying, tell: Path, tmp_path: Path
) -> None:
    out, flags = tmp_path / "OUT", ONE + f"--seeds {len(BREAKS) + 1} "
    broken = [f"seed={4 + i}" for i in range(len(BREAKS))]
    for name, how in zip(broken, BREAKS, strict=True):
        (tell / name).write_text(how)
    assert studying(flags.replace("--jobs 1", "--jobs 2")) == 1
    assert cells(out) == ["seed=3"]
    study = open_study(out)
    lost = [cell for cell in study.cells if cell.state != "finished"]
    assert [cell.name for cell in lost] == broken and {cell.state for cell in lost} == {"failed"}
    assert [cell.reason for cell in lost] == list(BREAKS.values())
    (auc, *_) = [row.auc for row in sweep.attack_rows(study)]
    (point,) = sweep.point_rows(study)
    assert (auc.n, auc.mean, auc.ci, point.failed) == (1, 0.53, None, len(BREAKS))
    assert broken[0] in (out / "study.html").read_text()
    assert (out / "failed" / f"{broken[0]}.log").is_file()
    begun(tell)
    for name in broken:
        (tell / name).unlink()
    assert studying(flags) == 0 and begun(tell) == broken
    assert not (out / "failed").exists()


def test_run_of_which_an_attack_failed__is_kept(
    studying: Studying, tell: Path, tmp_path: Path
) -> None:
    """It ends with exit code 1, and a whole report that names the attack."""
    ends = "import atexit; atexit.register(os._exit, 1); os.makedirs(folder + '/checkpoint')"
    (tell / "seed=3").write_text(ends)
    assert studying(ONE) == 0 and begun(tell) == ["seed=3"]
    assert about(tmp_path / "OUT")["finished"] == 1
    assert not (tmp_path / "OUT" / "cells" / "seed=3" / "checkpoint").exists()
    assert studying(ONE) == 0 and begun(tell) == []


FULL = """
os.makedirs(os.path.join(folder, "checkpoint"))
open(os.path.join(folder, "checkpoint", "index.json"), "w").write("{}")
print("fedmia: the run failed: cannot write 'x': No space left on device")
sys.exit(74)
"""


@pytest.mark.slow
def test_full_disk__ends_the_study_in_one_line_and_what_was_begun_stays(
    studying: Studying, tell: Path, tmp_path: Path, snapshot: Snapshot
) -> None:
    """All other runs would fail as well, each after its rounds."""
    (tell / NAMES[1]).write_text(FULL)
    with pytest.raises(DiskError) as error:
        studying()
    snapshot(error.value)
    out = tmp_path / "OUT"
    assert begun(tell) == NAMES[:2] and cells(out) == NAMES[:1]
    assert (out / "unfinished" / NAMES[1] / "checkpoint" / "index.json").is_file()
    (tell / NAMES[1]).unlink()
    shutil.rmtree(out / "unfinished" / NAMES[1] / "recording")  # the next one makes them
    assert studying() == 0 and begun(tell) == NAMES[1:] and cells(out) == sorted(NAMES)


def test_interrupted__running_ones_are_ended_and_finished_ones_reported(
    studying: Studying, tell: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    stop, told = Event(), StudyDisplay.ended

    def ended(self: StudyDisplay, name: str, reason: str | None) -> None:
        told(self, name, reason)
        stop.set()

    monkeypatch.setattr(StudyDisplay, "ended", ended)
    (tell / NAMES[1]).write_text("time.sleep(600)")
    out = tmp_path / "OUT"
    assert studying(GRID.replace("--jobs 1", "--jobs 2"), stop) == 130
    assert cells(out) == [NAMES[0]] and about(out)["not_run"] == 3
    assert "the same command again goes on" in capsys.readouterr().err
    assert not (out / "unfinished").exists()
    for line in (tell / "begun").read_text().splitlines():
        name, process = line.split()[:2]
        if name != NAMES[0]:
            with pytest.raises(ProcessLookupError):
                os.kill(int(process), 0)


@pytest.mark.slow
def test_jobs__side_by_side_with_the_threads_of_a_client_and_a_share_of_the_cores(
    studying: Studying, tell: Path
) -> None:
    wait = "while open(os.path.join(tell, 'begun')).read().count('\\n') < 2: time.sleep(0.01)"
    for name in NAMES[:2]:
        (tell / name).write_text(wait)  # the first ends only once the second has begun
    whole = count_cores()
    assert studying(GRID.replace("--jobs 1", "--jobs 2 --threads-per-client 3")) == 0
    lines = [line.split() for line in (tell / "begun").read_text().splitlines()]
    assert {line[2] for line in lines} == {"3"}
    if whole > 1 and hasattr(os, "sched_getaffinity"):
        shares = [set(line[3].split(",")) for line in lines]
        assert not shares[0] & shares[1]  # no core for two runs at once
        assert {len(share) for share in shares} <= {whole // 2, -(-whole // 2)}
    assert count_cores() == whole


def test_unfinished__opens_as_far_as_it_is(studying: Studying, tell: Path, tmp_path: Path) -> None:
    """Before `study.json` is there, and after it where runs were added since."""
    out = tmp_path / "OUT"
    (tell / NAMES[2]).write_text("raise ValueError('no images')")
    assert studying() == 1
    whole = open_study(out).table
    written = json.loads((out / "study.json").read_text())
    for file in ("study.json", "study.html", "table.parquet", "table.csv"):
        (out / file).unlink()
    shutil.rmtree(out / "cells" / NAMES[3])
    (out / "unfinished" / NAMES[3]).mkdir(parents=True)
    before = sorted(out.rglob("*"))
    study = open_study(out)
    assert [cell.state for cell in study.cells] == ["finished", "failed", "finished", "not run"]
    assert study.failed == {NAMES[2]: "ValueError: no images", NAMES[3]: "not run"}
    assert study.sentence.startswith("2 of 4 runs are finished")
    assert study.about["notes"][-1] == f"Left out of every mean: {NAMES[2]}, {NAMES[3]}."
    known = whole[whole["run"] != NAMES[3]].reset_index(drop=True)
    assert study.table.astype(str).equals(known.astype(str))
    assert {row.point: row.finished for row in sweep.point_rows(study)} == {
        "strategy=fedavg": 1, "strategy=fedprox": 1
    }  # fmt: skip
    assert "similarity" in study.to_latex()
    assert sorted(out.rglob("*")) == before  # nothing was written
    # A study.json that knows of fewer runs than have ended since.
    written["cells"] = [cell for cell in written["cells"] if cell["name"] != NAMES[0]]
    (out / "study.json").write_text(json.dumps(written))
    assert {cell.name for cell in open_study(out).cells} == {*NAMES}


def test_unfinished__of_no_run_yet_says_so(tmp_path: Path) -> None:
    (tmp_path / "OUT").mkdir()
    settings = parse(STUDY, [*GRID.split(), "--quiet", "--out", str(tmp_path)]).settings
    (tmp_path / "OUT/config.yaml").write_text(dump(settings.tree()))
    study = open_study(tmp_path / "OUT")
    assert study.sentence == "0 of 4 runs are finished; 0 of them leak membership."
    assert list(study.failed.values()) == ["not run"] * 4 and study.table.empty
    for wrong in (tmp_path / "none", tmp_path):
        with pytest.raises(InputError, match="is no study: no study.json in it"):
            open_study(wrong)


def test_keep_snapshots__stay_where_asked(studying: Studying, tmp_path: Path) -> None:
    assert studying(ONE + "--keep-snapshots true") == 0
    assert (tmp_path / "OUT" / "cells" / "seed=3" / "recording").is_dir()
