"""`python -m research.papers TABLE`: what it makes of finished jobs, of none, and of bad input."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from PIL import Image

from fedmia.statistics.spread import t_interval
from research.papers.tables import claims_of, markdown
from tests.papers.finished import Finished, finish, numbers, papers, scored
from tests.papers.plans import ENTRIES, FILES, PAPERS, QUESTIONS, SCALES

ROOT = Path(__file__).resolve().parents[2]
SOURCES = yaml.safe_load((ROOT / "research/papers/tables/sources.yaml").read_text("utf-8"))


@pytest.fixture
def folder(tmp_path: Path) -> Finished:
    """Where every data set seems to lie: planning reads no image."""
    (tmp_path / "data").mkdir()
    for source in SOURCES.values():
        (tmp_path / "data" / source["file"]).touch()
    return Finished(tmp_path / "OUT", tmp_path / "data")


# -- pages and bad input ---------------------------------------------------------------------------


def test_list__shows_every_entry_and_what_is_left_out() -> None:
    page = papers("--list").out
    assert all(name in page for name in ENTRIES)
    assert "primaries: The five" in page and "  smoke: not run: the questions are those of" in page
    assert max(map(len, page.split("\n\n")[0].splitlines())) < 100
    assert "smoke: only the last of 9 rows (every row takes the same path)" in page
    assert "small: only CIFAR-10, v1; CIFAR-10, v2; CIFAR-10, v3 (the rest: cut" in page
    assert "paper: not 100; 1000 (of another scale)" in page
    assert not re.search(r"(not|only) +\(", page)  # a scale that leaves out nothing
    for file in FILES.values():
        for what, why in file.get("left_out", {}).items():
            assert f"{what}: {why}" in page and len(why) > 10
    assert {entry.paper for entry in ENTRIES.values()} == PAPERS | QUESTIONS
    times = yaml.safe_load((ROOT / "research/papers/seconds.yaml").read_text("utf-8"))
    assert {*times} <= {*SCALES}
    for scale, here in times.items():
        assert {*here["tables"]} <= {*ENTRIES}
        assert f"At {scale} {len(here['tables'])} tables together take" in page


def test_old_line__names_the_new_one() -> None:
    old = [sys.executable, "-m", "papers", "--list"]
    done = subprocess.run(old, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.count("\n") == 1 and "`python -m research.papers`" in done.stderr


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("nosuch --out x", "unknown table 'nosuch'"),
        ("encodermi-table-22 --out x", "did you mean"),
        ("encodermi-table-1", "out FOLDER is missing"),
        ("encodermi-table-1 --scale big --out x", "scale"),
        ("encodermi-table-1 --data-dir /nosuch --out x", "no such folder"),
    ],
)
def test_bad_input__one_line(
    line: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = papers(line)
    assert ran.code == 2 and said in ran.err and ran.err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_images_that_are_missing__name_the_flag_and_no_folder_of_this_machine(
    tmp_path: Path,
) -> None:
    for given, out in (("", "one"), (f"--data-dir {tmp_path}", "two")):
        assert papers(f"primary-federated --scale small --quiet {given}", tmp_path / out).code == 0
        table = json.loads((tmp_path / out / "tables/primary-federated.json").read_text("utf-8"))
        assert {cell["state"] for cell in table["cells"]} == {"not run"}
        (reason,) = {cell["reason"] for cell in table["cells"]}
        assert "--data-dir" in reason and ("parquet" in reason) == bool(given)
        assert str(tmp_path) not in str(table)


# -- numbers of finished jobs ----------------------------------------------------------------------


def accuracies(gain: float) -> Any:
    """Of both attacks of `primary-encodermi`, by seed."""
    return lambda seed: {"attacks": [
        scored("baseline-d", accuracy=0.5 + (seed - 3001) * 0.01),
        scored("encodermi-v", accuracy=0.5 + gain + (seed - 3001) * 0.02, one_score=seed - 2990),
    ]}  # fmt: skip


def test_table__mean_and_interval_over_targets_in_every_file(folder: Finished) -> None:
    """On two machines, as JSON, CSV and Markdown; seconds, claims, and nothing made again."""
    folder.write("primary-encodermi", "small", accuracies(0.3), 3, cpus="xyx")
    (table,) = folder.tables(["primary-encodermi"], "small", "--targets 3").values()
    rival, ours = table["cells"]
    assert [cell["ours"] for cell in table["cells"]] == pytest.approx([0.5, 0.8])
    assert (rival["theirs"], ours["theirs"]) == (0.507, 0.914)
    assert ours["by_seed"] == pytest.approx({"3000": 0.78, "3001": 0.8, "3002": 0.82})
    assert (ours["low"], ours["high"]) == pytest.approx(t_interval([0.78, 0.8, 0.82]))
    assert (ours["interval"], ours["n_members"], ours["n_nonmembers"]) == ("targets", 5, 7)
    assert (ours["state"], ours["reason"]) == ("finished", "")
    assert ours["no_answer"] == [3000, 3001, 3002] and "no_answer" not in rival
    assert table["seconds"] == ours["seconds"] == 12  # three encoders, three audits
    command = "python -m research.papers primary-encodermi --scale small --data-dir DATA"
    assert table["command"] == f"{command} --targets 3" and str(folder.root.parent) not in str(
        table
    )
    assert [made["hardware"]["cpu"] for made in table["made_on"]] == ["x", "y"]
    page = (folder.root / "tables/primary-encodermi.md").read_text("utf-8")
    assert page == markdown(table) and page.count("Made on ") == 2
    assert "Made on y, 2 cores; torch 2; commit c." in page
    low, high = t_interval([0.78, 0.8, 0.82]) or (0, 0)
    assert f"| CIFAR-10 | 0.500 [0.475, 0.525] | 0.507 | 0.800 [{low:.3f}, {high:.3f}] = |" in page
    assert "Targets a cell: 3 (seeds 3000, 3001, 3002).\n" in page
    assert "Brackets: 95 % interval over targets.\n" in page and "in 3 of 3 targets" in page
    lines = csv.DictReader((folder.root / "tables/primary-encodermi.csv").read_text().splitlines())
    for line, cell in zip(lines, table["cells"], strict=True):
        assert json.loads(line["by_seed"]) == cell["by_seed"] and line["scale"] == "small"
        assert float(line["ours"]) == cell["ours"]
        assert line["open: rival"] == table["open"]["rival"]
    times = yaml.safe_load((folder.root / "seconds.yaml").read_text("utf-8"))["small"]
    assert times == {"made_on": "x, 2 cores", "all": 12, "tables": {"primary-encodermi": 12}}
    claims = json.loads((folder.root / "claims.json").read_text("utf-8"))
    assert claims == {"scale": "small", "claims": claims_of([table])}
    (claim,) = claims["claims"]
    assert (claim["verdict"], claim["planned"]) == ("undecided", 8)  # too few of them
    assert claim["mean"] == pytest.approx(0.3) and claim["no_answer"] == [3000, 3001, 3002]
    assert claim["says"] in (folder.root / "claims.md").read_text("utf-8")
    (row,) = csv.DictReader((folder.root / "claims.csv").read_text().splitlines())
    assert float(row["mean"]) == claim["mean"] and row["verdict"] == "undecided"


def test_states__of_targets_that_wait_or_fail(folder: Finished) -> None:
    """The mean is that of the targets so far; a job that fails ends the command with 1."""
    folder.write("primary-encodermi", "small", accuracies(0.45), 3, but=[3002])
    line = ["primary-encodermi"], "small", "--targets 3 --quiet"
    (table,) = folder.tables(line[0], line[1], line[2] + " --minutes 1e-9", code=130).values()
    for state, reason in (("not finished", ""), ("failed", "parquet")):
        rival, ours = table["cells"]
        assert (rival["state"], ours["state"]) == (state, state) and reason in ours["reason"]
        assert ours["by_seed"] == pytest.approx({"3000": 0.93, "3001": 0.95})
        half = 0.01 * 12.7062
        assert ours["ours"] == pytest.approx(0.94)
        assert (ours["low"], ours["high"]) == (pytest.approx(0.94 - half, abs=1e-6), 1.0)  # a share
        assert not (folder.root / "seconds.yaml").exists()
        if state == "not finished":
            (table,) = folder.tables(*line, code=1).values()
    nothing = {"attacks": [scored("encodermi-v", accuracy=None)]}
    folder.write("primary-encodermi", "small", nothing, 1)
    (table,) = folder.tables(["primary-encodermi"], "small", "--targets 1 --quiet").values()
    assert [cell["ours"] for cell in table["cells"]] == [None, None]
    assert "has no such number" in table["cells"][0]["reason"]


def test_target_without_a_number__is_left_out_and_one_alone_has_the_interval_of_its_images(
    folder: Finished,
) -> None:
    row = {"tpr_at_fpr": {"0.001": 0.3}, "tpr_at_fpr_ci": {"0.001": [0.1, 0.6]}}
    names = ("encodermi-v", "sd-mi", "fe-mi", "lpla")
    folder.write("lpla-table-3-tpr", "paper", {"attacks": [scored(n, **row) for n in names]})
    (table,) = folder.tables(["lpla-table-3-tpr"], "paper", "--targets 1 --quiet").values()
    for cell in table["cells"]:
        found = cell["ours"], cell["low"], cell["high"], cell["interval"]
        assert found == (0.3, 0.1, 0.6, "images")
    folder.write("primary-encodermi", "small", lambda seed: {
        "attacks": [scored("encodermi-v", accuracy=0.7 if seed - 3001 else None)]}, 3)  # fmt: skip
    (table,) = folder.tables(["primary-encodermi"], "small", "--targets 3 --quiet").values()
    ours = table["cells"][1]
    assert ours["by_seed"] == {"3000": 0.7, "3002": 0.7} and ours["ours"] == 0.7


F1 = [(0.8293, 0.6784, 0.7463), (0.5, 1.0, 2 / 3), (0.0, 0.0, 0.0), (None, None, None)]


@pytest.mark.slow(seconds=2)
def test_number__of_every_kind_of_job(folder: Finished) -> None:
    """What a cell reads is what its labels say, whatever else stands in the file."""
    attacks = ("supervised-mi", "variance-only", "encodermi-v", "partcrop")
    f1 = [scored(n, precision=p, recall=r) for n, (p, r, _) in zip(attacks, F1, strict=True)]
    folder.write("partcrop-table-4-f1", "paper", {"attacks": f1})
    three = [scored(f"encodermi-{c}", precision=i, recall=-i) for i, c in enumerate("vst", 1)]
    folder.write("encodermi-fig-1a", "paper", {"attacks": three})
    found = {"attacks": [scored(n, accuracy=i) for i, n in enumerate(("encodermi-v", "sd-mi"))],
             "utility": {"knn": 0.4, "knn_ci": [0.3, 0.5], "n": 50}}  # fmt: skip
    folder.write("lpla-fig-2", "paper", found)
    norms = {str(epoch): [epoch, -epoch] for epoch in (500, 1000, 1500, 2000)}
    folder.write("lpla-fig-4", "paper", {"norms": norms})
    heads = [
        {"mechanism": name, "epsilon": epsilon, "utility_loss": {"mean": at, "ci": [at - 1, at]},
         "attacks": [{"name": "other", "accuracy": {"mean": 9}},
                     {"name": "shadow", "accuracy": {"mean": -at}, "auc": {"mean": at / 2}}]}
        for name, epsilon, at in ((None, None, 8), ("laplace", 0.01, 1), ("logistic", 0.01, 2),
                                  ("laplace", 3.0, 3))
    ]  # fmt: skip
    sensitivity = {"l1": {"mean": 5, "ci": None}, "l2": {"mean": 4, "ci": None}}
    for name in ("logistic-table-1", "logistic-fig-1", "logistic-fig-2"):
        folder.write(name, "paper", {"rows": heads, "sensitivity": sensitivity})
    names = ["partcrop-table-4-f1", "encodermi-fig-1a", "lpla-fig-2", "lpla-fig-4",
             "logistic-table-1", "logistic-fig-1", "logistic-fig-2"]  # fmt: skip
    tables = folder.tables(names, "paper", "--targets 1 --quiet")
    of = {name: numbers(table) for name, table in tables.items()}
    columns = ("SupervisedMI", "Variance-only", "EncoderMI", "PartCrop")
    for column, (*_, value) in zip(columns, F1, strict=True):
        rows = [v for (_, c), v in of["partcrop-table-4-f1"].items() if c == column]
        assert len(rows) == 9
        assert all(v == (value and pytest.approx(value, abs=1e-4)) for v in rows), column
    sides = (("precision", 1), ("recall", -1))
    want = [sign * i for i in (1, 2, 3) for _, sign in sides]
    assert [*of["encodermi-fig-1a"].values()] == want
    assert of["lpla-fig-2"]["ResNet-18, v1", "kNN"] == 0.4
    assert of["lpla-fig-2"]["ResNet-50, v2", "SD-MI"] == 1
    assert of["lpla-fig-2"]["ResNet-50, v2", "Fe-MI"] is None
    (knn,) = (c for c in tables["lpla-fig-2"]["cells"]
              if (c["row"], c["column"]) == ("ResNet-18, v1", "kNN"))  # fmt: skip
    assert (knn["low"], knn["high"], knn["n_members"]) == (0.3, 0.5, 50)
    assert of["lpla-fig-4"]["1500", "members"] == 1500 == -of["lpla-fig-4"]["1500", "non-members"]  # type: ignore[operator]
    assert of["logistic-fig-1"]["0.01", "laplace"] == 1
    assert of["logistic-fig-1"]["0.01", "logistic"] == 2
    assert of["logistic-fig-1"]["3", "laplace"] == 3
    assert of["logistic-fig-1"]["3", "logistic"] is None
    assert of["logistic-fig-2"]["3", "laplace"] == -3
    assert of["logistic-table-1"]["CIFAR-100", "1-norm"] == 5
    assert of["logistic-table-1"]["STL-10", "2-norm"] == 4
    assert of["logistic-table-1"]["CIFAR-10", "accuracy of the attack"] == -8


def test_sweep__reads_the_attack_at_its_value(folder: Finished) -> None:
    """None where it could not run there."""
    sweep: list[Any] = [
        {"attack": name, "value": value, "scored": scored(name, accuracy=accuracy)}
        for name, value, accuracy in (("lpla", 4, 0.6), ("lpla", 40, 0.7), ("sd-mi", 40, 0.8))
    ]
    sweep.append({"attack": "sd-mi", "value": 4, "not_run": "too few"})
    folder.write("primary-lpla", "small", {"sweep": sweep})
    (table,) = folder.tables(["primary-lpla"], "small", "--targets 1 --quiet").values()
    of = numbers(table)
    assert [of["4", "LpLA"], of["40", "LpLA"], of["40", "SD-MI"]] == [0.6, 0.7, 0.8]
    assert of["4", "SD-MI"] is of["10", "LpLA"] is None


PLACES = ("Fig. 10", "Fig. 12", "Fig. 13, from the upload", "Fig. 13, from before",
          "Alg. 1, line 25")  # fmt: skip


def test_federated__cells_read_what_their_labels_say(folder: Finished) -> None:
    """Whatever the order of layers and claims; passive attacks and the static ascent read the last
    round that no client has attacked before. The figure of the run is copied."""
    order = {"avgpool": 1, "encoder": 2, "layer4": 3}
    layers = [{"layer": n, "members": [i], "nonmembers": [-i]} for n, i in order.items()]
    shares = (0.1, 0.25, 0.5, 0.75, 0.9)
    rounds = [
        {
            "under_attack": round > 5,
            "methods": {"similarity": {"accuracy": round}},
            "layers": {name: {"accuracy": round} for name in ("layer4", "encoder")},
            "ascent_static": {
                "accuracy": round, "by_threshold": {str(s): {"accuracy": round + s} for s in shares}
            },
        }
        for round in (2, 5, 6, 8)
    ]  # fmt: skip
    place = {place: i for i, place in enumerate(reversed(PLACES), 1)}
    claims = [
        {"place": name, "numbers": [{"auc": i, "difference": i}, {"auc": -i}]}
        for name, i in place.items()
    ]
    table_2 = {"accuracy": 11, "precision": 12, "recall": 13}
    table_4 = {name: {"accuracy": i, "precision": i + 0.1} for i, name in enumerate(("lda", "svm"))}
    content = {"table_2": table_2, "table_3": layers, "table_4": table_4, "rounds": rounds}
    names = [f"federated-{n}" for n in ("table-2", "table-3", "table-4", "iid", "fig-5", "fig-10",
                                        "fig-12", "fig-13")]  # fmt: skip
    for name in names:
        folder.write(name, "paper", {**content, "claims": claims})
    for results in folder.root.glob("jobs/paper-*/results"):
        (results / "fig-7.png").write_bytes(b"of the run")
    of = {n: numbers(t) for n, t in folder.tables(names, "paper", "--quiet --targets 1").items()}
    sides = {"members": 1, "nonmembers": -1}
    want = {(row, side): i * sign for row, i in order.items() for side, sign in sides.items()}
    assert of["federated-table-3"] == want
    for name in ("federated-fig-5", "federated-fig-12"):
        for (row, column), value in of[name].items():
            share = float(row) if row.startswith("0.") else 0
            assert value == {"f": 2, "l": 5}[column[0]] + share, (name, row)
    for table, row, column, value in (
        ("table-2", "SVHN", "recall", 13), ("table-4", "SVHN", "SVM", 1),
        ("table-4", "CIFAR-10", "LDA, precision", 0.1), ("table-4", "SVHN", "LR", None),
        ("iid", "static ascent", "IID", 5), ("iid", "similarity", "IID", 11),
        ("table-4", "CIFAR-100", "similarity alone", 11),
    ):  # fmt: skip
        assert of[f"federated-{table}"][row, column] == value, (table, row, column)
    assert [*of["federated-fig-10"].values()] == [5, place["Fig. 10"]]
    upload, before, last = (place[name] for name in PLACES[2:])
    assert [*of["federated-fig-13"].values()] == [upload, -upload, before, -before, last]
    tables = folder.root / "tables"
    assert [p.read_bytes() for p in tables.glob("federated-table-3*.png")] == [b"of the run"]


def test_audit__goes_on_where_it_was_and_begins_again_where_it_moved(tmp_path: Path) -> None:
    """The settings of an audit name its encoder's folder, which has another path then."""
    line = "encodermi-table-2 --scale smoke --targets 1 --device cpu --quiet --minutes 1e-9"
    root = tmp_path / "one"
    for cell in ENTRIES["encodermi-table-2"].cells("smoke", None, 1):
        encoder, *_ = [one.key for one in cell.jobs[0].chain()]
        finish(root / "jobs" / encoder)
    papers(line, root)
    (settings,) = root.glob("jobs/audit-*/settings.yaml")
    begun = settings.parent.relative_to(root) / "results"
    written = yaml.safe_load((ROOT / "tests/stored/run/config.yaml").read_text("utf-8"))
    text = settings.read_text("utf-8") + yaml.safe_dump({"_run": written["_run"]})
    for moved in (root, tmp_path / "two"):
        shutil.rmtree(root / begun, ignore_errors=True)
        (root / begun / "scores").mkdir(parents=True)
        (root / begun / "config.yaml").write_text(text, encoding="utf-8")
        root.rename(moved)
        papers(line, moved)
        assert (moved / begun / "scores").is_dir() == (moved == root)


# -- pictures --------------------------------------------------------------------------------------


def red_band(picture: bytes) -> bool:
    """Whether a line in red stands over the picture, which ends before the picture does."""
    pixels = np.array(Image.open(io.BytesIO(picture)).convert("RGB")).astype(int)[:32]
    red, green, _ = pixels[(pixels != 255).any(axis=2)].T
    written = pixels.min(axis=2).min(axis=0) < 255
    return int((red > green).sum()) > 500 and bool((red >= green).all()) and not written[-5:].any()


@pytest.mark.usefixtures("painted")
@pytest.mark.parametrize("scale", ["smoke", "small"])
def test_pictures__of_made_up_images_say_so_and_nothing_is_claimed_of_them(
    scale: str, folder: Finished
) -> None:
    """Bars, lines, a plane, and a figure that a head drew; others are as drawn. At smoke no file
    names a data set, a number of the paper or a claim."""
    names = ("baseline-d", "encodermi-v", "encodermi-s", "encodermi-t", "sd-mi", "fe-mi", "lpla")
    report = {"attacks": [scored(n, accuracy=0.6, auc=0.6) for n in names],
              "utility": {"knn": 0.4, "knn_ci": [0.3, 0.5], "n": 50}}  # fmt: skip
    entries = ["encodermi-table-1", "encodermi-fig-1b", "lpla-fig-2", "logistic-fig-2"]
    for name in entries:
        folder.write(name, scale, {"rows": []} if "logistic" in name else report)
    canvas = io.BytesIO()
    Image.new("RGB", (800, 90), "blue").save(canvas, "PNG")
    for results in folder.root.glob("jobs/head-*/results"):
        (results / "figures").mkdir(exist_ok=True)
        (results / "figures" / "fig-2.png").write_bytes(canvas.getvalue())
    folder.tables(entries, scale, "--targets 1 --quiet")
    pictures = {p.name: p.read_bytes() for p in (folder.root / "tables").glob("*.png")}
    assert all(any(name.startswith(entry) for name in pictures) for entry in entries)
    assert {name: red_band(png) for name, png in pictures.items()} == dict.fromkeys(
        pictures, scale == "smoke"
    )
    (copied,) = (png for name, png in pictures.items() if name.startswith("logistic"))
    assert (copied == canvas.getvalue()) == (scale == "small")
    assert len([*folder.root.glob("claims.*")]) == (0 if scale == "smoke" else 3)


def test_smoke__names_no_data_set_and_no_number_of_the_paper(tmp_path: Path) -> None:
    """In title, labels, Markdown, CSV and JSON; and no two rows or columns have one label."""
    assert papers("all --scale smoke --minutes 1e-9 --quiet --device cpu", tmp_path).code == 130
    files = [*(tmp_path / "tables").iterdir()]
    assert {path.stem for path in files} == {*ENTRIES}
    for path in files:
        text = path.read_text(encoding="utf-8")
        assert not re.search("CIFAR|STL|SVHN|ImageNet|theirs", text), path.name
        assert not re.search(r"images\w|-made", text), path.name  # a part of a longer name
        if path.suffix == ".json":
            table = json.loads(text)
            places = {(cell["row"], cell["column"]) for cell in table["cells"]}
            assert len(places) == len(table["cells"]) > 0 and table["claims"] == []


# -- from nothing ----------------------------------------------------------------------------------

# Together they ask for every kind of job, method, network and attack, and for every kind of number
# and figure that an entry has.
COVERING = (
    "encodermi-table-1,encodermi-fig-1a,encodermi-fig-3,encodermi-fig-5,federated-table-2,"
    "federated-table-3,federated-fig-10,federated-fig-13,logistic-table-1,logistic-fig-1,"
    "logistic-fig-2,lpla-table-2,lpla-table-3-tpr,lpla-fig-4,partcrop-table-6,partcrop-table-8,"
    "partcrop-table-10,partcrop-fig-4"
)


@pytest.mark.slow
def test_entries__at_smoke(tmp_path: Path) -> None:
    """And the same command again makes no job twice and the same tables."""
    line = f"{COVERING} --scale smoke --quiet"
    assert papers(line, tmp_path / "out").code == 0
    tables = {p.name: p.read_bytes() for p in (tmp_path / "out" / "tables").iterdir()}
    texts = {Path(name).stem: text.decode() for name, text in tables.items() if ".csv" in name}
    assert texts.keys() == {*COVERING.split(",")}
    rows = [row for text in texts.values() for row in csv.DictReader(text.splitlines())]
    assert not [row for row in rows if row["state"] not in ("finished", "not run")]
    assert sum(row["ours"] != "" for row in rows) > 30
    assert papers(line, tmp_path / "out").code == 0
    assert tables == {p.name: p.read_bytes() for p in (tmp_path / "out" / "tables").iterdir()}


@pytest.mark.slow
def test_tables__made_again_from_nothing_have_equal_numbers(tmp_path: Path) -> None:
    """Of two papers, in two folders: nothing of the first is there for the second."""
    made = []
    for name in ("one", "two"):
        out = tmp_path / name
        assert papers("lpla-fig-9,logistic-fig-2 --scale smoke --quiet", out).code == 0
        contents = [json.loads(p.read_text()) for p in sorted((out / "tables").glob("*.json"))]
        made.append(
            [
                {key: value for key, value in cell.items() if key != "seconds"}
                for content in contents
                for cell in content["cells"]
            ]
        )
    assert made[0] == made[1]
    assert sum(cell["ours"] is not None for cell in made[0]) >= 4
