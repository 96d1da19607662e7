"""Clients that fail inside a run: the policy holds, the report says so, nothing hangs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fedmia import open_run
from tests.federation import spoiled
from tests.small_runs import (
    SIMILARITY,
    SMALL,
    WATCHED,
    Killed,
    in_round,
    kill,
    ran,
    read,
    resume,
    simulate,
)
from tests.watched import watch

FOUR = SMALL + "--clients 4 --rounds 4 "
TINY = FOUR + SIMILARITY
SPOILS = "--defense tests.federation.spoiled:Spoils --defended-clients 1 "
NAN = SPOILS + "--defense.how nan "
Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def tries() -> Iterator[list[int]]:
    """Rounds in which something was spoiled."""
    spoiled.TRIES.clear()
    yield spoiled.TRIES


@pytest.mark.parametrize(
    ("late", "reason"),
    [
        ("", "failed: RuntimeError: no memory left"),
        pytest.param(
            "--defense.how hang --client-timeout 0.7", "failed: no answer within 0.7 s",
            marks=pytest.mark.slow,
        ),
    ],
)  # fmt: skip
def test_drop__the_run_goes_on_and_the_images_are_in_no_statistic(
    late: str, reason: str, tmp_path: Path
) -> None:
    report = ran(f"{TINY}{SPOILS} --on-failure drop {late}", tmp_path / "RUN")
    (fault,) = report["faults"]
    assert (fault["branch"], fault["round"], fault["client"]) == ("main", 3, 1)
    assert (fault["action"], fault["reason"]) == ("dropped", reason)
    assert report["failure"] is None and [r["round"] for r in report["rounds"]] == [1, 2, 3, 4]
    members = open_run(tmp_path / "RUN", trust_plugins=True).scores.query("truth")
    assert {*members.client} == {0, 2, 3}
    assert report["attacks"][0]["n_members"] == len(members) < 32 - 8
    assert any("was dropped" in note for note in report["notes"])


@pytest.mark.slow
def test_drop__holds_in_a_run_that_is_gone_on_with(tmp_path: Path) -> None:
    """A client that was dropped is not asked again, and what befell it is still told."""
    in_round("main", 4, kill)
    line = f"{FOUR}{SPOILS}{WATCHED}--attacks none --on-failure drop --checkpoint-every 0"
    with pytest.raises(Killed):
        simulate(line, tmp_path / "RUN")
    seen = watch()
    assert resume(tmp_path / "RUN") == 0
    assert {at: [*uploads] for at, uploads in seen.uploads.items()} == {("main", 4): [0, 2, 3]}
    report = read(tmp_path / "RUN")
    assert [(f["round"], f["client"], f["action"]) for f in report["faults"]] == [(3, 1, "dropped")]
    sizes = [c["size"] for c in report["clients"] if c["id"] != 1]
    assert report["split"]["members"] == sum(sizes) < 32


def test_stop__finished_rounds_are_reported(tmp_path: Path, capsys: Capture) -> None:
    report = ran(TINY + NAN, tmp_path / "RUN", 1)
    assert report["interrupted"] == 2 and [r["round"] for r in report["rounds"]] == [1, 2]
    assert "round 3: client 1 sent a" in report["failure"]
    assert "the run ended after round 2, since round 3: client 1 sent" in report["verdict"]
    assert [a["name"] for a in report["attacks"]] == ["similarity"]
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and "client 1 sent a" in err and "train.lr" in err


TWO = FOUR.replace("--clients 4", "--clients 2").replace("--split.known 8", "--split.known 2")


@pytest.mark.parametrize(
    ("client", "flags", "reason"),
    [
        # With client 1 one of the two known members would go: one is of each client (by the seed).
        (1, TWO + SPOILS + SIMILARITY + "--seed 8",
         "1 known and 16 other members would be left"),
        (3, FOUR + "--attacks none --attacker tests.federation.spoiled:Broken",
         "the attacker's client cannot be dropped"),
    ],
)  # fmt: skip
def test_drop__not_whom_the_scores_rest_on(
    client: int, flags: str, reason: str, tmp_path: Path, capsys: Capture
) -> None:
    """Finished rounds are reported whole."""
    report = ran(f"{flags} --on-failure drop", tmp_path / "RUN", 1)
    assert [(f["client"], f["action"]) for f in report["faults"]] == [(client, "stopped")]
    assert report["interrupted"] == 2 and report["split"]["members"] == 32
    assert reason in capsys.readouterr().err


def test_first_round__nothing_is_finished(tmp_path: Path, capsys: Capture) -> None:
    assert simulate(TINY + SPOILS + "--defense.round 1", tmp_path / "RUN") == 1
    assert "round 1: client" in capsys.readouterr().err
    assert not (tmp_path / "RUN" / "report.json").exists()


@pytest.mark.slow
def test_retry__gives_the_report_of_the_run_that_nothing_befell(
    tmp_path: Path, tries: list[int]
) -> None:
    """Its local state too is that of before the round."""
    flags = f"{TINY}--strategy fedema --on-failure retry {NAN}--defense.times 1 "
    whole = ran(flags.replace("times 1", "times 1 --defense.round 9"), tmp_path / "whole")
    assert tries == [] and whole["faults"] == []
    report: Any = ran(flags, tmp_path / "RUN")
    assert [f["action"] for f in report["faults"]] == ["retried"] and tries == [3]
    for key in ("attacks", "rounds", "controls", "clients"):
        assert report[key] == whole[key]
