"""Vectors alone, in place of an encoder and of images."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.numpy import save_file

from fedmia.api import view
from tests.auditing.conftest import Audit, Sides
from tests.auditing.test_remote import module

VIEWS = 3
NEEDLESS = ("similarity", "lpla", "sd-mi", "fe-mi", "supervised-mi", "dataset-inference")


@pytest.fixture
def vectors(tmp_path: Path) -> str:
    """Flags that name two files of random vectors, three views an image."""
    stream = np.random.default_rng(0)
    for name, count in (("A", 26), ("B", 40)):
        np.save(tmp_path / f"{name}.npy", stream.normal(size=(count, VIEWS, 8)))
    return (
        f"--member-embeddings {tmp_path / 'A.npy'} --nonmember-embeddings {tmp_path / 'B.npy'} "
        "--known 6 "
    )


def scores(folder: Path, attack: str) -> dict[tuple[str, str], float]:
    """(truth, image) -> the score by an attack."""
    with (folder / "scores.csv").open() as file:
        return {(r["truth"], r["image"]): float(r[attack]) for r in csv.DictReader(file)}


def test_vectors__have_the_scores_of_their_encoder(
    audit: Audit, archives: Sides, tmp_path: Path
) -> None:
    flags = "--attacks similarity --attack.similarity.views 3 --known 6"
    audit(f"--encoder tests.auditing.test_remote:module --mean 0 --std 1 {flags}", tmp_path / "M")
    line = ""
    for name in ("member", "nonmember"):
        images = np.load(getattr(archives, f"{name}s"))["x"].transpose(0, 3, 1, 2)
        asked = view(module(), mean=[0.0], std=[1.0])
        np.save(tmp_path / f"{name}.npy", asked.embed_views(torch.from_numpy(images), VIEWS))
        line += f"--{name}-embeddings {tmp_path / name}.npy "
    done = audit(line + flags, tmp_path / "V")
    assert done.code == 0, done.err
    ours, theirs = (scores(tmp_path / one, "similarity") for one in "MV")
    both = ours.keys() & theirs.keys()
    assert len(both) > 20 and len({truth for truth, _ in both}) == 2
    for key in both:
        assert ours[key] == pytest.approx(theirs[key], abs=1e-6)


def test_vectors__run_what_needs_no_more_and_name_the_rest(
    vectors: str, audit: Audit, tmp_path: Path
) -> None:
    done = audit(f"{vectors} --attacks all", tmp_path / "V")
    assert done.code == 0, done.err
    ran = {*done.names(), *(row["attack"] for row in done.report["dataset_inference"])}
    assert ran == {*NEEDLESS} and "failed" not in str(done.not_run)
    for attack, words in (
        ("grad-norm", "white_box"), ("partcrop", "only vectors are given"),
        ("variance-only", "only vectors are given"), ("rmia", "needs shadow encoders"),
    ):  # fmt: skip
        assert words in done.not_run[attack]
    report = done.report
    assert report["controls"]["pixels"] is None and report["controls"]["posers"]
    assert report["controls"]["untrained"] == [] and report["utility"]["knn"] is None
    assert "encoder" not in report or report["encoder"] is None
    assert report["split"]["scored_members"] == 20 and report["split"]["members"] == "A.npy"
    notes = " ".join(report["notes"])
    assert "vectors of 3 views of each image were given" in notes and "pixels" not in notes
    assert (tmp_path / "V" / "report.html").is_file()


def test_views__are_as_many_as_the_file_has_unless_more_are_asked_for(
    vectors: str, audit: Audit
) -> None:
    more = "--attacks lpla,similarity --attack.similarity.views 5"
    asked = audit(f"{vectors} {more}", Path(vectors.split()[1]).parent / "V")
    assert asked.names() == ["lpla"]
    assert "needs 5 views of each image, and the embeddings have 3" in asked.not_run["similarity"]


@pytest.mark.parametrize("suffix", ["npz", "parquet", "safetensors", "numbers.parquet"])
def test_files__of_every_kind_hold_the_same(suffix: str, audit: Audit, tmp_path: Path) -> None:
    stream, reports = np.random.default_rng(1), []
    sides = {name: stream.normal(size=(30, 8)).astype(np.float32) for name in ("A", "B")}
    for kind in ("npy", suffix):
        for name, rows in sides.items():
            file = tmp_path / f"{name}.{kind}"
            if kind == "npy":
                np.save(file, rows)
            elif kind == "npz":
                np.savez(file, x=rows)
            elif kind == "safetensors":
                save_file({"x": rows}, file)
            elif kind == "parquet":
                pd.DataFrame({"image": range(30), "vector": list(rows)}).to_parquet(file)
            else:
                pd.DataFrame(rows, columns=[f"d{n}" for n in range(8)]).to_parquet(file)
        pair = [tmp_path / f"{name}.{kind}" for name in sides]
        flags = f"--member-embeddings {pair[0]} --nonmember-embeddings {pair[1]} --attacks lpla"
        reports.append(audit(flags, tmp_path / kind).report)
    assert reports[0]["attacks"] == reports[1]["attacks"]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ("--member-embeddings A.npy", "is given without nonmember_embeddings"),
        ("--member-embeddings A.npy --nonmember-embeddings A.npy", "share 26"),
        ("--member-embeddings A.npy --nonmember-embeddings C.npy", "must be alike"),
        ("--member-embeddings A.npy --nonmember-embeddings D.npy", "2 rows are not finite"),
        ("--member-embeddings A.npy --nonmember-embeddings E.npy", "must be numbers (N, D)"),
        ("--member-embeddings A.npy --nonmember-embeddings none.npy", "No such file"),
        ("--member-embeddings A.npy --nonmember-embeddings A.txt", "ends in one of .npy"),
        ("--member-embeddings A.npy --nonmember-embeddings B.npy --shadows 2", "shadows 2 beside"),
        ("--member-embeddings A.npy --nonmember-embeddings B.npy --size 8", "size 8 beside"),
        ("--member-embeddings A.npy --nonmember-embeddings B.npy --known 30", "too few"),
    ],
)
def test_refusals__are_one_line(
    flags: str, words: str, vectors: str, audit: Audit, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    rows = np.ones((30, 1, 8))
    np.save("C.npy", rows)
    broken = np.random.default_rng(0).normal(size=(30, VIEWS, 8))
    broken[3:5] = np.nan
    np.save("D.npy", broken)
    np.save("E.npy", np.array(["a"] * 30))
    (tmp_path / "A.txt").write_text("1 2")
    done = audit(flags)
    assert done.code == 2 and words in done.err, done.err
    assert len(done.err.strip().splitlines()) <= 2 and "Traceback" not in done.err
