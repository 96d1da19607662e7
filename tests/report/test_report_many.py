"""Many clients: those that matter are shown, all are counted, and nothing grows with each."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmia.records import ClientInfo, DatasetInferenceResults, Evaluation
from fedmia.records.client_rows import ClientCounts
from fedmia.records.defence_rows import DefenceRow
from fedmia.records.privacy import Epsilon
from fedmia.records.rows import Report
from fedmia.report import clients as client_reports
from fedmia.report import report_tables as tables
from fedmia.report.build import build_report, build_whole
from fedmia.report.clients import client_rows
from fedmia.report.figures import clients as figures
from fedmia.report.page import page
from fedmia.report.publish import write_report
from fedmia.report.selection import FEW, select_clients
from fedmia.report.words.beside import sentences
from fedmia.report.words.bounds import defended_lines
from fedmia.report.words.clients import ranking
from fedmia.report.words.sets import statement
from tests.report.conftest import alone, compared, terminal
from tests.snapshots import Snapshot

MANY = 120
EACH = 40


@pytest.fixture(scope="module")
def many(run: Evaluation) -> Evaluation:
    """118 honest clients and two attackers. Client 7 leaks; 50 to 59 are defended; 90 is large."""
    draw, honest = np.random.default_rng(3), MANY - 2
    owner = np.repeat(np.arange(honest), EACH)
    members, others = draw.normal(size=len(owner)), draw.normal(size=400)
    attack = replace(
        run.attacks[0],
        name="similarity",
        scores_members=members + 6.0 * (owner == 7),
        scores_nonmembers=others,
    )
    claim = Epsilon(
        value=8.0, delta=1e-5, rounds=20, standing="heuristic", assumptions="Per image."
    )
    clients = [
        ClientInfo(
            i, 99 if i == 90 else EACH, "honest" if i < honest else "active",
            DefenceRow(name="dpsgd", epsilon=replace(claim, value=2.0 + i / 10))
            if 50 <= i < 60
            else None,
            (10, 10, 10, 10),
        )
        for i in range(MANY)
    ]  # fmt: skip
    asked = [compared(i, (i + 1) / 70_000, EACH) for i in range(honest)]
    return alone(
        run, attack, curves=None, rounds=[], member_ids=np.arange(len(owner)),
        nonmember_ids=np.arange(5000, 5400), member_client=owner,
        member_labels=np.arange(len(owner)) % 4, nonmember_labels=np.arange(400) % 4,
        clients=clients,
        inferences=[DatasetInferenceResults("dataset-inference", "p", asked, [])],
    )  # fmt: skip


@pytest.fixture(scope="module")
def report(many: Evaluation) -> Report:
    return build_report(many)


def test_null_of__numbers_of_a_client_do_not_depend_on_the_others(
    many: Evaluation, report: Report
) -> None:
    few = replace(many, clients=[many.clients[7]])
    alone, here = build_report(few).clients[0], report.clients[7]
    assert alone.null_ci == here.null_ci and alone.auc_ci == here.auc_ci
    assert alone.low != here.low


def test_shown__each_reason_has_its_turn(report: Report) -> None:
    clients = {one.id: one.why or [] for one in select_clients(report)}
    assert len(clients) == FEW and list(clients)[0] == 7
    assert "interval excludes 0.5" in clients[7] and "most leaking" in clients[7]
    assert "most images" in clients[90] and clients[MANY - 2] == ["not honest"]
    counts = {why: sum(why in one for one in clients.values()) for why in sum(clients.values(), [])}
    assert counts["interval excludes 0.5"] == 1 and counts["not honest"] == 2
    assert min(counts[w] for w in ("most leaking", "least leaking", "defended")) >= 4
    ends = {c.id: c.auc_ci for c in report.clients if c.auc is not None}
    assert max(ends, key=lambda i: ends[i][0]) == 7
    assert "least leaking" in clients[min(ends, key=lambda i: ends[i][1])]


def test_shown__few_clients_are_all_shown_without_a_reason(run: Evaluation) -> None:
    few = build_report(run)
    assert select_clients(few) == few.clients
    assert not any(one.why for one in few.clients) and few.client_distribution is None
    text = page(few, {})
    assert "clients-distribution" not in text
    assert figures.ClientHistogram(few).draw() is None


def test_shown__a_defence_that_all_have_sets_none_apart(many: Evaluation) -> None:
    same = [replace(c, defence=many.clients[50].defence) for c in many.clients]
    clients = select_clients(build_report(replace(many, clients=same)))
    assert not any("defended" in (one.why or []) for one in clients) and len(clients) == FEW


def test_distribution__beside_the_nulls(report: Report) -> None:
    spread: Any = report.client_distribution
    aucs = [c.auc for c in report.clients if c.auc is not None]
    bands = [c.null_ci for c in report.clients if c.null_ci]
    assert (spread.clients, spread.with_null) == (len(aucs), len(bands)) == (118, 118)
    assert spread.percentiles == pytest.approx(np.percentile(aucs, range(101)), abs=1e-6)
    assert spread.over_null_expected == pytest.approx(len(bands) * 0.0297, rel=0.01)
    null = spread.null_percentiles
    assert null is not None and null[50] == pytest.approx(0.5, abs=0.01)
    assert null[5] == pytest.approx(spread.percentiles[5], abs=0.05)


def test_sentences__of_many_clients_are_short(report: Report, snapshot: Snapshot) -> None:
    sentence = str(sentences(report)["clients"])
    snapshot(sentence)
    assert "client 7 (1.00) more than" in sentence
    (line,) = defended_lines(report)
    assert line in " ".join(" ".join(terminal(report)).split())
    snapshot(line)
    (row,) = report.dataset_inference
    significant = sum(1 for c in row.clients if (c.p_value_holm or 0) <= 0.05)
    assert significant > FEW and f"18, 19 and {significant - FEW} more" in statement(row)


def test_page__twenty_clients_and_where_the_rest_is(report: Report) -> None:
    text = page(report, {"clients-distribution": b"picture"})
    assert len(tables.clients(report).rows) == FEW == len(select_clients(report))
    assert "20 of 120 clients" in text and text.count("table.csv</span></code>") == 2
    assert len(text) < 150_000
    rows = [row for row in tables.datasets(report.dataset_inference[0]).rows]
    assert [row[0] for row in rows] == [str(i) for i in range(FEW)]
    assert rows[0][1] == "1.4e-05" and rows[0][2] == "0.0017"


def test_figures__are_no_larger_for_many(report: Report) -> None:
    forest, spread = figures.LeakageByClient(report).draw(), figures.ClientHistogram(report).draw()
    classes = figures.Holdings(report).draw()
    assert forest and spread and classes
    assert forest.get_figheight() < 9 and classes.get_figheight() < 8
    bars, outline = spread.axes[0].containers[0], spread.axes[0].patches[-1]
    assert sum(bar.get_height() for bar in bars) == MANY - 2
    assert outline.get_xy()[:, 1].max() < MANY and len(classes.axes[0].get_yticks()) == FEW


def counts_of(report: Report) -> ClientCounts:
    assert report.client_counts is not None
    return report.client_counts


def written(folder: Path, run: Evaluation, report: Report) -> list[dict[str, str]]:
    """What table.csv says of each client."""
    whole = build_whole(run)
    write_report(folder, run, report, {}, whole)
    with (folder / "table.csv").open(encoding="utf-8") as file:
        return [row for row in csv.DictReader(file) if row["subject"] == "client"]


def test_table__has_every_client(many: Evaluation, report: Report, tmp_path: Path) -> None:
    rows = written(tmp_path, many, report)
    assert {int(r["client"]) for r in rows} == set(range(MANY))
    (here,) = (r for r in rows if (r["client"], r["metric"]) == ("55", "auc"))
    want = report.clients[55]
    assert float(here["value"]) == want.auc and float(here["high"]) == want.high
    assert float(here["ci_high"]) == (want.auc_ci or (0, 0))[1]


def test_ranking__of_clients_that_all_separate_is_short(many: Evaluation) -> None:
    """Half of the clients leak all that they hold: thousands of pairs."""
    (attack,) = many.attacks
    leaks = attack.scores_members + np.where(many.member_client % 2, 9.0, -9.0)
    ranked = ranking(client_rows(replace(many, attacks=[replace(attack, scores_members=leaks)]))[0])
    assert ranked is not None and len(ranked) < 300
    assert ranked.count("more than 59 others") == 3 and "56 more clients likewise" in ranked


@pytest.fixture
def condensed(many: Evaluation, monkeypatch: pytest.MonkeyPatch) -> tuple[Evaluation, Report]:
    """The same federation where a report lists no more than 100 clients; a third never trained."""
    monkeypatch.setattr(client_reports, "MOST", 100)
    clients = [replace(c, last_round=0 if c.id % 3 == 0 else c.id % 20) for c in many.clients]
    run = replace(many, clients=clients)
    return run, build_report(run)


@pytest.mark.slow
def test_condensed__twenty_are_listed_and_the_rest_is_counted(
    condensed: tuple[Evaluation, Report], report: Report, tmp_path: Path
) -> None:
    run, short = condensed
    assert len(short.clients) == FEW and counts_of(short).clients == MANY
    reasons = {one.id: one.why or [] for one in select_clients(short)}
    assert "interval excludes 0.5" in reasons[7] and "largest epsilon" in reasons[59]
    (inference,), (whole,) = short.dataset_inference, report.dataset_inference
    assert (inference.void, inference.posers) == (whole.void, whole.posers)
    assert statement(inference) == statement(whole)
    assert (len(inference.clients), inference.n_clients) == (FEW, MANY - 2)
    assert [g.n_clients for g in short.defended] == [10, 108]
    assert all(len(g.clients) <= FEW for g in short.defended)
    assert short.family.intervals_clients == report.family.intervals_clients
    first, second = short.client_distribution, report.client_distribution
    assert first and second and first.percentiles == second.percentiles
    assert defended_lines(short) == defended_lines(report)
    text = page(short, {})
    assert "20 of 120 clients" in text
    spread = figures.ClientHistogram(short).draw()
    assert spread is not None
    assert sum(bar.get_height() for bar in spread.axes[0].containers[0]) == pytest.approx(MANY - 2)
    aucs = {r["client"]: r for r in written(tmp_path, run, short) if r["metric"] == "auc"}
    assert len(aucs) == MANY - 2
    assert float(aucs["55"]["value"]) == report.clients[55].auc
    bands = {str(row.null_ci) for row in build_whole(run).clients if row.auc is not None}
    assert len(bands) == 1  # of one mix: each client holds ten images of each class


def test_cohorts__by_the_last_round_and_those_that_no_round_drew(
    condensed: tuple[Evaluation, Report],
) -> None:
    run, short = condensed
    rows = short.client_cohorts
    assert [row.cohort for row in rows] == ["never", "1-5", "6-10", "11-14", "15-19"]
    honest = [c for c in run.clients if c.role == "honest"]
    want = [(0, 0), (1, 5), (6, 10), (11, 14), (15, 19)]
    for row, (low, high) in zip(rows, want, strict=True):
        inside = [c for c in honest if low <= (c.last_round or 0) <= high]
        assert row.clients == len(inside) and row.n_members == EACH * len(inside)
        assert row.images == sum(c.size for c in inside)
    leaking = rows[2].auc  # of client 7
    assert leaking is not None and leaking == max(row.auc or 0.0 for row in rows)
    table = tables.cohorts(short)
    assert [row[0] for row in table.rows][0] == "never"
    assert f"no round drew their clients ({rows[0].clients:,} in all)" in str(
        sentences(short)["clients"]
    )
    figure = figures.LeakageByCohort(short).draw()
    assert figure is not None and len(figure.axes[0].get_yticks()) == len(rows)


def test_cohorts__none_where_all_train_in_every_round(report: Report) -> None:
    assert report.client_cohorts == [] and not tables.cohorts(report).rows
    assert figures.LeakageByCohort(report).draw() is None


def test_condensed__clients_of_whom_nothing_is_to_be_said_have_no_row(
    condensed: tuple[Evaluation, Report], tmp_path: Path
) -> None:
    """Of 40 clients members are scored, ten are defended, two attack, and one is large."""
    run, _ = condensed
    some = np.where(run.member_client < 40, run.member_client, run.member_client % 40)
    run = replace(run, member_client=some, inferences=[])
    assert len(client_rows(run)[0]) == 40 + 10 + 2 + 1
    short = build_report(run)
    assert len(short.clients) == FEW and short.client_distribution is not None
    assert short.client_distribution.clients == 40
    listed = {row.id: row.why or [] for row in short.clients}
    assert "most images" in listed[90] and counts_of(short).median_size == EACH
    (seventh,) = (row for row in short.clients if row.id == 7)
    rows = written(tmp_path, run, short)
    ends = [r["high"] for r in rows if (r["client"], r["metric"]) == ("7", "auc")]
    assert [float(end) for end in ends] == [seventh.high]
