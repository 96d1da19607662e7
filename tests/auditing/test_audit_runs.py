"""An audit cut short, broken in part, repeated; and what it prints."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from fedmia import audit as command
from fedmia.attacks.internal import Internal
from fedmia.attacks.lpla import LpLA
from fedmia.attacks.similarity import Similarity
from fedmia.cli.command import DISK_FAILED
from fedmia.evaluation.steps.scorer import Scorer
from fedmia.storage.durable import DiskError
from tests.auditing.brought import tiny
from tests.auditing.conftest import Audit, numbers, sides, textures, write
from tests.storage.disk import failing

THREE = "--attacks similarity,internal,lpla "
Patch = pytest.MonkeyPatch


def counted(monkeypatch: Patch) -> list[str]:
    """Names of the attacks that are computed from now on, not read back."""
    plain, names = Scorer.score_attack, list[str]()

    def scored(self: Scorer, name: str, *rest: Any, **more: Any) -> Any:
        names.append(name)
        return plain(self, name, *rest, **more)

    monkeypatch.setattr(Scorer, "score_attack", scored)
    return names


def breaks(cls: type, error: Callable[[], None], monkeypatch: Patch) -> None:
    """`error` is called when an attack of `cls` scores."""
    plain = cls.score

    def score(self: Any, *rest: Any) -> Any:
        error()
        return plain(self, *rest)

    monkeypatch.setattr(cls, "score", score)


def fail() -> None:
    raise ZeroDivisionError("a slip\nof two lines")


def interrupts(times: int = 1) -> Callable[[], None]:
    """Ctrl-C, so many times at all."""
    left = [times]

    def interrupt() -> None:
        while left[0]:
            left[0] -= 1
            signal.raise_signal(signal.SIGINT)

    return interrupt


def test_broken_attack__costs_the_others_nothing_and_is_tried_again(
    audit: Audit, tmp_path: Path, monkeypatch: Patch
) -> None:
    out = tmp_path / "AUDIT"
    with monkeypatch.context() as patch:
        breaks(Internal, fail, patch)
        done = audit(THREE, out)
    assert done.code == 1 and done.names() == ["similarity", "lpla"]
    assert done.not_run == {"internal": "failed: ZeroDivisionError: a slip of two lines"}
    assert "Not run: internal: failed: ZeroDivisionError" in done.out
    computed = counted(monkeypatch)
    again = audit(THREE, out)
    assert again.code == 0 and again.names() == ["similarity", "internal", "lpla"]
    assert computed == ["internal", "internal"]  # on the encoder, and on the control
    first = {row["name"]: row["auc"] for row in done.report["attacks"]}
    assert first.items() <= {row["name"]: row["auc"] for row in again.report["attacks"]}.items()


def test_broken_attack__alone_is_exit_code_1_and_no_folder(
    audit: Audit, tmp_path: Path, monkeypatch: Patch
) -> None:
    breaks(LpLA, fail, monkeypatch)
    done = audit("--attacks lpla", tmp_path / "new" / "AUDIT")
    assert done.code == 1 and not (tmp_path / "new").exists()
    assert done.err.endswith("no attack could run; lpla: failed: ZeroDivisionError: a slip of two "
                             "lines\n")  # fmt: skip


def test_broken_disk__is_no_attacks_failure(audit: Audit, monkeypatch: Patch) -> None:
    def full() -> None:
        raise DiskError("no space left")

    breaks(LpLA, full, monkeypatch)
    assert audit("--attacks lpla,similarity").code == DISK_FAILED


def test_broken_attack__on_the_control_only(
    audit: Audit, tmp_path: Path, monkeypatch: Patch
) -> None:
    calls = []

    def second() -> None:
        calls.append(1)
        if len(calls) > 2:  # the first two score the images and choose the threshold
            fail()

    breaks(Similarity, second, monkeypatch)
    done = audit("", tmp_path / "AUDIT")
    assert done.code == 1 and done.names() == ["similarity", "lpla"]
    assert [row["name"] for row in done.report["controls"]["untrained"]] == ["lpla"]
    assert any("similarity has no untrained control, it failed" in n for n in done.report["notes"])


def test_control__an_encoder_without_one_is_audited_and_said(audit: Audit, tmp_path: Path) -> None:
    done = audit("--encoder tests.auditing.brought:Overflows", tmp_path / "AUDIT")
    assert done.code == 0 and done.names() == ["similarity", "lpla"]
    assert done.report["controls"]["untrained"] == []
    notes = [n for n in done.report["notes"] if "no untrained control" in n]
    assert len(notes) == 1 and "not finite with permuted weights" in notes[0]
    assert not any("The untrained control is" in n for n in done.report["notes"])
    assert done.report["utility"]["knn"] is not None
    assert done.report["utility_untrained"]["knn"] is None


@pytest.mark.slow
def test_interrupt__finished_attacks_are_reported_and_the_rest_go_on_later(
    audit: Audit, tmp_path: Path, monkeypatch: Patch
) -> None:
    out, before = tmp_path / "AUDIT", signal.getsignal(signal.SIGINT)
    with monkeypatch.context() as patch:
        breaks(Similarity, interrupts(), patch)
        done = audit(THREE, out)
    assert signal.getsignal(signal.SIGINT) is before
    assert done.code == 130 and done.names() == ["similarity"]
    assert set(done.not_run) == {"internal", "lpla"}
    assert "interrupted" in done.not_run["lpla"] and "fedmia: interrupted" in done.err
    assert "fedmia: the same command again goes on with this audit" in done.err.splitlines()
    assert any("The audit was interrupted" in n for n in done.report["notes"])
    computed = counted(monkeypatch)
    again = audit(THREE, out)
    assert again.code == 0 and len(again.report["attacks"]) == 3
    assert computed == ["internal", "lpla", "similarity", "internal", "lpla"]
    assert numbers(again.report) == numbers(audit(THREE, tmp_path / "OTHER").report)


def test_interrupt__before_the_first_attack_is_done(
    audit: Audit, tmp_path: Path, monkeypatch: Patch
) -> None:
    plain = command.prepare

    def prepare(*rest: Any) -> Any:
        interrupts()()
        return plain(*rest)

    monkeypatch.setattr(command, "prepare", prepare)
    done = audit("", tmp_path / "new" / "AUDIT")
    assert done.code == 130 and "before the first attack" in done.err
    assert not (tmp_path / "new").exists()


def test_interrupt__twice_stops_at_once(audit: Audit, tmp_path: Path, monkeypatch: Patch) -> None:
    breaks(LpLA, interrupts(2), monkeypatch)
    done = audit("--attacks similarity,lpla", tmp_path / "AUDIT")
    assert done.code == 130 and done.report == {} and "Traceback" not in done.err


@pytest.mark.slow
def test_config__repeats_the_numbers(audit: Audit, tmp_path: Path) -> None:
    flags = THREE + "--known 6 --limit 12 --seed 3 --augment.crop_min 0.5 --mean 0.4 --std 0.2 "
    first = audit(flags + "--attack.lpla.p 1.5", tmp_path / "AUDIT")
    again = audit(f"--config {tmp_path}/AUDIT/config.yaml", tmp_path / "AGAIN")
    assert (first.code, again.code) == (0, 0)
    assert first.report["timing"].keys() == again.report["timing"].keys()
    assert numbers(first.report) == numbers(again.report)
    scores = [(tmp_path / name / "scores.csv").read_bytes() for name in ("AUDIT", "AGAIN")]
    assert scores[0] == scores[1]
    other = audit(f"--config {tmp_path}/AUDIT/config.yaml --seed 4", tmp_path / "OTHER")
    assert numbers(other.report)["attacks"] != numbers(first.report)["attacks"]


@pytest.mark.slow
def test_out__other_options_are_refused_and_other_attacks_added(
    audit: Audit, tmp_path: Path, monkeypatch: Patch
) -> None:
    out = tmp_path / "AUDIT"
    audit("--attacks lpla", out)
    report_bytes = (out / "report.json").read_bytes()
    refused = audit("--attacks lpla --seed 1", out)
    assert refused.code == 2 and "already holds another run or audit" in refused.err
    assert (out / "report.json").read_bytes() == report_bytes
    computed = counted(monkeypatch)
    done = audit("--attacks similarity,lpla --attack.lpla.p 1", out)  # its scores are of p = 2
    assert done.code == 0 and computed == ["similarity", "lpla"] * 2
    tree = yaml.safe_load((out / "config.yaml").read_text())
    assert tree["attack"] == {"lpla": {"p": 1.0}, "similarity": {"views": 3}}


@pytest.mark.slow
def test_prior__of_a_finished_audit_is_said_without_new_scores(
    audit: Audit, tmp_path: Path, monkeypatch: Patch
) -> None:
    out = tmp_path / "AUDIT"
    plain = audit("", out).report
    computed = counted(monkeypatch)
    done = audit("--prior 0.01", out)
    assert done.code == 0 and computed == [] and done.report["config"]["prior"] == 0.01
    for row, before in zip(done.report["attacks"], plain["attacks"], strict=True):
        right, tpr = row.pop("precision_at_prior")["0.1"], row["tpr_at_fpr"]["0.1"]
        assert row.pop("precision_at_prior_ci")["0.1"][0] <= right and row == before
        assert right == pytest.approx(tpr * 0.01 / (tpr * 0.01 + 0.1 * 0.99), abs=1e-5)
    again = audit("", out)
    assert again.code == 0 and computed == [] and "prior" not in again.report["config"]
    assert again.report["attacks"] == plain["attacks"]


def test_full_disk__one_line_and_finished_attacks_stay_but_for_half_a_file(
    audit: Audit, tmp_path: Path, monkeypatch: Patch
) -> None:
    whole, out = audit("", tmp_path / "WHOLE"), tmp_path / "AUDIT"
    with failing(out, monkeypatch, "main-lpla"):
        stopped = audit("--quiet", out)
    assert stopped.code == DISK_FAILED and not stopped.report
    assert (
        stopped.err.count("\n") == 1
        and "No space left on device: free some space there; the same" in stopped.err
    )
    computed = counted(monkeypatch)
    with failing(out, monkeypatch, "report.json"):
        assert audit("--quiet", out).code == DISK_FAILED
    assert computed == ["lpla", "similarity", "lpla"]  # the last two on the control
    again = audit("", out)
    assert len(computed) == 3 and numbers(again.report) == numbers(whole.report)
    file = out / "attacks" / "main-lpla.safetensors"
    file.write_bytes(file.read_bytes()[:200])
    again = audit("", out)
    assert computed[3:] == ["lpla"] and numbers(again.report) == numbers(whole.report)


@pytest.mark.slow
def test_out__other_images_or_weights_under_the_same_name_are_scored_anew(
    audit: Audit, tmp_path: Path, monkeypatch: Patch
) -> None:
    here, changed, weights = sides(tmp_path), textures(26, seed=9), tmp_path / "w.pth"
    flags = f"{here.flags} --encoder tests.auditing.brought:tiny --checkpoint {weights}"
    torch.save(tiny().state_dict(), weights)
    audit(flags, tmp_path / "AUDIT")
    computed = counted(monkeypatch)
    for change in (
        lambda: write(here.members, changed.images, changed.labels),
        lambda: write(here.members, changed.images, changed.labels[::-1]),
        lambda: torch.save(tiny().state_dict(), weights),
    ):
        change()
        for _ in range(2):
            assert audit(flags, tmp_path / "AUDIT").code == 0
        assert computed == ["similarity", "lpla"] * 2
        computed.clear()


def test_json__is_the_report_and_quiet_the_verdict_alone(audit: Audit, tmp_path: Path) -> None:
    done = audit("--json", tmp_path / "AUDIT")
    assert (done.code, done.err) == (0, "") and json.loads(done.out) == done.report
    quiet = audit("--quiet", tmp_path / "AUDIT")
    assert (quiet.code, quiet.err) == (0, "")
    assert quiet.out.count("\n") == 1 and "eakage" in quiet.out


def test_report__of_an_audit(audit: Audit, tmp_path: Path) -> None:
    flags = "--attacks similarity,internal,encodermi-t,encodermi-v,ascent,baseline-a "
    done = audit(flags, tmp_path / "AUDIT", figures=True)
    assert done.code == 0
    page = (tmp_path / "AUDIT" / "report.html").read_text()
    assert "<h1>Membership leakage of the encoder tests.auditing.brought:tiny</h1>" in page
    for absent in ("<h2>Clients", "<h2>Rounds", "<h2>Under ascent", "<h2>Sweep", "--seeds"):
        assert absent not in page
    assert "<dt>encodermi-t, encodermi-v, baseline-a</dt><dd>needs shadow encoders" in page
    text = " ".join(done.out.split())
    assert text.count("needs shadow encoders") == 1
    assert "Not run: encodermi-t, encodermi-v, baseline-a: needs shadow encoders" in text
    assert done.not_run["encodermi-v"] == done.not_run["baseline-a"]
    assert done.report["timing"]["by_attack"].keys() == {"similarity", "internal"}
