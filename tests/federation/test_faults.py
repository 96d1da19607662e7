"""Clients that fail inside a run: the policy holds, the report says so, nothing hangs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clients.honest import Honest
from clients.passive import Passive
from tests.small_runs import (
    SIMILARITY,
    SMALL,
    Killed,
    after_round,
    kill,
    ran,
    read,
    resume,
    simulate,
)

FOUR = SMALL + "--clients 4 --rounds 4 "
TINY = FOUR + SIMILARITY
Capture = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch
Work = Honest.work


def spoiled(how: str, client: int = 1) -> Any:
    """What a client does in round 3, if it is that one; else it is honest."""

    def work(self: Honest, client_round: Any) -> Any:
        state, metrics = Work(self, client_round)
        if (client_round.task.client, client_round.task.round) != (client, 3):
            return state, metrics
        if how == "raise":
            raise RuntimeError("no memory left")
        if how == "hang":
            time.sleep(3)
        elif how == "nan":
            first = next(iter(state))
            state = {**state, first: state[first] * np.nan}
        return state, metrics

    return work


@pytest.mark.parametrize(
    ("how", "late", "reason"),
    [
        ("raise", "", "failed: RuntimeError: no memory left"),
        pytest.param(
            "hang", "--client-timeout 0.7", "failed: no answer within 0.7 s", marks=pytest.mark.slow
        ),
    ],
)
def test_drop__the_run_goes_on_and_the_images_are_in_no_statistic(
    how: str, late: str, reason: str, tmp_path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(Honest, "work", spoiled(how))
    report = ran(f"{TINY} --on-failure drop {late}", tmp_path / "RUN")
    (fault,) = report["faults"]
    assert (fault["branch"], fault["round"], fault["client"]) == ("main", 3, 1)
    assert (fault["action"], fault["reason"]) == ("dropped", reason)
    assert report["failure"] is None and [r["round"] for r in report["rounds"]] == [1, 2, 3, 4]
    rows = (tmp_path / "RUN" / "scores.csv").read_text().splitlines()
    at = rows[0].split(",").index("client")
    assert "1" not in {row.split(",")[at] for row in rows[1:]}
    assert report["attacks"][0]["n_members"] < 32 - 8
    assert any("was dropped" in note for note in report["notes"])


@pytest.mark.slow
def test_drop__holds_in_a_run_that_is_gone_on_with(tmp_path: Path, monkeypatch: Patch) -> None:
    """A client that was dropped is not asked again, and what befell it is still told."""
    orders, spoil = list[tuple[int, int]](), spoiled("raise")

    def work(self: Honest, client_round: Any) -> Any:
        orders.append((client_round.task.round, client_round.task.client))
        return spoil(self, client_round)

    monkeypatch.setattr(Honest, "work", work)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        after_round(patch, "main", 4, kill)
        simulate(FOUR + "--attacks none --on-failure drop --checkpoint-every 0", tmp_path / "RUN")
    orders.clear()
    assert resume(tmp_path / "RUN") == 0
    assert sorted(orders) == [(4, 0), (4, 2), (4, 3)]
    report = read(tmp_path / "RUN")
    assert [(f["round"], f["client"], f["action"]) for f in report["faults"]] == [(3, 1, "dropped")]
    sizes = [c["size"] for c in report["clients"] if c["id"] != 1]
    assert report["split"]["members"] == sum(sizes) < 32


def test_stop__finished_rounds_are_reported(
    tmp_path: Path, monkeypatch: Patch, capsys: Capture
) -> None:
    monkeypatch.setattr(Honest, "work", spoiled("nan"))
    report = ran(TINY, tmp_path / "RUN", 1)
    assert report["interrupted"] == 2 and [r["round"] for r in report["rounds"]] == [1, 2]
    assert "round 3: client 1 sent a" in report["failure"]
    assert "the run ended after round 2, since round 3: client 1 sent" in report["verdict"]
    assert [a["name"] for a in report["attacks"]] == ["similarity"]
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and "client 1 sent a" in err and "train.lr" in err


TWO = FOUR.replace("--clients 4", "--clients 2").replace("--split.known 8", "--split.known 2")


@pytest.mark.parametrize(
    ("role", "client", "flags", "reason"),
    [
        # With client 1 one of the two known members would go: one is of each client (by the seed).
        (Honest, 1, TWO + SIMILARITY + "--seed 8", "1 known and 16 other members would be left"),
        (
            Passive, 3, FOUR + "--attacks none --attacker passive",
            "the attacker's client cannot be dropped",
        ),
    ],
)  # fmt: skip
def test_drop__not_whom_the_scores_rest_on(
    role: type, client: int, flags: str, reason: str, tmp_path: Path, monkeypatch: Patch,
    capsys: Capture,
) -> None:  # fmt: skip
    """Finished rounds are reported whole."""
    monkeypatch.setattr(role, "work", spoiled("raise", client))
    report = ran(f"{flags} --on-failure drop", tmp_path / "RUN", 1)
    assert [(f["client"], f["action"]) for f in report["faults"]] == [(client, "stopped")]
    assert report["interrupted"] == 2 and report["split"]["members"] == 32
    assert reason in capsys.readouterr().err


def test_first_round__nothing_is_finished(
    tmp_path: Path, monkeypatch: Patch, capsys: Capture
) -> None:
    monkeypatch.setattr(Honest, "work", lambda self, client_round: 1 / 0)
    assert simulate(TINY, tmp_path / "RUN") == 1
    assert "round 1: client" in capsys.readouterr().err
    assert not (tmp_path / "RUN" / "report.json").exists()


@pytest.mark.slow
def test_retry__gives_the_report_of_the_run_that_nothing_befell(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    """Its local state too is that of before the round."""
    flags = f"{TINY} --strategy fedema --on-failure retry "
    whole = ran(flags, tmp_path / "whole")
    bad, tried = spoiled("nan"), list[int]()

    def work(self: Honest, client_round: Any) -> Any:
        here = (client_round.task.client, client_round.task.round) == (1, 3)
        tried.extend([1] * here)
        return (bad if here and len(tried) == 1 else Work)(self, client_round)

    monkeypatch.setattr(Honest, "work", work)
    report = ran(flags, tmp_path / "RUN")
    assert [f["action"] for f in report["faults"]] == ["retried"] and len(tried) == 2
    for key in ("attacks", "rounds", "controls", "clients"):
        assert report[key] == whole[key]
