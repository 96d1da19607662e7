"""Vectors alone, in place of an encoder and of images."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.numpy import save_file

import fedmia
from fedmia.encoders.vectors import as_vectors, load_vectors
from fedmia.settings.errors import InputError
from fedmia.threat import StoredVectors
from tests.auditing.conftest import Audit, Sides
from tests.auditing.test_remote import module

VIEWS = 3
BRIEF = "--attack.sd-mi.steps 9 --attack.fe-mi.steps 9 --attack.supervised-mi.steps 9"
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
        asked = fedmia.view(module(), mean=[0.0], std=[1.0])
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
    done = audit(f"{vectors} --attacks all {BRIEF}", tmp_path / "V")
    assert done.code == 0, done.err
    ran = {*done.names(), *(row["attack"] for row in done.report["dataset_inference"])}
    assert ran == {*NEEDLESS} and "failed" not in str(done.not_run)
    for attack, words in (
        ("grad-norm", "white_box"), ("partcrop", "needs a map of the image's parts"),
        ("variance-only", "only vectors are given"), ("rmia", "needs shadow encoders"),
    ):  # fmt: skip
        assert words in done.not_run[attack]
    assert "attack 1 of 14: " in done.err  # the control and what cannot run are not counted
    assert "all-for-one on the" not in done.err and "grad-norm" not in done.not_run["grad-norm"]
    report = done.report
    assert report["pixels"] is None and "There is no control: no attack" in report["means"]
    assert report["controls"]["untrained"] == [] and report["utility"]["knn"] is None
    assert report["encoder"] is None
    assert report["split"]["scored_members"] == 20 and report["split"]["members"] == "A.npy"
    assert report["split"]["views"] == VIEWS and not {"channels", "size"} & report["split"].keys()
    assert "views" not in report["config"]  # of images
    notes = " ".join(report["notes"])
    assert "vectors of 3 views of each image were given" in notes and "pixels" not in notes
    page = (tmp_path / "V" / "report.html").read_text()
    assert "Membership leakage of the encoder of A.npy" in page


def test_others__that_could_run_are_named_where_all_quick_ones_run(
    vectors: str, audit: Audit
) -> None:
    """They are not among those that did not run; who names attacks wants no others."""
    shown = audit(f"{vectors} --attacks quick", text=True)
    (line,) = [one for one in shown.err.splitlines() if "not asked for, about " in one]
    others = line.rpartition(": ")[2].partition(";")[0].split(", ")
    assert {"sd-mi", "fe-mi", "supervised-mi", "dataset-inference"} <= {*others}
    assert not {"lira", "lira-rounds", "ascent", "similarity", "lpla", "rmia"} & {*others}
    left = line.partition("(without ")[2].partition(")")[0]
    assert "dataset-inference" in left and "--attacks all runs them, too" in line
    named = audit(f"{vectors} --attacks similarity,lpla", text=True)
    assert "not asked for" not in named.err


def test_views__are_as_many_as_the_file_has_unless_more_are_asked_for(
    vectors: str, audit: Audit
) -> None:
    more = "--attacks lpla,similarity --attack.similarity.views 5"
    asked = audit(f"{vectors} {more}")
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
        reports.append(audit(flags).report)
    assert reports[0]["attacks"] == reports[1]["attacks"]


@pytest.mark.parametrize("index", [None, "image_id"])
def test_parquet__of_a_shuffled_frame_is_read_without_its_index(
    index: str | None, audit: Audit, tmp_path: Path
) -> None:
    rows = np.random.default_rng(1).normal(size=(60, 8)).astype(np.float32)
    frame = pd.DataFrame(rows, columns=[f"d{n}" for n in range(8)]).rename_axis(index)
    line, order = "--attacks lpla ", np.random.default_rng(2).permutation(60)
    for name, part in (("member", frame.iloc[order[:30]]), ("nonmember", frame.iloc[order[30:]])):
        part.to_parquet(tmp_path / f"{name}.parquet")
        line += f"--{name}-embeddings {tmp_path / name}.parquet "
    notes = " ".join(audit(line).report["notes"])
    assert notes.count(f"stored ({index or '__index_level_0__'}) was left out") == 2


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
        (
            "--member-embeddings A.npy --nonmember-embeddings B.npy --shadows 2",
            "(--shadows) 2 beside",
        ),
        (
            "--member-embeddings A.npy --nonmember-embeddings B.npy --size 8",
            "(--size) 8 beside",
        ),
        ("--member-embeddings A.npy --nonmember-embeddings B.npy --known 30", "too few"),
    ],
)
def test_refusals__are_one_line(
    flags: str, words: str, vectors: str, audit: Audit, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    rows = np.random.default_rng(0).normal(size=(30, 1, 8))
    np.save("C.npy", rows)
    broken = np.random.default_rng(0).normal(size=(30, VIEWS, 8))
    broken[3:5] = np.nan
    np.save("D.npy", broken)
    np.save("E.npy", np.array(["a"] * 30))
    (tmp_path / "A.txt").write_text("1 2")
    done = audit(flags)
    assert done.code == 2 and words in done.err, done.err
    assert len(done.err.strip().splitlines()) <= 2 and "Traceback" not in done.err


def embeddings(members: Any, nonmembers: Any, **options: Any) -> fedmia.Run:
    """A quiet audit from Python."""
    return fedmia.audit_embeddings(members, nonmembers, quiet=True, threads=1, **options)


def test_python__has_the_numbers_of_the_command(vectors: str, audit: Audit, tmp_path: Path) -> None:
    theirs = audit(f"{vectors} --attacks lpla,similarity").report
    files = [tmp_path / f"{name}.npy" for name in "AB"]
    options = {"attacks": ["lpla", "similarity"], "known": 6}
    arrays = [np.load(file) for file in files]
    for pair in (arrays, [torch.from_numpy(arrays[0]), str(files[1])]):
        run = embeddings(*pair, **options)
        ours = json.loads((run.folder / "report.json").read_text())
        assert ours["attacks"] == theirs["attacks"]
        assert ours["controls"] == theirs["controls"] and run.figure("roc")
    run = embeddings(*arrays, name="our CLIP", **options)
    assert run.records.split["encoder"] == "our CLIP"
    config, split = run.records.config, run.records.split
    assert config["member_embeddings"].startswith("in memory: ") and split["members"] == "members"
    with pytest.raises(InputError, match="read vectors alone and has no images; `image` of"):
        run.images  # noqa: B018
    with pytest.raises(InputError, match="it holds no model, it read vectors alone"):
        run.encoder()


def test_python__goes_on_with_the_same_vectors_alone(vectors: str, tmp_path: Path) -> None:
    members, others = (np.load(tmp_path / f"{name}.npy") for name in "AB")
    options = {"known": 6, "out": tmp_path / "OUT"}
    first = embeddings(members, others, attacks="lpla", **options)
    again = embeddings(members, others, attacks="lpla,similarity", **options)
    assert first.scores["lpla"].equals(again.scores["lpla"]) and "similarity" in again.scores
    for pair in ((members[::-1], others), (members, others + 1), (members, tmp_path / "B.npy")):
        with pytest.raises(InputError, match="already holds another run or audit"):
            embeddings(*pair, attacks="lpla", **options)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            {"nonmembers": np.random.default_rng(0).normal(size=(30, 1, 8))},
            "must be alike: 3 of length 8 and 1 of length 8",
        ),
        ({"members": np.full((30, 8), np.nan)}, r"^members: 30 rows are not finite"),
        ({"nonmembers": np.ones(8)}, r"^nonmembers: float64 \(8,\), must be numbers \(N, D\)"),
        ({"members": torch.ones(9, 8, 2, 2)}, r"^members: float32 \(9, 8, 2, 2\), must be"),
        ({"members": [[1.0], [2.0, 3.0]]}, "^members must be vectors: .* got list"),
        ({"members": "none.npy"}, r"^member_embeddings .*none.npy.*No such file"),
        ({"shadows": 2}, r"\(--shadows\) .*2 beside member_embeddings"),
        ({"known": 30}, r"are too few for split.known \(--known\) 30"),
        ({"knwon": 6}, "did you mean 'known'"),
    ],
)
def test_python__refuses_in_one_line(
    given: dict[str, Any], words: str, vectors: str, tmp_path: Path
) -> None:
    sides = {"members": np.load(tmp_path / "A.npy"), "nonmembers": np.load(tmp_path / "B.npy")}
    with pytest.raises(InputError, match=words) as refused:
        embeddings(**(sides | given), out=tmp_path / "OUT")
    assert "\n" not in str(refused.value) and not (tmp_path / "OUT").exists()


def test_view__answers_for_the_images_of_its_vectors_alone() -> None:
    sides = [as_vectors(np.arange(6.0).reshape(3, 2) + at, "vectors", "A.npy") for at in (0.0, 9.0)]
    loaded = load_vectors(*sides, seed=0)
    stored = loaded.stored
    assert stored is not None
    answers = StoredVectors(
        loaded.method, loaded.augment, seed=0, device=torch.device("cpu"), stored=stored
    )
    stand_ins = torch.from_numpy(sides[1].images().images.copy())
    assert torch.equal(answers.embed(stand_ins.float() / 255), answers.embed_plain(stand_ins))
    with pytest.raises(InputError, match="needs the encoder, and only vectors are given"):
        answers.embed(torch.rand(2, 1, 4, 4))
