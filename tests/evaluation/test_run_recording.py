"""A run of fedmia is a recording: an audit of it gives the scores of the run itself, to the bit."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedmia
from tests.bank import Bank
from tests.commands import fedmia as command

ROOT = Path(__file__).resolve().parents[2]
# What hangs on how many tests a report makes, and on the other controls that it has.
FAMILY = {"low", "high", "lower_limit", "over_control", "auc_control_low", "auc_control_high"}


def rows_of(folder: Path) -> dict[str, dict[str, str]]:
    """Rows of scores.csv by image."""
    with (folder / "scores.csv").open() as file:
        return {row["image"]: row for row in csv.DictReader(file)}


def report_of(folder: Path) -> dict[str, Any]:
    report: dict[str, Any] = json.loads((folder / "report.json").read_text())
    return report


def files_of(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def same_scores(run: Path, out: Path, names: list[str]) -> None:
    """Every image has one score by each attack, and all that is said of rounds is one."""
    ours, theirs = rows_of(run), rows_of(out)
    assert [*ours] == [*theirs] and len(ours) > 40
    for name in names:
        column = [row[name] for row in theirs.values()]
        assert column == [row[name] for row in ours.values()] and len({*column}) > 9, name
    rows, scored = {row["round"]: row for row in report_of(out)["rounds"]}, 0
    for mine in report_of(run)["rounds"]:
        other = rows.get(mine["round"])
        if mine["leakage"] and other:
            assert {n: other["leakage"][n] for n in mine["leakage"]} == mine["leakage"]
            assert mine["layers"] == other["layers"]
            scored += 1
    assert scored


def audited(run: Path, out: Path, attacks: str, more: str = "") -> Path:
    """An audit of the recording of a run, which changes nothing of it."""
    before = files_of(run)
    line = f"audit --federation {run}/recording --attacks {attacks} --threads 1 --device cpu "
    done = command(f"{line}{more}", out)
    assert done.code == 0, done.err
    assert files_of(run) == before
    return out


def test_recording__of_centralised_training(bank: Bank) -> None:
    run, out = bank.run("central"), bank.run("audited")
    same_scores(run, out, ["similarity", "lpla"])
    about = json.loads((run / "recording/recording.json").read_text())
    assert about["made_by"] == {"fedmia": fedmia.__version__, "strategy": "fedavg"}


@pytest.mark.slow(seconds=2)
def test_recording__of_what_a_server_sees(bank: Bank, tmp_path: Path) -> None:
    run, views = bank.run("server"), "--attack.similarity.views 4"
    out = audited(run, tmp_path / "OUT", "similarity,all-for-one", views)
    same_scores(run, out, ["similarity", "all-for-one"])
    report, other = report_of(run), report_of(out)
    assert [c["auc"] for c in report["clients"]] == [c["auc"] for c in other["clients"]]
    assert report["named_clients"][0]["correct"] == other["named_clients"][0]["correct"]


@pytest.fixture(scope="module")
def of_active(bank: Bank, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An audit of a run with every branch, of the attack in it and beside it."""
    run, out = bank.run("branches"), tmp_path_factory.mktemp("active") / "OUT"
    line = f"--encoder {run} --attack.similarity.views 4"
    return audited(run, out, "similarity,ascent", line)


def test_recording__of_an_active_client_has_its_attack_and_its_controls(
    bank: Bank, of_active: Path
) -> None:
    """The attack, its readings, the twin without it, and both controls: a placebo is noted, too."""
    run = bank.run("branches")
    report, other = report_of(run), report_of(of_active)
    ours, theirs = rows_of(run), rows_of(of_active)
    for name in ("ascent", "ascent-level"):
        column = [row[name] for row in theirs.values()]
        assert column == [row[name] for row in ours.values()] and len({*column}) > 9

    def rows(of: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
        kinds = {"attacks": of["attacks"], **of["controls"]}
        named = {(kind, row["name"]): row for kind, rows in kinds.items() for row in rows}
        pairs = {(row["attack"], row["control"]): row for row in of["paired"]}
        kept = {at: row for at, row in (named | pairs).items() if "ascent" in " ".join(at)}
        return {at: {n: v for n, v in r.items() if n not in FAMILY} for at, r in kept.items()}

    assert rows(report) == rows(other) and len(rows(report)) == 6 + 4
    assert report["pixels"]["auc"] == other["pixels"]["auc"]
    with np.load(run / "curves.npz") as mine, np.load(of_active / "curves.npz") as its:
        assert sorted(mine) == sorted(its)
        for name in mine:
            np.testing.assert_array_equal(mine[name], its[name])


def test_recording__of_an_active_client_has_the_last_clean_model_by_its_number(
    bank: Bank, tmp_path: Path
) -> None:
    """Attacked rounds are no part of a passive attack's model: `RUN@2` is the one before them."""
    run = bank.run("branches")
    line = f"--encoder {run}@2 --attack.similarity.views 4"
    out = audited(run, tmp_path / "OUT", "similarity,ascent", line)
    assert report_of(out)["not_run"] == {"ascent": "its client finished no attacked round"}
    same_scores(run, out, ["similarity"])


AUDIT = """
import atexit, sys
atexit.register(lambda: print("loaded:", *sys.modules))
from fedmia.cli.main import main
sys.exit(main(sys.argv[1:]))
"""
FEDERATION = ("clients", "strategies", "fedmia.federation", "fedmia.flower", "flwr", "ray")


@pytest.mark.slow(seconds=10)
def test_audit_of_a_recording__loads_nothing_that_plays_rounds(bank: Bank, tmp_path: Path) -> None:
    flags = f"audit --federation {bank.run('branches')}/recording --attacks similarity,ascent "
    flags += f"--threads 1 --attack.similarity.views 4 --device cpu --quiet --out {tmp_path}/OUT"
    done = subprocess.run(
        [sys.executable, "-c", AUDIT, *flags.split()], cwd=tmp_path, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    loaded = done.stdout.partition("loaded: ")[2].split()
    parts = [name for name in loaded for one in FEDERATION if f"{name}.".startswith(f"{one}.")]
    assert "fedmia.evaluation.active" in loaded and not parts
