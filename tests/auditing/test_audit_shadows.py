"""Shadow encoders of an audit: trained once, kept, brought, and what cannot be known."""

from __future__ import annotations

import json
from pathlib import Path
from shutil import copytree, rmtree
from typing import Any

import numpy as np
import pytest
import torch

from fedmia.ssl.moco import MoCo
from tests.auditing.attacks import named
from tests.auditing.conftest import Audit, Sides, anew, kept, numbers, textures, write
from tests.bank import Bank
from tests.shadows.conftest import make_plan
from tests.shadows.conftest import train as shadows

SHADOWS = "--shadows 2 --shadow.epochs 2 --attacks similarity,encodermi-t "


@pytest.fixture(scope="module")
def run(bank: Bank) -> Path:
    return bank.run("central")


def scored(*names: str) -> set[str]:
    """Files of attacks, on the encoder and on its control."""
    return {f"{model}-{name}" for name in names for model in ("main", "untrained")}


@pytest.mark.slow
def test_shadows__of_a_run_are_trained_once(audit: Audit, run: Path, tmp_path: Path) -> None:
    out, flags = tmp_path / "AUDIT", f"--encoder {run} {SHADOWS}"
    done = audit(flags, out, own_images=True)
    assert done.code == 0 and done.names() == ["similarity", "encodermi-t"]
    sources = [(r["threshold_source"], r["threshold"]) for r in done.report["attacks"]]
    cut = [n for n in done.report["notes"] if n.startswith("Shadow encoders: queue cut from 4096")]
    assert len(cut) == 1  # in the report, not on the screen alone
    assert sources[0][0] == "known" and sources[1] == ("shadow", 0.0)
    split = done.report["split"]
    assert split["scored_members"] == 24 and split["scored_nonmembers"] == 26
    before = kept(out)
    assert len(before) == 4 + 2  # two shadows, and their digests are names
    again = audit(flags + "--attack.encodermi-t.similarity correlation ", out, own_images=True)
    assert again.code == 0 and anew(out, before) == scored("encodermi-t")  # of the same shadows
    third = audit(flags, own_images=True)  # without a folder there is no cache
    assert numbers(third.report) == numbers(done.report)


DATA = "--shadows 1 --shadow.epochs 1 --shadow.knowledge data --shadow.model smallnet "
BOTH = "--attacks lpla,encodermi-t --attack.encodermi-t.layer avgpool "


@pytest.mark.slow
def test_files__other_content_under_the_same_name_is_scored_anew(
    audit: Audit, tmp_path: Path
) -> None:
    """By the attacks that read it alone: LpLA asks for no shadow, EncoderMI for no task."""
    own, task, out = tmp_path / "own.npz", tmp_path / "task.npz", tmp_path / "AUDIT"
    flags = f"{DATA}--attacks lpla,encodermi-t,baseline-a --attack.encodermi-t.layer avgpool "
    flags += f"--shadow-data npz:{own} --attack.baseline-a.downstream_file {task} "
    flags += "--attack.baseline-a.epochs 1 "
    pool, other = textures(20, seed=8), textures(20, seed=9)
    shadowed = ["encodermi-t", "baseline-a"]
    for images, labels, of_task, new in (
        (pool.images, pool.labels, pool, ["lpla", *shadowed]),
        (pool.images, pool.labels, pool, []),
        (other.images, pool.labels, pool, shadowed),
        (other.images, other.labels[::-1], pool, shadowed),
        (other.images, other.labels[::-1], other, ["baseline-a"]),
    ):
        write(own, images, labels)
        write(task, of_task.images, of_task.labels)
        before = kept(out)
        done = audit(flags, out)
        assert done.names() == ["lpla", *shadowed]
        assert {n for n in anew(out, before) if "-" in n} == scored(*new)
    assert done.report["split"]["scored_nonmembers"] == 34  # none were set apart for shadows
    assert done.report["config"]["shadow"]["data"] == f"npz:{own}"
    own.unlink()
    done = audit(flags, out)
    assert done.names() == ["lpla"] and "shadow.data: " in done.not_run["encodermi-t"]


@pytest.mark.slow
def test_shadow_encoders__others_under_the_same_name_are_scored_anew(
    audit: Audit, tmp_path: Path
) -> None:
    for seed in (0, 1):
        audit(f"{DATA}{BOTH}--shadow.seed {seed} ", tmp_path / f"SEED{seed}")
    brought, out = tmp_path / "brought", tmp_path / "AUDIT"
    flags = f"--shadow-encoders {brought} {BOTH}"
    copytree(tmp_path / "SEED0" / "shadows", brought)
    first = audit(flags, out)
    assert first.names() == ["lpla", "encodermi-t"]
    before = kept(out)
    assert numbers(audit(flags, out).report) == numbers(first.report) and not anew(out, before)
    rmtree(brought)
    copytree(tmp_path / "SEED1" / "shadows", brought)
    again = audit(flags, out)
    assert again.names() == ["lpla", "encodermi-t"]
    assert anew(out, before) == scored("lpla", "encodermi-t")  # other non-members are left to score
    assert numbers(again.report) == numbers(audit(flags).report)
    next(brought.glob("*/encoder.safetensors")).write_bytes(b"cut")
    broken = audit(flags, out)
    assert broken.names() == ["lpla"] and "is damaged" in broken.not_run["encodermi-t"]


def test_shadows__that_cannot_be_trained_fail_once(audit: Audit) -> None:
    flags = "--attacks encodermi-t,encodermi-v,lpla --shadows 1 "
    unknown = audit(flags)
    assert "the target's architecture is not recorded" in unknown.not_run["encodermi-t"]
    known = "--shadow.knowledge data --shadow.model smallnet --shadow.epochs 3 --shadow.lr 1e30 "
    done = audit(flags + known)
    assert done.code == 0 and done.names() == ["lpla"]
    first, other = (done.not_run[f"encodermi-{kind}"] for kind in "tv")
    assert first == other and "diverged in epoch" in first


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
    knowledge: tuple[str, ...], audit: Audit, tmp_path: Path
) -> None:
    """Without the algorithm the crop alone, as when they were trained, not the target's views."""
    pool = torch.from_numpy(textures(8, seed=8).images)
    shadows(make_plan(knowledge=knowledge, count=1, epochs=1), pool, cache=tmp_path)
    done = audit(f"--attacks {named('Mean')} --shadow-encoders {tmp_path}")
    views, known = done.report["config"]["views"], "algorithm" in knowledge
    assert views["jitter_p"] == float(known) and views["crop_min"] < 1
    assert (views["flip"] == MoCo().augment.flip) is known


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
    assert audit(given).names() == ["encodermi-t"]


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


def test_shadows__options_of_a_stand_in_go_with_it(audit: Audit, tmp_path: Path) -> None:
    first = (
        f"{DATA.replace('--shadow.model smallnet ', '')}--shadow.ssl mocov2 --attacks encodermi-t "
    )
    assert audit(f"{first} --shadow.ssl.dim 12 --shadow.model.width 6", tmp_path / "A").code == 0

    def over(flags: str) -> dict[str, Any]:
        own = audit(f"--config {tmp_path}/A/config.yaml {flags}").report["config"]["shadow"]
        return {k: own[k] for k in ("ssl", "ssl.dim", "model") if k in own}

    usual = {"ssl": "mocov2", "ssl.dim": 12, "model": {"width": 6}}
    assert over("") == usual
    assert over("--shadow.model.norm batch") == usual | {"model": {"width": 6, "norm": "batch"}}
    assert over("--shadow.ssl simclr") == {"ssl": "simclr", "model": {"width": 6}}
    assert over("--shadow.ssl simclr --shadow.ssl.dim 9") == usual | {"ssl": "simclr", "ssl.dim": 9}


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


def test_run__its_own_images(audit: Audit, run: Path, tmp_path: Path) -> None:
    flags = f"--encoder {run} --attacks {named('Mean')} "
    whole = audit(flags, own_images=True)
    assert whole.code == 0 and whole.report["split"]["scored_nonmembers"] == 52
    assert "Members and non-members are those of the run itself." in whole.report["notes"]
    part = audit(f"{flags}--limit 10 --known 3", tmp_path / "PART", own_images=True)
    split = part.report["split"]
    assert [split[f"scored_{s}"] for s in ("members", "nonmembers")] == [10, 10]
    assert split["known_members"] == 3
    # Neighbours in a data source may be alike: the limit must not take the first ones.
    ids, rest = (
        [int(line.split(",")[0]) for line in (folder / "scores.csv").read_text().splitlines()[1:]]
        for folder in (tmp_path / "PART", run)
    )
    ids, rest = ids[10:], rest[24:]
    assert set(ids) < set(rest) and ids != sorted(rest)[:10]
    large = audit(f"{flags}--size 16", own_images=True)
    assert large.code == 0 and large.report["split"]["size"] == 16
    done = audit(f"{flags}--known 30", own_images=True)
    assert done.code == 2 and "split.known (--known) 30: the run has 8 known members" in done.err
