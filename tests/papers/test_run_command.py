"""`python -m research.papers run RUN`: tables and figures of one run; wrong input in one line."""

from __future__ import annotations

import json
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedmia
from research.papers.claims.of_ascent import claims
from tests.bank import Bank
from tests.papers.finished import papers
from tests.pictures import painting

STORED = Path(__file__).resolve().parents[1] / "stored" / "run"
FIGURES = [f"fig-{i}" for i in range(5, 14)]
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(scope="module")
def made(bank: Bank, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """Folder and tables of a run whose client ascends."""
    out = tmp_path_factory.mktemp("papers") / "OUT"
    with painting():
        ran = papers(f"run {bank.run('attacked')} --json --device cpu", out)
    assert ran.code == 0, ran.err
    tables = json.loads((out / "tables.json").read_text("utf-8"))
    assert json.loads(ran.out) == tables
    return out, tables


@pytest.fixture(scope="module")
def run(bank: Bank) -> fedmia.Run:
    return fedmia.open_run(bank.run("attacked"))


def test_tables__have_the_numbers_of_the_run(made: Any, bank: Bank) -> None:
    """The attacks are the run's own, so each number that report.json holds too is the same."""
    _, tables = made
    folder = bank.run("attacked")
    report = json.loads((folder / "report.json").read_text("utf-8"))
    scored = {r["round"]: r for r in report["rounds"] if r["leakage"]}
    clean = max(n for n, r in scored.items() if not r["under_attack"])
    assert tables["round"] == clean < max(scored) and tables["run"] == folder.name
    assert tables["data"] == report["split"]["data"]
    rounds = {r["round"]: r for r in tables["rounds"] if r["round"]}
    attacks = {a["name"]: a for a in report["attacks"]}
    for found, name in (
        (tables["table_4"]["lda"], "combined"),
        (rounds[clean]["methods"]["combined"], "combined"),
        (rounds[clean]["methods"]["internal"], "internal"),
        (rounds[clean]["ascent_static"], "ascent-static"),
    ):
        own = {key: value for key, value in found.items() if key != "by_threshold"}
        assert own == {key: attacks[name][key] for key in own} and len(own) > 8, name
    assert list(rounds) == sorted(scored)
    for number, row in rounds.items():
        assert row["under_attack"] == scored[number]["under_attack"]
        for name in ("combined", "internal"):
            assert row["methods"][name]["auc"] == scored[number]["leakage"][name]
        assert {n: r["auc"] for n, r in row["layers"].items()} == scored[number]["layers"]
    # The run says nothing of it, so it reads the paper's three pairs of views.
    assert tables["table_2"] == rounds[clean]["methods"]["similarity"]
    assert tables["table_2"]["auc"] != attacks["similarity"]["auc"]
    assert len({row["auc"] for row in tables["table_4"].values()}) == 3
    assert [*tables["table_4"]] == ["svm", "lr", "lda"]
    five = ["combined", "similarity", "internal", "loss", "confidence"]
    assert [*rounds[clean]["methods"]] == five


def test_table_3__three_confidences_of_the_last_layers(made: Any) -> None:
    _, tables = made
    assert [row["layer"] for row in tables["table_3"][:2]] == ["encoder", "avgpool"]
    for row in tables["table_3"]:
        for side in ("members", "nonmembers"):
            assert 1 > row[side][0] > row[side][1] > row[side][2] > 0
            assert all(0 < se < mean for se, mean in zip(row[f"{side}_se"], row[side], strict=True))
        assert (row["n_members"], row["n_nonmembers"]) == (24, 52)


def test_by_threshold__accuracy_where_the_loss_of_members_rises_less(
    made: Any, run: fedmia.Run
) -> None:
    """And the numbers of the climb agree with each other."""
    _, tables = made
    (clean,) = (r for r in tables["rounds"] if r["round"] == tables["round"])
    rows = clean["ascent_static"]["by_threshold"]
    assert [*rows] == ["0.1", "0.25", "0.5", "0.75", "0.9"]
    rise, member = -run.scores["ascent-static"], run.scores["truth"] == 1
    for share, row in rows.items():
        at = np.quantile(rise, float(share))
        right = ((rise < at)[member].mean() + (rise >= at)[~member].mean()) / 2
        assert row["accuracy"] == pytest.approx(right, abs=1e-6), share
        assert row["threshold"] == pytest.approx(at, abs=1e-6)
    rises = {s: losses[-1] - losses[0] for s, losses in tables["mean_loss_by_step"].items()}
    (fig_10, fig_12), before = tables["claims"][:2], tables["claims"][0]["numbers"][1]
    for side in ("members", "nonmembers"):
        assert fig_10["numbers"][0][side] == pytest.approx(rises[side], abs=2e-6)
        assert before[side] == pytest.approx(tables["mean_loss_by_step"][side][0], abs=2e-6)
    mean = {side: rise[member if side == "members" else ~member].mean() for side in rises}
    assert rises == pytest.approx(mean, abs=2e-6)
    assert fig_12["numbers"][0]["accuracy"] == clean["ascent_static"]["accuracy"]


def test_claims__of_the_rounds_in_which_a_client_ascends(made: Any, run: fedmia.Run) -> None:
    _, tables = made
    want = claims(None, run.curves)[2:]
    for found, own in zip(tables["claims"][2:], want, strict=True):
        assert (found["place"], found["verdict"]) == (own["place"], own["verdict"])
        assert found["verdict"] != "not run" and len(found["numbers"]) == len(own["numbers"])
        for one, other in zip(found["numbers"], own["numbers"], strict=True):
            assert one["of"] == other["of"]
            assert one["auc_ci"] == pytest.approx(other["auc_ci"], abs=1e-6)
            assert one["difference"] == pytest.approx(other["difference"], abs=1e-5)


def test_files__hold_every_table_and_figure(made: Any, bank: Bank, tmp_path: Path) -> None:
    """A figure that cannot be drawn is named with the reason, on the page and in the text."""
    out, tables = made
    names = {path.name for path in out.iterdir()}
    pages = {"config.yaml", "paper.html", "tables.json", "tables.md"}
    assert names == {*pages, *(f"{name}.png" for name in FIGURES)}
    pictures = {(out / f"{name}.png").read_bytes() for name in FIGURES}
    assert len(pictures) == 9 and all(png.startswith(PNG) for png in pictures)
    page, text = ((out / name).read_text("utf-8") for name in ("paper.html", "tables.md"))
    assert page.count("data:image/png;base64,") == 9 and page.count("<table") == 4
    assert tables["not_drawn"] == {} and "Not drawn" not in page + text
    at = [page.index(f"Fig. {i}. ") for i in range(5, 14)]
    assert all(a < b for a, b in pairwise(at))
    titles = [line for line in text.splitlines() if line.startswith("## ")]
    assert [t.split(".")[0] for t in titles[:3]] == ["## Table II", "## Table III", "## Table IV"]
    assert titles[3].startswith("## What the paper says of ascent")
    for row in tables["claims"]:
        assert f"| {row['place']} | " in text and row["says"].replace("|", "\\|") in text
    similarity = tables["table_2"]
    assert f"| {tables['run']} ({tables['data']}) | {similarity['auc']:.3f}" in text
    assert "| the paper, SVHN |" in text
    assert "| the paper, CIFAR-10 | LDA |  | 0.912 | 0.942 | 0.890 |  |" in text
    share = 100 * tables["table_3"][0]["members"][0]
    assert f"| encoder | {tables['run']} ({tables['data']}) | {share:.1f} %" in text

    out = tmp_path / "OUT"
    ran = papers(f"run {bank.run('central')} --device cpu", out)
    assert ran.code == 0 and "Fig. 13, from the upload: not run" in ran.out
    assert str(out / "paper.html") in ran.out
    page, text = ((out / name).read_text("utf-8") for name in ("paper.html", "tables.md"))
    content = json.loads((out / "tables.json").read_text("utf-8"))
    report = json.loads((bank.run("central") / "report.json").read_text("utf-8"))
    (own,) = (row for row in report["attacks"] if row["name"] == "similarity")
    assert content["table_2"]["auc"] == own["auc"]  # the mean of the pairs, as the run says
    missing = content["not_drawn"]
    drawn = {path.stem for path in out.glob("*.png")}
    assert {*missing} | drawn == {*FIGURES} and not {*missing} & drawn
    assert missing["fig-13"] == "the run kept no curves.npz: no client attacked actively to its end"
    for name, why in missing.items():
        assert f"- {name.replace('fig-', 'Fig. ')}: {why}" in text and f"Not drawn: {why}." in page


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("", "run (--run) is missing: the folder of a finished run"),
        ("one two", "unexpected argument 'two'"),
        ("nowhere", "folder 'nowhere' is no run: no config.yaml in it"),
        ("--run=nowhere", "folder 'nowhere' is no run: no config.yaml in it"),
        ("a=b", "folder 'a=b' is no run: no config.yaml in it"),
        ("one --device gpu", "device"),
    ],
)
def test_input__is_refused_in_one_line(line: str, said: str) -> None:
    ran = papers(f"run {line}")
    assert ran.code == 2 and said in ran.err and ran.err.count("\n") == 1


def test_run__whose_data_are_gone(tmp_path: Path) -> None:
    """It names what is missing, and leaves no folder in the run."""
    config = tmp_path / "config.yaml"
    config.write_text("data: parquet:gone.parquet\n", encoding="utf-8")
    for said in ("holds no finished run: no report.json", "gone.parquet", "report.json of run"):
        ran = papers(f"run {tmp_path}")
        assert ran.code == 2 and said in ran.err and ran.err.count("\n") == 1
        assert not (tmp_path / "paper").exists()
        if said.endswith("no report.json"):
            shutil.copy(STORED / "report.json", tmp_path)
        else:
            (tmp_path / "report.json").write_text("[]", encoding="utf-8")
