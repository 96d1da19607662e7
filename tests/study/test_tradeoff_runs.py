"""The command of the trade-off: its runs are a sweep's, done once and gone on with."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from fedmia.cli.command import parse
from fedmia.cli.commands import SWEEP, TRADEOFF
from fedmia.options import registry
from fedmia.options.errors import InputError
from fedmia.study.simulations import sweep
from fedmia.study.simulations import tradeoff as run_study
from fedmia.study.views.sweep import SweepView
from fedmia.study.views.tradeoff import TradeoffView
from fedmia.tradeoff import main
from tests.study.conftest import begun, start_of

FLAGS = "--attacks similarity --jobs 1 --seed 3 --seeds 2 --defenses fedprox,gaussian "
POINTS = ("defense=none", "strategy=fedprox", "defense=gaussian_defense.scale=0.1")
NAMES = [f"{point}_seed={seed}" for seed in (3, 4) for point in POINTS]
Trading = Callable[..., int]


@pytest.fixture
def trading(tmp_path: Path, tell: Path, monkeypatch: pytest.MonkeyPatch) -> Trading:
    """`trading(flags)`: the exit code of a trade-off into `OUT`, its figures not drawn."""
    monkeypatch.setattr(SweepView, "figures", lambda self, report: {})
    monkeypatch.setattr(TradeoffView, "figures", lambda self, report: {"tradeoff": b"drawn"})

    def trade(flags: str = FLAGS + "--strengths gaussian=0.1", command: Any = TRADEOFF) -> int:
        settings = parse(command, [*shlex.split(flags), "--json", "--out", str(tmp_path / "OUT")])
        return (run_study if command is TRADEOFF else sweep)(settings, Event(), start_of(tell))

    return trade


def printed(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """The last report that a trade-off printed."""
    text = capsys.readouterr().out
    content: dict[str, Any] = json.loads(text[text.rindex("\n{\n") if "\n{\n" in text else 0 :])
    return content


@pytest.mark.slow
def test_trade_off__runs_what_is_new_and_fails_by_name(
    trading: Trading, tell: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "OUT"
    (tell / NAMES[4]).write_text("raise ValueError('no images')")
    assert trading() == 1 and begun(tell) == NAMES
    assert {p.name for p in out.iterdir()} == {
        ".lock", "cells", "config.yaml", "failed", "points.csv", "sweep.html", "sweep.json",
        "table.csv", "table.parquet", "tradeoff.html", "tradeoff.png",
    }  # fmt: skip
    for name in ("sweep.html", "tradeoff.html"):
        page = (out / name).read_text(encoding="utf-8")
        untitled = set(re.findall(r"<th>(.*?)</th>", page))
        assert untitled <= {*registry.names("attack"), "ascent-level", "ascent-static-level"}
        sections = set(re.findall(r'section id="([^"]+)"', page))
        assert sections and sections == set(re.findall(r'href="#([^"]+)"', page))
    report = printed(capsys)
    rows = [r for r in report["rows"] if r["attack"] == "similarity"]
    assert [(r["defense"], r["strength"], r["seed"], r["auc"]) for r in rows] == [
        ("none", None, 3, 0.53), ("none", None, 4, 0.54), ("fedprox", None, 3, 0.63),
        ("fedprox", None, 4, None), ("gaussian", 0.1, 3, 0.53), ("gaussian", 0.1, 4, 0.54),
    ]  # fmt: skip
    assert [r["note"] for r in rows if r["note"]] == ["failed: ValueError: no images"]
    (tell / NAMES[4]).unlink()
    assert trading(FLAGS + "--strengths gaussian=0.1,0.2") == 0
    assert begun(tell) == [
        "defense=gaussian_defense.scale=0.2_seed=3", NAMES[4],
        "defense=gaussian_defense.scale=0.2_seed=4",
    ]  # fmt: skip
    report = printed(capsys)
    assert (report["finished"], report["failed"]) == (8, 0)
    assert trading(str(out / "config.yaml")) == 0 and begun(tell) == []  # its file repeats it
    again = printed(capsys)
    assert again == report | {"timing": again["timing"]}
    flags = "--attacks similarity --attacker passive --federation.snapshots 1 --seed 3 --seeds 2 "
    with pytest.raises(InputError, match="does not ask for"):
        trading(flags + "--grid defense=none,gaussian", SWEEP)
    assert begun(tell) == []


def test_bad_input__without_a_folder_is_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--defenses", "gaussian"]) == 2
    assert "out FOLDER" in capsys.readouterr().err
