"""The numbers of a table's JSON are enough: its Markdown and the claims follow from them alone."""

from __future__ import annotations

import copy
import csv
import json
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from fedmia.settings.yamlfile import load
from fedmia.statistics.spread import t_interval
from papers.claims import HOLDS, UNDECIDED
from papers.claims.over_targets import judge_claims
from papers.entries import Entry, TableCell
from papers.jobs import AUDIT, DONE, JobFolder, TableJob
from papers.listing import FOLDER, read_files
from papers.tables import markdown, read_back, table_of, write_claims, write_seconds, write_table
from tests.made_up_runs import write_run

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results"
COMMITTED = sorted({path.parent for path in RESULTS.glob("papers-*/*-*.json")})
CLAIM = {"says": "A over B", "better": "A", "over": "B"}


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def in_order(claims: Any) -> list[str]:
    return sorted(json.dumps(claim, sort_keys=True) for claim in claims)


def made_up(folder: JobFolder, columns: dict[str, list[float]], cpus: str = "xxx") -> Any:
    """An entry and its cells, whose audits found these AUCs, each on a processor of its own."""
    cells = []
    for column, aucs in columns.items():
        jobs = tuple(TableJob(AUDIT, {"of": column, "seed": seed}) for seed in range(len(aucs)))
        for job, auc, cpu in zip(jobs, aucs, cpus, strict=True):
            results = folder.path(job) / "results"
            row = {"name": "lpla", "auc": auc, "n_members": 5, "n_nonmembers": 7}
            write_run(results, {"attacks": [row]})
            hardware = {"cpu": cpu, "cores": 2, "gpus": []}
            done = {"seconds": 2.0, "commit": "c", "hardware": hardware, "versions": {"torch": "2"}}
            (folder.path(job) / DONE).write_text(json.dumps(done))
        cells.append(TableCell("row", column, "", "lpla/auc", jobs, 0.9, None))
    entry = Entry("t", "p", "Table 1", "t", "bars", {"stem": "CIFAR's"}, (CLAIM,))
    return entry, cells


def test_table__follows_from_its_json(tmp_path: Path) -> None:
    folder = JobFolder(tmp_path)
    entry, cells = made_up(folder, {"A": [0.7, 0.72, 0.69], "B": [0.6, 0.61, 0.6]})
    cells.append(TableCell("row", "C", "", "lpla/auc", (), None, None, "cut, for time"))
    page = write_table(table_of(entry, "small", "command", cells, folder, {}), tmp_path / "tables")
    table = read(page.with_suffix(".json"))
    assert markdown(table) == page.read_text(encoding="utf-8")
    assert {"command", "scale", "seconds"} <= set(table) and table["seconds"] == 12
    assert table["made_on"] == [{"commit": "c", "versions": {"torch": "2"},
                                 "hardware": {"cpu": "x", "cores": 2, "gpus": []}}]  # fmt: skip
    lines = list(csv.DictReader(page.with_suffix(".csv").read_text().splitlines()))
    assert [json.loads(line["by_seed"]) for line in lines] == [c["by_seed"] for c in table["cells"]]
    assert table["cells"][0]["by_seed"] == {"0": 0.7, "1": 0.72, "2": 0.69}
    assert table["cells"][2]["by_seed"] == {} and lines[2]["reason"] == "cut, for time"
    assert lines[0]["open: stem"] == "CIFAR's"


def test_claims__follow_from_the_json_of_tables(tmp_path: Path) -> None:
    """And change with a number in it."""
    folder = JobFolder(tmp_path)
    made = made_up(folder, {"A": [0.7, 0.72, 0.69], "B": [0.6, 0.61, 0.6]})
    table = json.loads(json.dumps(table_of(made[0], "small", "command", made[1], folder, {})))
    claims = judge_claims([read_back(table)])
    assert [(c["verdict"], c["targets"], c["mean"]) for c in claims] == [
        (HOLDS, 3, pytest.approx(0.1))
    ]
    write_claims(claims, "small", tmp_path)
    assert read(tmp_path / "claims.json") == {"scale": "small", "claims": claims}
    other = copy.deepcopy(table)
    other["cells"][0]["by_seed"]["2"] = 0.4
    assert judge_claims([read_back(other)])[0]["verdict"] == UNDECIDED


def test_table__names_every_machine_that_its_jobs_ran_on(tmp_path: Path) -> None:
    folder = JobFolder(tmp_path)
    entry, cells = made_up(folder, {"A": [0.7, 0.8, 0.6]}, cpus="xyx")
    page = markdown(table_of(entry, "small", "command", cells, folder, {}))
    assert page.count("Made on ") == 2 and "Made on y, 2 cores; torch 2; commit c." in page


def test_seconds__of_finished_tables_as_the_list_reads_them(tmp_path: Path) -> None:
    folder = JobFolder(tmp_path)
    entry, cells = made_up(folder, {"A": [0.7, 0.8, 0.6]})
    half = (cells[0].jobs[0], TableJob(AUDIT, {"seed": 9}))  # one of them is not finished
    waiting = [TableCell("row", "A", "", "lpla/auc", half, None, None)]
    later = Entry("later", "p", "Table 2", "t")
    made = [
        (table_of(one, "small", "command", its, folder, {}), its)
        for one, its in ((entry, cells), (entry, cells), (later, waiting))
    ]
    write_seconds(made, "small", folder)
    times = load(tmp_path / "seconds.yaml")
    assert times == {"small": {"made_on": "x, 2 cores", "all": 6, "tables": {"t": 6}}}
    committed = load(FOLDER.parent / "seconds.yaml")
    names = {name for file in read_files().values() for name in file["entries"]}
    for here in committed.values():
        assert set(here) == {"made_on", "all", "tables"} and set(here["tables"]) <= names


@pytest.mark.parametrize("folder", COMMITTED, ids=lambda folder: folder.name)
def test_committed__tables_and_claims_follow_from_their_json(folder: Path) -> None:
    tables = [read(path) for path in sorted(folder.glob("*-*.json"))]
    for table in tables:
        page = folder / f"{table['name']}.md"
        assert markdown(table) == page.read_text(encoding="utf-8"), page.name
        for cell in table["cells"]:
            values = list(cell["by_seed"].values())
            if len(values) > 1:
                assert cell["ours"] == pytest.approx(fmean(values)), (page.name, cell)
                ends = zip(
                    t_interval(values) or (None, None), (cell["low"], cell["high"]), strict=True
                )
                # Limits of shares are written with six digits.
                near = [got in (pytest.approx(end, abs=1e-6), 0.0, 1.0) for end, got in ends]
                assert all(near), cell
    claims = read(folder / "claims.json")["claims"]
    assert in_order(judge_claims([read_back(table) for table in tables])) == in_order(claims)
