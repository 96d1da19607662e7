"""Several encoders or seeds in one audit: what is asked for, done once, compared, refused."""

from __future__ import annotations

import json
import re
import shlex
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from fedmia.cli.command import parse
from fedmia.cli.commands import AUDIT
from fedmia.config.series import Series, short_names, split_encoders, split_round
from fedmia.options.errors import InputError
from fedmia.records import ScoredAttack
from fedmia.report.figures import canvas
from fedmia.statistics.auc import difference_interval
from fedmia.study.audits import encoders as run_study
from fedmia.study.scores import read
from fedmia.study.views import encoders as compare
from fedmia.study.views.encoders import EncodersView, models
from tests.auditing.conftest import RUN, Audit, Sides, numbers
from tests.bank import Bank
from tests.snapshots import Snapshot as Check

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "audit.json"
ROUNDS = (0, 1, 2)
# An audit as a process: a golden report with an AUC of round and seed, scores that have it.
CELL = """
import json, os, random, re, sys
golden, tell, config, folder = sys.argv[1:]
text = open(config).read()
turn = int(re.search(r"encoder: .*@(\\d+)", text)[1])
seed = int(re.search(r"^seed: (\\d+)", text, re.M)[1])
print(f"{turn} {seed}", file=open(tell, "a"))
os.makedirs(folder, exist_ok=True)
open(os.path.join(folder, "config.yaml"), "w").write(text)
report = json.load(open(golden))
report["attacks"] = report["attacks"][:1]
report["attacks"][0] |= {"auc": 0.5 + 0.02 * turn + 0.01 * seed, "auc_ci": [0.4 + 0.1 * seed, 0.8]}
report |= {"versions": {}, "timing": {"total_s": 1}}
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
    """`serial()`: the exit code of a series into `OUT` whose audits are tiny processes."""
    monkeypatch.setattr(EncodersView, "figures", lambda self, report: {})

    def start(config: Path, folder: Path) -> Sequence[str]:
        own = [str(GOLDEN), str(tmp_path / "begun"), str(config), str(folder)]
        return [sys.executable, "-I", "-S", "-c", CELL, *own]

    def series() -> int:
        line = f"--encoder {run}@0,1,2 {archives.flags} --attacks similarity --device cpu "
        line += f"--seeds 2 --jobs 3 --threads 1 --json --out {tmp_path / 'OUT'}"
        return run_study(parse(AUDIT, shlex.split(line)), Event(), start)

    return series


def printed(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    series: dict[str, Any] = json.loads(capsys.readouterr().out)
    return series


def test_encoders__rounds_files_and_names(tmp_path: Path) -> None:
    assert split_encoders("a/RUN@0,10,b.pth, C@3,4") == (
        "a/RUN@0", "a/RUN@10", "b.pth", "C@3", "C@4",
    )  # fmt: skip
    odd = tmp_path / "a,1"
    odd.touch()
    assert split_encoders(str(odd)) == (str(odd),) and split_encoders("timm:x") == ("timm:x",)
    assert short_names(["a/x.pth", "b/x.pth"]) == ["a/x.pth", "b/x.pth"]
    assert short_names(["a/x@1", "a/x@2"]) == ["x@1", "x@2"]
    assert split_round("a/RUN@10") == ("a/RUN", 10) and split_round("x.pth") == ("x.pth", None)
    for text, said in (("RUN,3", "3 follows no RUN"), ("R@1,1", "R@1 is named twice")):
        with pytest.raises(InputError, match=said):
            split_encoders(text)


def test_series__is_one_audit_where_one_is_asked_for() -> None:
    one = Series(encoder="x@3", members="digits", nonmembers="digits")
    (cell,) = one.cells
    assert cell.first.encoder == "x@3" and "seeds" not in cell.tree
    four = Series(encoder="x@3,4", members="digits", nonmembers="digits", seeds=2, seed=7)
    encoders = [(c.tree["encoder"], c.tree["seed"]) for c in four.cells]
    assert encoders == [("x@3", 7), ("x@4", 7), ("x@3", 8), ("x@4", 8)]


@pytest.mark.slow
def test_series__one_json_and_one_page(
    serial: Serial, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert serial() == 0
    begun = sorted((tmp_path / "begun").read_text().splitlines())
    assert begun == ["0 0", "0 1", "1 0", "1 1", "2 0", "2 1"]
    found, golden = printed(capsys), json.loads(GOLDEN.read_text())
    assert [(p["round"], p["finished"]) for p in found["points"]] == [(t, 2) for t in ROUNDS]
    for point in found["points"]:
        (row,) = point["attacks"]
        first = 0.5 + 0.02 * point["round"]
        assert row["by_seed"] == pytest.approx([first, first + 0.01])
        assert row["auc"] == pytest.approx(np.mean(row["by_seed"]))
        assert row["auc_ci"] == pytest.approx([0.45, 0.8])  # the mean of both seeds' ends
        assert (row["difference"] is None) == (point["round"] == 2)
    out, values, ends = tmp_path / "OUT", [], []
    for seed in (0, 1):
        (same, a), (also, b) = (
            read(out / "cells" / f"encoder=RUN@{turn}_seed={seed}" / "scores.csv")
            for turn in (0, 2)
        )
        assert same == also and len(a["similarity"].scores_members) == 20
        pair = a["similarity"].sides, b["similarity"].sides
        ends.append(difference_interval(*pair))
        first, last = (np.mean(members[:, None] > others) for members, others in pair)
        values.append(first - last)
    apart = found["points"][0]["attacks"][0]["difference"]
    assert apart["last"] == "RUN@2"
    assert apart["difference"] == pytest.approx(np.mean(values), abs=1e-6)
    assert apart["ci"] == pytest.approx(np.mean(ends, axis=0), abs=1e-6)
    assert sorted([*apart["ci"], *apart["ci_simultaneous"]])[1:3] == apart["ci"]
    lost = [f"Not run: {r['attack']}: {r['reason']}" for r in golden["not_run"]]
    assert lost and set(lost) <= set(found["notes"])
    page = (out / "series.html").read_text()
    assert 'href="cells/encoder%3DRUN%402_seed%3D1/report.html"' in page
    assert not re.findall(r"<th>(.*?)</th>", page)  # each column says what it is
    sections = set(re.findall(r'section id="([^"]+)"', page))
    assert set(re.findall(r'href="#([^"]+)"', page)) == sections
    other = [p | {"run": "OTHER", "knn": p["knn"] + 0.1} for p in found["points"][1:]]
    assert found["models"] == [] and [row["round"] for row in models(found["points"] + other)] == [
        1, 2,
    ]  # fmt: skip
    (row,) = models([found["points"][1], other[0]])
    assert row["knn"]["mean"] == pytest.approx(found["points"][1]["knn"] + 0.05)
    assert row["knn"]["n"] == row["attacks"]["similarity"]["n"] == 2


@pytest.mark.parametrize("other", ["0,1,,0,1.0", "1,0,,0,1.0"])  # another image, another truth
def test_both__scores_of_other_images_are_not_paired(tmp_path: Path, other: str) -> None:
    head, one = "image,truth,client,label,similarity", "1,1,,0,1.0"
    for name, line in (("a", one), ("b", one), ("c", other)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "scores.csv").write_text(f"{head}\n{line}\n2,0,,0,0.5\n")
    done: Any = SimpleNamespace(out=tmp_path, finished={n: (n, {}) for n in "abc"})
    cells: Any = {n: SimpleNamespace(key=n) for n in "abcd"}
    first, second = compare.both_of(cells["a"], cells["b"], done)
    assert list(first) == list(second) == ["similarity"]
    assert compare.both_of(cells["a"], cells["c"], done) == ({}, {})
    assert compare.both_of(cells["a"], cells["d"], done) == ({}, {})  # not finished


def read_scores(shift: float, kind: str) -> Any:
    """Scores of ten images a side under one attack, members higher by `shift`."""
    values = np.arange(10.0)
    return ScoredAttack(kind, "", "", "", values + shift, values * 1.5)


def test_differences__hold_together_for_all_attacks_of_all_pairs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two attacks on the first two rounds of one run and on one file beside the last file."""
    short_names = ["R@0", "R@2", "R@5", "x.pth", "S@2", "y.pth"]
    held = {n: {k: read_scores(i + (k == "b"), k) for k in "ab"} for i, n in enumerate(short_names)}
    points: Any = [
        {"name": n, "run": n[:1] if "@" in n else n, "round": int(n[2:]) if "@" in n else None,
         "attacks": [{"name": k, "difference": None} for k in "ab"]}
        for n in short_names
    ]  # fmt: skip
    del held["R@2"]["b"]  # it could not run there
    monkeypatch.setattr(compare, "both_of", lambda a, b, done: (held[a], held[b]))
    compare.fill_differences(points, [[n] for n in short_names], SimpleNamespace())  # type: ignore[arg-type,list-item]
    rows = {p["name"]: {r["name"]: r["difference"] for r in p["attacks"]} for p in points}
    assert {n for n, row in rows.items() if row["a"]} == {"R@0", "R@2", "x.pth"}
    assert rows["R@2"]["b"] is None and rows["S@2"] == rows["R@5"] == {"a": None, "b": None}
    for name, last in (("R@0", "R@5"), ("R@2", "R@5"), ("x.pth", "y.pth")):
        found, pair = rows[name]["a"], (held[name]["a"], held[last]["a"])
        value, each, together = compare.scores.difference(*pair, 3 * 2)
        assert found["last"] == last and found["difference"] == pytest.approx(value, abs=1e-6)
        assert found["ci"] == pytest.approx(each, abs=1e-6)
        assert found["ci_simultaneous"] == pytest.approx(together, abs=1e-6)
        assert together == difference_interval(*(one.sides for one in pair), family=6) != each


def test_sentence__each_encoder_and_of_a_run_the_ends(snapshot: Check) -> None:
    def point(name: str, code: str, knn: float | None = None, p: float | None = None,
              **aucs: float | None) -> Any:  # fmt: skip
        run, _, turn = name.partition("@")
        rows = [{"name": n, "auc": v, "auc_ci": v and (v - 0.1, v + 0.1)} for n, v in aucs.items()]
        sets = {"sets": [p]} if p else {}
        return {"name": name, "run": run, "round": int(turn) if turn else None, "knn": knn,
                "knn_ci": None, "attacks": rows, "p_values": sets,
                "verdicts": {code: 1} if code else {}}  # fmt: skip

    first, last = point("x@0", "leaks", 0.3, a=0.9, b=0.5), point("x@5", "shift", a=0.6, b=0.7)
    middle, lost = point("x@2", "leaks", 0.4, a=0.99), point("x@9", "", a=None)
    failed = ["finished", "failed", "not run", "failed"]
    overfit, other = point("o", "leaks", p=0.0005, a=0.64, c=0.5), point("r", "leaks", a=0.5, c=0.6)
    for points, states in (
        ([first, middle, last], failed),
        ([first, lost], ["finished"]),
        ([lost], ["failed"]),
        ([overfit, other, point("z@1", "shift", a=0.5)], ["finished"] * 3),
    ):
        snapshot(compare.sentence(points, states))


def test_notes__seeds_doubtful_verdicts_and_what_is_left_out(snapshot: Check) -> None:
    def point(*codes: str) -> Any:
        return {"verdicts": dict.fromkeys(codes, 1)}

    cell: Any = {"name": "c", "state": "finished"}
    assert compare.notes([point("leaks")], [cell], 1) == []
    for note in compare.notes(
        [point("leaks", "shift"), point("control-failed")], [cell, cell | {"state": "not run"}], 2
    ):
        snapshot(note)
    missing = {"not_run": [{"attack": "lira", "reason": "no shadows"}]}
    done: Any = SimpleNamespace(finished={"a": ("", missing), "b": ("", {"not_run": []})})
    assert compare.not_run(done) == ["Not run, in 1 of 2 audits: lira: no shadows"]
    done.finished["b"] = done.finished["a"]
    assert compare.not_run(done) == ["Not run: lira: no shadows"]


def test_means__of_what_is_known() -> None:
    assert compare.mean_of([0.5, None, 0.25]) == 0.375 and compare.mean_of([None]) is None
    assert compare.mean_interval([(0.1, 0.5), None, (0.2, 0.9)]) == (0.15, 0.7)
    assert compare.mean_interval([None]) is None


@pytest.mark.parametrize(
    ("encoder", "said"),
    [
        ("{}@0,3", "kept no round 3; nearest is 2 (kept: 0, 1, 2)"),
        ("{}/config.yaml@0,2", "is a file; the folder of a run has rounds"),
        ("{}@0 --seeds 0", "seeds must be >= 1, got 0"),
        ("{}@0,2", "out FOLDER is missing: the audits are kept there"),
    ],
)
def test_bad_input__one_line_before_anything_runs(
    audit: Audit, run: Path, tmp_path: Path, encoder: str, said: str
) -> None:
    out = None if "missing" in said else tmp_path / "OUT"
    done = audit(f"--encoder {encoder.format(run)} --attacks lpla", out)
    assert done.code == 2 and said in done.err and done.err.count("\n") == 1
    assert not (tmp_path / "OUT").exists()


@pytest.mark.slow
def test_series__is_the_single_audits_and_draws_them(
    audit: Audit, run: Path, tmp_path: Path
) -> None:
    """Real processes: each cell's report is that of the audit of its encoder and seed."""
    both, flags = f"{run}@2,tests.auditing.brought:tiny", "--attacks similarity,lpla --seed 3 "
    done = audit(f"--encoder {both} {flags} --json", tmp_path / "OUT")
    assert done.code == 0
    series = json.loads(done.out)
    assert series["seeds"] == [3] and series["finished"] == 2
    for cell in series["cells"]:
        alone = audit(f"--encoder {cell['encoder']} {flags}", tmp_path / cell["name"]).report
        same = json.loads((tmp_path / "OUT" / cell["path"] / "report.json").read_text())
        for report in (same, alone):
            del report["hardware"]  # the cores of a share
        assert numbers(same) == numbers(alone)
    assert any("what mean and std leave open" in note for note in same["notes"])
    assert (tmp_path / "OUT" / "series.png").read_bytes().startswith(b"\x89PNG")
    assert "<img" in (tmp_path / "OUT" / "series.html").read_text()


def test_figure__has_no_empty_panel_where_there_is_no_probe() -> None:
    attack = {"name": "a", "auc": 0.6, "auc_ci": (0.5, 0.7), "by_seed": [0.6]}
    bare = {"name": "x", "run": "x", "round": None, "finished": 1, "attacks": [attack]}
    none = bare | dict.fromkeys(("knn", "knn_ci", "linear", "linear_ci"))
    probed = none | {"knn": 0.8, "knn_ci": (0.7, 0.9)}
    for point, panels in ((none, 1), (probed, 2)):
        drawn: list[Any] = []
        with warnings.catch_warnings(), patch.object(canvas, "png", drawn.append):
            warnings.simplefilter("error")
            compare.draw({"points": [point]})  # type: ignore[typeddict-item]
        (figure,) = drawn
        assert len(figure.axes) == panels and figure.axes[0].get_ylabel().startswith("AUC")
