"""Attackers who know the target's defence: shadows trained under it, beside naive ones."""

from __future__ import annotations

import json
from pathlib import Path
from shutil import copytree

import pytest

from tests.auditing.conftest import Audit, kept, textures, write
from tests.commands import fedmia

KNOWN = "--shadow.knowledge data --shadow.model smallnet --shadow.epochs 2 "
ONE = f"--shadows 1 {KNOWN}--attacks encodermi-t "


@pytest.mark.slow
def test_shadow_defense__stands_beside_naive_shadows(audit: Audit, tmp_path: Path) -> None:
    """Two trainings, two cached shadows, one row with its twin; alone the naive one is the same."""
    out = tmp_path / "KNOWING"
    flags = "--shadow-defense weight-decay --shadow-defense.weight-decay.weight_decay 0.5 "
    done = audit(ONE + flags, out)
    assert done.code == 0, done.err
    assert len(list((out / "shadows").iterdir())) == 2 and len(kept(out)) == 2 + 2
    (pair,) = done.report["paired"]
    assert (pair["attack"], pair["control"]) == ("encodermi-t", "encodermi-t-naive")
    assert pair["over"] == "the same with shadows trained without the defence"
    alone = audit(ONE)
    assert pair["auc_control"] == alone.report["attacks"][0]["auc"]
    assert not alone.report["paired"]
    abouts = [json.loads(p.read_text()) for p in out.glob("shadows/*/about.json")]
    assert sorted(d.get("defense", []) for d in abouts) == [
        [], [["weight-decay", {"weight_decay": 0.5}]]
    ]  # fmt: skip
    given = audit(f"--attacks encodermi-t --shadow-encoders {out}/shadows ")
    (pair,) = given.report["paired"]
    assert pair["control"] == "encodermi-t-naive" and pair["n_nonmembers"] == 34 - 16
    assert any(n.startswith("16 scored non-members are left out") for n in given.report["notes"])
    other = "--shadow-defense crop-range "
    audit(ONE + other + f"--cache {out}/shadows ")
    mixed = audit(f"--attacks encodermi-t --shadow-encoders {out}/shadows ")
    assert "mixes some trained under crop-range; no defence; weight-decay: give" in mixed.err


@pytest.mark.slow
def test_shadows__of_a_defended_run_are_said_to_be_naive(audit: Audit, tmp_path: Path) -> None:
    run, line = tmp_path / "run", FEDERATION.replace("nonmembers 8", "nonmembers 30")
    assert fedmia(f"{line}--dataset digits --defense crop-range", run).code == 0
    flags = f"--encoder {run} --shadows 1 --shadow.epochs 1 --attacks encodermi-t "
    sentence = "did not: shadow.defense (--shadow-defense) crop-range"
    notes = audit(flags, own_images=True).report["notes"]
    assert sum(sentence in note for note in notes) == 1
    known = audit(flags + "--shadow-defense crop-range ", own_images=True)
    assert not any(sentence in note for note in known.report["notes"])


# -- shadows that are federations of their own ---------------------------------------------------

FEDERATION = (
    "simulate --clients 2 --rounds 1 --attacker none --attacks none --split.members 8 "
    "--split.nonmembers 8 "
    "--split.test 6 --split.known 2 --train.local_epochs 1 --model.width 4 --ssl.dim 8 --quiet "
)
NOISED = "--defense gaussian --defense.scale 0.1 "
ATTACKS = "--attacks similarity,encodermi-t "


@pytest.fixture(scope="module")
def federations(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`target`, of noised updates, and in `shadows` two runs on images of the attacker's own:
    `knowing` under the same noise, `naive` without it."""
    folder = tmp_path_factory.mktemp("federations")
    for name, more, seed in (
        ("target", NOISED, 0), ("shadows/knowing", NOISED, 1), ("shadows/naive", "", 1)
    ):  # fmt: skip
        own = textures(60, seed=seed)
        file = write(folder / f"own-{seed}.npz", own.images, own.labels)
        line = f"{FEDERATION}{more}--dataset npz:{file} --seed {seed}"
        assert fedmia(line, folder / name).code == 0
    return folder


@pytest.mark.slow
def test_shadow_federations__know_noise_on_the_update(audit: Audit, federations: Path) -> None:
    """The knowing attacker's row with the naive one as its twin: what each has alone."""
    flags = f"--encoder {federations}/target {ATTACKS}--shadow-encoders {federations}/shadows"
    done = audit(flags, own_images=True)
    assert done.code == 0 and done.names() == ["similarity", "encodermi-t"], done.err
    (pair,) = done.report["paired"]
    assert pair["control"] == "encodermi-t-naive"
    notes = [n for n in done.report["notes"] if n.startswith("Shadow encoder ")]
    assert [n.rpartition(" under ")[2] for n in notes] == ["gaussian.", "no defence."]
    alone = {
        name: audit(f"{flags}/{name}", own_images=True).report for name in ("knowing", "naive")
    }
    assert not any(report["paired"] for report in alone.values())
    aucs = {name: report["attacks"][1]["auc"] for name, report in alone.items()}
    assert done.report["attacks"][1]["auc"] == aucs["knowing"]
    assert pair["auc_control"] == aucs["naive"]
    sentence = "The run was trained under gaussian, the shadow encoders under no defence."
    assert sentence in alone["naive"]["notes"] and sentence not in alone["knowing"]["notes"]


@pytest.mark.slow
def test_shadow_federations__bad_input_is_one_line(
    audit: Audit, federations: Path, tmp_path: Path
) -> None:
    flags = f"--encoder {federations}/target --attacks encodermi-t --shadow-encoders "
    done = audit(f"{flags}{federations}/target", own_images=True)
    assert done.code == 2 and "hold 6 of the members under attack; a shadow" in done.err
    copytree(federations / "shadows" / "naive", tmp_path / "cut")
    (tmp_path / "cut" / "config.yaml").write_text("data: {")
    done = audit(f"{flags}{tmp_path}/cut", own_images=True)
    assert done.code == 2 and "Traceback" not in done.err
    assert "shadow encoders: " in done.err and "not valid YAML" in done.err


@pytest.mark.slow
def test_audit__of_a_run_leaves_out_clients_that_it_dropped(audit: Audit, tmp_path: Path) -> None:
    run, flags = tmp_path / "run", f"--encoder {tmp_path}/run --attacks similarity,lpla "
    line = FEDERATION.replace("known 2", "known 4").replace("members 8 ", "members 12 ")
    assert fedmia(f"{line}--dataset digits", run).code == 0
    whole = audit(flags, own_images=True)
    report = json.loads((run / "report.json").read_text())
    fault = {"branch": "main", "round": 1, "client": 1, "reason": "was lost", "action": "dropped"}
    (run / "report.json").write_text(json.dumps(report | {"faults": [fault]}))
    left = audit(flags, own_images=True)
    counts = [a.report["split"] for a in (whole, left)]
    sizes = [c["known_members"] + c["scored_members"] for c in counts]
    assert sizes == [12, report["clients"][0]["size"]]
