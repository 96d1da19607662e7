"""`python -m fedmia.simulate` as its users call it: files, schema, roles, defences, failures."""

from __future__ import annotations

import csv
import io
import json
import math
import shlex
from pathlib import Path
from typing import Any

import pytest
from matplotlib.image import imread

from fedmia import open_run
from fedmia.cli.command import parse
from fedmia.cli.commands import SIMULATE
from fedmia.federation.plan import make_plan
from fedmia.threat.needs import ACCESS
from tests.auditing.attacks import acting, fail, named
from tests.bank import Bank
from tests.commands import fedmia
from tests.small_runs import SIMILARITY, SMALL, call_main

Report = dict[str, Any]
Capture = pytest.CaptureFixture[str]
FRESH = SMALL.removesuffix("--quiet ") + "--clients 4 --rounds 2 "
CHEAP = "--attack.similarity.views 4 "


def run(flags: str) -> int:
    return call_main(shlex.split(flags))


def strict(text: str) -> Report:
    """JSON without NaN or Infinity, which Python's reader lets through otherwise."""

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} in strict JSON")

    content: Report = json.loads(text, parse_constant=refuse)
    return content


@pytest.fixture(scope="module")
def folder(bank: Bank) -> Path:
    """A finished run: an active attacker, clients 0 and 1 defended."""
    return bank.run("attacked")


@pytest.fixture(scope="module")
def report(folder: Path) -> Report:
    return strict((folder / "report.json").read_text(encoding="utf-8"))


# files


def test_out__holds_every_file(folder: Path) -> None:
    kept = {p.name for p in folder.iterdir()}
    assert kept == {"config.yaml", "report.json", "report.html", "scores.csv", "curves.npz",
                    "table.parquet", "table.csv", "exposed.csv", "figures",
                    "recording"}  # fmt: skip
    pictures = sorted(p.stem for p in (folder / "figures").iterdir())
    assert {"roc", "rounds", "layers", "features", "clients"} <= set(pictures)
    assert {"ascent", "ascent-losses", "ascent-thresholds"} <= set(pictures)
    assert all(p.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n" for p in folder.glob("figures/*.png"))
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert page.count("data:image/png;base64,") >= len({*pictures})
    assert {p.suffix for p in (folder / "figures").iterdir()} == {".png", ".pdf"}
    assert [p.name for p in (folder / "recording/models").iterdir()] == ["main"]
    rounds = sorted(p.stem for p in (folder / "recording/models/main").iterdir())
    assert rounds == ["0000", "0002", "0004"]  # first, last clean, last: no attacked one besides


@pytest.mark.slow
def test_figures__drawn_again_from_the_folder_are_the_same(folder: Path) -> None:
    """But for lines that scores.csv, of 9 digits, moves by less than a pixel, and ticks."""
    run = open_run(folder)
    for file in folder.glob("figures/*.png"):
        if file.stem != "features":
            drawn = io.BytesIO()
            run.figure(file.stem).savefig(drawn, format="png", facecolor="white")
            drawn.seek(0)
            assert (imread(drawn) != imread(file)).any(axis=2).mean() < 0.04, file.stem
    assert {"ascent", "ascent-losses", "ascent-thresholds"} <= set(run.figures)


def test_scores_csv__a_row_an_image_that_was_scored(folder: Path, report: Report) -> None:
    """Neither a known one nor the attacker's."""
    rows = list(csv.DictReader((folder / "scores.csv").open(encoding="utf-8")))
    assert [r["truth"] for r in rows] == ["1"] * 24 + ["0"] * 52
    assert {r["client"] for r in rows[24:]} == {""}
    for attack in report["attacks"]:
        assert all(math.isfinite(float(r[attack["name"]])) for r in rows)
    split = make_plan(parse(SIMULATE, ["--config", str(folder / "config.yaml")]).settings).cast
    members, others = ([int(r["image"]) for r in rows if r["truth"] == t] for t in "10")
    assert len({*members, *others}) == 76
    assert {*members} == {*split.members} - {*split.ids("known_members")}
    assert not {*others} & {*split.members, *split.ids("known_nonmembers"), *split.ids("test_fit")}
    assert not {*members, *others} & {*split.parts[3]}  # of client 3, the attacker's
    for row in rows[:24]:
        assert int(row["image"]) in split.parts[int(row["client"])]


def test_config__holds_seed_versions_hardware_and_commit_but_no_out(
    folder: Path, report: Report
) -> None:
    """And the report holds no path, and no backend outside of its settings."""
    text = (folder / "config.yaml").read_text(encoding="utf-8")
    for key in ("seed: 0", "_run:", "  versions:", "  hardware:", "  commit:"):
        assert f"\n{key}" in f"\n{text}"
    assert "RUN" not in text and "\nout:" not in text
    rest = json.dumps({k: v for k, v in report.items() if k != "config"})
    for word in (str(folder), folder.name, '"inline"', '"backend"', "/tmp"):
        assert word not in rest
    assert str(folder) not in json.dumps(report["config"])


# schema


def test_report__attacks(report: Report) -> None:
    names = [a["name"] for a in report["attacks"]]
    assert sorted(names) == [
        "ascent", "ascent-level", "ascent-static", "ascent-static-level", "combined", "internal",
        "similarity",
    ]  # fmt: skip
    for row in report["attacks"] + report["controls"]["untrained"]:
        assert row["access"] in ACCESS and row["vantage"] in ("outsider", "client", "server")
        assert row["under_attack"] is (row["name"] in ("ascent", "ascent-level"))
        assert (row["n_members"], row["n_nonmembers"]) == (32 - 8, 60 - 8)  # scored images only
        assert isinstance(row["queries"], int) and row["queries"] > 0
        assert set(row["tpr_at_fpr"]) == {"0.001", "0.01", "0.1"} == set(row["tpr_at_fpr_ci"])
        assert row["tpr_at_fpr"]["0.001"] is None  # 52 non-members cannot tell
        assert 0 <= row["tpr_at_fpr"]["0.1"] <= 1
        for name in ("auc", "accuracy", "precision", "recall"):
            value, ci = row[name], row[f"{name}_ci"]
            assert value is None and ci is None or 0 <= ci[0] <= value <= ci[1] <= 1, name
        (low, high), (wide, far) = row["auc_ci"], (row["low"], row["high"])
        assert wide < low < high < far


def test_report__paired_and_controls(report: Report) -> None:
    twins = [(p["attack"], p["control"]) for p in report["paired"]]
    assert len(twins) == 8 and set(twins) == {
        ("ascent", "ascent-zero"), ("ascent-level", "ascent-level-zero"),
        *((f"{name}{way}", "loss-before")
          for name in ("ascent", "ascent-static") for way in ("", "-level")),
        ("ascent-static", "grad-norm"), ("ascent-static-level", "grad-norm"),
    }  # fmt: skip
    for pair in report["paired"]:
        assert pair["ci"][0] <= pair["difference"] <= pair["ci"][1]
        assert pair["over"]
    controls, names = report["controls"], [a["name"] for a in report["attacks"]]
    assert set(controls) == {"untrained", "placebo"}
    for name in ("untrained", "placebo"):
        assert [a["name"] for a in controls[name]] == names
    assert report["pixels"]["auc_ci"][0] <= report["pixels"]["auc"]


def test_report__sets_of_every_attack(report: Report) -> None:
    rows = {(s["attack"], s["judged"]): s for s in report["sets"]}
    names = [a["name"] for a in report["attacks"]]
    assert set(rows) == {(n, "mean") for n in names} | {
        ("ascent-static", "alone"), ("ascent", "alone"), ("ascent-level", "alone"),
    }  # fmt: skip
    for row in rows.values():  # of 24 scored members and 52 non-members
        assert (row["size"], row["n_member_sets"], row["n_nonmember_sets"]) == (8, 3, 6)
        (low, high), (wide, far) = row["auc_ci"], (row["low"], row["high"])
        assert 0 <= wide < low <= row["auc"] <= high and high <= far <= 1
    for name, judged, controls in (
        ("ascent", "mean", ["ascent-zero", "loss-before"]),
        ("similarity", "mean", ["placebo"]),
        ("ascent-static", "mean", ["loss-before", "grad-norm"]),
        ("ascent-static", "alone", ["loss-before", "grad-norm"]),
        ("ascent-level", "alone", ["ascent-level-zero"]),
    ):
        assert [c["name"] for c in rows[name, judged]["controls"]] == controls
    assert report["family"]["intervals_sets"] == len(rows)


def test_report__utility_rounds_and_verdict(report: Report) -> None:
    for probe in ("knn", "linear"):
        low, high = report["utility"][f"{probe}_ci"]
        assert low <= report["utility"][probe] <= high
    assert report["utility"]["n"] == 10  # half of the 20 test images fit the probes
    health = report["health"]
    assert 0 < health["cosine"] < 1 and health["loss"] > 0 and not health["collapsed"]
    assert 0 < health["chance"] < math.log(1 + 16)  # queues of half of 32 members at most
    assert [r["round"] for r in report["rounds"]] == [1, 2, 3, 4]
    assert [r["under_attack"] for r in report["rounds"]] == [False, False, True, True]
    last = report["rounds"][-1]
    assert last["loss"] > 0 and 0 <= last["knn"] <= 1
    assert {"similarity", "internal"} <= set(last["leakage"]) and "layer1" in last["layers"]
    assert report["verdict"].endswith(".") and "\n" not in report["verdict"]
    assert report["interrupted"] is None
    assert {"torch", "flwr", "python", "commit"} <= set(report["versions"])
    assert report["hardware"]["cores"] >= 1


def test_headline__leak_and_use_are_of_one_model(folder: Path, report: Report) -> None:
    """Of the last model before the attacked rounds; that after them stands beside it."""
    rounds = {r["round"]: r for r in report["rounds"]}
    clean, last = 2, 4
    for row in report["attacks"]:
        read = [3, 4] if row["name"] in ("ascent", "ascent-level") else [clean]
        assert (row["round"], row["rounds"]) == (read[-1], read), row["name"]
    assert {r["round"] for r in report["controls"]["untrained"]} == {0, last}
    use, after = report["utility"], report["utility_after_attack"]
    assert (use["round"], after["round"]) == (clean, last)
    assert report["health"]["loss"] == rounds[clean]["loss"] != rounds[last]["loss"]
    assert use["knn"] == rounds[clean]["knn"] and after["knn"] == rounds[last]["knn"]
    assert after["n"] == use["n"] and after["linear_ci"][0] <= after["linear"]
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "on the model of round 2" in page and "on the models under attack of rounds 3-4" in page
    assert "after the attack, round 4" in page and f"{after['knn']:.2f} [" in page


@pytest.mark.slow
def test_headline__an_audit_says_which_round_of_the_run_it_takes(
    folder: Path, tmp_path: Path
) -> None:
    cheap = "--attacks similarity --attack.similarity.views 2 --threads 1 --device cpu"
    last = ("The encoder is the model of round 4, the last of the run, after attacked rounds; "
            f"{folder.name}@2 is the last one before them.")  # fmt: skip
    for at, turn, said in (("", 4, [last]), ("@2", 2, [])):
        out = tmp_path / f"AUDIT{at}"
        ran = fedmia(f"audit --encoder {folder}{at} {cheap}", out)
        assert ran.code == 0
        shown = (text.replace("│", " ") for text in (ran.out, ran.err))  # of the verdict's box
        printed, err = (" ".join(text.split()) for text in shown)
        assert f"on the model of round {turn}" in printed and err.count("after attacked") == len(
            said
        )
        assert all(err.startswith(f"fedmia: {one}") for one in said)  # before the first attack
        report_json = strict((out / "report.json").read_text(encoding="utf-8"))
        assert [n for n in report_json["notes"] if "after attacked" in n] == said
        assert report_json["attacks"][0]["round"] == report_json["utility"]["round"] == turn
        assert (
            report_json["encoder"]["round"] == turn
            and report_json["subject"] == f"the encoder {folder.name}@{turn}"
        )
        assert report_json["controls"]["untrained"][0]["round"] is None
        page = (out / "report.html").read_text(encoding="utf-8")
        assert f"on the model of round {turn}" in page and all(one in page for one in said)


def test_report__clients_roles_and_the_defence_of_the_defended(report: Report) -> None:
    clients = report["clients"]
    assert [c["id"] for c in clients] == [0, 1, 2, 3]
    assert [c["role"] for c in clients] == ["honest"] * 3 + ["active"]
    assert sum(c["size"] for c in clients[:3]) == 32
    assert [c["defence"] is None for c in clients] == [False, False, True, True]
    for client in clients[:3]:
        assert client["auc_ci"][0] <= client["auc"] <= client["auc_ci"][1]
        assert 0 <= client["null_auc"] <= 1
    assert sum(c["n_members"] for c in clients[:3]) == 24
    # The attacker's own images are never evaluated.
    assert clients[3]["auc"] is None and clients[3]["null_auc"] is None
    epsilon = clients[0]["defence"]["epsilon"]
    assert clients[0]["defence"]["name"] == "logistic"
    assert epsilon["value"] > 0 and epsilon["delta"] == 0 and epsilon["standing"] == "guaranteed"
    assert epsilon["rounds"] == 4


def test_report__timing_is_last_and_its_parts_sum_to_the_total(report: Report) -> None:
    assert list(report)[-1] == "timing"
    timing = dict(report["timing"])
    total = timing.pop("total_s")
    assert set(timing) == {"import", "data", "train", "attacks", "probes", "report", "overhead_s"}
    assert all(v >= 0 for v in timing.values())
    assert sum(timing.values()) == pytest.approx(total, abs=1e-5)
    assert timing["train"] > 0 and timing["attacks"] > 0


# what is printed


def test_terminal__table_verdict_and_where_the_report_is(tmp_path: Path, capsys: Capture) -> None:
    assert run(f"{FRESH}{SIMILARITY} --out {tmp_path / 'RUN'}") == 0
    out, err = capsys.readouterr()
    lines = err.splitlines()
    assert lines[0].endswith(" of 1,797 images of digits used: 32 members, 60 nonmembers, 20 test")
    assert lines[-1] == "fedmia: rounds: 2 main" and len(lines) == 5  # no terminal, no progress bar
    assert "similarity" in out and " verdict " in out and "report.html" in out


@pytest.mark.slow
def test_quiet__prints_the_verdict_and_nothing_else(tmp_path: Path, capsys: Capture) -> None:
    """Into an empty folder that is there already."""
    (tmp_path / "RUN").mkdir()
    assert run(f"{FRESH}{SIMILARITY} --quiet --out {tmp_path / 'RUN'}") == 0
    report = strict((tmp_path / "RUN" / "report.json").read_text())
    assert capsys.readouterr() == (report["verdict"] + "\n", "")


def test_simulate__goes_on_where_an_attack_breaks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, name = tmp_path / "run", named("Mean")
    with acting("Mean", fail):
        flags = f"{FRESH}{CHEAP}--attacks similarity,{name} --fail-on smallest>0.51 --json"
        assert run(f"{flags} --out {out}") == 1  # before the code of the condition that fails, too
    report = strict(capsys.readouterr().out)
    assert report["not_run"] == {name: "failed: ZeroDivisionError: a slip of two lines"}
    assert [a["name"] for a in report["attacks"]] == ["similarity"]
    assert run(f"--resume {out} --json --trust-plugins") == 0
    whole = strict(capsys.readouterr().out)
    assert not whole["not_run"] and whole["attacks"][0]["auc"] == report["attacks"][0]["auc"]
    assert {a["name"] for a in whole["controls"]["untrained"]} == {"similarity", name}
