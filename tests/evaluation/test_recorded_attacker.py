"""The active attack of a run, scored by an audit of its recording: as the run scored it."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedmia.audit
import fedmia.simulate
from fedmia.records import Evaluation, ScoredAttack
from tests.auditing.conftest import Audit, Sides
from tests.small_runs import BRANCHES, read, simulate

WALL = ("seconds", "scoring_seconds")
SETS = ("sets_members", "sets_nonmembers")  # an audit judges none


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Evaluation]:
    """A run of all branches, the placebo too, and what it scored."""
    run, caught = tmp_path_factory.mktemp("attacked") / "RUN", list[Evaluation]()
    with pytest.MonkeyPatch.context() as patch:
        catch(patch, fedmia.simulate, caught)
        assert simulate(f"{BRANCHES}--federation.placebo true", run) == 0
    return run, caught[0]


def of_rounds(run: Path, attacks: str = "similarity,ascent") -> str:
    return f"--encoder {run} --federation {run / 'recording'} --attacks {attacks} "


def catch(patch: pytest.MonkeyPatch, command: Any, caught: list[Evaluation]) -> None:
    """Keep the scores that a command publishes."""
    plain = command.publish

    def publish(scores: Evaluation, *rest: Any) -> Any:
        caught.append(scores)
        return plain(scores, *rest)

    patch.setattr(command, "publish", publish)


def by_name(rows: Iterable[ScoredAttack]) -> dict[str, ScoredAttack]:
    return {row.name: row for row in rows if row.name.startswith("ascent")}


def rows_of(scores: Evaluation) -> list[dict[str, ScoredAttack]]:
    """Rows of the attack, of each control, of the attack in its pairs and of its twin there."""
    sides = [scores.attacks, scores.controls["untrained"], scores.controls["placebo"]]
    sides += [[one.attack for one in scores.pairs], [one.control for one in scores.pairs]]
    return [by_name(rows) for rows in sides]


def same(one: ScoredAttack, other: ScoredAttack) -> None:
    """All of both, to the bit, but for seconds and sets."""
    for name in (f.name for f in fields(ScoredAttack) if f.name not in (*WALL, *SETS, "also")):
        left, right = getattr(one, name), getattr(other, name)
        if isinstance(left, np.ndarray):
            np.testing.assert_array_equal(left, right, err_msg=name, strict=True)
        else:
            assert left == right, (one.name, name)
    assert len(one.also) == len(other.also)
    for mine, theirs in zip(one.also, other.also, strict=True):
        same(mine, theirs)


def test_audit__scores_the_attack_of_the_run_to_the_bit(
    audit: Audit, scored: tuple[Path, Evaluation], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The attack, its readings, the twin without it, and both controls: a placebo is noted, too."""
    (run, own), caught = scored, list[Evaluation]()
    catch(monkeypatch, fedmia.audit, caught)
    done = audit(of_rounds(run), own_images=True)
    (theirs,) = caught
    for mine, other in zip(rows_of(own), rows_of(theirs), strict=True):
        assert [*mine] == [*other] and len(mine) == 2
        for name, row in mine.items():
            same(row, other[name])
    assert [one.over for one in own.pairs] == [one.over for one in theirs.pairs]
    assert own.curves is not None and theirs.curves is not None
    for name in (f.name for f in fields(own.curves)):
        np.testing.assert_array_equal(getattr(own.curves, name), getattr(theirs.curves, name))
    assert done.code == 0 and "scores what it noted" not in done.err + done.out


def test_audit__says_in_one_line_who_attacked_where_it_scores_others(
    audit: Audit, scored: tuple[Path, Evaluation], tmp_path: Path
) -> None:
    done = audit(of_rounds(scored[0], "similarity"), tmp_path / "OUT", own_images=True)
    line = "fedmia: client 2 attacked these rounds by ascent: --attacks ascent scores what it noted"
    assert done.code == 0 and [*done.err.splitlines(), *done.out.splitlines()].count(line) == 1
    assert done.names() == ["similarity"] and "scores what it noted" not in str(done.report)


def test_audit__refuses_targets_that_the_attack_did_not_act_on(
    audit: Audit, archives: Sides, scored: tuple[Path, Evaluation]
) -> None:
    done = audit(f"{of_rounds(scored[0])}{archives.flags}--channels gray --known 4 ")
    assert done.code == 2 and done.err.splitlines()[-1].startswith(
        "fedmia: error: federation.recording (--federation): 66 of the 66 images of the audit are "
        "none of the 92 targets of client 2"
    )


def test_audit__refuses_another_value_of_an_option_and_takes_another_reading(
    audit: Audit, scored: tuple[Path, Evaluation], tmp_path: Path
) -> None:
    run, flags = scored[0], of_rounds(scored[0], "ascent")
    done = audit(f"{flags}--attack.ascent.steps 7", own_images=True)
    assert done.code == 2 and done.err.splitlines()[-1] == (
        "fedmia: error: attack.ascent.steps 7: the rounds were attacked with auto, and what was "
        "noted in them cannot change"
    )
    flags += "--attack.ascent.reading level --attack.ascent.steps auto"
    done = audit(flags, tmp_path / "OUT", own_images=True)
    assert done.code == 0 and done.names() == ["ascent", "ascent-rise"]
    level, usual = (
        {row["name"]: row["auc"] for row in report["attacks"]}
        for report in (done.report, read(run))
    )
    assert level == {"ascent": usual["ascent-level"], "ascent-rise": usual["ascent"]}


def test_audit__refuses_notes_that_were_changed(
    audit: Audit, scored: tuple[Path, Evaluation], tmp_path: Path
) -> None:
    shutil.copytree(scored[0], tmp_path / "RUN")
    file = tmp_path / "RUN/recording/notes/zero/0004.safetensors"
    file.write_bytes(file.read_bytes()[:-8] + bytes(8))
    done = audit(of_rounds(tmp_path / "RUN"), own_images=True)
    assert done.code == 2 and "zero/0004.safetensors' is not the file" in done.err


def test_audit__of_an_earlier_round_reads_no_notes_of_later_ones(
    audit: Audit, scored: tuple[Path, Evaluation], tmp_path: Path
) -> None:
    run = scored[0]
    flags = of_rounds(run).replace(f"{run} ", f"{run}@2 ", 1)
    done = audit(flags, tmp_path / "OUT", own_images=True)
    assert done.code == 0 and done.names() == ["similarity"]
    assert done.not_run == {"ascent": "its client finished no attacked round"}
