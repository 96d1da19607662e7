"""A study of several encoders or seeds: done once, compared, refused."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmia import StudyResult, open_study
from fedmia.statistics.auc import difference_interval
from tests.auditing.conftest import RUN, Audit, Sides, numbers
from tests.bank import Bank
from tests.commands import fedmia
from tests.fake_runs import about, begun, golden, runs_of, tables
from tests.made_up_runs import made_up_report
from tests.snapshots import Snapshot as Check
from tests.study.test_tables import check_apart

IMAGES, MEMBERS = 40, 18  # the first are members
Scores = dict[str, np.ndarray]  # of attacks, an image each
# What a run does beside its report: the scores that the test wrote for it.
SCORES = "shutil.copy(os.path.join(tell, name + '.csv'), os.path.join(folder, 'scores.csv'))"
Planted = Callable[..., StudyResult]


@pytest.fixture
def run(bank: Bank) -> Path:
    """The folder of a run that kept three rounds."""
    return bank.run(RUN)


def drawn(shift: float, *attacks: str, seed: int = 7) -> Scores:
    """Scores of attacks; members lie higher by the shift."""
    draw, members = np.random.default_rng(seed), np.arange(IMAGES) < MEMBERS
    return {name: draw.normal(shift * members, 1) for name in attacks}


def report_of(scores: Scores, low: float = 0.4, **more: Any) -> dict[str, Any]:
    """The report of an audit whose attacks have these scores."""
    usual = made_up_report(golden("audit"))
    own, half = usual["attacks"][0], MEMBERS
    rows = []
    for name, values in scores.items():
        auc = float(np.mean(values[:half, None] > values[None, half:]))
        rows.append(own | {"name": name, "auc": round(auc, 6), "auc_ci": [low, 0.9],
                           "n_members": half, "n_nonmembers": IMAGES - half})  # fmt: skip
    return usual | {"attacks": rows, "verdict_code": "leaks", "controls": {}, **more}


def table_of(scores: Scores, images: Any = range(IMAGES)) -> str:
    """scores.csv."""
    lines = [",".join(["image", "truth", "client", "label", *scores])]
    for at, image in enumerate(images):
        row = [image, int(at < MEMBERS), "", 0, *(values[at] for values in scores.values())]
        lines.append(",".join(map(str, row)))
    return "\n".join(lines) + "\n"


@pytest.fixture
def planted(archives: Sides, tmp_path: Path) -> Planted:
    """`planted(encoders, cells, seeds=1)`: the study of these encoders whose audits are tiny
    programs. Of each audit, by the encoder's name and the seed: its report, or why it failed, and
    its scores.csv."""

    def study(encoders: str, cells: dict[tuple[str, int], Any], seeds: int = 1) -> StudyResult:
        tell = tmp_path / "tell"
        tell.mkdir(exist_ok=True)
        for (encoder, seed), cell in cells.items():
            place = tell / f"encoder={encoder}_seed={seed}"
            if isinstance(cell, str):
                place.write_text(f"sys.exit({cell!r})", encoding="utf-8")
                continue
            report, scores = cell
            place.write_text(SCORES, encoding="utf-8")
            Path(f"{place}.json").write_text(json.dumps(report), encoding="utf-8")
            Path(f"{place}.csv").write_text(scores, encoding="utf-8")
        line = f"study --encoders {encoders} {archives.flags} --attacks similarity --device cpu "
        line += f"--seeds {seeds} --jobs 2 --threads 1 --quiet"
        with runs_of(tell):
            ran = fedmia(line, tmp_path / "OUT")
        failed = any(isinstance(cell, str) for cell in cells.values())
        assert ran.code == int(failed), ran.err
        return open_study(tmp_path / "OUT")

    return study


@pytest.mark.usefixtures("painted")
def test_encoders__differences_hold_together_and_compare_the_same_images(
    run: Path, planted: Planted, tmp_path: Path
) -> None:
    """Two attacks on three rounds of one run, over two seeds, beside the last round. One attack
    could not run on the second round; at the second seed another image was scored there."""
    cells: dict[tuple[str, int], Any] = {}
    values = {(t, s): drawn(0.4 * t, "a", "b", seed=10 * t + s) for t in range(3) for s in (0, 1)}
    del values[1, 0]["b"], values[1, 1]["b"]
    for (turn, seed), scores in values.items():
        images = [*range(IMAGES - 1), 99 if (turn, seed) == (1, 1) else IMAGES - 1]
        report = report_of(scores, low=0.3 + seed / 10)
        cells[f"RUN@{turn}", seed] = report, table_of(scores, images)
    link = tmp_path / "RUN"
    link.symlink_to(run)
    study = planted(f"{link}@0,1,2", cells, seeds=2)
    assert sorted(begun(tmp_path / "tell")) == sorted(study.runs) and len(study.runs) == 6
    assert [*study.views] == ["encoders"]
    rows = {(row["encoder"], row["attack"]): row for row in tables(study)["Leakage and use"]}
    half, seen = MEMBERS, 0
    for (point, attack), row in rows.items():
        turn = int(point[-1])
        aucs = [float(row_auc) for row_auc in row["by seed"].split()]
        mean, _, ends_of_both = row["AUC, 95 %"].partition(" ")
        assert float(mean) == pytest.approx(np.mean(aucs), abs=1.1e-3)
        assert ends_of_both == "[0.350, 0.900]"  # the mean of each end
        if turn == 2:
            assert row["minus the last encoder, 95 %"] == "–"
            continue
        seeds = (0,) if turn == 1 else (0, 1)
        pairs = [(values[turn, s][attack], values[2, s][attack]) for s in seeds]
        less, ends = [], []
        for own, last in pairs:
            sides = [(one[:half], one[half:]) for one in (own, last)]
            auc = [float(np.mean(m[:, None] > n)) for m, n in sides]
            less.append(auc[0] - auc[1])
            both = [difference_interval(sides[0], sides[1], family=size) for size in (1, 3)]
            ends.append([end for ci in both for end in ci])
        wanted = [np.mean(less), *np.mean(ends, axis=0)]
        found = [float(x) for x in re.findall(r"-?\d\.\d+", row["minus the last encoder, 95 %"])]
        assert found == pytest.approx(wanted, abs=6e-4), (point, attack)
        seen += 1
    assert seen == 3 and len(rows) == 5
    page = (tmp_path / "OUT" / "study.html").read_text()
    assert not re.findall(r"<th>(.*?)</th>", page)  # each column says what it is
    assert 'href="cells/encoder%3DRUN%402_seed%3D1/report.html"' in page
    sections = set(re.findall(r'section id="([^"]+)"', page))
    assert set(re.findall(r'href="#([^"]+)"', page)) == sections
    assert (tmp_path / "OUT/figures/encoders.png").read_bytes().startswith(b"\x89PNG")
    seeds_note = [note for note in study.about["notes"] if note.startswith("2 seeds audit each")]
    assert len(seeds_note) == 1
    planted(f"{link}@0,1,2", {}, seeds=2)  # nothing runs twice
    assert begun(tmp_path / "tell") == []


def test_encoders__sentence_figure_and_what_is_void_or_failed(
    run: Path, planted: Planted, tmp_path: Path, snapshot: Check
) -> None:
    """Of a run the sentence has the ends, of other encoders each; an audit without a probe has no
    empty panel, and long names of encoders stand apart."""
    scores = drawn(1.0, "a", "b")
    link = tmp_path / "RUN"
    link.symlink_to(run)
    usual = report_of(scores)["utility"]
    probed: dict[str, Any] = {"utility": usual | {"knn": 0.7, "knn_ci": [0.6, 0.8], "linear": None}}
    bare: dict[str, Any] = {"utility": usual | {"knn": None, "linear": None}}
    lost: dict[str, Any] = {"not_run": {"lira": "no shadows"}}
    cells = {
        ("RUN@0", 0): (report_of(scores, **bare, **lost), table_of(scores)),
        ("RUN@1", 0): "fedmia: error: no images",
        ("RUN@2", 0): (report_of(scores, verdict_code="shift", **probed), table_of(scores)),
    }
    study = planted(f"{link}@0,1,2", cells)
    snapshot(study.sentence)
    assert study.failed == {"encoder=RUN@1_seed=0": "no images"}
    assert (
        "Not run in 1 of 2 runs (the first is encoder=RUN@0_seed=0): lira: no shadows"
        in (study.about["notes"])
    )
    (shown,) = {row["AUC, 95 %"] for row in tables(study)["Leakage and use"]
                if row["encoder"] == "RUN@2"}  # fmt: skip
    assert shown == "– (1 of 1 void: shift)"
    first, _, last = tables(study)["Encoders"]
    for head, wanted in (
        ("weighted kNN, 95 %", "0.700 [0.600, 0.800]"), ("members", str(MEMBERS)),
        ("non-members", str(IMAGES - MEMBERS)), ("verdicts", "shift 1"), ("failed", "0"),
    ):  # fmt: skip
        assert last[head] == wanted, head
    assert first["weighted kNN, 95 %"] == "–" and first["verdicts"] == "leaks 1"
    assert len(study.figure("encoders").axes) == 2
    (tmp_path / "tell/encoder=RUN@2_seed=0.json").write_text(json.dumps(cells["RUN@0", 0][0]))
    link.rename(tmp_path / "encoder-of-a-long-name-0")
    names = [f"encoder-of-a-long-name-{i}" for i in range(6)]
    for name in names[1:]:
        (tmp_path / name).symlink_to(run)
    every = {(f"{name}@2", 0): cells["RUN@0", 0] for name in names}
    shutil.rmtree(tmp_path / "OUT")
    study = planted(",".join(f"{tmp_path / name}@2" for name in names), every)
    assert study.sentence.count("leaks, a AUC") == 6
    figure = study.figure("encoders")
    assert len(figure.axes) == 1 and figure.axes[0].get_ylabel().startswith("AUC")
    check_apart(figure)


@pytest.mark.parametrize(
    ("encoder", "said"),
    [
        ("{}@0,3", "kept no round 3; nearest is 2 (kept: 0, 1, 2)"),
        ("{}/config.yaml@0,2", "is a file; the folder of a run has rounds"),
        ("{}@0 --seeds 0", "seeds (--seeds): 0, must be >= 1"),
        ("{}@0,2", "--out FOLDER is missing: the runs are kept there"),
    ],
)
def test_bad_input__one_line_before_anything_runs(
    run: Path, tmp_path: Path, encoder: str, said: str
) -> None:
    line = shlex.split(f"study --encoders {encoder.format(run)} --attacks lpla")
    ran = fedmia(line, None if "missing" in said else tmp_path / "OUT")
    assert ran.code == 2 and said in ran.err and ran.err.count("\n") == 1
    assert not (tmp_path / "OUT").exists()


@pytest.mark.slow
def test_encoders__are_the_single_audits_and_drawn(
    audit: Audit, run: Path, archives: Sides, tmp_path: Path
) -> None:
    """Real processes: each cell's report is that of the audit of its encoder and seed."""
    both, flags = f"{run}@2,tests.auditing.brought:tiny", "--attacks similarity,lpla --seed 3 "
    more = f"{archives.flags} --device cpu --attack.similarity.views 3 --threads 1"
    out = tmp_path / "OUT"
    ran = fedmia(f"study --encoders {both} {flags} {more} --json", out)
    said = json.loads(ran.out)
    assert ran.code == 0 and said == about(out)
    assert said["seeds"] == [3] and said["finished"] == 2
    for cell, encoder in zip(said["cells"], both.split(","), strict=True):
        alone = audit(f"--encoder {encoder} {flags}", tmp_path / cell["name"]).report
        same = json.loads((out / cell["path"] / "report.json").read_text())
        for report in (same, alone):
            del report["hardware"]  # the cores of a share
        assert numbers(same) == numbers(alone)
    assert any(
        "where data.mean (--mean) and data.std (--std) give none" in note for note in same["notes"]
    )
    assert (out / "figures" / "encoders.png").read_bytes().startswith(b"\x89PNG")
    assert "<img" in (out / "study.html").read_text()


@pytest.mark.slow
def test_plan__of_audits_is_that_of_each_encoder(
    run: Path, archives: Sides, tmp_path: Path
) -> None:
    line = (
        f"study --encoders {run}@0,2 {archives.flags} --attacks similarity --device cpu --seeds 2 "
    )
    line += "--known 6 --threads 1 --plan --json"
    ran = fedmia(line, tmp_path / "OUT")
    row = json.loads(ran.out)
    assert ran.code == 0 and not (tmp_path / "OUT").exists()
    assert row["runs"] == 4 and len(row["points"]) == 2
    each = [one["seconds"]["total"] for one in row["points"].values()]
    assert row["seconds"] > 2 * sum(each) / row["jobs"]
    assert all(one["smallest_auc"] > 0.5 for one in row["points"].values())
