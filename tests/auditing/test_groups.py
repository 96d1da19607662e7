"""Images that belong to subjects, such as patients or customers: `--groups`."""

from __future__ import annotations

import csv
import html
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from fedmia import audit_embeddings, audit_encoder, open_run
from fedmia.data.images import digests
from fedmia.settings.errors import InputError
from fedmia.statistics.auc import auc_estimate, auc_interval
from fedmia.statistics.thresholds import tpr_at_fpr
from tests.auditing.attacks import GIVEN, named
from tests.auditing.brought import Remembers
from tests.auditing.conftest import Audit
from tests.auditing.test_audit_input import refused

MEAN = f"--attacks {named('Mean')} "
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


SIZES = ([1, 6, 3, 2, 5, 4], [2] * 9, [6, 5, 4, 3, 2, 1, 1, 2, 6, 4], [3, 3, 1, 1, 6, 2, 4])


@pytest.mark.parametrize(
    ("sizes", "known", "limit", "shadows"),
    [(0, 4, None, False), (1, 5, 9, False), (2, 12, None, False), (3, 2, 4, False),
     (0, 7, 4, False), (2, 6, 9, False), (2, 8, None, True)],
)  # fmt: skip
def test_roles__never_split_a_subject(
    sizes: int, known: int, limit: int | None, shadows: bool, audit: Audit, tmp_path: Path
) -> None:
    """Whatever the order of the files: neither it nor their numbers play a part."""
    each, stream = SIZES[sizes], np.random.default_rng(known)
    sides = {}
    for side in ("members", "nonmembers"):
        whose = np.repeat([f"{side}{i}" for i in range(len(each))], each)
        sides[side] = stream.integers(0, 256, (sum(each), 8, 8, 3)).astype(np.uint8), whose
    of = {n: str(w) for x, whose in sides.values()
          for n, w in zip(digests(x.transpose(0, 3, 1, 2)), whose, strict=True)}  # fmt: skip
    flags = f"--groups who --known {known} " + (f"--limit {limit} " if limit else "")
    flags += MEAN.strip()
    if shadows:
        flags += ",encodermi-t --attack.encodermi-t.layer avgpool --shadows 1 --shadow.epochs 1 "
        flags += "--shadow.knowledge data --shadow.model smallnet --shadow.model.width 4 "
        flags += f"--cache {tmp_path}/cache "
    dealt = []
    for turn in (1, -1)[: 2 - shadows]:
        for side, (images, whose) in sides.items():
            np.savez(tmp_path / f"{side}.npz", x=images[::turn], who=whose[::turn])
        GIVEN.clear()
        line = "".join(f"--{side} npz:{tmp_path}/{side}.npz " for side in sides)
        done = audit(f"{line}{flags}")
        assert done.code == 0, done.err
        one = GIVEN[0]
        pixels = [one.known.members, one.known.nonmembers, one.images]
        dealt.append([[of[n] for n in digests(part.numpy())] for part in pixels])
    assert [sorted(part) for part in dealt[0]] == [sorted(part) for part in dealt[-1]]
    members, others, scored = dealt[0]
    split = [[n for n in scored if n.startswith(side)] for side in ("members", "nonmembers")]
    roles = [(members, others), (split[0], split[1])]
    assert all(len({*part}) >= 2 for sides_of in roles for part in sides_of)
    for at, side in enumerate(sides):
        mine, rest = roles[0][at], roles[1][at]
        assert not {*mine} & {*rest}
        assert len(rest) == done.report["split"][f"scored_{side}"]
        for name in {*mine, *rest}:  # whole
            assert (mine + rest).count(name) == sides[side][1].tolist().count(name)
        assert abs(len(mine) - known) <= 6 * 2  # as near as two subjects
    if shadows:
        with np.load(next((tmp_path / "cache").glob("*/images.npz"))) as archive:
            trained = {of[n] for part in archive.values() for n in digests(part)}
        assert len(trained) >= 2 and not trained & {*members, *others, *scored}


def test_audit__names_the_subject_that_was_learnt(
    audit: Audit, two_sides: str, tmp_path: Path
) -> None:
    flags = f"--encoder tests.auditing.brought:Remembers --mean 0 --std 1 {two_sides} --known 8 "
    flags += f"--attacks similarity,dataset-inference --seed 5 {STILL} "
    done = audit(flags, tmp_path / "A")
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
    page = html.unescape((tmp_path / "A" / "report.html").read_text())
    sentence = " ".join(page.split())
    assert "are too few to establish any" in sentence
    # Single subjects that pose would have p = 1/n, 2/n .. by arithmetic: no control of anything.
    assert inference["posers"]["n"] == 0
    assert inference["p_value_untrained"] > 0.001 and not inference["void"]
    (row,) = report["attacks"]
    assert row["design_effect"] > 1.2 and row["n_member_subjects"] == len(report["clients"])
    assert f" of {row['n_member_subjects']}+{count} subjects" in done.out.replace("\n", " ")
    assert "<h2>Subjects</h2>" in page and page.index("<td>ward-7</td>") > 0
    assert "Obuchowski" in report["family"]["method"]
    scores = open_run(tmp_path / "A").scores
    assert set(scores["subject"]) == {r["name"] for r in report["clients"]} | set(
        scores.loc[~scores["truth"], "subject"]
    )
    assert open_run(tmp_path / "A").clients.index[0] == RED


@pytest.mark.usefixtures("painted")
def test_figures__of_subjects_are_drawn_again_as_they_were(
    audit: Audit, two_sides: str, tmp_path: Path
) -> None:
    """The band of a ROC curve counts subjects, whose names scores.csv holds."""
    flags = f"{two_sides} --known 8 --attacks similarity --seed 2 "
    assert audit(flags, tmp_path / "A").code == 0
    with Image.open(tmp_path / "A" / "figures" / "roc.png") as before:
        again = open_run(tmp_path / "A").figure("roc")
        with Image.open(io.BytesIO(again._repr_png_())) as after:  # type: ignore[attr-defined]
            assert np.array_equal(np.asarray(before), np.asarray(after))


def test_intervals__by_subject_are_wider_than_by_image(
    audit: Audit, two_sides: str, tmp_path: Path
) -> None:
    flags = f"{two_sides} --known 8 --attacks similarity --seed 2 "
    with_groups = audit(flags, tmp_path / "S").report
    scores = pd.read_csv(tmp_path / "S" / "scores.csv")
    inside, outside = (scores.loc[scores["truth"] == t, "similarity"].to_numpy() for t in (1, 0))
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
    assert done.report["verdict_code"] == "leaks" and RED in done.report["verdict"]
    page = html.unescape((tmp_path / "A" / "report.html").read_text())
    assert "was trained on the set of ward-7 (p = 0.0" in " ".join(page.split())
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
    done = audit(f"{flags} --attacks {single},dataset-inference")
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
    with (tmp_path / "who.csv").open("w", newline="", encoding="utf-8-sig") as file:
        csv.writer(file).writerows(rows)
    done = audit(f"{line} --groups who --attacks lpla --known 6")
    assert done.code == 0, done.err
    assert done.report["attacks"][0]["n_member_subjects"] == 6
    before = done.report
    of = f"--members folder:{tmp_path}/members --nonmembers folder:{tmp_path}/nonmembers "
    reports = []
    for groups in ("1", str(tmp_path / "who.csv")):
        done = audit(f"{of} --groups {groups} --attacks similarity --known 6")
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
    again = audit(f"{vectors_alone} {both} --attacks lpla").report
    assert again["attacks"] == before["attacks"] and again["clients"] == before["clients"]
    images = stream.integers(0, 256, (48, 3, 8, 8)).astype(np.uint8)
    groups = (np.repeat(np.arange(8), 3), np.repeat(np.arange(8, 16), 3))
    run = audit_encoder(
        Remembers(), images[:24], images[24:], groups=groups, attacks="similarity", known=6,
        quiet=True, threads=1,
    )  # fmt: skip
    assert set(run.clients.index) < set(map(str, range(8)))


def test_groups__of_vectors_in_memory() -> None:
    stream = np.random.default_rng(0)
    mine, others = stream.normal(size=(3, 4, 6)), stream.normal(size=(50, 4, 6))
    pair = (["x"] * 3, np.repeat(np.arange(25), 2))
    run = audit_embeddings(mine, others, groups=pair, quiet=True, threads=1)
    (inference,) = json.loads((run.folder / "report.json").read_text())["dataset_inference"]
    (one,) = inference["clients"]
    assert (one["name"], one["n"], inference["n_nonmember_subjects"]) == ("x", 3, 23)
    for wrong, words in ((np.arange(53), "two arrays"), ((["x"], pair[1]), "groups of (1,)")):
        with pytest.raises(InputError) as error:
            audit_embeddings(mine, others, groups=wrong, quiet=True)
        assert words in str(error.value)
    with pytest.raises(InputError, match="no attack could run; dataset-inference: needs 24 views"):
        audit_embeddings(mine[:, 0], others[:, 0], groups=pair, quiet=True)


FINE = np.arange(4)


@pytest.mark.parametrize(
    ("members", "others", "files", "words"),
    [
        (FINE, np.arange(5, 8), None, "o.npy' has 3 subjects for 4 nonmembers"),
        (FINE, FINE + 0.5, None, "must be text or integers"),
        (FINE[:, None], FINE + 9, None, "m.npy' has int64 (4, 1)"),
        (FINE, np.array(["a", "", "b", "c"]), None, "1 of 4 nonmembers have no subject"),
        (FINE, np.array([3, 7, 8, 9]), None, "subject '3' is among the members and among"),
        (FINE, np.array([1, None, 2, 3]), None, "Python objects"),
        (FINE, FINE, "{0}/m.npy", "must be two: MEMBERS.npy,OTHERS.npy"),
        (FINE, FINE, "{0}/m.npy,{0}/none.npy", "none.npy' cannot be read"),
    ],
)
def test_groups__of_arrays_that_are_none_are_named(
    members: Any, others: Any, files: str | None, words: str, audit: Audit, tmp_path: Path
) -> None:
    line = ""
    for at, (name, side, values) in enumerate(
        (("m", "members", members), ("o", "nonmembers", others))
    ):
        np.save(tmp_path / f"{name}.npy", values, allow_pickle=True)
        pixels = np.random.default_rng(at).integers(0, 256, (4, 8, 8, 3)).astype(np.uint8)
        np.savez(tmp_path / f"{side}.npz", x=pixels)
        line += f"--{side} npz:{tmp_path}/{side}.npz "
    groups = (files or "{0}/m.npy,{0}/o.npy").format(tmp_path)
    assert words in refused(audit, f"{line}--groups {groups}", tmp_path / "A")


def test_groups__compare_by_what_is_read_not_by_code_points(audit: Audit, tmp_path: Path) -> None:
    """Integers of any width and text in either form of its accents, of files' names too."""
    letter, marks = "caf\u00e9", "cafe\u0301"
    lines, line = ["side,image,subject"], ""
    for side in ("members", "nonmembers"):
        folder = tmp_path / side / "all"
        folder.mkdir(parents=True)
        names = [f"{one}-{i}" for i in range(12) for one in (letter, marks)][: 18 + len(side) % 3]
        images, _ = near_copies(names, 1, len(side))
        for i, (name, pixels) in enumerate(zip(names, images, strict=True)):
            Image.fromarray(pixels).save(folder / f"{i:02d}-{marks}.png")
            lines.append(f"{side},{i:02d}-{letter}.png,{side} {name}")
        line += f"--{side} folder:{tmp_path}/{side} "
    (tmp_path / "g.csv").write_text("\n".join(lines), encoding="utf-8")
    done = audit(f"{line}--groups {tmp_path}/g.csv --known 4 {MEAN}")
    assert done.code == 0, done.err
    (row,) = done.report["attacks"]
    assert row["n_member_subjects"] < row["n_members"] <= 2 * row["n_member_subjects"]


def test_groups__shadows_and_sweep(audit: Audit, two_sides: str) -> None:
    flags = f"{two_sides} --shadows 2 --shadow.epochs 1 --attacks rmia,lpla --known 8 "
    flags += "--shadow.knowledge data --shadow.model smallnet --shadow.model.width 4 "
    done = audit(f"{flags} --sweep known=4,8")
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
    audit: Audit, two_sides: str
) -> None:
    flags = "--attacks similarity,dataset-inference --attack.dataset-inference.statistic likelihood"
    done = audit(f"{two_sides} {flags}")
    assert "must be unary, relationship, masked" in done.not_run["dataset-inference"]


@pytest.mark.parametrize(
    ("files", "key", "said"),
    [
        (["01.png", "02.png"], "0", "no image '0'"),  # all are named by numbers: it is the name's
        (["a/1.png", "b/1.png"], "0", "no image '0'"),
        (["a/1.png", "b/1.png"], "1", "several images '1'"),
        (["x.png", "y.jpg", "y.png"], "y", "several images 'y'"),
        (["0.png", "2.png", "x.png"], "2", "several images '2'"),  # the place and the name
        (["0.png", "1.png", "10.png", "2.png"], "3", "no image '3'"),
        *((["01.png", "02.png"], key, "") for key in ("1", "02", "2.png")[:2]),
        *((["0.png", "2.png", "x.png"], key, "") for key in ("0", "1", "x")),
        (["a/1.png", "b/1.png"], "b/1", ""),
    ],
)
def test_groups__name_an_image_by_its_files_name_or_its_number(
    files: list[str], key: str, said: str, audit: Audit, tmp_path: Path
) -> None:
    """What is not said of other images is said after it."""
    for at, name in enumerate([*files, "none/none.png"]):
        path = tmp_path / ("out" if at == len(files) else "in") / name
        path.parent.mkdir(exist_ok=True, parents=True)
        Image.new("RGB", (8, 8), (at, 0, 0)).save(path)
    (tmp_path / "g.csv").write_text(f"side,image,subject\nmembers,{key},s\n")
    line = f"--members folder:{tmp_path}/in --nonmembers folder:{tmp_path}/out "
    told = refused(audit, f"{line}--groups {tmp_path}/g.csv", tmp_path / "A")
    others = f"{len(files) - 1} of {len(files)} members have no subject"
    assert (f"line 2: {said} among the {len(files)} members" if said else others) in told


def test_groups__a_number_is_the_name_s_and_scores_stand_beside_their_image(
    audit: Audit, tmp_path: Path
) -> None:
    """Numbers of files sort as text: 10 comes before 2."""
    lines, line = ["side,image,subject"], ""
    for side, seed in (("members", 0), ("nonmembers", 1)):
        images, _ = near_copies(wards(side, 16), 1, seed)
        folder = tmp_path / side / "all"
        folder.mkdir(parents=True)
        for i, pixels in enumerate(images):
            Image.fromarray(pixels).save(folder / f"{i}.png")
            lines.append(f"{side},{i},{side}/{pixels.mean():.6f}")
        line += f"--{side} folder:{tmp_path}/{side} "
    (tmp_path / "names.csv").write_text("\n".join(lines))
    done = audit(f"{line}--groups {tmp_path}/names.csv --known 4 {MEAN}", tmp_path / "A")
    assert done.code == 0, done.err
    scores = open_run(tmp_path / "A").scores
    sides = scores["truth"].map({True: "members", False: "nonmembers"})
    values = scores[named("Mean")]
    want = [f"{side}/{value:.6f}" for side, value in zip(sides, values, strict=True)]
    assert list(scores["subject"]) == want and len(scores) > 20
