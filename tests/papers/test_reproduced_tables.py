"""Every table of the five papers plans at every scale; numbers, claims and states of cells."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedmia.settings.yamlfile import dump, load
from fedmia.statistics.spread import t_interval
from fedmia.storage.manifest import FORMAT
from papers.cells import Reading, read_cell, read_path
from papers.claims import FAILS, HOLDS, NOT_RUN, UNDECIDED
from papers.claims.over_targets import differences, judge_claims
from papers.entries import Entry, TableCell, jobs_of, read_entries, select
from papers.jobs import DONE, JobFolder, TableJob
from papers.listing import list_page, read_files, read_sources
from papers.tables import (
    markdown,
    read_back,
    table_of,
    table_rows,
    write_claims,
    write_table,
)
from tests.made_up_runs import write_run

PAPERS = {"encodermi", "federated", "logistic", "lpla", "partcrop"}
QUESTIONS = {"primaries", "regime"}  # files of planned questions, asked at small alone


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """A folder where every data set seems to lie: planning reads no image."""
    for source in read_sources().values():
        (tmp_path / source["file"]).touch()
    return tmp_path


@pytest.mark.parametrize("name", sorted(read_entries()))
def test_entry__plans_at_every_scale(name: str, data_dir: Path) -> None:
    entry = read_entries()[name]
    for scale in ("smoke", "small", "paper"):
        cells = entry.cells(scale, data_dir, 1)
        assert all(bool(cell.jobs) != bool(cell.reason) for cell in cells)
        if entry.paper in QUESTIONS:  # asked at small alone
            assert any(cell.jobs for cell in cells) == (scale == "small"), scale
        assert scale == "small" or entry.paper in QUESTIONS or any(cell.jobs for cell in cells)
        for job in jobs_of(cells):
            assert str(data_dir) not in str(job.tree)  # no path decides a key


@pytest.mark.parametrize("name", sorted(read_entries()))
def test_smoke__names_no_data_set_and_no_number_of_the_paper(name: str, tmp_path: Path) -> None:
    """In title, labels, Markdown, CSV and JSON; and no two rows or columns have one label."""
    entry = read_entries()[name]
    cells = entry.cells("smoke", None, 1)
    table = table_of(entry.shown_at("smoke"), "smoke", "c", cells, JobFolder(tmp_path), {})
    assert len({(cell.row, cell.column) for cell in cells}) == len(cells) > 0
    page = write_table(table, tmp_path / "tables")
    for path in page.parent.iterdir():
        text = path.read_text(encoding="utf-8")
        assert not re.search("CIFAR|STL|SVHN|ImageNet|theirs", text), path.name
        assert not re.search(r"images\w|-made", text), path.name  # a part of a longer name
    assert table["claims"] == [] and entry.shown_at("small") is entry


def test_list__shows_every_entry_and_what_is_left_out() -> None:
    page, entries = list_page(), read_entries()
    assert all(name in page for name in entries)
    assert "primaries: The five" in page and "  smoke: not run: the questions are those of" in page
    assert max(map(len, page.split("\n\n")[0].splitlines())) < 100
    assert "smoke: only the last of 9 rows (every row takes the same path)" in page
    assert "small: only CIFAR-10, v1; CIFAR-10, v2; CIFAR-10, v3 (the rest: cut" in page
    assert "paper: not 100; 1000 (of another scale)" in page
    assert not re.search(r"(not|only) +\(", page)  # a scale that leaves out nothing
    for file in read_files().values():
        for what, why in file.get("left_out", {}).items():
            assert f"{what}: {why}" in page and len(why) > 10
    assert {entry.paper for entry in entries.values()} == PAPERS | QUESTIONS


def test_files__hold_no_key_that_nothing_reads() -> None:
    """A comma in a sentence without quotes makes a key of its end."""
    laid = {"audit", "data", "encoder", "epoch", "federation", "head", "kind", "read"}
    laid |= {"seed", "targets"}
    scale = laid | {"rows", "columns", "reason", "not_run", "levels"}
    also = laid | {"open", "scales", "varies"}
    entry = also - {"epoch"} | {"place", "title", "figure", "rows", "columns"}
    for file in read_files().values():
        assert set(file) <= also | {"title", "entries", "left_out"}
        for own in file["entries"].values():
            assert set(own) <= entry | {"theirs", "theirs_sd", "claims"}
            for claim in own.get("claims", ()):
                known = {"says", "better", "over", "rows", "over_rows", "primary", "slope"}
                known |= {"levels", "each", "reference", "chance", "effect"}
                assert set(claim) <= known, claim
                columns = {column["label"] for column in own["columns"]}
                columns |= {
                    f"{name}/{column['label']}"
                    for name, other in file["entries"].items()
                    for column in other["columns"]
                }
                assert {*claim.get("reference", ())} <= columns, claim
                named = {*claim.get("rows", ()), *claim.get("over_rows", ())}
                assert named <= {row["label"] for row in own["rows"]}, claim
            for here in own.get("scales", {}).values():
                assert set(here) <= scale, here
            for one in [*own["rows"], *own["columns"]]:
                assert set(one) <= also | {"label", "attack", "at", "levels"}, one
                assert all(set(here) <= laid for here in one.get("scales", {}).values()), one


def test_key__depends_on_all_that_decides_numbers() -> None:
    encoder, twin, other = (TableJob("encoder", {"seed": seed}) for seed in (0, 0, 1))
    audits = [
        TableJob("audit", {"known": known}, above, epoch)
        for known, above, epoch in (
            (8, encoder, None), (8, other, None), (8, encoder, 3), (9, encoder, None),
        )
    ]  # fmt: skip
    assert len({one.key for one in [encoder, other, *audits]}) == 6
    assert TableJob("audit", {"known": 8}, twin).key == audits[0].key


def finished(folder: JobFolder, *aucs: float | None) -> list[TableJob]:
    """Audits whose attack has these AUCs, all over."""
    jobs = [TableJob("audit", {"seed": seed}) for seed in range(len(aucs))]
    for job, auc in zip(jobs, aucs, strict=True):
        results = folder.path(job) / "results"
        row = {
            "name": "lpla", "auc": auc, "n_members": 5, "n_nonmembers": 7, "threshold": auc,
            "auc_ci": None if auc is None else [auc - 0.1, auc + 0.1],
            "tpr_at_fpr": {"0.1": 0.3}, "tpr_at_fpr_ci": {"0.1": [0.1, 0.6]},
        }  # fmt: skip
        report = {"attacks": [row], "utility": {"knn": 0.4, "knn_ci": [0.3, 0.5], "n": 50}}
        write_run(results, report)
        done = {"seconds": 2.0, "hardware": {"cpu": "x", "cores": 2, "gpus": []}}
        done |= {"versions": {"torch": "2"}, "commit": None}
        (folder.path(job) / DONE).write_text(json.dumps(done))
    return jobs


@pytest.mark.parametrize("given", [False, True])
def test_reason__names_the_flag_and_no_folder_of_this_machine(given: bool, tmp_path: Path) -> None:
    (entry,) = select(["encodermi-table-1"])
    reasons = {cell.reason for cell in entry.cells("small", tmp_path if given else None)}
    assert all("--data-dir" in one and str(tmp_path) not in one for one in reasons)
    assert not any("\N{MATHEMATICAL LEFT ANGLE BRACKET}" in one for one in reasons)


def a_cell(*jobs: TableJob, read: str = "lpla/auc", reason: str = "") -> TableCell:
    return TableCell("row", "column", "", read, jobs, 0.9, None, reason)


def columns(names: str = "AB", rows: str = "r", levels: str = "", jobs: Any = ()) -> Any:
    """Cells of these columns, rows and levels of leak."""
    return [
        TableCell(row, name, level, "", jobs, None, None)
        for row in rows for name in names for level in levels or [""]
    ]  # fmt: skip


def test_audit__goes_on_where_it_was_and_begins_again_where_it_moved(tmp_path: Path) -> None:
    cells = read_entries()["encodermi-table-2"].cells("smoke", None)
    job = next(job for job in jobs_of(cells) if job.kind == "audit")

    def start(root: Path) -> Path:
        with (folder := JobFolder(root)).locked():
            folder.start(job)
        return folder.path(job)

    begun = start(tmp_path / "one")
    scores = begun / "results" / "scores"
    scores.mkdir(parents=True)
    settings = load(begun / "settings.yaml")
    (begun / "results" / "config.yaml").write_text(dump(settings, {"format": FORMAT}))
    start(tmp_path / "one")
    assert scores.is_dir()
    (tmp_path / "one").rename(tmp_path / "two")
    assert not (start(tmp_path / "two") / "results").exists()


def test_federation__goes_on_from_its_checkpoint_and_begins_again_without_one(
    tmp_path: Path,
) -> None:
    """A kill before the first index of a checkpoint leaves its folder alone."""
    cells = read_entries()["federated-table-2"].cells("smoke", None)
    job = next(up for job in jobs_of(cells) for up in job.chain() if up.kind == "federation")
    with (folder := JobFolder(tmp_path)).locked():
        results = folder.path(job) / "results"
        checkpoint = results / "checkpoint"
        checkpoint.mkdir(parents=True)
        assert "--config" in folder.start(job) and not results.exists()
        checkpoint.mkdir(parents=True)
        (checkpoint / "index.json").write_text("{}")
        assert "--resume" in folder.start(job) and checkpoint.exists()


def test_cell__mean_and_interval_over_targets(tmp_path: Path) -> None:
    """A share ends at 0 and 1, a threshold does not."""
    folder = JobFolder(tmp_path)
    jobs = finished(folder, 0.6, 0.7, 0.8)
    one = read_cell(a_cell(jobs[0]), folder)
    assert one == Reading(0.6, 0.5, 0.7, "images", 5, 7, {0: 0.6})
    # Student: 4.3027 / sqrt(3) with 2 degrees of freedom, 12.7062 / sqrt(2) with one.
    three, half = 0.1 * 4.3027 / 3**0.5, 0.1 * 12.7062 / 2
    for cell, mean, low, high in (
        (a_cell(*jobs), 0.7, 0.7 - three, 0.7 + three),
        (a_cell(*jobs[1:]), 0.75, 0.75 - half, 1.0),
        (a_cell(*jobs[1:], read="lpla/threshold"), 0.75, 0.75 - half, 0.75 + half),
    ):
        several: Any = read_cell(cell, folder)
        assert several.interval == "targets" and several.value == pytest.approx(mean)
        assert (several.low, several.high) == pytest.approx((max(low, -1), high), abs=1e-4)
    results = folder.path(jobs[0]) / "results"
    rate = read_path("audit", results, "lpla/tpr@0.1")
    assert (rate.value, rate.low, rate.high) == (0.3, 0.1, 0.6)
    assert read_path("audit", results, "utility/knn").value == 0.4


def test_rows__say_what_is_not_finished_failed_or_not_run(tmp_path: Path) -> None:
    folder = JobFolder(tmp_path)
    (done,) = finished(folder, 0.6)
    waiting, broken = (TableJob("audit", {"seed": seed}) for seed in (1, 2))
    for cell, row in (
        (a_cell(done), ("finished", "", 0.6)),
        (a_cell(waiting), ("not finished", "", None)),
        (a_cell(done, waiting), ("not finished", "", 0.6)),  # the mean of the targets so far
        (a_cell(broken), ("failed", "diverged", None)),
        (a_cell(reason="no such file"), ("not run", "no such file", None)),
    ):
        (told,) = table_rows([cell], folder, {broken.key: "diverged"})
        assert (told["state"], told["reason"], told["ours"]) == row


def reading(*values: float, seeds: Any = None) -> Reading:
    return Reading(values[0], by_seed=dict(zip(seeds or range(9), values, strict=False)))


@pytest.mark.parametrize(
    "worse, verdict",
    [((0.5, 0.51, 0.49), HOLDS), ((0.9, 0.91, 0.89), FAILS), ((0.6, 0.8, 0.7), UNDECIDED)],
)
def test_claim__by_the_interval_over_targets(worse: tuple[float, ...], verdict: str) -> None:
    entry = Entry("t", "p", "Table 1", "t", claims=(CLAIM,))
    numbers = {("", "r", "A"): reading(0.7, 0.72, 0.69), ("", "r", "B"): reading(*worse)}
    (result,) = judge_claims([(entry, columns(jobs=(TableJob("audit", {}),)), numbers)])
    assert (result["verdict"], result["targets"]) == (verdict, 3)


CLAIM: Any = {"says": "A over B", "better": "A", "over": "B"}


def test_claims__intervals_hold_together_over_what_is_run() -> None:
    """Over claims and levels; what is not run adds nothing."""
    another, entries = {"says": "A over .5", "better": "A", "over": 0.5}, []
    for name, jobs, claims in (
        ("run", (TableJob("audit", {}),), (CLAIM, another)), ("cut", (), (another,)),
    ):  # fmt: skip
        numbers = {
            (level, "r", column): reading(*values)
            for level in "xyz"
            for column, values in (("A", (0.7, 0.72, 0.69)), ("B", (0.6, 0.61, 0.6)))
        }
        entry = Entry(name, "paper", "Table 1", "t", claims=claims)
        entries.append((entry, columns(levels="xyz", jobs=jobs), numbers if jobs else {}))
    results = judge_claims(entries)
    apart = {"A over B": (0.1, 0.11, 0.09), "A over .5": (0.2, 0.22, 0.19)}
    for result in results[:6]:
        want = t_interval(apart[result["says"]], 6)
        assert (result["low"], result["high"]) == pytest.approx(want), result
    cut = [(result["verdict"], result["low"], result["targets"]) for result in results[6:]]
    assert cut == [(NOT_RUN, None, 0)] * 3


def test_claims__of_one_level_take_no_place_in_the_family_elsewhere() -> None:
    """'' is the level of a scale that has none."""
    early, whole = {**CLAIM, "levels": ["x"]}, {**CLAIM, "levels": [""]}
    entry = Entry("t", "p", "Table 1", "t", claims=(early, whole))
    numbers = {
        (level, "r", column): reading(*values)
        for level in "xy"
        for column, values in (("A", (0.7, 0.72, 0.69)), ("B", (0.6, 0.61, 0.6)))
    }
    cells = columns(levels="xy", jobs=(TableJob("audit", {}),))
    (result,) = judge_claims([(entry, cells, numbers)])
    assert result["level"] == "x"
    assert (result["low"], result["high"]) == pytest.approx(t_interval((0.1, 0.11, 0.09), 1))


def test_claim__targets_are_paired_by_their_seeds() -> None:
    """Never by place: an attack may lack the number of one target, a baseline that of another."""
    numbers = {
        ("", "1", "A"): reading(0.7, 0.8),
        ("", "1", "B"): reading(0.5, 0.8, seeds=(1, 2)),
    }
    cells = columns(rows="12")
    assert differences(CLAIM, "", cells, numbers) == []
    numbers["", "2", "A"] = reading(0.9, 0.6, seeds=(0, 2))
    numbers["", "2", "B"] = reading(0.5, 0.1, seeds=(2, 0))
    assert differences(CLAIM, "", cells, numbers) == pytest.approx([0.8, 0.1])
    for over in (0.5, "C"):  # rows of other targets; no such column
        assert differences({**CLAIM, "over": over}, "", cells, numbers) == []


def test_claim__of_one_row_over_another() -> None:
    """Each target's difference is between its own two rows, paired by seed."""
    numbers = {("", "1", "A"): reading(0.5, 0.6), ("", "2", "A"): reading(0.9, 0.7, seeds=(1, 0))}
    claim = {"says": "", "better": "A", "over": "A", "rows": ["2"], "over_rows": ["1"]}
    assert differences(claim, "", columns(rows="12"), numbers) == pytest.approx([0.2, 0.3])


def test_cell__lacks_the_target_whose_attack_has_no_number(tmp_path: Path) -> None:
    folder = JobFolder(tmp_path)
    cells = [a_cell(*finished(folder, None, 0.7, 0.8))]
    table = table_of(Entry("t", "p", "Table 1", "t"), "small", "c", cells, folder, {})
    (row,) = table["cells"]
    assert row["by_seed"] == {"1": 0.7, "2": 0.8} and row["ours"] == pytest.approx(0.75)
    page = markdown(table)
    assert "Targets a cell: 2 (seeds 1, 2).\n" in page
    assert "Brackets: 95 % interval over targets.\n" in page


def test_no_answer__is_marked_in_table_and_claim(tmp_path: Path) -> None:
    """Two of three targets, by their seeds; a cell and a claim beside them have no mark."""
    folder = JobFolder(tmp_path)
    jobs = [TableJob("audit", {"seed": seed}) for seed in (5, 6, 7)]
    for job, one_score in zip(jobs, (None, 12, 11), strict=True):
        rows = [
            {"name": name, "auc": 0.5, "n_members": 5, "n_nonmembers": 7, "one_score": count}
            for name, count in (("a", one_score), ("b", None))
        ]
        write_run(folder.path(job) / "results", {"attacks": rows})
        done = {"seconds": 2.0, "hardware": {"cpu": "x", "cores": 2, "gpus": []}}
        (folder.path(job) / DONE).write_text(
            json.dumps({**done, "versions": {"torch": "2"}, "commit": None})
        )
    cells = [TableCell("row", name, "", f"{name}/auc", tuple(jobs), 0.9, None) for name in "ab"]
    claims = [{"says": name, "better": name, "over": 0.5} for name in "ab"]
    entry = Entry("t", "p", "Table 1", "t", claims=claims)
    page = write_table(table_of(entry, "small", "c", cells, folder, {}), tmp_path / "tables")
    table = json.loads(page.with_suffix(".json").read_text())
    assert [cell.get("no_answer") for cell in table["cells"]] == [[6, 7], None]
    assert (tmp_path / "tables" / "t.csv").read_text().count("[6, 7]") == 1
    text = page.read_text(encoding="utf-8")
    assert text.count(" = |") == 1 and "- =: row, a: " in text and "in 2 of 3 targets" in text
    judged = judge_claims([read_back(table)])
    assert [claim.get("no_answer") for claim in judged] == [[6, 7], None]
    write_claims(judged, "small", tmp_path)
    assert (tmp_path / "claims.md").read_text().count("in 2 of 3 targets") == 1
    assert (tmp_path / "claims.csv").read_text().count("[6, 7]") == 1
    (tmp_path / "tables.json").write_text('{"a": {"auc": 0.5, "one_score": 9}, "b": {"auc": 0.5}}')
    assert [read_path("paper", tmp_path, f"{name}/auc").one_score for name in "ab"] == [True, False]
    one = read_cell(replace(cells[0], jobs=(jobs[1],)), folder)
    assert one is not None and one.no_answer == (6,)
