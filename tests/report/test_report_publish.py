"""One way to publish a run: its report, its files, and what is printed."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest

from fedmia.records import Evaluation
from fedmia.records.rows import Report
from fedmia.report.figures import draw
from fedmia.report.publish import publish, show
from fedmia.runtime.stopwatch import PARTS, Stopwatch
from fedmia.storage.json_rows import to_json


def untimed(report: Report) -> Report:
    return replace(report, timing={})


def test_publish__report_files_and_the_seconds_of_both(
    run: Evaluation, report: Report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        draw, "draw_all", lambda scores, report: {"roc.png": b"picture", "roc.pdf": b"pages"}
    )
    timed = replace(run, timing={"by_attack": {"lpla": 1.23456789}})
    (tmp_path / "RUN").mkdir()
    made = publish(timed, tmp_path / "RUN", Stopwatch(time.perf_counter()))
    assert untimed(made) == untimed(report)
    assert list(made.timing) == [*PARTS, "total_s", "by_attack"]
    assert made.timing["by_attack"] == {"lpla": 1.234568}
    assert made.timing["report"] > 0
    files = sorted(p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*.*"))
    want = [
        "curves.npz",
        "exposed.csv",
        "figures/roc.pdf",
        "figures/roc.png",
        "report.html",
        "report.json",
        "scores.csv",
    ]
    want += ["table.csv", "table.parquet"]
    assert files == [f"RUN/{n}" for n in want]
    assert json.loads((tmp_path / "RUN" / "report.json").read_text()) == to_json(made)


def test_publish__without_a_folder_draws_nothing(
    run: Evaluation, report: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(draw, "draw_all")
    made = publish(run, None, Stopwatch(time.perf_counter()))
    assert untimed(made) == untimed(report)
    assert [*made.timing][: len(PARTS) + 1] == [*PARTS, "total_s"]


@pytest.mark.parametrize("folder", [None, Path("RUN")])
def test_show__json_verdict_or_tables(
    report: Report, folder: Path | None, capsys: pytest.CaptureFixture[str]
) -> None:
    show(report, folder, json=True, quiet=True)
    assert json.loads(capsys.readouterr().out) == to_json(report)
    show(report, folder, json=False, quiet=True)
    assert capsys.readouterr().out == report.verdict + "\n"
    show(report, folder, json=False, quiet=False)
    out = capsys.readouterr().out
    assert " verdict " in out and ("Report: RUN/report.html" in out) == (folder is not None)
