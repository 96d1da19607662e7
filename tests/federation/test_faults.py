"""Clients that fail inside a run: the policy holds, the report says so, nothing hangs."""

from __future__ import annotations

import json
import shlex
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clients.honest import Honest
from clients.passive import Passive
from fedmia.federation.rounds import FederatedRun
from fedmia.report.figures import draw
from fedmia.simulate import main

TINY = (
    "--clients 4 --rounds 4 --train.local_epochs 1 --model.width 4 --split.members 32 "
    "--split.nonmembers 60 --split.known 8 --split.test 20 --device cpu --federation.snapshots 1 "
    "--attacks similarity --attack.similarity.views 4 --quiet "
)
Report = dict[str, Any]
Work = Honest.work


def spoiled(how: str, client: int = 1) -> Any:
    """What a client does in round 3, if it is that one; else it is honest."""

    def work(self: Honest, client_round: Any) -> Any:
        state, metrics = Work(self, client_round)
        if (client_round.task.client, client_round.task.round) != (client, 3):
            return state, metrics
        first = next(iter(state))
        if how == "raise":
            raise RuntimeError("no memory left")
        if how == "hang":
            time.sleep(3)
        elif how == "nan":
            state = {**state, first: state[first] * np.nan}
        elif how == "shape":
            state = {**state, first: state[first][:1]}
        elif how == "names":
            state = {f"{name}.other": t for name, t in state.items()}
        return state, metrics

    return work


def ran(flags: str, out: Path, code: int, tiny: str = TINY) -> Report:
    assert main([*shlex.split(tiny + flags), "--out", str(out)]) == code
    report: Report = json.loads((out / "report.json").read_text())
    return report


class Killed(BaseException):
    """Nothing that anybody catches."""


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draw, "draw_all", lambda scores, report: {})


REASONS = {
    "raise": "failed: RuntimeError: no memory left", "hang": "failed: no answer within 0.7 s",
    "nan": "not finite", "shape": "of another shape", "names": "sent unknown",
}  # fmt: skip


@pytest.mark.parametrize(
    "how",
    [
        pytest.param(h, marks=[pytest.mark.slow] * (h in ("hang", "shape", "names")))
        for h in REASONS
    ],
)
def test_drop__the_run_goes_on_and_the_images_are_in_no_statistic(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = ran("", tmp_path / "whole", 0) if how == "raise" else None
    monkeypatch.setattr(Honest, "work", spoiled(how))
    late = "--client-timeout 0.7 " if how == "hang" else ""
    report = ran(f"--on-failure drop {late}", tmp_path / "RUN", 0)
    (fault,) = report["faults"]
    assert (fault["branch"], fault["round"], fault["client"]) == ("main", 3, 1)
    assert fault["action"] == "dropped" and REASONS[how] in fault["reason"]
    assert report["failure"] is None and [r["round"] for r in report["rounds"]] == [1, 2, 3, 4]
    rows = (tmp_path / "RUN" / "scores.csv").read_text().splitlines()
    owners = [line.split(",") for line in rows]
    at = owners[0].index("client")
    assert "1" not in {row[at] for row in owners[1:]}
    assert any("was dropped" in note for note in report["notes"])
    if whole is not None:
        n = [r["attacks"][0]["n_members"] for r in (whole, report)]
        assert n[1] < n[0] and whole["faults"] == [] and whole["rounds"][:2] == report["rounds"][:2]


@pytest.mark.slow
def test_drop__holds_in_a_run_that_is_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that was dropped is not asked again, and what befell it is still told."""
    noted, orders = FederatedRun._note, list[tuple[int, int]]()

    def killed(self: FederatedRun, branch: str, round: int, *rest: Any) -> Any:
        if round == 4:
            raise Killed
        return noted(self, branch, round, *rest)

    def work(self: Honest, client_round: Any) -> Any:
        orders.append((client_round.task.round, client_round.task.client))
        return spoiled("raise")(self, client_round)

    monkeypatch.setattr(Honest, "work", work)
    flags = shlex.split(TINY[: TINY.index("--attacks")] + "--attacks none --on-failure drop")
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(FederatedRun, "_note", killed)
        main([*flags, "--quiet", "--out", str(tmp_path / "RUN")])
    orders.clear()
    assert main(["--resume", str(tmp_path / "RUN"), "--quiet"]) == 0
    assert sorted(orders) == [(4, 0), (4, 2), (4, 3)]
    report = json.loads((tmp_path / "RUN" / "report.json").read_text())
    assert [(f["round"], f["client"], f["action"]) for f in report["faults"]] == [(3, 1, "dropped")]
    sizes = [c["size"] for c in report["clients"] if c["id"] != 1]
    assert report["split"]["members"] == sum(sizes) < 32


def test_stop__finished_rounds_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Honest, "work", spoiled("nan"))
    report = ran("", tmp_path / "RUN", 1)
    assert report["interrupted"] == 2 and [r["round"] for r in report["rounds"]] == [1, 2]
    assert "round 3: client 1 sent a" in report["failure"]
    assert "the run ended after round 2, since round 3: client 1 sent" in report["verdict"]
    assert [a["name"] for a in report["attacks"]] == ["similarity"]
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and "client 1 sent a" in err and "--train.lr" in err


def test_drop__not_whom_the_scores_rest_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With client 1 one of the two known members would go: finished rounds are reported whole."""
    monkeypatch.setattr(Honest, "work", spoiled("raise"))
    two = TINY.replace("--clients 4", "--clients 2").replace("--split.known 8", "--split.known 2")
    report = ran("--on-failure drop --seed 8", tmp_path / "RUN", 1, two)  # one of each client's
    (fault,) = report["faults"]
    assert fault["action"] == "stopped" and report["interrupted"] == 2
    assert report["attacks"][0]["n_members"] == 30
    assert "1 known and 16 other members would be left" in capsys.readouterr().err


def test_drop__not_the_attackers_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Passive, "work", spoiled("raise", client=3))
    report = ran("--on-failure drop --attacker passive", tmp_path / "RUN", 1)
    assert [(f["client"], f["action"]) for f in report["faults"]] == [(3, "stopped")]
    assert "the attacker's client cannot be dropped" in capsys.readouterr().err


def test_first_round__nothing_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Honest, "work", lambda self, client_round: 1 / 0)
    assert main([*shlex.split(TINY), "--out", str(tmp_path / "RUN")]) == 1
    assert "round 1: client" in capsys.readouterr().err
    assert not (tmp_path / "RUN" / "report.json").exists()


@pytest.mark.slow
def test_retry__gives_the_report_of_the_run_that_nothing_befell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its local state too is that of before the round."""
    flags = "--strategy fedema --on-failure retry "
    whole = ran(flags, tmp_path / "whole", 0)
    bad, tried = spoiled("nan"), list[int]()

    def work(self: Honest, client_round: Any) -> Any:
        here = (client_round.task.client, client_round.task.round) == (1, 3)
        tried.extend([1] * here)
        return (bad if here and len(tried) == 1 else Work)(self, client_round)

    monkeypatch.setattr(Honest, "work", work)
    report = ran(flags, tmp_path / "RUN", 0)
    assert [f["action"] for f in report["faults"]] == ["retried"] and len(tried) == 2
    for key in ("attacks", "rounds", "controls", "clients"):
        assert report[key] == whole[key]
