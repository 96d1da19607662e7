"""Attackers who know the target's defence: shadows trained under it, beside naive ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedmia.simulate import main as simulate
from tests.auditing.conftest import Audit
from tests.auditing.test_audit_shadows import RUN, Patch, trainings

KNOWN = "--shadow.knowledge data --shadow.model smallnet --shadow.epochs 2 "
ONE = f"--shadows 1 {KNOWN}--attacks encodermi-t "


@pytest.mark.slow
def test_shadow_defense__stands_beside_naive_shadows(
    audit: Audit, tmp_path: Path, monkeypatch: Patch
) -> None:
    """Two trainings, two cached shadows, one row with its twin; alone the naive one is the same."""
    trained, out = trainings(monkeypatch), tmp_path / "KNOWING"
    asked = "--shadow-defense weight-decay --shadow-defense.weight-decay.weight_decay 0.5 "
    done = audit(ONE + asked, out)
    assert done.code == 0, done.err
    assert len(trained) == 2 and len(list((out / "shadows").iterdir())) == 2
    (pair,) = done.report["paired"]
    assert (pair["attack"], pair["control"]) == ("encodermi-t", "encodermi-t-naive")
    assert "over the same with shadows trained without the defence" in pair["statement"]
    alone = audit(ONE, tmp_path / "NAIVE")
    assert pair["auc_control"] == alone.report["attacks"][0]["auc"]
    assert not alone.report["paired"]
    told = [json.loads(p.read_text()) for p in out.glob("shadows/*/about.json")]
    assert sorted(d.get("defense", []) for d in told) == [
        [], [["weight-decay", {"weight_decay": 0.5}]]
    ]  # fmt: skip
    given = audit(f"--attacks encodermi-t --shadow-encoders {out}/shadows ")
    assert "mixes some trained under no defence and weight-decay" in given.err


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("--shadow-defense dpsgd", "--shadow-defense is given without --shadows N"),
        (ONE + "--shadow-defense gaussian", "gaussian noises what a client sends, and a shadow"),
        (ONE + "--shadow-defense dpsgd,dpsgd", "--shadow-defense dpsgd is given twice"),
        (ONE + "--shadow-defense early-stopping", "the choice of the last round rests on images"),
        (ONE + "--shadow-defense crop", "did you mean 'crop-range'?"),
    ],
)
def test_shadow_defense__bad_input_is_one_line(audit: Audit, flags: str, said: str) -> None:
    done = audit(flags)
    assert done.code == 2 and said in done.err and done.err.count("\n") <= 2, done.err


@pytest.mark.slow
def test_shadows__of_a_defended_run_are_said_to_be_naive(audit: Audit, tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert simulate([*RUN.split(), "--defense", "crop-range", "--out", str(run)]) == 0
    flags = f"--encoder {run} --shadows 1 --shadow.epochs 1 --attacks encodermi-t "
    said = "trained under crop-range, the shadow encoders did not: --shadow-defense crop-range"
    notes = audit(flags, tmp_path / "A", own_images=True).report["notes"]
    assert sum(said in note for note in notes) == 1
    known = audit(flags + "--shadow-defense crop-range ", tmp_path / "B", own_images=True)
    assert not any(said in note for note in known.report["notes"])
