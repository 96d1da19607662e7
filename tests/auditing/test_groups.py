"""Images that belong to subjects, such as patients or customers: `--groups`."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from fedmia import audit_embeddings, audit_encoder, open_run
from fedmia.data.base import AugmentLimits, Request
from fedmia.data.folder import Folder
from fedmia.data.images import UNLABELLED, ImageSet
from fedmia.data.npz import Npz
from fedmia.evaluation.audits.images import deal_sets
from fedmia.evaluation.audits.imagetable import image_places, read_image_table
from fedmia.evaluation.audits.subjects import read_subjects
from fedmia.records.client_rows import InferenceRow
from fedmia.report.figures import canvas
from fedmia.report.words.sets import statement
from fedmia.settings.commands.audit import Audit as Settings
from fedmia.settings.errors import InputError
from fedmia.settings.tree import from_tree
from fedmia.storage.json_rows import from_json
from tests.auditing.brought import Remembers
from tests.auditing.conftest import Audit
from tests.auditing.test_audit_input import refused

RED = "ward-7"
STILL = "--augment.jitter_p 0 --augment.gray_p 0 --augment.crop_min 0.6"


def near_copies(names: list[str], each: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """uint8 (N, 8, 8, 3) images, `each` of a subject near-copies of one; and their subjects."""
    stream = np.random.default_rng(seed)
    first = 90 + stream.integers(-80, 80, (len(names), 8, 8, 3))
    first[..., 0] += 80 * np.array([name == RED for name in names])[:, None, None]
    images = np.repeat(first, each, 0) + stream.integers(-5, 6, (len(names) * each, 8, 8, 3))
    return np.clip(images, 0, 255).astype(np.uint8), np.repeat(names, each)


def wards(side: str, count: int) -> list[str]:
    return [f"{side}-{i}" for i in range(count)]


def archive(path: Path, names: list[str], each: int = 4, seed: int = 0) -> Path:
    images, subjects = near_copies(names, each, seed)
    np.savez(path, x=images, y=np.arange(len(images)) % 2, ward=subjects)
    return path


@pytest.fixture(scope="module")
def two_sides(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Flags of twelve subjects that are members, ward-7 among them, and of sixteen that are not."""
    folder = tmp_path_factory.mktemp("wards")
    members = archive(folder / "members.npz", wards("ward", 12))
    others = archive(folder / "others.npz", wards("other", 16), seed=1)
    return f"--members npz:{members} --nonmembers npz:{others} --groups ward "


@settings(deadline=None, max_examples=40)
@given(
    st.integers(0, 10**6), st.lists(st.integers(1, 6), min_size=6, max_size=12),
    st.integers(2, 12), st.booleans(), st.sampled_from([None, 4, 9]),
)  # fmt: skip
def test_roles__never_split_a_subject(
    seed: int, sizes: list[int], known: int, shadows: bool, limit: int | None
) -> None:
    stream = np.random.default_rng(seed)
    sides = {}
    for side in ("members", "nonmembers"):
        whose = np.repeat([f"{side}{i}" for i in range(len(sizes))], sizes)
        pixels = stream.integers(0, 256, (sum(sizes), 3, 4, 4)).astype(np.uint8)
        sides[side] = ImageSet(
            pixels, np.zeros(sum(sizes), np.int64), side, UNLABELLED, {"groups": whose}
        )
    if known + 2 > sum(sizes):
        return
    own = {"known": known, "limit": limit, "shadows": 2 * shadows, "groups": "who", "seed": seed}
    sources = {"encoder": "x", "members": "npz:m", "nonmembers": "npz:n"}
    audit = from_tree(Settings, {**sources, **own})
    subjects = read_subjects(audit, sides)
    split = deal_sets(audit, *sides.values(), AugmentLimits())
    assert subjects and split.subjects
    for at, side in enumerate(("members", "nonmembers")):
        roles = [split.subject(f"known_{side}"), split.subject(f"scored_{side}")]
        roles += [split.subject("spare")] * at
        assert all(len(np.unique(role)) >= 2 for role in roles[: 2 + shadows * at])
        assert len(np.concatenate([np.unique(role) for role in roles])) == len(
            np.unique(np.concatenate(roles))
        )
        for role in roles:  # whole
            counts = {s: int((subjects[1][side] == s).sum()) for s in np.unique(role).tolist()}
            assert {s: int((role == s).sum()) for s in counts} == counts
        assert abs(len(roles[0]) - known) <= 6 * 2  # as near as two subjects
    # Neither the order of the files nor their numbers play a part.
    turned = {s: one.take(np.arange(len(one))[::-1]) for s, one in sides.items()}
    again = deal_sets(audit, *turned.values(), AugmentLimits())
    assert set(again.subject("scored_members")) == set(split.subject("scored_members"))


def test_audit__names_the_subject_that_was_learnt(
    audit: Audit, two_sides: str, tmp_path: Path
) -> None:
    flags = f"--encoder tests.auditing.brought:Remembers --mean 0 --std 1 {two_sides} --known 8 "
    flags += f"--attacks similarity,dataset-inference --seed 5 {STILL} "
    done = audit(flags, tmp_path / "A", figures=True)
    assert done.code == 0, done.err
    report = done.report
    first, *others = report["clients"]
    assert first["name"] == RED and first["auc"] == 1.0
    assert first["auc"] > first["null_ci"][1]
    assert {row["name"] for row in others} < set(wards("ward", 12))
    assert "Highest (95 % intervals): ward-7 1.00" in done.out.replace("\n", " ")
    (inference,) = report["dataset_inference"]
    count = report["attacks"][0]["n_nonmember_subjects"]
    least = inference["clients"][0]
    assert least["name"] == RED and least["p_value"] == pytest.approx(1 / (count + 1), abs=1e-5)
    sentence = statement(from_json(InferenceRow, inference, "inference"))
    assert "are too few to establish any" in sentence
    # Single subjects that pose would have p = 1/n, 2/n .. by arithmetic: no control of anything.
    assert inference["posers"]["n"] == 0 and "posing" not in sentence
    assert inference["p_value_untrained"] > 0.001 and not inference["void"]
    assert "on the untrained encoder all sets together have p = 0." in sentence
    (row,) = report["attacks"]
    assert row["design_effect"] > 1.2 and row["n_member_subjects"] == len(report["clients"])
    assert f" of {row['n_member_subjects']}+{count} subjects" in done.out.replace("\n", " ")
    page = (tmp_path / "A" / "report.html").read_text()
    assert "<h2>Subjects</h2>" in page and page.index("<td>ward-7</td>") > 0
    assert "Obuchowski" in report["family"]["method"]
    scores = open_run(tmp_path / "A").scores
    assert set(scores["subject"]) == {r["name"] for r in report["clients"]} | set(
        scores.loc[~scores["truth"], "subject"]
    )
    assert open_run(tmp_path / "A").clients.index[0] == RED


def test_figures__of_subjects_are_drawn_again_as_they_were(
    audit: Audit, two_sides: str, tmp_path: Path
) -> None:
    """The band of a ROC curve counts subjects, whose names scores.csv holds."""
    flags = f"{two_sides} --known 8 --attacks similarity --seed 2 "
    assert audit(flags, tmp_path / "A", figures=True).code == 0
    with Image.open(tmp_path / "A" / "figures" / "roc.png") as before:
        again = open_run(tmp_path / "A").figure("roc")
        with Image.open(io.BytesIO(canvas.encode(again))) as after:
            assert np.array_equal(np.asarray(before), np.asarray(after))


def test_intervals__by_subject_are_wider_than_by_image(
    audit: Audit, two_sides: str, tmp_path: Path
) -> None:
    flags = f"{two_sides} --known 8 --attacks similarity --seed 2 "
    with_groups = audit(flags, tmp_path / "S").report
    scores = pd.read_csv(tmp_path / "S" / "scores.csv")
    inside, outside = (scores.loc[scores["truth"] == t, "similarity"].to_numpy() for t in (1, 0))
    from fedmia.statistics.auc import auc_estimate, auc_interval
    from fedmia.statistics.thresholds import tpr_at_fpr

    row = with_groups["attacks"][0]

    def width(ends: object) -> float:
        low, high = ends  # type: ignore[misc]
        return float(high - low)

    alone = auc_interval(auc_estimate(inside, outside))
    assert width(row["auc_ci"]) > 1.1 * width(alone)
    assert row["design_effect"] > 1.2
    by_image = tpr_at_fpr(inside, outside, 0.1)
    assert by_image and width(row["tpr_at_fpr_ci"]["0.1"]) > width(by_image[1])
    assert with_groups["pixels"]["n_member_subjects"] == row["n_member_subjects"]


def test_audit__one_customers_set(audit: Audit, tmp_path: Path) -> None:
    mine = archive(tmp_path / "mine.npz", [RED], 12)
    others = archive(tmp_path / "others.npz", wards("other", 30), seed=1)
    flags = f"--encoder tests.auditing.brought:Remembers --mean 0 --std 1 --groups ward {STILL} "
    flags += f"--members npz:{mine} --nonmembers npz:{others} --attacks dataset-inference"
    done = audit(flags, tmp_path / "A")
    assert done.code == 0, done.err
    (inference,) = done.report["dataset_inference"]
    sentence = statement(from_json(InferenceRow, inference, "inference"))
    assert "was trained on the set of ward-7 (p = 0.0" in sentence
    assert done.report["verdict_code"] == "leaks" and RED in done.report["verdict"]
    page = (tmp_path / "A" / "report.html").read_text()
    assert "exchanges whole subjects" in page and "<td>ward-7</td>" in page
    assert inference["clients"][0]["n"] == 10  # all but the two that an attacker knows
    assert "All members are of ward-7" in " ".join(done.report["notes"])


@pytest.mark.parametrize(("images", "more"), [(1, ""), (4, "--shadows 2 "), (4, "--known 2 ")])
def test_audit__one_customer_with_few_images(
    audit: Audit, tmp_path: Path, images: int, more: str
) -> None:
    """Nothing of the subject is known, unless that is asked for, and all of it is scored."""
    mine = archive(tmp_path / "mine.npz", [RED], images)
    others = archive(tmp_path / "others.npz", wards("other", 30), seed=1)
    flags = f"--encoder tests.auditing.brought:Remembers --mean 0 --std 1 --groups ward {STILL} "
    flags += f"--members npz:{mine} --nonmembers npz:{others} {more}"
    single = "rmia" if "shadows" in more else "similarity"
    done = audit(f"{flags} --attacks {single},dataset-inference", tmp_path / "A")
    assert done.code == 0, done.err
    (inference,), known = done.report["dataset_inference"], 2 * more.startswith("--known")
    (one,) = inference["clients"]
    assert done.report["split"]["known_members"] == known
    assert one["n"] == images - known and inference["n_nonmember_subjects"] == 28
    assert one["n_nonmembers"] == 28 * one["n"]
    assert one["p_value"] == pytest.approx(1 / 29, abs=1e-5)
    if known:  # the attack on single images is a second test, for which 28 others are too few
        assert inference["family"] == 2 and done.report["verdict_code"] != "leaks"
    else:
        assert inference["family"] == 1 and done.report["verdict_code"] == "leaks"
        assert single in done.not_run and done.report["pixels"] is None
        assert done.report["attacks"] == []


def test_groups__of_vectors_folders_and_arrays(audit: Audit, tmp_path: Path) -> None:
    stream = np.random.default_rng(0)
    line, rows = "", [["side", "image", "subject"]]
    for side in ("member", "nonmember"):
        vectors, folder = stream.normal(size=(24, 6)), tmp_path / f"{side}s"
        subjects = np.repeat([f"{side}{i}" for i in range(8)], 3)
        pd.DataFrame({"v": list(vectors), "who": subjects}).to_parquet(tmp_path / f"{side}.parquet")
        line += f"--{side}-embeddings {tmp_path / side}.parquet "
        for i, subject in enumerate(subjects):
            (folder / subject).mkdir(parents=True, exist_ok=True)
            pixels = stream.integers(0, 256, (8, 8, 3)).astype(np.uint8)
            Image.fromarray(pixels).save(folder / subject / f"{i}.png")
            rows.append([f"{side}s", f"{i}.png", subject])
    with (tmp_path / "who.csv").open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    done = audit(f"{line} --groups who --attacks sd-mi --known 6", tmp_path / "V")
    assert done.code == 0, done.err
    assert done.report["attacks"][0]["n_member_subjects"] == 6
    of = f"--members folder:{tmp_path}/members --nonmembers folder:{tmp_path}/nonmembers "
    reports = []
    for out, groups in (("F", "1"), ("C", str(tmp_path / "who.csv"))):
        done = audit(f"{of} --groups {groups} --attacks similarity --known 6", tmp_path / out)
        assert done.code == 0, done.err
        reports.append(done.report)
    assert reports[0]["attacks"] == reports[1]["attacks"]
    assert reports[0]["clients"] == reports[1]["clients"]
    named = []
    for side in ("member", "nonmember"):  # integers, and of both sources of images
        vectors = pd.read_parquet(tmp_path / f"{side}.parquet")
        np.save(tmp_path / f"{side}.npy", np.stack([*vectors["v"]]))
        named.append(tmp_path / f"{side}-ids.npy")
        np.save(named[-1], vectors["who"].to_numpy(str))
    both = f"--groups {named[0]},{named[1]} --known 6"
    vectors_alone = line.replace(".parquet", ".npy")
    again = audit(f"{vectors_alone} {both} --attacks sd-mi", tmp_path / "N").report
    before = json.loads((tmp_path / "V" / "report.json").read_text())
    assert again["attacks"] == before["attacks"] and again["clients"] == before["clients"]
    images = stream.integers(0, 256, (48, 3, 8, 8)).astype(np.uint8)
    groups = (np.repeat(np.arange(8), 3), np.repeat(np.arange(8, 16), 3))
    run = audit_encoder(
        Remembers(), images[:24], images[24:], groups=groups, attacks="similarity", known=6,
        quiet=True,
    )  # fmt: skip
    assert set(run.clients.index) < set(map(str, range(8)))


def test_groups__of_vectors_in_memory() -> None:
    stream = np.random.default_rng(0)
    mine, others = stream.normal(size=(3, 4, 6)), stream.normal(size=(50, 4, 6))
    pair = (["x"] * 3, np.repeat(np.arange(25), 2))
    run = audit_embeddings(mine, others, groups=pair, quiet=True)
    (inference,) = json.loads((run.folder / "report.json").read_text())["dataset_inference"]
    (one,) = inference["clients"]
    assert (one["name"], one["n"], inference["n_nonmember_subjects"]) == ("x", 3, 23)
    for wrong, words in ((np.arange(53), "two arrays"), ((["x"], pair[1]), "groups of (1,)")):
        with pytest.raises(InputError) as error:
            audit_embeddings(mine, others, groups=wrong, quiet=True)
        assert words in str(error.value)
    with pytest.raises(InputError, match="no attack could run; dataset-inference: needs 24 views"):
        audit_embeddings(mine[:, 0], others[:, 0], groups=pair, quiet=True)


def test_read_subjects__of_arrays_compares_by_what_is_read(tmp_path: Path) -> None:
    """Integers of any width and text in either form of its accents; never objects."""

    def read(members: Any, others: Any, files: str = "{0}/m.npy,{0}/o.npy") -> Any:
        for name, values in (("m", members), ("o", others)):
            np.save(tmp_path / f"{name}.npy", values, allow_pickle=True)
        own = {"encoder": "x", "members": "npz:m", "nonmembers": "npz:n"}
        audit = from_tree(Settings, {**own, "groups": files.format(tmp_path)})
        pixels = np.zeros((4, 3, 4, 4), np.uint8)
        one = ImageSet(pixels, np.zeros(4, np.int64), "x", UNLABELLED)
        return read_subjects(audit, {"members": one, "nonmembers": one})

    names, of = read(np.array([7, 7, 10, 7], np.uint16), np.array(["é", "e\u0301", "b", "b"]))
    assert set(names) == {"7", "10", "é", "b"}
    assert len(set(of["nonmembers"].tolist())) == 2 and of["members"][0] == of["members"][3]
    fine = np.arange(4)
    for members, others, files, words in (
        (fine, np.arange(5, 8), None, "o.npy' has 3 subjects for 4 nonmembers"),
        (fine, fine + 0.5, None, "must be text or integers"),
        (fine[:, None], fine + 9, None, "m.npy' has int64 (4, 1)"),
        (fine, np.array(["a", "", "b", "c"]), None, "1 of 4 nonmembers have no subject"),
        (fine, np.array([3, 7, 8, 9]), None, "subject '3' is among the members and among"),
        (fine, np.array([1, None, 2, 3]), None, "Python objects"),
        (fine, fine, "{0}/m.npy", "must be two: MEMBERS.npy,OTHERS.npy"),
        (fine, fine, "{0}/m.npy,{0}/none.npy", "none.npy' cannot be read"),
    ):
        with pytest.raises(InputError) as error:
            read(members, others, files or "{0}/m.npy,{0}/o.npy")
        assert words in str(error.value)


def test_groups__shadows_and_sweep(audit: Audit, two_sides: str, tmp_path: Path) -> None:
    flags = f"{two_sides} --shadows 2 --shadow.epochs 1 --attacks rmia,lpla --known 8 "
    flags += "--shadow.knowledge data --shadow.model smallnet --shadow.model.width 4 "
    done = audit(f"{flags} --sweep known=4,8", tmp_path / "A")
    assert done.code == 0, done.err
    assert done.names() == ["rmia", "lpla"], done.not_run
    swept = [row for row in done.report["sweep"] if not row["not_run"]]
    assert swept and all(row["scored"]["n_member_subjects"] for row in swept)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ("--groups patient", "no array 'patient' (it has: x, y, ward)"),
        ("--members synthetic --groups ward", "data source 'synthetic' has no columns; a CSV file"),
        ("--groups {}/none.csv", "none.csv: cannot be read"),
        ("--groups {}/head.csv", "must begin with the line side,image,subject"),
        ("--groups {}/few.csv", "47 of 48 members have no subject (the first: image 1)"),
        ("--groups {}/twice.csv", "line 3: image '0' is named twice"),
        ("--groups {}/side.csv", "line 2: members or nonmembers, an image and a subject, got 'a,"),
        ("--members npz:{}/three.npz --groups ward", "3 subjects of the members are too few: at"),
        ("--nonmembers npz:{}/both.npz --groups ward", "subject 'ward-1' is among the members and"),
        ("--encoder x.npz --federation R --groups ward", "and an encoder alone: a federation's"),
    ],
)
def test_groups__bad_input(
    audit: Audit, two_sides: str, tmp_path: Path, change: str, named: str
) -> None:
    texts = {
        "head": "image,subject\n", "few": "side,image,subject\nmembers,0,a\n",
        "twice": "side,image,subject\nmembers,0,a\nmembers,0,b\n",
        "side": "side,image,subject\na,0,b\n",
    }  # fmt: skip
    for name, text in texts.items():
        (tmp_path / f"{name}.csv").write_text(text)
    archive(tmp_path / "three.npz", wards("w", 3), seed=5)
    archive(tmp_path / "both.npz", ["ward-1", *wards("w", 5)], seed=6)
    flags = dict(zip(*[iter(two_sides.split())] * 2, strict=True))
    flags |= dict(zip(*[iter(change.format(tmp_path).split())] * 2, strict=True))
    line = refused(audit, " ".join(f"{k} {v}" for k, v in flags.items()), tmp_path / "A")
    assert named in line


def test_dataset_inference__likelihood_has_no_place_with_subjects(
    audit: Audit, two_sides: str, tmp_path: Path
) -> None:
    flags = "--attacks similarity,dataset-inference --attack.dataset-inference.statistic likelihood"
    done = audit(f"{two_sides} {flags}", tmp_path / "A")
    assert "must be unary, relationship, masked" in done.not_run["dataset-inference"]


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (["0.png", "1.png", "10.png", "2.png"], {"2": "2.png", "10": "10.png", "2.png": "2.png"}),
        (["01.png", "02.png"], {"0": None, "1": "01.png", "02": "02.png"}),
        (["a/1.png", "b/1.png"], {"0": None, "1": "several", "b/1": "b/1.png"}),
        (["x.png", "y.jpg", "y.png"], {"0": "x.png", "x": "x.png", "y": "several"}),
        (["0.png", "2.png", "x.png"], {"0": "0.png", "1": "2.png", "2": "several"}),
    ],
)
def test_image_places__a_number_is_the_name_s(
    tmp_path: Path, files: list[str], expected: dict[str, str | None]
) -> None:
    for name in files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.new("RGB", (8, 8)).save(tmp_path / name)
    source = Folder().encoded(Request(str(tmp_path), None, None, 0))
    places = image_places(source)
    for key, name in expected.items():
        place = places.get(key)
        file = place if place is None or place < 0 else source.files[place][0]
        assert file == {"several": -1}.get(name or "", name) or str(file).endswith(f"/{name}")


class Named(list[int]):
    """Two images with one name, whose accent is a mark and not a letter."""

    files: tuple[Any, ...] = ()


def test_text__compares_by_what_is_read_not_by_code_points(tmp_path: Path) -> None:
    letter, marks = "caf\u00e9", "cafe\u0301"
    path = tmp_path / "g.csv"
    path.write_text(f"side,image,subject\nin,0,{letter}\nout,0,{marks}\n", encoding="utf-8")
    sides: Any = {"in": Named([0]), "out": Named([0])}
    assert read_image_table("groups", path, "subject", sides, bool) == {
        "in": [letter], "out": [letter]
    }  # fmt: skip
    np.savez(tmp_path / "x.npz", x=np.zeros((3, 8, 8), np.uint8), y=np.array([marks, letter, "b"]))
    arrays = Npz().load(Request(str(tmp_path / "x.npz"), None, None, 0))
    assert arrays.classes == ("b", letter)
    folder = tmp_path / "x"
    folder.mkdir()
    Image.new("RGB", (8, 8)).save(folder / f"{marks}.png")
    places = image_places(Folder().encoded(Request(str(folder), None, None, 0)))
    assert places[letter] == places[f"{letter}.png"] == 0


def test_names__of_images_stand_beside_their_scores(audit: Audit, tmp_path: Path) -> None:
    """`--groups` with a subject an image carries names that the user chooses."""
    lines = ["side,image,subject"]
    for side, seed in (("members", 0), ("nonmembers", 1)):
        images, _ = near_copies(wards(side, 16), 1, seed)
        folder = tmp_path / side / "all"
        folder.mkdir(parents=True)
        for i, pixels in enumerate(images):
            Image.fromarray(pixels).save(folder / f"scan-{i:02d}.png")
            lines.append(f"{side},scan-{i:02d}.png,{side}/scan-{i:02d}.png")
    (tmp_path / "names.csv").write_text("\n".join(lines))
    where = f"--members folder:{tmp_path}/members --nonmembers folder:{tmp_path}/nonmembers"
    done = audit(
        f"{where} --groups {tmp_path}/names.csv --known 4 --attacks similarity", tmp_path / "A"
    )
    assert done.code == 0, done.err
    scores = open_run(tmp_path / "A").scores
    sides = scores["truth"].map({True: "members", False: "nonmembers"})
    names = [f"{side}/scan-{i:02d}.png" for side, i in zip(sides, scores["image"], strict=True)]
    assert list(scores["subject"]) == names and len({*names}) == len(scores) > 20
