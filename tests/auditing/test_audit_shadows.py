"""Shadow encoders of an audit: trained once, kept, brought, and what cannot be known."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from shutil import copytree, rmtree
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from fedmia.cli.command import parse
from fedmia.cli.commands import AUDIT
from fedmia.evaluation.audits.prepare import prepare
from fedmia.evaluation.audits.provided_shadows import ProvidedShadows
from fedmia.evaluation.audits.shadows import OwnShadows
from fedmia.settings.errors import InputError
from fedmia.settings.tree import to_tree
from fedmia.shadows import train
from fedmia.shadows.plan import keep_crop_only
from fedmia.ssl.moco import MoCo, MoCoV2
from tests.auditing.conftest import RUN, Audit, Sides, numbers, textures, write
from tests.auditing.test_audit_runs import counted
from tests.bank import Bank
from tests.shadows.conftest import make_plan
from tests.shadows.conftest import train as shadows

SHADOWS = "--shadows 2 --shadow.epochs 2 --attacks similarity,encodermi-t "
Patch = pytest.MonkeyPatch


@pytest.fixture(scope="module")
def run(bank: Bank) -> Path:
    return bank.run(RUN)


def trainings(monkeypatch: Patch) -> list[int]:
    """Numbers of the shadows that are trained from now on."""
    plain, numbers = train.ShadowTraining.train, list[int]()

    def noted(shadow: Any, *rest: Any) -> Any:
        numbers.append(shadow.index)
        return plain(shadow, *rest)

    monkeypatch.setattr(train.ShadowTraining, "train", noted)
    return numbers


@pytest.mark.slow
def test_shadows__of_a_run_are_trained_once(
    audit: Audit, run: Path, tmp_path: Path, monkeypatch: Patch
) -> None:
    out, trained = tmp_path / "AUDIT", trainings(monkeypatch)
    flags = f"--encoder {run} {SHADOWS}"
    done = audit(flags, out, own_images=True)
    assert done.code == 0 and done.names() == ["similarity", "encodermi-t"]
    sources = [(r["threshold_source"], r["threshold"]) for r in done.report["attacks"]]
    cut = [n for n in done.report["notes"] if n.startswith("Shadow encoders: queue cut from 4096")]
    assert len(cut) == 1  # in the report, not on the screen alone
    assert sources[0][0] == "known" and sources[1] == ("shadow", 0.0)
    assert sorted(trained) == [0, 1] and len(list((out / "shadows").iterdir())) == 2
    split = done.report["split"]
    assert split["scored_members"] == 12 and split["scored_nonmembers"] == 26
    computed = counted(monkeypatch)
    again = audit(flags + "--attack.encodermi-t.similarity correlation ", out, own_images=True)
    assert again.code == 0 and computed == ["encodermi-t"] * 2
    assert len(trained) == 2  # the cache holds both
    third = audit(flags, tmp_path / "THIRD", own_images=True)
    assert sorted(trained[2:]) == [0, 1]  # another folder, another cache
    assert numbers(third.report) == numbers(done.report)


DATA = "--shadows 1 --shadow.epochs 1 --shadow.knowledge data --shadow.model smallnet "
BOTH = "--attacks lpla,encodermi-t --attack.encodermi-t.layer avgpool "


@pytest.mark.slow
def test_files__other_content_under_the_same_name_is_scored_anew(
    audit: Audit, tmp_path: Path, monkeypatch: Patch
) -> None:
    """By the attacks that read it alone: LpLA asks for no shadow, EncoderMI for no task."""
    own, task, out = tmp_path / "own.npz", tmp_path / "task.npz", tmp_path / "AUDIT"
    flags = f"{DATA}--attacks lpla,encodermi-t,baseline-a --attack.encodermi-t.layer avgpool "
    flags += f"--shadow-data npz:{own} --attack.baseline-a.downstream_file {task} "
    flags += "--attack.baseline-a.epochs 1 "
    pool, other = textures(20, seed=8), textures(20, seed=9)
    computed, shadowed = counted(monkeypatch), ["encodermi-t", "baseline-a"]
    for images, labels, of_task, anew in (
        (pool.images, pool.labels, pool, ["lpla", *shadowed]),
        (pool.images, pool.labels, pool, []),
        (other.images, pool.labels, pool, shadowed),
        (other.images, other.labels[::-1], pool, shadowed),
        (other.images, other.labels[::-1], other, ["baseline-a"]),
    ):
        write(own, images, labels)
        write(task, of_task.images, of_task.labels)
        done = audit(flags, out)
        assert done.names() == ["lpla", *shadowed]
        assert computed == anew * 2
        computed.clear()
    assert done.report["split"]["scored_nonmembers"] == 34  # none were set apart for shadows
    assert done.report["config"]["shadow"]["data"] == f"npz:{own}"
    own.unlink()
    done = audit(flags, out)
    assert done.names() == ["lpla"] and "shadow.data: " in done.not_run["encodermi-t"]


@pytest.mark.slow
def test_shadow_encoders__others_under_the_same_name_are_scored_anew(
    audit: Audit, tmp_path: Path, monkeypatch: Patch
) -> None:
    for seed in (0, 1):
        audit(f"{DATA}{BOTH}--shadow.seed {seed} ", tmp_path / f"SEED{seed}")
    brought, out = tmp_path / "brought", tmp_path / "AUDIT"
    flags = f"--shadow-encoders {brought} {BOTH}"
    copytree(tmp_path / "SEED0" / "shadows", brought)
    first = audit(flags, out)
    assert first.names() == ["lpla", "encodermi-t"]
    computed = counted(monkeypatch)
    assert numbers(audit(flags, out).report) == numbers(first.report) and computed == []
    rmtree(brought)
    copytree(tmp_path / "SEED1" / "shadows", brought)
    again = audit(flags, out)
    assert again.names() == ["lpla", "encodermi-t"]
    assert computed == ["lpla", "encodermi-t"] * 2  # other non-members are left to score
    assert numbers(again.report) == numbers(audit(flags, tmp_path / "OTHER").report)
    next(brought.glob("*/encoder.safetensors")).write_bytes(b"cut")
    broken = audit(flags, out)
    assert broken.names() == ["lpla"] and "is damaged" in broken.not_run["encodermi-t"]


def test_shadows__that_cannot_be_trained_fail_once(
    audit: Audit, tmp_path: Path, monkeypatch: Patch
) -> None:
    calls: list[int] = []

    def diverge(*_: object) -> None:
        calls.append(1)
        raise InputError("shadow-0 diverged in epoch 1")

    monkeypatch.setattr(train.ShadowTraining, "train", diverge)
    flags = "--attacks encodermi-t,encodermi-v,lpla --shadows 1 "
    unknown = audit(flags, tmp_path / "UNKNOWN")
    assert "the target's architecture is not recorded" in unknown.not_run["encodermi-t"]
    done = audit(flags + "--shadow.knowledge data --shadow.model smallnet ", tmp_path / "AUDIT")
    assert done.code == 0 and done.names() == ["lpla"] and len(calls) == 1
    assert done.not_run == dict.fromkeys(
        ("encodermi-t", "encodermi-v"), "shadow-0 diverged in epoch 1"
    )


@pytest.mark.slow
def test_shadows__interrupted_go_on_where_they_stopped(
    audit: Audit, tmp_path: Path, monkeypatch: Patch
) -> None:
    plain = train.ShadowTraining.train

    def second_is_cut(shadow: Any, *rest: Any) -> Any:
        if shadow.index == 1:
            os.kill(os.getpid(), signal.SIGINT)  # this thread is not the one that handles it
            time.sleep(0.1)
        return plain(shadow, *rest)

    flags = "--shadows 2 --shadow.epochs 2 --shadow.knowledge data --shadow.model smallnet "
    flags += "--attacks lpla,encodermi-t,similarity"
    out = tmp_path / "AUDIT"
    with monkeypatch.context() as patch:
        patch.setattr(train.ShadowTraining, "train", second_is_cut)
        patch.setattr(train, "count_cores", lambda: 1)  # one after the other
        done = audit(flags, out)
    assert done.code == 130 and done.names() == ["lpla"]
    assert "interrupted" in done.not_run["encodermi-t"] and "interrupted" in done.not_run[
        "similarity"]  # fmt: skip
    trained = trainings(monkeypatch)
    again = audit(flags, out)
    assert again.code == 0 and len(again.report["attacks"]) == 3 and trained == [1]


DATA_ALONE = "--shadows 1 --shadow.knowledge data "


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (f"{DATA_ALONE}--shadow.images 400", "need 800 distinct images that are not under attack"),
        (f"{DATA_ALONE}--shadow-data digits", "the audited ones are (3, 8, 8)"),
        ("--shadow-encoders {empty}", "holds no about.json"),
        (f"{DATA_ALONE}--shadow.size 4 --shadow.online true", "shadow.size 4: online shadows"),
        ("--shadows 1 --shadow.local_epochs 3", "option shadow.local_epochs; did you mean"),
        ("--shadows 1 --shadow.momentum 2", "shadow.momentum: 2.0, must be < 1"),
        ("--shadows 1 --shadow.model smallnet --shadow.model.depth 2", "is no option of model 'sm"),
        (
            f"{DATA_ALONE}--shadow.model vit-tiny --shadow.size 9",
            "cuts 9x9 images into patches",
        ),
        (
            "--shadow.model.width 8",
            "shadow.model.width is given without shadow.count",
        ),
        (
            "--shadows 1 --shadow.knowledge none",
            "(--shadow-data) DATASET, or add data",
        ),
        ("--shadows 1 --shadow.model smallnet", "take architecture out of shadow.knowledge"),
        ("--shadows 1 --shadow.ssl mocov2", "take algorithm out of shadow.knowledge"),
        ("--shadow-defense dpsgd", "shadow.defense (--shadow-defense) is given without"),
        (f"{DATA_ALONE}--shadow-defense gaussian", "gaussian noises what a client sends, and a"),
        (
            f"{DATA_ALONE}--shadow-defense dpsgd,dpsgd",
            "(--shadow-defense) dpsgd is given twice",
        ),
        (f"{DATA_ALONE}--shadow-defense early-stopping", "the choice of the last round needs"),
    ],
)
def test_shadows__bad_input_is_one_line(
    flags: str, reason: str, audit: Audit, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    line = flags.format(empty=tmp_path / "empty") + " --attacks encodermi-t"
    done = audit(line, tmp_path / "new" / "AUDIT")
    assert done.code == 2 and reason in done.err.splitlines()[-1]
    assert done.err.count("fedmia: error: ") == 1 and "Traceback" not in done.err
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("knowledge", [("data", "algorithm"), ("data", "architecture")])
def test_shadow_encoders__say_what_the_attacker_knows_of_the_views(
    knowledge: tuple[str, ...], archives: Sides, tmp_path: Path
) -> None:
    """Without the algorithm the crop alone, as when they were trained, not the target's views."""
    pool = torch.from_numpy(textures(8, seed=8).images)
    shadows(make_plan(knowledge=knowledge, count=1, epochs=1), pool, cache=tmp_path)
    flags = f"--encoder tests.auditing.brought:tiny --shadow-encoders {tmp_path} {archives.flags}"
    settings, cpu = parse(AUDIT, flags.split()).settings, torch.device("cpu")
    released, audit_split = prepare(settings, cpu)
    given = ProvidedShadows(settings, audit_split)
    own = OwnShadows(settings, released, audit_split, None, cpu, print, print, bool, given)
    known = "algorithm" in knowledge
    assert own.augment() == (MoCo().augment if known else keep_crop_only(MoCoV2().augment))
    assert own.augment().jitter_p == float(known)


@pytest.mark.slow
def test_shadows__of_another_size_serve_attacks_that_show_them_their_own_images(
    audit: Audit, tmp_path: Path
) -> None:
    out, attacks = tmp_path / "AUDIT", "--attacks encodermi-t,lira,baseline-a "
    done = audit(f"{DATA}{attacks}--shadow.size 4 --attack.encodermi-t.layer avgpool ", out)
    assert done.names() == ["encodermi-t"]
    for name in ("lira", "baseline-a"):
        assert "trained on 3x4x4, and to the target, audited on 3x8x8" in done.not_run[name]
    given = f"{attacks}--shadow-encoders {out}/shadows --attack.encodermi-t.layer avgpool "
    assert audit(given, tmp_path / "GIVEN").names() == ["encodermi-t"]


@pytest.mark.slow
def test_shadows__have_options_of_their_own(audit: Audit, tmp_path: Path) -> None:
    own, out = textures(20, pixels=16, seed=8), tmp_path / "AUDIT"
    flags = (
        f"--shadows 1 --shadow.epochs 1 --shadow.knowledge data --attacks encodermi-t "
        f"--shadow-data npz:{write(tmp_path / 'own.npz', own.images, own.labels)} "
        "--attack.encodermi-t.layer avgpool --shadow.size 16 --shadow.batch_size 5 --shadow.lr .02 "
        "--shadow.momentum 0.5 --shadow.schedule constant --shadow.model smallnet "
        "--shadow.model.width 6 --shadow.ssl mocov2 --shadow.ssl.dim 12 "
    )
    assert audit(flags, out).names() == ["encodermi-t"]
    (folder,) = (out / "shadows").iterdir()
    about = json.loads((folder / "about.json").read_text())
    assert (about["size"], about["model"][0], about["model"][1]["width"]) == (16, "smallnet", 6)
    assert (about["ssl"][0], about["ssl"][1]["dim"]) == ("mocov2", 12)
    train = {"batch_size": 5, "lr": 0.02, "momentum": 0.5, "schedule": "constant"}
    assert train.items() <= about["train"].items()


def test_shadows__options_of_a_stand_in_go_with_it(archives: Sides, tmp_path: Path) -> None:
    first = "--shadows 1 --shadow.knowledge data --shadow.ssl mocov2 --shadow.ssl.dim 12 "
    first += f"--shadow.model.width 6 --encoder tests.auditing.brought:tiny {archives.flags}"
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(to_tree(parse(AUDIT, first.split()).settings)))

    def over(flags: str) -> dict[str, Any]:
        shadow = parse(AUDIT, f"--config {file} {flags}".split()).settings.shadow
        return {k: v for k, v in shadow.training.items() if k != "knowledge"}

    usual = {"ssl": "mocov2", "ssl.dim": 12, "model.width": 6}
    assert over("") == usual
    assert over("--shadow.model.norm batch") == {**usual, "model.norm": "batch"}
    assert over("--shadow.ssl simclr") == {"ssl": "simclr", "model.width": 6}
    assert over("--shadow.ssl simclr --shadow.ssl.dim 9")["ssl.dim"] == 9


def test_shadows__of_their_own_size_train_on_no_image_under_attack(
    audit: Audit, archives: Sides, tmp_path: Path
) -> None:
    """Where the source is resized for the audit, its images are told at the audited size."""
    large, small, own = (textures(30, 16, seed=8, size=side) for side in (16, 8, 12))
    file = write(tmp_path / "own.npz", large.images, large.labels)
    members = write(tmp_path / "m.npz", small.images[:20], small.labels[:20])
    flags = f"{DATA}--attacks encodermi-t --attack.encodermi-t.layer avgpool --shadow.size 12 "
    flags += f"--members npz:{members} --nonmembers npz:{archives.nonmembers} "
    done = audit(f"{flags}--shadow-data npz:{file} ", tmp_path / "AUDIT")
    assert done.names() == ["encodermi-t"]
    with np.load(next((tmp_path / "AUDIT" / "shadows").glob("*/images.npz"))) as archive:
        trained = {x.tobytes() for side in archive.values() for x in side}
    assert trained == {x.tobytes() for x in own.images[20:]}


@pytest.mark.slow
def test_run__its_own_images(audit: Audit, run: Path, tmp_path: Path) -> None:
    whole = audit(f"--encoder {run}", tmp_path / "WHOLE", own_images=True)
    assert whole.code == 0 and whole.report["split"]["scored_nonmembers"] == 52
    assert "Members and non-members are those of the run itself." in whole.report["notes"]
    part = audit(f"--encoder {run}@1 --limit 10 --known 3", tmp_path / "PART", own_images=True)
    split = part.report["split"]
    assert [split[f"scored_{s}"] for s in ("members", "nonmembers")] == [10, 10]
    assert split["known_members"] == 3
    # Neighbours in a data source may be alike: the limit must not take the first ones.
    ids = [int(line.split(",")[0]) for line in
           (tmp_path / "PART" / "scores.csv").read_text().splitlines()[11:]]  # fmt: skip
    rest = [int(line.split(",")[0]) for line in
            (tmp_path / "WHOLE" / "scores.csv").read_text().splitlines()[13:]]  # fmt: skip
    assert set(ids) < set(rest) and ids != sorted(rest)[:10]
    large = audit(f"--encoder {run} --size 16", tmp_path / "LARGE", own_images=True)
    assert large.code == 0 and large.report["split"]["size"] == 16
    done = audit(f"--encoder {run} --known 30", tmp_path / "NEW", own_images=True)
    assert done.code == 2 and "split.known (--known) 30: the run has 4 known members" in done.err
