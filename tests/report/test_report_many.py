"""Many clients: those that matter are shown, all are counted, and nothing grows with each."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedmia.records import ClientInference, ClientInfo, DatasetInferenceResults, RunScores
from fedmia.records.privacy import ClientDefence, Epsilon
from fedmia.records.rows import Report
from fedmia.report import clients as client_reports
from fedmia.report import tables
from fedmia.report.build import build_report
from fedmia.report.figures import clients as figures
from fedmia.report.format import sentences
from fedmia.report.page import page
from fedmia.report.publish import all_clients, write_report
from fedmia.report.selection import FEW, select_clients
from fedmia.report.terminal import lines

MANY = 120
EACH = 40


@pytest.fixture(name="many", scope="module")
def _many(make_many: Callable[..., RunScores]) -> RunScores:
    return make_many()


@pytest.fixture(scope="module")
def make_many(run: RunScores) -> Callable[..., RunScores]:
    """118 honest clients and two attackers. Client 7 leaks; 50 to 59 are defended; 90 is large."""

    def made(leak: float = 6.0) -> RunScores:
        draw = np.random.default_rng(3)
        honest = MANY - 2
        owner = np.repeat(np.arange(honest), EACH)
        labels = np.arange(len(owner)) % 4, np.arange(400) % 4
        members, others = draw.normal(size=len(owner)), draw.normal(size=400)
        attack = replace(
            run.attacks[0],
            name="similarity",
            scores_members=members + leak * (owner == 7),
            scores_nonmembers=others,
        )
        told = Epsilon(8.0, 1e-5, 20, "heuristic", "Per image.")
        clients = [
            ClientInfo(
                i, 99 if i == 90 else EACH, "honest" if i < honest else "active",
                ClientDefence("dpsgd", replace(told, value=2.0 + i / 10)) if 50 <= i < 60 else None,
                (10, 10, 10, 10),
            )
            for i in range(MANY)
        ]  # fmt: skip
        asked = [ClientInference(i, (i + 1) / 70_000, 0.1, EACH, 400) for i in range(honest)]
        return replace(
            run, attacks=[attack], controls={}, pairs=[], curves=None, rounds=[],
            member_ids=np.arange(len(owner)), nonmember_ids=np.arange(5000, 5400),
            member_client=owner, member_labels=labels[0], nonmember_labels=labels[1],
            clients=clients, inferences=[DatasetInferenceResults("dataset-inference", "p", asked,
            [])],
        )  # fmt: skip

    return made


@pytest.fixture(scope="module")
def report(many: RunScores) -> Report:
    return build_report(many)


@pytest.mark.slow
def test_null_of__numbers_of_a_client_do_not_depend_on_the_others(
    many: RunScores, report: Report
) -> None:
    few = replace(many, clients=[many.clients[7]])
    alone, here = build_report(few)["clients"][0], report["clients"][7]
    assert alone["null_ci"] == here["null_ci"] and alone["auc_ci"] == here["auc_ci"]
    assert alone["auc_ci_simultaneous"] != here["auc_ci_simultaneous"]


def test_shown__each_reason_has_its_turn(report: Report) -> None:
    clients = {one.row["id"]: one.why for one in select_clients(report)}
    assert len(clients) == FEW and list(clients)[0] == 7
    assert "interval excludes 0.5" in clients[7] and "most leaking" in clients[7]
    assert "most images" in clients[90] and clients[MANY - 2] == ["not honest"]
    counts = {why: sum(why in one for one in clients.values()) for why in sum(clients.values(), [])}
    assert counts["interval excludes 0.5"] == 1 and counts["not honest"] == 2
    assert min(counts[w] for w in ("most leaking", "least leaking", "defended")) >= 4
    ends = {c["id"]: c["auc_ci"] for c in report["clients"] if c["auc"] is not None}
    assert max(ends, key=lambda i: ends[i][0]) == 7
    assert "least leaking" in clients[min(ends, key=lambda i: ends[i][1])]


def test_shown__few_clients_are_all_shown_without_a_reason(run: RunScores) -> None:
    report = build_report(run)
    assert [one.row for one in select_clients(report)] == report["clients"]
    assert (
        not any(one.why for one in select_clients(report)) and "client_distribution" not in report
    )
    assert "clients-distribution" not in page(report, {}) and "clients.csv" not in page(report, {})
    assert figures.distribution(report) is None


def test_shown__a_defence_that_all_have_sets_none_apart(many: RunScores) -> None:
    same = [replace(c, defence=many.clients[50].defence) for c in many.clients]
    clients = select_clients(build_report(replace(many, clients=same)))
    assert not any("defended" in one.why for one in clients) and len(clients) == FEW


def test_distribution__counts_and_percentiles(report: Report) -> None:
    spread = report["client_distribution"]
    aucs = [c["auc"] for c in report["clients"] if c["auc"] is not None]
    assert spread["clients"] == len(aucs) == MANY - 2
    assert (spread["over_half"], spread["under_half"]) == (1, 0)
    want = np.percentile(aucs, range(101))
    assert spread["percentiles"] == pytest.approx(want, abs=1e-6)
    bands = [(c["auc"], c["null_ci"][1]) for c in report["clients"] if c["null_ci"]]
    assert spread["with_null"] == len(bands)
    assert spread["over_null"] == sum(auc > high for auc, high in bands)
    assert spread["over_null_expected"] == pytest.approx(len(bands) * 0.0297, rel=0.01)
    null = spread["null_percentiles"]
    assert null is not None and null[50] == pytest.approx(0.5, abs=0.01)
    assert null[5] == pytest.approx(spread["percentiles"][5], abs=0.05)


def test_sentences__of_many_clients_are_short(report: Report, many: RunScores) -> None:
    sentence = sentences(report)["clients"]
    assert (
        sentence is not None
        and "118 clients" in sentence
        and "client 7 (1.00) more than" in sentence
    )
    assert "Clients with a simultaneous interval over 0.5: 1, under 0.5: 0" in sentence
    printed = lines(report)
    assert max(map(len, printed)) < 700 and sum("Defended" in line for line in printed) == 1
    (line,) = (one for one in printed if "Defended" in one)
    assert "10 clients: from dpsgd, epsilon 7 (" in line and "to dpsgd, epsilon 7.9 (" in line
    statement = report["dataset_inference"][0]["statement"]
    significant = sum(
        1 for c in report["dataset_inference"][0]["clients"] if c["p_value_holm"] <= 0.05
    )
    assert significant > FEW and f"18, 19 and {significant - FEW} more" in statement


def test_page__twenty_clients_and_where_the_rest_is(report: Report) -> None:
    text = page(report, {"clients-distribution": b"picture"})
    assert len(tables.clients(report).rows) == FEW == len(select_clients(report))
    assert "20 of 120\nclients" in text and text.count("<code>clients.csv</code>") == 2
    assert len(text) < 150_000
    rows = [row.cells for row in tables.datasets(report["dataset_inference"][0]).rows]
    assert [row[0] for row in rows] == [str(i) for i in range(FEW)]
    assert rows[0][1] == "1.4e-05" and rows[0][2] == "0.0017"


def test_figures__are_no_larger_for_many(report: Report) -> None:
    forest, spread = figures.leakage(report), figures.distribution(report)
    classes = figures.holdings(report)
    assert forest and spread and classes
    assert forest.get_figheight() < 9 and classes.get_figheight() < 8
    bars, outline = spread.axes[0].containers[0], spread.axes[0].patches[-1]
    assert sum(bar.get_height() for bar in bars) == MANY - 2
    assert outline.get_xy()[:, 1].max() < MANY and len(classes.axes[0].get_yticks()) == FEW


def test_clients_csv__a_line_a_client(many: RunScores, report: Report, tmp_path: Path) -> None:
    files = write_report(tmp_path, many, report, {})
    assert tmp_path / "clients.csv" in files
    rows = list(csv.DictReader((tmp_path / "clients.csv").open(encoding="utf-8")))
    assert [int(r["client"]) for r in rows] == list(range(MANY))
    here, want = rows[55], report["clients"][55]
    assert float(here["auc"]) == want["auc"] and here["defence"] == "dpsgd"
    assert float(here["auc_high_simultaneous"]) == want["auc_ci_simultaneous"][1]
    assert float(here["null_low"]) == want["null_ci"][0] and here["epsilon"] == "7.5"
    assert float(here["p_value dataset-inference"]) > 0 and here["class 3"] == "10"
    assert rows[-1]["role"] == "active" and rows[-1]["auc"] == rows[-1]["null_auc"] == ""
    assert rows[-1]["p_value dataset-inference"] == "" and int(here["null_posers"]) == EACH


def test_ranking__of_clients_that_all_separate_is_short(
    make_many: Callable[..., RunScores],
) -> None:
    """Half of the clients leak all that they hold: thousands of pairs."""
    many = make_many(0.0)
    (attack,) = many.attacks
    leaks = attack.scores_members + np.where(many.member_client % 2, 9.0, -9.0)
    found = build_report(replace(many, attacks=[replace(attack, scores_members=leaks)]))
    ranked = found["client_ranking"]
    assert ranked is not None and len(ranked) < 300
    assert ranked.count("more than 59 others") == 3 and "56 more clients likewise" in ranked


@pytest.fixture
def condensed(many: RunScores, monkeypatch: pytest.MonkeyPatch) -> tuple[RunScores, Report]:
    """The same federation where a report lists no more than 100 clients; a third never trained."""
    monkeypatch.setattr(client_reports, "MOST", 100)
    clients = [replace(c, last_round=0 if c.id % 3 == 0 else c.id % 20) for c in many.clients]
    run = replace(many, clients=clients)
    return run, build_report(run)


@pytest.mark.slow
def test_condensed__twenty_are_listed_and_the_rest_is_counted(
    condensed: tuple[RunScores, Report], report: Report, tmp_path: Path
) -> None:
    run, short = condensed
    assert len(short["clients"]) == FEW and short["client_counts"]["clients"] == MANY
    reasons = {one.row["id"]: one.why for one in select_clients(short)}
    assert "interval excludes 0.5" in reasons[7] and "largest epsilon" in reasons[59]
    for key in ("statement", "void", "posers"):
        assert short["dataset_inference"][0][key] == report["dataset_inference"][0][key]  # type: ignore[literal-required]
    assert len(short["dataset_inference"][0]["clients"]) == FEW
    assert short["dataset_inference"][0]["n_clients"] == MANY - 2
    defended = short["defended"]
    assert defended is not None and [g["n_clients"] for g in defended["groups"]] == [10, 108]
    assert all(len(g["clients"]) <= FEW for g in defended["groups"])
    assert short["family"]["intervals_clients"] == report["family"]["intervals_clients"]
    assert (
        short["client_distribution"]["percentiles"] == report["client_distribution"]["percentiles"]
    )
    assert [one for one in lines(short) if "Defended" in one] == [
        one for one in lines(report) if "Defended" in one
    ]
    text = page(short, {})
    assert "20 of 120\nclients" in text and "and <code>report.json</code>" not in text
    spread = figures.distribution(short)
    assert spread is not None
    assert sum(bar.get_height() for bar in spread.axes[0].containers[0]) == pytest.approx(MANY - 2)
    write_report(tmp_path, run, short, {})
    rows = list(csv.DictReader((tmp_path / "clients.csv").open(encoding="utf-8")))
    assert [int(r["client"]) for r in rows] == list(range(MANY))
    whole = list(all_clients(run, short)[0])
    assert float(rows[55]["auc"]) == whole[55]["auc"] == report["clients"][55]["auc"]


def test_condensed__clients_of_one_mix_share_their_null(
    condensed: tuple[RunScores, Report],
) -> None:
    run, short = condensed
    bands = {str(row["null_ci"]) for row in all_clients(run, short)[0] if row["auc"] is not None}
    assert len(bands) == 1  # each client holds ten images of each class


def test_cohorts__by_the_last_round_and_those_that_no_round_drew(
    condensed: tuple[RunScores, Report],
) -> None:
    run, short = condensed
    rows = short["client_cohorts"]
    assert [row["cohort"] for row in rows] == ["never", "1-5", "6-10", "11-14", "15-19"]
    honest = [c for c in run.clients if c.role == "honest"]
    want = [(0, 0), (1, 5), (6, 10), (11, 14), (15, 19)]
    for row, (low, high) in zip(rows, want, strict=True):
        inside = [c for c in honest if low <= (c.last_round or 0) <= high]
        assert row["clients"] == len(inside) and row["n_members"] == EACH * len(inside)
        assert row["images"] == sum(c.size for c in inside)
    leaking = rows[2]["auc"]  # of client 7
    assert leaking is not None and leaking == max(row["auc"] or 0.0 for row in rows)
    table = tables.cohorts(short)
    assert table is not None and [row.cells[0] for row in table.rows][0] == "never"
    sentence = sentences(short)["clients"]
    assert (
        sentence is not None
        and f"belong to the {rows[0]['clients']:,} clients that no round" in sentence
    )
    figure = figures.cohorts(short)
    assert figure is not None and len(figure.axes[0].get_yticks()) == len(rows)


def test_cohorts__none_where_all_train_in_every_round(report: Report) -> None:
    assert "client_cohorts" not in report and tables.cohorts(report) is None
    assert figures.cohorts(report) is None


def test_condensed__clients_of_whom_nothing_is_to_be_said_have_no_row(
    condensed: tuple[RunScores, Report], tmp_path: Path
) -> None:
    """Of 40 clients members are scored, ten are defended, two attack, and one is large."""
    run, _ = condensed
    some = np.where(run.member_client < 40, run.member_client, run.member_client % 40)
    run = replace(run, member_client=some, inferences=[])
    assert len(client_reports.client_rows(run)[0]) == 40 + 10 + 2 + 1
    short = build_report(run)
    assert len(short["clients"]) == FEW and short["client_distribution"]["clients"] == 40
    listed = {row["id"]: row["why"] for row in short["clients"]}
    assert "most images" in listed[90] and short["client_counts"]["median_size"] == EACH
    write_report(tmp_path, run, short, {})
    rows = list(csv.DictReader((tmp_path / "clients.csv").open(encoding="utf-8")))
    assert len(rows) == MANY and rows[45]["auc"] == "" and rows[45]["images"] == str(EACH)
    assert float(rows[7]["auc_high_simultaneous"]) == listed_end(short, 7)


def listed_end(report: Report, client: int) -> float | None:
    """The upper simultaneous end of a client that the report lists."""
    (row,) = (row for row in report["clients"] if row["id"] == client)
    return row["auc_ci_simultaneous"] and row["auc_ci_simultaneous"][1]
