"""A study of several encoders or seeds: done once, compared, refused."""

from __future__ import annotations

import json
import re
import shlex
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fedmia import open_study
from fedmia.cli.command import parse
from fedmia.cli.commands import STUDY
from fedmia.records.fields import fields_of
from fedmia.statistics.auc import difference_interval
from fedmia.study.__main__ import main
from fedmia.study.cells import CellState
from fedmia.study.command import run_command
from fedmia.study.points import known, over_models
from fedmia.study.result import StudyResult
from fedmia.study.rows import AttackPointRow, EncoderPointRow, OverModels
from fedmia.study.views import encoders as compare
from fedmia.study.views.encoders import EncodersView, point_rows
from fedmia.study.words import encoders_sentence, notes_on
from tests.auditing.conftest import RUN, Audit, Sides, numbers
from tests.bank import Bank
from tests.made_up_runs import write_report
from tests.snapshots import Snapshot as Check
from tests.study.test_tables import check_apart

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "audit.json"
ROUNDS = (0, 1, 2)
# An audit as a process: a golden report with an AUC of round and seed, scores that have it.
CELL = """
import json, os, random, re, sys
golden, tell, config, folder = sys.argv[1:]
text = open(config).read()
turn = int(re.search(r"name: .*@(\\d+)", text)[1])
seed = int(re.search(r"^seed: (\\d+)", text, re.M)[1])
print(f"{turn} {seed}", file=open(tell, "a"))
os.makedirs(folder, exist_ok=True)
open(os.path.join(folder, "config.yaml"), "w").write(text)
report = json.load(open(golden))
report["attacks"] = report["attacks"][:1]
report["attacks"][0] |= {"auc": 0.5 + 0.02 * turn + 0.01 * seed, "auc_ci": [0.4 + 0.1 * seed, 0.8]}
report["attacks"][0] |= {"n_members": 20, "n_nonmembers": 20}
report["timing"]["total_s"] = 1
json.dump(report, open(os.path.join(folder, "report.json"), "w"))
draw, name = random.Random(7), report["attacks"][0]["name"]
lines = [f"image,truth,client,label,{name}"]
for i in range(40):
    lines.append(f"{i},{int(i < 20)},,0,{draw.gauss(0.3 * turn * (i < 20), 1) + 0.1 * seed}")
open(os.path.join(folder, "scores.csv"), "w").write("\\n".join(lines) + "\\n")
"""
Serial = Callable[[], int]


@pytest.fixture
def run(bank: Bank) -> Path:
    """The folder of a run that kept three rounds."""
    return bank.run(RUN)


@pytest.fixture
def serial(run: Path, archives: Sides, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Serial:
    """`serial()`: the exit code of a study into `OUT` whose audits are tiny processes."""
    monkeypatch.setattr(EncodersView, "figures", lambda self, study: {})

    def start(config: Path, folder: Path) -> Sequence[str]:
        write_report(tmp_path, json.loads(GOLDEN.read_text()) | {"versions": ..., "timing": ...})
        own = [*map(str, (tmp_path / "report.json", tmp_path / "begun", config, folder))]
        return [sys.executable, "-I", "-S", "-c", CELL, *own]

    def study() -> int:
        line = f"--encoders {run}@0,1,2 {archives.flags} --attacks similarity --device cpu "
        line += f"--seeds 2 --jobs 3 --threads 1 --quiet --out {tmp_path / 'OUT'}"
        return run_command(parse(STUDY, shlex.split(line)), Event(), start)

    return study


@pytest.mark.slow
def test_encoders__one_table_and_one_page(serial: Serial, tmp_path: Path) -> None:
    assert serial() == 0
    begun = sorted((tmp_path / "begun").read_text().splitlines())
    assert begun == ["0 0", "0 1", "1 0", "1 1", "2 0", "2 1"]
    out, golden = tmp_path / "OUT", json.loads(GOLDEN.read_text())
    study = open_study(out)
    points = point_rows(study)
    assert [(point.round, point.failed) for point in points] == [(t, 0) for t in ROUNDS]
    for point in points:
        (row,) = point.attacks.values()
        first = 0.5 + 0.02 * (point.round or 0)
        by_seed = known(row.by_seed.values())
        assert by_seed == pytest.approx([first, first + 0.01])
        assert row.auc.mean == pytest.approx(np.mean(by_seed))
        assert row.auc.ci == pytest.approx([0.45, 0.8])  # the mean of both seeds' ends
        assert (row.difference is None) == (point.round == 2)
    values, ends = [], []
    for seed in (0, 1):
        a, b = (study.runs[f"encoder=RUN@{turn}_seed={seed}"].scores for turn in (0, 2))
        assert len(a) == 40 and a["truth"].sum() == 20
        pair = [(s["similarity"][s["truth"]], s["similarity"][~s["truth"]]) for s in (a, b)]
        sides = [tuple(side.to_numpy() for side in one) for one in pair]
        ends.append(difference_interval(*sides))  # type: ignore[arg-type]
        first, last = (np.mean(inside[:, None] > outside) for inside, outside in sides)
        values.append(first - last)
    row = points[0].attacks["similarity"]
    apart = row.difference
    assert row.last == "RUN@2" and apart is not None
    assert apart.mean == pytest.approx(np.mean(values), abs=1e-6)
    assert apart.ci == pytest.approx(np.mean(ends, axis=0), abs=1e-6)
    assert apart.ci is not None and apart.ci_simultaneous is not None
    assert sorted([*apart.ci, *apart.ci_simultaneous])[1:3] == list(apart.ci)
    lost = [f"Not run: {attack}: {reason}" for attack, reason in golden["not_run"].items()]
    assert lost and set(lost) <= set(study.about["notes"])
    page = (out / "study.html").read_text()
    assert not re.findall(r"<th>(.*?)</th>", page)  # each column says what it is
    assert 'href="cells/encoder%3DRUN%402_seed%3D1/report.html"' in page
    sections = set(re.findall(r'section id="([^"]+)"', page))
    assert set(re.findall(r'href="#([^"]+)"', page)) == sections
    assert serial() == 0  # nothing runs twice
    assert len((tmp_path / "begun").read_text().splitlines()) == 6


def read_scores(shift: float, **attacks: float) -> pd.DataFrame:
    """Scores of ten images a side under each attack, members higher by `shift` and its own."""
    values = np.arange(10.0)
    truth = np.repeat([True, False], 10)
    frame = pd.DataFrame({"image": np.arange(20), "truth": truth})
    for name, own in attacks.items():
        frame[name] = np.concatenate([values + shift + own, values * 1.5])
    return frame


def encoder(name: str, *attacks: AttackPointRow, **more: Any) -> EncoderPointRow:
    """An encoder with these attacks; nothing else is known of it unless `more` says it."""
    run, _, turn = name.partition("@")
    none = over_models(())
    blank: Any = dict.fromkeys(fields_of(EncoderPointRow)) | {
        "run": run[:1], "round": int(turn) if turn else None, "verdicts": {}, "void": "",
        "sets": "", "failed": 0, "knn": none, "linear": none,
    }  # fmt: skip
    by_name = {str(row.attack): row for row in attacks}
    return EncoderPointRow(**blank | {"point": name, "attacks": by_name} | more)


def attack(name: str, auc: float | None = None, half: float = 0.1) -> AttackPointRow:
    """An attack with an AUC and its interval."""
    mean = over_models([] if auc is None else [auc])
    if auc is not None:
        mean = replace(mean, ci=(auc - half, auc + half))
    blank: Any = dict.fromkeys(fields_of(AttackPointRow))
    return AttackPointRow(**blank | {"attack": name, "auc": mean, "by_seed": {0: auc}})


def listed(*names: str) -> list[EncoderPointRow]:
    return [encoder(name, attack("a"), attack("b")) for name in names]


def test_differences__hold_together_for_all_attacks_of_all_pairs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two attacks on the first two rounds of one run and on one file beside the last file."""
    names = ["R@0", "R@2", "R@5", "x.pth", "S@2", "y.pth"]
    stored = {n: read_scores(i, a=0.0, b=1.0) for i, n in enumerate(names)}
    points = listed(*names)
    points[1] = encoder(names[1], attack("a"))  # the other could not run there
    monkeypatch.setattr(compare, "scores_of", lambda study, point: {0: stored[point]})
    rows = {
        p.point: {n: (r.last, r.difference) for n, r in p.attacks.items()}
        for p in compare.with_differences(points, None)
    }  # type: ignore[arg-type]
    assert {n for n, row in rows.items() if row["a"][1]} == {"R@0", "R@2", "x.pth"}
    assert rows["S@2"] == rows["R@5"] == {"a": (None, None), "b": (None, None)}
    for name, last in (("R@0", "R@5"), ("R@2", "R@5"), ("x.pth", "y.pth")):
        compared, difference = rows[name]["a"]
        pair = [
            (one["a"][one["truth"]].to_numpy(), one["a"][~one["truth"]].to_numpy())
            for one in (stored[name], stored[last])
        ]
        less = [np.mean((m[:, None] > n) + 0.5 * (m[:, None] == n)) for m, n in pair]
        assert compared == last and difference is not None
        assert difference.mean == pytest.approx(less[0] - less[1], abs=1e-6)
        each = difference_interval(*pair)
        together = difference_interval(*pair, family=5)  # two, one and two attacks
        assert difference.ci == pytest.approx(each, abs=1e-6)
        assert difference.ci_simultaneous == pytest.approx(together, abs=1e-6)
        assert together != each


@pytest.mark.parametrize(("column", "value"), [("image", 99), ("truth", False)])
def test_differences__other_images_are_not_paired(
    column: str, value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = read_scores(1.0, a=0.0, b=0.0)
    other.loc[0, column] = value
    stored = {"x@0": {0: read_scores(0.0, a=0.0, b=0.0), 1: other}, "x@1": {0: other, 1: other}}
    points = listed("x@0", "x@1")
    monkeypatch.setattr(compare, "scores_of", lambda study, point: stored[point])

    def difference() -> OverModels | None:
        first, _ = compare.with_differences(points, None)  # type: ignore[arg-type]
        return first.attacks["a"].difference

    found = difference()
    assert found is not None and found.mean == 0.0  # of the second seed alone
    stored["x@1"] = {2: other}  # not finished at those seeds
    assert difference() is None


def test_sentence__each_encoder_and_of_a_run_the_ends(snapshot: Check) -> None:
    def point(name: str, code: str, knn: float | None = None, p: str = "",
              **aucs: float | None) -> EncoderPointRow:  # fmt: skip
        rows = [attack(n, value) for n, value in aucs.items()]
        use = over_models([] if knn is None else [knn])
        more = {"knn": use, "sets": p and f"sets p {p}", "verdicts": {code: 1} if code else {}}
        return encoder(name, *rows, **more)

    first, last = point("x@0", "leaks", 0.3, a=0.9, b=0.5), point("x@5", "shift", a=0.6, b=0.7)
    middle, lost = point("x@2", "leaks", 0.4, a=0.99), point("x@9", "", a=None)
    failed = ["finished", "failed", "not run", "failed"]
    overfit = point("o", "leaks", p="0.0005", a=0.64, c=0.5)
    other = point("r", "leaks", a=0.5, c=0.6)
    for points, states in (
        ([first, middle, last], failed),
        ([first, lost], ["finished"]),
        ([lost], ["failed"]),
        ([overfit, other, point("z@1", "shift", a=0.5)], ["finished"] * 3),
    ):
        snapshot(encoders_sentence(points, states))


def test_notes__seeds_and_what_did_not_run() -> None:
    lost = {"lira": "no shadows"}
    cells = [CellState("a", "x", {}, 0, "finished", not_run=lost),
             CellState("b", "x", {}, 1, "finished")]  # fmt: skip
    assert notes_on(cells) == ["Not run in 1 of 2 runs (the first is a): lira: no shadows"]
    assert notes_on(cells[:1]) == ["Not run: lira: no shadows"]
    about = {"cells": [vars(cell) for cell in cells], "settings": {}, "views": ["encoders"]}
    (seeds,) = EncodersView().notes(StudyResult(Path("x"), about))
    assert seeds.startswith("2 seeds audit each encoder.")


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
    run: Path, tmp_path: Path, encoder: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = [] if "missing" in said else ["--out", str(tmp_path / "OUT")]
    assert main([*shlex.split(f"--encoders {encoder.format(run)} --attacks lpla"), *out]) == 2
    err = capsys.readouterr().err
    assert said in err and err.count("\n") == 1
    assert not (tmp_path / "OUT").exists()


@pytest.mark.slow
def test_encoders__are_the_single_audits_and_drawn(
    audit: Audit, run: Path, archives: Sides, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Real processes: each cell's report is that of the audit of its encoder and seed."""
    both, flags = f"{run}@2,tests.auditing.brought:tiny", "--attacks similarity,lpla --seed 3 "
    more = f"{archives.flags} --device cpu --attack.similarity.views 3 --threads 1"
    out = tmp_path / "OUT"
    capsys.readouterr()  # what made the run
    assert main(shlex.split(f"--encoders {both} {flags} {more} --json --out {out}")) == 0
    about = json.loads(capsys.readouterr().out)
    assert about["seeds"] == [3] and about["finished"] == 2
    for cell, encoder in zip(about["cells"], both.split(","), strict=True):
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


def test_figure__has_no_empty_panel_where_there_is_no_probe() -> None:
    bare = encoder("x", attack("a", 0.6), verdicts={"leaks": 1})
    probed = replace(bare, knn=replace(over_models([0.8]), ci=(0.7, 0.9)))
    for point, panels in ((bare, 1), (probed, 2)):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            figure = compare.draw([point])
        assert figure is not None and len(figure.axes) == panels
        assert figure.axes[0].get_ylabel().startswith("AUC")


def test_figure__names_of_many_encoders_do_not_overlap() -> None:
    for many in (2, 12):
        names = [f"encoder-of-a-long-name-{i}.pth" for i in range(many)]
        points = [encoder(name, attack("a", 0.6), verdicts={"leaks": 1}) for name in names]
        figure = compare.draw(points)
        assert figure is not None
        check_apart(figure)


@pytest.mark.slow
def test_plan__of_audits_is_that_of_each_encoder(
    run: Path, archives: Sides, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = f"--encoders {run}@0,2 {archives.flags} --attacks similarity --device cpu --seeds 2 "
    line += f"--known 6 --threads 1 --out {tmp_path / 'OUT'} --plan --json"
    assert run_command(parse(STUDY, shlex.split(line)), Event()) == 0
    row = json.loads(capsys.readouterr().out)
    assert row["runs"] == 4 and len(row["points"]) == 2 and not (tmp_path / "OUT").exists()
    each = [one["seconds"]["total"] for one in row["points"].values()]
    assert row["seconds"] > 2 * sum(each) / row["jobs"]
    assert all(one["smallest_auc"] > 0.5 for one in row["points"].values())
