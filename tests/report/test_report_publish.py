"""One way to publish a run: its report, its files, and what is printed."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmia.records import AttackSweep, RunScores, SweepPoint
from fedmia.report.build import build_report
from fedmia.report.figures import draw
from fedmia.report.publish import publish, show
from fedmia.runtime.stopwatch import PARTS, Stopwatch
from fedmia.statistics.auc import auc_estimate, auc_interval


def untimed(report: Any) -> dict[str, Any]:
    return {k: v for k, v in report.items() if k != "timing"}


def test_publish__report_files_and_the_seconds_of_both(
    run: RunScores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(draw, "draw_all", lambda scores, report: {"roc": b"picture"})
    timed = replace(run, timing={"by_attack": {"lpla": 1.23456789}})
    (tmp_path / "RUN").mkdir()
    report = publish(timed, tmp_path / "RUN", Stopwatch(time.perf_counter()))
    assert untimed(report) == untimed(build_report(run))
    assert list(report["timing"]) == [*PARTS, "total_s", "by_attack"]
    assert report["timing"]["by_attack"] == {"lpla": 1.234568}
    assert report["timing"]["report"] > 0
    files = sorted(p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*.*"))
    want = ["curves.npz", "figures/roc.png", "report.html", "report.json", "scores.csv"]
    want += ["table.csv", "table.parquet"]
    assert files == [f"RUN/{n}" for n in want]
    assert json.loads((tmp_path / "RUN" / "report.json").read_text()) == report


def test_publish__without_a_folder_draws_nothing(
    run: RunScores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(draw, "draw_all")
    assert list(publish(run, None, Stopwatch(time.perf_counter())))[-1] == "timing"


def test_sweep__rows_stand_before_the_timing_in_one_family(run: RunScores) -> None:
    attack = run.attacks[0]
    points = [SweepPoint("similarity", 4, 4, attack), SweepPoint("similarity", 9, not_run="few")]
    report = build_report(replace(run, sweep=AttackSweep("known", (4, 9), points)))
    assert list(report)[-2:] == ["sweep", "timing"]
    first, second = report["sweep"]
    assert list(first)[:5] == ["attack", "sweep", "value", "known", "name"]
    assert first["not_run"] is None and list(first)[-1] == "not_run"
    assert second == {
        "attack": "similarity", "sweep": "known", "value": 9, "known": None, "not_run": "few",
    }  # fmt: skip
    # Two values of four attacks, either side: wider than the four one-sided tests of the verdict.
    (low, high), (own_low, own_high) = (
        row["auc_ci_simultaneous"] for row in (first, report["attacks"][0])
    )
    assert low < own_low < first["auc_ci"][0] and first["auc_ci"][1] < own_high < high
    assert "sweep" not in build_report(replace(run, sweep=AttackSweep("known", (4, 9), [])))


def test_sweep__intervals_hold_for_all_values_of_all_attacks(run: RunScores) -> None:
    attack = run.attacks[0]
    points = [SweepPoint("similarity", value, value, attack) for value in (4, 9, 16)]
    found = build_report(replace(run, sweep=AttackSweep("known", (4, 9, 16), points)))["sweep"]
    want = auc_interval(auc_estimate(attack.scores_members, attack.scores_nonmembers), 0.95, 12)
    assert len(run.attacks) == 4 and len(found) == 3
    for row in found:
        assert row["not_run"] is None
        assert row["auc_ci_simultaneous"] == pytest.approx(want, abs=1e-6)


def test_sweep__a_broken_attack_is_named(run: RunScores) -> None:
    broken = replace(run.attacks[0], scores_members=np.full(112, np.nan))
    swept = AttackSweep("known", (4,), [SweepPoint("similarity", 4, 4, broken)])
    with pytest.raises(ValueError, match=r"'similarity' at 4: scores of members: 112 of 112"):
        build_report(replace(run, sweep=swept))


@pytest.mark.parametrize("folder", [None, Path("RUN")])
def test_show__json_verdict_or_tables(
    run: RunScores, folder: Path | None, capsys: pytest.CaptureFixture[str]
) -> None:
    report = build_report(run)
    show(report, folder, json=True, quiet=True)
    assert json.loads(capsys.readouterr().out) == report
    show(report, folder, json=False, quiet=True)
    assert capsys.readouterr().out == report["verdict"] + "\n"
    show(report, folder, json=False, quiet=False)
    out = capsys.readouterr().out
    assert " verdict " in out and ("Report: RUN/report.html" in out) == (folder is not None)
