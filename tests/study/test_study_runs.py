"""Runs of a study: done once, side by side, gone on with, named where they break."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from fedmia import InputError, open_study
from tests.bank import Bank
from tests.commands import fedmia
from tests.fake_runs import Studies, about, begun, tables
from tests.snapshots import Snapshot
from tests.study.conftest import GRID, NAMES, ONE, Studying


def cells(out: Path) -> list[str]:
    return sorted(p.name for p in (out / "cells").iterdir())


def test_study__a_folder_a_run_and_what_compares_them(
    studying: Studying, tell: Path, tmp_path: Path
) -> None:
    out, ran = tmp_path / "OUT", studying()
    assert begun(tell) == NAMES  # all points at the first seed first
    assert cells(out) == sorted(NAMES)
    assert sorted(p.name for p in (out / "cells" / NAMES[0]).iterdir()) == [
        "config.yaml", "report.json", "settings.json",
    ]  # fmt: skip
    assert {p.name for p in out.iterdir()} == {
        "cells", "config.yaml", "figures", "study.html", "study.json", "table.csv", "table.parquet",
    }  # fmt: skip
    report, study = about(out), open_study(out)
    assert (report["views"], report["seeds"]) == (["sweep"], [3, 4])
    assert (ran.code, ran.out) == (0, report["sentence"] + "\n") and ran.err == ""
    assert [(c.grid, c.seed) for c in study.cells] == [
        ({"strategy": s}, i) for s in ("fedavg", "fedprox") for i in (3, 4)
    ]
    assert all((out / str(c.path) / "report.json").is_file() for c in study.cells)
    assert {*study.runs} == {c.name for c in study.cells} and not study.failed
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
    assert studying().code == 0
    assert about(out) == {**report, "timing": about(out)["timing"]}
    fewer = ONE + "--over strategy=fedavg --seeds 2"
    for flags in (fewer, GRID + "--rounds 2", ONE, GRID.replace("--seeds 2", "")):
        other = studying(flags)
        assert other.code == 2
        assert re.search("holds strategy=fed.*, which this study does not ask", other.err)
    fcntl = pytest.importorskip("fcntl")
    with (out / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        busy = studying()
    assert busy.code == 2 and "another command is at work" in busy.err
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
    assert studying(strong).code == 1 and begun(tell) == DEFENDED
    study = open_study(out)
    assert study.failed == {DEFENDED[4]: "ValueError: no images"}
    rows = tables(study)["Privacy and utility"]
    assert [(row["defence"], row["models"], row["failed"]) for row in rows] == [
        ("no defence", "2", "0"), ("fedprox", "1", "1"), ("gaussian scale=0.1", "2", "0"),
    ]  # fmt: skip
    (tell / DEFENDED[4]).unlink()
    assert studying(DEFENCES + "--strengths gaussian=0.1,0.2").code == 0
    assert begun(tell) == [
        "defense=gaussian_defense.scale=0.2_seed=3", DEFENDED[4],
        "defense=gaussian_defense.scale=0.2_seed=4",
    ]  # fmt: skip
    report = about(out)
    assert (report["finished"], report["failed"], report["views"]) == (8, 0, ["tradeoff", "sweep"])
    assert studying(str(out / "config.yaml")).code == 0 and begun(tell) == []  # its file repeats it
    again = about(out)
    assert again == report | {"timing": again["timing"]}


def test_bad_input__without_a_folder_is_exit_code_2() -> None:
    ran = fedmia("study --defenses gaussian")
    assert ran.code == 2 and "--out FOLDER" in ran.err


def test_again__only_what_is_new_or_what_a_kill_left_runs(
    studying: Studying, tell: Path, tmp_path: Path
) -> None:
    """A run that was begun is gone on with, unless it has the name of one that is asked for, and
    other settings."""
    out = tmp_path / "OUT"
    assert studying(ONE).code == 0 and begun(tell) == ["seed=3"]
    assert studying().code == 0
    assert begun(tell) == NAMES[1:]  # fedavg at seed 3 is known by its settings, not its name
    # As if it had been killed inside the last two, and another had been broken since.
    (out / "unfinished").mkdir()
    for name in NAMES[2:]:
        (out / "cells" / name).rename(out / "unfinished" / name)
        (out / "unfinished" / name / "checkpoint").mkdir()
        (out / "unfinished" / name / "checkpoint/index.json").write_text("{}")
    other = out / "unfinished" / NAMES[3] / "config.yaml"
    other.write_text(re.sub("(?m)^seed: 4$", "seed: 9", other.read_text()))
    (out / "cells" / NAMES[1] / "report.json").write_text('{"half": ')
    kept = (out / "cells" / "seed=3" / "report.json").stat()
    assert studying().code == 0
    lines = [line.split()[:2] for line in (tell / "begun").read_text().splitlines()]
    assert lines == [[NAMES[1], "anew"], [NAMES[2], "on"], [NAMES[3], "anew"]]
    assert (out / "cells" / "seed=3" / "report.json").stat().st_mtime_ns == kept.st_mtime_ns
    assert not (out / "unfinished").exists() and about(out)["finished"] == 4


def test_out__of_something_else_is_refused(studying: Studying, tmp_path: Path) -> None:
    out = tmp_path / "OUT"
    out.mkdir()
    (out / "config.yaml").write_text("seed: 3\n")
    ran = studying()
    assert ran.code == 2 and "another run" in ran.err
    assert [p.name for p in out.iterdir()] == ["config.yaml"]


BREAKS = {
    "raise ValueError('no images')": "ValueError: no images",
    "print('fedmia: error: split.members: 9 in', config); sys.exit(2)": "split.members: 9",
    "os.kill(os.getpid(), signal.SIGKILL)": "killed by SIGKILL (out of memory?)",
    "sys.exit(3)": "ended with exit code 3",
    "sys.exit(0)": "its report cannot be read",
    "open(folder + '/config.yaml', 'a').write('extra: 2')": "its report is of another run, or of a "
    "part of it",
    "whole = json.load(open(tell + '/usual.json'))\n"
    "json.dump({**whole, 'interrupted': 2}, open(f'{tell}/{name}.json', 'w'))": "its report is of "
    "another run, or of a part of it",
}


def test_broken_runs__are_named_left_out_and_tried_again(
    studying: Studying, tell: Path, tmp_path: Path
) -> None:
    out, flags = tmp_path / "OUT", ONE + f"--seeds {len(BREAKS) + 1} "
    broken = [f"seed={4 + i}" for i in range(len(BREAKS))]
    for name, how in zip(broken, BREAKS, strict=True):
        (tell / name).write_text(f"config = flags[flags.index('--config') + 1]\n{how}")
    assert studying(flags.replace("--jobs 1", "--jobs 2")).code == 1
    assert cells(out) == ["seed=3"]
    study = open_study(out)
    lost = [cell for cell in study.cells if cell.state != "finished"]
    assert [cell.name for cell in lost] == broken and {cell.state for cell in lost} == {"failed"}
    assert [cell.reason for cell in lost] == list(BREAKS.values())
    shown = tables(study)
    assert shown["Attacks"][0]["models"] == "1" and "[" not in shown["Attacks"][0]["mean AUC, 95 %"]
    assert shown["Utility and verdicts"][0]["failed"] == str(len(BREAKS))
    assert broken[0] in (out / "study.html").read_text()
    assert (out / "failed" / f"{broken[0]}.log").is_file()
    begun(tell)
    for name in broken:
        (tell / name).unlink()
        (tell / f"{name}.json").unlink(missing_ok=True)
    assert studying(flags).code == 0 and begun(tell) == broken
    assert not (out / "failed").exists()


@pytest.mark.parametrize("keep", [False, True])
def test_run_of_which_an_attack_failed__is_kept(
    keep: bool, studying: Studying, tell: Path, tmp_path: Path
) -> None:
    """It ends with exit code 1, and a whole report that names the attack; its models stay where
    asked."""
    ends = "import atexit; atexit.register(os._exit, 1); os.makedirs(folder + '/recording/models')"
    (tell / "seed=3").write_text(ends)
    flags = ONE + "--keep-snapshots true" * keep
    assert studying(flags).code == 0 and begun(tell) == ["seed=3"]
    report = about(tmp_path / "OUT")
    assert report["finished"] == 1
    assert report["notes"][0].startswith("One seed: there is no interval between models.")
    assert (tmp_path / "OUT" / "cells" / "seed=3" / "recording").exists() == keep
    assert studying(flags).code == 0 and begun(tell) == []


FULL = """
os.makedirs(os.path.join(folder, "checkpoint"))
open(os.path.join(folder, "checkpoint", "index.json"), "w").write("{}")
print("fedmia: the run failed: cannot write 'x': No space left on device")
sys.exit(74)
"""


def test_full_disk__ends_the_study_in_one_line_and_what_was_begun_stays(
    studying: Studying, tell: Path, tmp_path: Path, snapshot: Snapshot
) -> None:
    """All other runs would fail as well, each after its rounds."""
    (tell / NAMES[1]).write_text(FULL)
    ran = studying()
    assert ran.code == 74
    snapshot(ran.err)
    out = tmp_path / "OUT"
    assert begun(tell) == NAMES[:2] and cells(out) == NAMES[:1]
    assert (out / "unfinished" / NAMES[1] / "checkpoint" / "index.json").is_file()
    (tell / NAMES[1]).unlink()
    assert studying().code == 0 and cells(out) == sorted(NAMES)
    assert (tell / "begun").read_text().startswith(f"{NAMES[1]} on ")


def test_interrupted__running_ones_are_ended_and_finished_ones_reported(
    studying: Studying, tell: Path, tmp_path: Path
) -> None:
    """By Ctrl-C, once the first run is finished."""
    out = tmp_path / "OUT"
    (tell / NAMES[1]).write_text(
        f"while not os.path.exists({str(out / 'cells' / NAMES[0])!r}): time.sleep(0.01)\n"
        "os.kill(os.getppid(), signal.SIGINT)\ntime.sleep(600)"
    )
    (tell / NAMES[2]).write_text("time.sleep(600)")
    ran = studying(GRID.replace("--jobs 1", "--jobs 2"))
    assert ran.code == 130 and "the same command again goes on" in ran.err
    assert cells(out) == [NAMES[0]] and about(out)["not_run"] == 3
    assert not (out / "unfinished").exists()
    for line in (tell / "begun").read_text().splitlines():
        name, _, process = line.split()[:3]
        if name != NAMES[0]:
            with pytest.raises(ProcessLookupError):
                os.kill(int(process), 0)


def test_jobs__side_by_side_with_the_threads_of_a_client_and_a_share_of_the_cores(
    studying: Studying, tell: Path
) -> None:
    wait = "while open(os.path.join(tell, 'begun')).read().count('\\n') < 2: time.sleep(0.01)"
    for name in NAMES[:2]:
        (tell / name).write_text(wait)  # the first ends only once the second has begun
    whole = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
    assert studying(GRID.replace("--jobs 1", "--jobs 2 --threads-per-client 3")).code == 0
    lines = [line.split() for line in (tell / "begun").read_text().splitlines()]
    assert {line[3] for line in lines} == {"3"}
    if len(whole) > 1:
        shares = [set(line[4].split(",")) for line in lines]
        assert not shares[0] & shares[1]  # no core for two runs at once
        assert {len(share) for share in shares} <= {len(whole) // 2, -(-len(whole) // 2)}
        assert os.sched_getaffinity(0) == whole


def test_unfinished__opens_as_far_as_it_is(studying: Studying, tell: Path, tmp_path: Path) -> None:
    """Before `study.json` is there, and after it where runs were added since."""
    out = tmp_path / "OUT"
    (tell / NAMES[2]).write_text("raise ValueError('no images')")
    assert studying().code == 1
    whole = open_study(out).table
    written = about(out)
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
    assert [row["models"] for row in tables(study)["Utility and verdicts"]] == ["1", "1"]
    assert "similarity" in study.to_latex()
    assert sorted(out.rglob("*")) == before  # nothing was written
    # A study.json that knows of fewer runs than have ended since.
    written["cells"] = [cell for cell in written["cells"] if cell["name"] != NAMES[0]]
    (out / "study.json").write_text(json.dumps(written))
    assert {cell.name for cell in open_study(out).cells} == {*NAMES}


def test_unfinished__of_no_run_yet_says_so(studies: Studies, tmp_path: Path) -> None:
    study = studies.plant(GRID, lambda name: None, tmp_path / "OUT")
    assert study.sentence == "0 of 4 runs are finished; 0 of them leak membership."
    assert list(study.failed.values()) == ["not run"] * 4 and study.table.empty
    with pytest.raises(InputError, match="no data"):
        study.figure("attacks")
    for wrong in (tmp_path / "none", tmp_path):
        with pytest.raises(InputError, match=r"is no study: no study.json in it"):
            open_study(wrong)


def test_shared_study__its_files_agree(bank: Bank) -> None:
    """A study of real runs: table.csv, study.json, the page and each report say the same."""
    out = bank.run("studied")
    study, frame = open_study(out), about(out)
    assert frame["finished"] == 2 and study.failed == {}
    for name, run in study.runs.items():
        report = json.loads((out / "cells" / name / "report.json").read_text(encoding="utf-8"))
        assert report["config"]["strategy"]["name"] in name
        mine = study.table[study.table["run"] == name]
        of = {row["name"]: row["auc"] for row in report["attacks"]}
        aucs = mine[(mine["metric"] == "auc") & (mine["subject"] == "attack")]
        aucs = aucs[aucs["control"].isna()].set_index("attack")["value"]
        assert aucs.to_dict() == pytest.approx(of) and len(of) == 1
        assert run.scores["similarity"].notna().all()
    rows = {row["point"]: row for row in tables(study)["Attacks, by point"]}
    page = (out / "study.html").read_text(encoding="utf-8")
    for (point, _), by_seed in study.values("auc", "attack").items():
        mean = f"{np.mean([*by_seed.values()]):.3f}"
        assert rows[point]["mean AUC, 95 %"].startswith(mean) and mean in page
        assert {*by_seed} == {0}
