"""An audit cut short, broken in part, repeated; and what it prints."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import yaml

from tests.auditing.attacks import acting, fail, interrupts, named
from tests.auditing.brought import tiny
from tests.auditing.conftest import Audit, anew, kept, numbers, sides, textures, write
from tests.storage.disk import failing

DISK_FAILED = 74
MEAN, OTHER = "tests.auditing.attacks:Mean", "tests.auditing.attacks:Other"
TWO = f"--attacks {named('Mean', 'Other')} "


def scored(*names: str) -> set[str]:
    """Files of attacks, on the encoder and on its control."""
    return {f"{model}-{name}" for name in names for model in ("main", "untrained")}


def test_broken_attack__costs_the_others_nothing_and_is_tried_again(
    audit: Audit, tmp_path: Path
) -> None:
    out = tmp_path / "AUDIT"
    with acting("Mean", fail):
        done = audit(TWO, out)
    assert done.code == 1 and done.names() == [OTHER]
    assert done.not_run == {MEAN: "failed: ZeroDivisionError: a slip of two lines"}
    assert f"Not run: {MEAN}: failed: ZeroDivisionError" in " ".join(done.out.split())
    before = kept(out)
    again = audit(TWO, out)
    assert again.code == 0 and again.names() == [MEAN, OTHER]
    assert len(anew(out, before)) == len(before) == 2  # on the encoder, and on the control
    assert done.report["attacks"][0]["auc"] == again.report["attacks"][1]["auc"]


def test_broken_attack__alone_is_exit_code_1_and_no_folder(audit: Audit, tmp_path: Path) -> None:
    with acting("Mean", fail):
        done = audit(f"--attacks {named('Mean')}", tmp_path / "new" / "AUDIT")
    assert done.code == 1 and not (tmp_path / "new").exists()
    assert done.err.endswith(f"no attack could run; {MEAN}: failed: ZeroDivisionError: a slip of "
                             "two lines\n")  # fmt: skip


def test_broken_attack__on_the_control_only(audit: Audit) -> None:
    calls = []

    def second() -> None:
        calls.append(1)
        if len(calls) > 2:  # the first two score the images and choose the threshold
            fail()

    with acting("Mean", second):
        done = audit(TWO)
    assert done.code == 1 and done.names() == [MEAN, OTHER]
    assert [row["name"] for row in done.report["controls"]["untrained"]] == [OTHER]
    note = f"{MEAN} has no untrained control, it failed"
    assert any(note in one for one in done.report["notes"])


def test_control__an_encoder_without_one_is_audited_and_said(audit: Audit) -> None:
    done = audit("--encoder tests.auditing.brought:Overflows")
    assert done.code == 0 and done.names() == ["similarity", "lpla"]
    assert done.report["controls"]["untrained"] == []
    notes = [n for n in done.report["notes"] if "no untrained control" in n]
    assert len(notes) == 1 and "not finite with permuted weights" in notes[0]
    assert not any("The untrained control is" in n for n in done.report["notes"])
    assert done.report["utility"]["knn"] is not None
    assert done.report["utility_untrained"]["knn"] is None


def test_interrupt__finished_attacks_are_reported_and_the_rest_go_on_later(
    audit: Audit, tmp_path: Path
) -> None:
    out, before = tmp_path / "AUDIT", signal.getsignal(signal.SIGINT)
    flags = f"--attacks {named('Mean', 'Other')},lpla "
    with acting("Mean", interrupts()):
        done = audit(flags, out)
    assert signal.getsignal(signal.SIGINT) is before
    assert done.code == 130 and done.names() == [MEAN]
    assert set(done.not_run) == {OTHER, "lpla"}
    assert "interrupted" in done.not_run["lpla"] and "fedmia: interrupted" in done.err
    assert "fedmia: the same command again goes on with this audit" in done.err.splitlines()
    assert any("The audit was interrupted" in n for n in done.report["notes"])
    early = kept(out)
    again = audit(flags, out)
    assert again.code == 0 and len(again.report["attacks"]) == 3
    assert len(early) == 1 and len(anew(out, early)) == 5
    assert numbers(again.report) == numbers(audit(flags).report)


def test_interrupt__before_the_first_attack_is_done(audit: Audit, tmp_path: Path) -> None:
    done = audit("--encoder tests.auditing.attacks:interrupted", tmp_path / "new" / "AUDIT")
    assert done.code == 130 and "before the first attack" in done.err
    assert not (tmp_path / "new").exists()


def test_interrupt__twice_stops_at_once(audit: Audit, tmp_path: Path) -> None:
    with acting("Other", interrupts(2)):
        done = audit(TWO, tmp_path / "AUDIT")
    assert done.code == 130 and done.report == {} and "Traceback" not in done.err


@pytest.mark.slow
def test_config__repeats_the_numbers(audit: Audit, tmp_path: Path) -> None:
    flags = "--attacks similarity,internal,lpla --known 6 --limit 12 --seed 3 "
    flags += "--augment.crop_min 0.5 --mean 0.4 --std 0.2 --attack.lpla.p 1.5"
    first = audit(flags, tmp_path / "AUDIT")
    again = audit(f"--config {tmp_path}/AUDIT/config.yaml", tmp_path / "AGAIN")
    assert (first.code, again.code) == (0, 0)
    assert first.report["timing"].keys() == again.report["timing"].keys()
    assert numbers(first.report) == numbers(again.report)
    scores = [(tmp_path / name / "scores.csv").read_bytes() for name in ("AUDIT", "AGAIN")]
    assert scores[0] == scores[1]
    other = audit(f"--config {tmp_path}/AUDIT/config.yaml --seed 4")
    assert numbers(other.report)["attacks"] != numbers(first.report)["attacks"]


def test_out__other_options_are_refused_and_other_attacks_added(
    audit: Audit, tmp_path: Path
) -> None:
    """What a prior says of a finished audit needs no new scores either."""
    out = tmp_path / "AUDIT"
    plain = audit("--attacks lpla", out).report
    refused = audit("--attacks lpla --seed 1", out)
    assert refused.code == 2 and "already holds another run or audit" in refused.err
    assert json.loads((out / "report.json").read_text()) == plain
    early = kept(out)
    done = audit("--attacks lpla --prior 0.01", out)
    assert done.code == 0 and anew(out, early) == set() and done.report["config"]["prior"] == 0.01
    (row,), (before,) = done.report["attacks"], plain["attacks"]
    right, tpr = row.pop("precision_at_prior")["0.1"], row["tpr_at_fpr"]["0.1"]
    assert row.pop("precision_at_prior_ci")["0.1"][0] <= right and row == before
    assert right == pytest.approx(tpr * 0.01 / (tpr * 0.01 + 0.1 * 0.99), abs=1e-5)
    done = audit("--attacks similarity,lpla --attack.lpla.p 1", out)  # its scores are of p = 2
    assert done.code == 0 and anew(out, early) == scored("similarity", "lpla")
    assert "prior" not in done.report["config"]
    tree = yaml.safe_load((out / "config.yaml").read_text())
    assert tree["attack"] == {"lpla": {"p": 1.0}, "similarity": {"views": 3}}


def test_full_disk__one_line_and_finished_attacks_stay_but_for_half_a_file(
    audit: Audit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, out = audit(""), tmp_path / "AUDIT"
    with failing(out, monkeypatch, "main-lpla"):
        stopped = audit("--quiet", out)
    assert stopped.code == DISK_FAILED and not stopped.report
    assert (
        stopped.err.count("\n") == 1
        and "No space left on device: free some space there; the same" in stopped.err
    )
    early = kept(out)
    assert set(early) == {"main-similarity"}
    with failing(out, monkeypatch, "report.json"):
        assert audit("--quiet", out).code == DISK_FAILED
    assert anew(out, early) == scored("similarity", "lpla") - {"main-similarity"}
    file = out / "attacks" / "main-lpla.safetensors"
    file.write_bytes(file.read_bytes()[:200])
    early = kept(out)
    again = audit("", out)
    assert anew(out, early) == {"main-lpla"} and numbers(again.report) == numbers(whole.report)


@pytest.mark.slow
def test_out__other_images_or_weights_under_the_same_name_are_scored_anew(
    audit: Audit, tmp_path: Path
) -> None:
    here, changed, weights = sides(tmp_path), textures(26, seed=9), tmp_path / "w.pth"
    flags = f"{here.flags} --encoder tests.auditing.brought:tiny --checkpoint {weights}"
    torch.save(tiny().state_dict(), weights)
    audit(flags, tmp_path / "AUDIT")
    changes: tuple[Callable[[], object], ...] = (
        lambda: write(here.members, changed.images, changed.labels),
        lambda: write(here.members, changed.images, changed.labels[::-1]),
        lambda: torch.save(tiny().state_dict(), weights),
    )
    for change in changes:
        change()
        for want in (scored("similarity", "lpla"), set()):
            before = kept(tmp_path / "AUDIT")
            assert audit(flags, tmp_path / "AUDIT").code == 0
            assert anew(tmp_path / "AUDIT", before) == want


def test_report__of_an_audit_is_what_it_prints(audit: Audit, tmp_path: Path) -> None:
    flags = "--attacks similarity,internal,encodermi-t,encodermi-v,ascent,baseline-a "
    done = audit(flags, tmp_path / "AUDIT")
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
    printed = audit(f"{flags}--json")
    assert (printed.code, printed.err) == (0, "")
    assert numbers(json.loads(printed.out)) == numbers(done.report)
    quiet = audit(f"{flags}--quiet", text=True)
    assert (quiet.code, quiet.err) == (0, "") and quiet.out == f"{done.report['verdict']}\n"
