"""The active attack of a run, scored by an audit of its recording: what is said and refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.auditing.conftest import Audit, Sides
from tests.bank import Bank


@pytest.fixture(scope="module")
def run(bank: Bank) -> Path:
    """A run of all branches, the placebo too."""
    return bank.run("branches")


def of_rounds(run: Path, attacks: str = "similarity,ascent") -> str:
    return f"--encoder {run} --federation {run / 'recording'} --attacks {attacks} "


@pytest.mark.slow(seconds=5)
def test_audit__says_in_one_line_who_attacked_where_it_scores_others(
    audit: Audit, run: Path
) -> None:
    """Where it scores the attack it does not."""
    line = "fedmia: client 2 attacked these rounds by ascent: --attacks ascent scores what it noted"
    for attacks, said in (("similarity", 1), ("ascent", 0)):
        done = audit(of_rounds(run, attacks), own_images=True, text=True)
        lines = [*done.err.splitlines(), *done.out.splitlines()]
        assert done.code == 0 and lines.count(line) == said
    done = audit(of_rounds(run, "similarity"), own_images=True)
    assert done.names() == ["similarity"] and "scores what it noted" not in str(done.report)


def test_audit__refuses_targets_that_the_attack_did_not_act_on(
    audit: Audit, archives: Sides, run: Path
) -> None:
    done = audit(f"{of_rounds(run)}{archives.flags}--channels gray --known 4 ")
    assert done.code == 2 and done.err.splitlines()[-1].startswith(
        "fedmia: error: federation.recording (--federation): 66 of the 66 images of the audit are "
        "none of the 92 targets of client 2"
    )


def test_audit__refuses_another_value_of_an_option_and_takes_another_reading(
    audit: Audit, run: Path
) -> None:
    flags = of_rounds(run, "ascent")
    done = audit(f"{flags}--attack.ascent.steps 7", own_images=True)
    assert done.code == 2 and done.err.splitlines()[-1] == (
        "fedmia: error: attack.ascent.steps 7: the rounds were attacked with auto, and what was "
        "noted in them cannot change"
    )
    flags += "--attack.ascent.reading level --attack.ascent.steps auto"
    done = audit(flags, own_images=True)
    assert done.code == 0 and done.names() == ["ascent", "ascent-rise"]
    level, usual = (
        {row["name"]: row["auc"] for row in report["attacks"]}
        for report in (done.report, json.loads((run / "report.json").read_text()))
    )
    assert level == {"ascent": usual["ascent-level"], "ascent-rise": usual["ascent"]}


def test_audit__refuses_notes_that_were_changed(audit: Audit, run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "RUN")
    file = tmp_path / "RUN/recording/notes/zero/0004.safetensors"
    file.write_bytes(file.read_bytes()[:-8] + bytes(8))
    done = audit(of_rounds(tmp_path / "RUN"), own_images=True)
    assert done.code == 2 and "zero/0004.safetensors' is not the file" in done.err
