"""One way to publish a run: its report, its files, and what is printed."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from fedmia.records import Evaluation
from fedmia.records.rows import Report
from fedmia.report.publish import json_text, publish, show
from fedmia.runtime.stopwatch import PARTS, Stopwatch


def untimed(report: Report) -> Report:
    return replace(report, timing={})


def test_publish__report_files_and_the_seconds_of_both(
    run: Evaluation, report: Report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = "matplotlib.figure.Figure.savefig"
    monkeypatch.setattr(saved, lambda self, file, **how: file.write(b"picture"))
    timed = replace(run, timing={"by_attack": {"lpla": 1.23456789}})
    (tmp_path / "RUN").mkdir()
    made = publish(timed, tmp_path / "RUN", Stopwatch(time.perf_counter()))
    assert untimed(made) == untimed(report)
    assert list(made.timing) == [*PARTS, "total_s", "by_attack"]
    assert made.timing["by_attack"] == {"lpla": 1.234568}
    assert made.timing["report"] > 0
    files = sorted(p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*.*"))
    figures = [name for name in files if name.startswith("RUN/figures/")]
    assert {"RUN/figures/roc.pdf", "RUN/figures/roc.png"} < {*figures}
    assert {(tmp_path / name).read_bytes() for name in figures} == {b"picture"}
    want = [
        "curves.npz",
        "exposed.csv",
        "report.html",
        "report.json",
        "scores.csv",
    ]
    want += ["table.csv", "table.parquet"]
    assert [name for name in files if name not in figures] == [f"RUN/{n}" for n in want]
    assert (tmp_path / "RUN" / "report.json").read_text() == json_text(made)


def test_publish__without_a_folder_draws_nothing(
    run: Evaluation, report: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("matplotlib.figure.Figure.savefig")
    made = publish(run, None, Stopwatch(time.perf_counter()))
    assert untimed(made) == untimed(report)
    assert [*made.timing][: len(PARTS) + 1] == [*PARTS, "total_s"]


@pytest.mark.parametrize("folder", [None, Path("RUN")])
def test_show__json_verdict_or_tables(
    report: Report, folder: Path | None, capsys: pytest.CaptureFixture[str]
) -> None:
    show(report, folder, json=True, quiet=True)
    assert capsys.readouterr().out == json_text(report)
    show(report, folder, json=False, quiet=True)
    assert capsys.readouterr().out == report.verdict + "\n"
    show(report, folder, json=False, quiet=False)
    out = capsys.readouterr().out
    assert " verdict " in out and ("Report: RUN/report.html" in out) == (folder is not None)


@pytest.mark.parametrize("flags", [{"json": True, "quiet": False}, {"json": False, "quiet": True}])
def test_show__an_attack_that_broke_is_told_however_little_is_asked_for(
    report: Report, flags: dict[str, bool], capsys: pytest.CaptureFixture[str]
) -> None:
    broken = {"lira": "failed: OSError: no", "rmia": "needs shadows"}
    show(replace(report, not_run=broken), None, **flags)
    told = capsys.readouterr().err
    assert told.startswith("fedmia: ") and "lira" in told and "rmia" not in told
