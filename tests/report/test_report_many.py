"""Many clients: those that matter are shown, all are counted, and nothing grows with each."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmia import open_run
from fedmia.records import ClientInfo, DatasetInferenceResults, Evaluation
from fedmia.records.rows import Report
from fedmia.report.build import build_report
from fedmia.report.page import page
from tests.report.conftest import (
    alone,
    claim,
    compared,
    defence,
    numbers,
    opened,
    said,
    section,
    tables,
)
from tests.snapshots import Snapshot

FEW = 20  # clients that are all shown, and most that are shown of more
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
    clients = [
        ClientInfo(
            i, 99 if i == 90 else EACH, "honest" if i < honest else "active",
            defence(epsilon=claim(2.0 + i / 10)) if 50 <= i < 60 else None,
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


@pytest.fixture(scope="module")
def folder(many: Evaluation, report: Report, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the run, with its files."""
    return opened(tmp_path_factory.mktemp("many"), report, many).folder


def listed(report: Report) -> dict[int, list[str]]:
    """Why each client stands in the page's table, in its order."""
    head, *rows = tables(section(page(report, {}), "clients"))[0]
    assert head[-1] == "why it is listed"
    return {int(row[0]): row[-1].split(", ") for row in rows}


def test_shown__each_reason_has_its_turn(report: Report) -> None:
    clients = listed(report)
    assert len(clients) == FEW and list(clients)[0] == 7
    assert "interval excludes 0.5" in clients[7] and "most leaking" in clients[7]
    assert "most images" in clients[90] and clients[MANY - 2] == ["not honest"]
    counts = {why: sum(why in one for one in clients.values()) for why in sum(clients.values(), [])}
    assert counts["interval excludes 0.5"] == 1 and counts["not honest"] == 2
    assert min(counts[w] for w in ("most leaking", "least leaking", "defended")) >= 4
    ends: dict[int, Any] = {c.id: c.auc_ci for c in report.clients if c.auc is not None}
    assert max(ends, key=lambda i: ends[i][0]) == 7
    assert "least leaking" in clients[min(ends, key=lambda i: ends[i][1])]


def test_shown__few_clients_are_all_shown_without_a_reason(report: Report, run: Evaluation) -> None:
    few = replace(report, clients=report.clients[:FEW], client_distribution=None)
    head, *rows = tables(section(page(few, {}), "clients"))[0]
    assert "why it is listed" not in head and [row[0] for row in rows] == [
        str(i) for i in range(FEW)
    ]
    assert build_report(run).client_distribution is None


def test_shown__a_defence_that_all_have_sets_none_apart(report: Report) -> None:
    same = [replace(c, defence=report.clients[50].defence) for c in report.clients]
    clients = listed(replace(report, clients=same))
    assert len(clients) == FEW and not any("defended" in why for why in clients.values())


def test_distribution__beside_the_nulls(report: Report) -> None:
    spread: Any = report.client_distribution
    rows: list[Any] = [c for c in report.clients if c.auc is not None]
    aucs, bands = [c.auc for c in rows], [c.null_ci for c in rows if c.null_ci]
    assert (spread.clients, spread.with_null) == (len(aucs), len(bands)) == (118, 118)
    assert spread.over_half == sum(c.low > 0.5 for c in rows)
    assert spread.under_half == sum(c.high < 0.5 for c in rows)
    assert spread.over_null == sum(c.auc > c.null_ci[1] for c in rows)
    assert spread.percentiles == pytest.approx(np.percentile(aucs, range(101)), abs=1e-6)
    assert spread.over_null_expected == pytest.approx(len(bands) * 0.0297, rel=0.01)
    null = spread.null_percentiles
    assert null is not None and null[50] == pytest.approx(0.5, abs=0.01)
    assert null[5] == pytest.approx(spread.percentiles[5], abs=0.05)


def test_sentences__of_many_clients_are_short(report: Report, snapshot: Snapshot) -> None:
    lines = said(report).splitlines()
    (sentence,) = (line for line in lines if line.startswith("By client, AUC"))
    (line,) = (line for line in lines if line.startswith("Defended, "))
    snapshot(sentence)
    snapshot(line)
    assert "client 7 (1.00) more than" in sentence
    (row,) = report.dataset_inference
    significant = sum(1 for c in row.clients if (c.p_value_holm or 0) <= 0.05)
    assert significant > FEW
    assert f"18, 19 and {significant - FEW} more" in report.verdict + "".join(lines)


def test_page__twenty_clients_and_where_the_rest_is(report: Report) -> None:
    text = page(report, {"clients-distribution": b"picture"})
    assert "20 of 120 clients" in text and text.count("table.csv</span></code>") == 2
    assert len(text) < 150_000
    (rows,) = tables(section(text, "data-sets-was-the-encoder-trained-on-them"))
    assert [row[0] for row in rows[1:]] == [str(i) for i in range(FEW)]
    assert rows[1][1] == "1.4e-05" and rows[1][2] == "0.0017"


def test_figures__are_no_larger_for_many(folder: Path) -> None:
    run = open_run(folder)
    forest, spread = run.figure("clients"), run.figure("clients-distribution")
    classes = run.figure("holdings")
    assert forest.get_figheight() < 9 and classes.get_figheight() < 8
    bars, outline = spread.axes[0].containers[0], spread.axes[0].patches[-1]
    assert sum(bar.get_height() for bar in bars) == MANY - 2
    assert outline.get_xy()[:, 1].max() < MANY and len(classes.axes[0].get_yticks()) == FEW


def test_table__has_every_client(folder: Path, report: Report) -> None:
    rows = [row for row in numbers(folder) if row["subject"] == "client"]
    assert {int(r["client"]) for r in rows} == set(range(MANY))
    (here,) = (r for r in rows if (r["client"], r["metric"]) == ("55", "auc"))
    want: Any = report.clients[55]
    assert float(here["value"]) == want.auc and float(here["high"]) == want.high
    assert float(here["ci_high"]) == want.auc_ci[1]


def test_ranking__of_clients_that_all_separate_is_short(many: Evaluation) -> None:
    """Half of the clients leak all that they hold: thousands of pairs."""
    (attack,) = many.attacks
    leaks = attack.scores_members + np.where(many.member_client % 2, 9.0, -9.0)
    told = replace(many, attacks=[replace(attack, scores_members=leaks)], inferences=[])
    ranked = build_report(told).client_ranking
    assert ranked is not None and len(ranked) < 300
    assert ranked.count("more than 59 others") == 3 and "56 more clients likewise" in ranked


# -- of more than a thousand, few have a row ------------------------------------------------------

ALL = 1010  # clients, of which 118 hold scored images


@pytest.fixture(scope="module")
def condensed(many: Evaluation) -> tuple[Evaluation, Report]:
    """The same federation with hundreds of clients whose images nobody scored."""
    more = [ClientInfo(i, EACH, "honest") for i in range(MANY, ALL)]
    clients = [
        replace(c, last_round=0 if c.id % 3 == 0 else c.id % 20) for c in (*many.clients, *more)
    ]
    run = replace(many, clients=clients)
    return run, build_report(run)


def test_condensed__few_are_listed_and_the_rest_is_counted(
    condensed: tuple[Evaluation, Report], report: Report, tmp_path: Path
) -> None:
    run, short = condensed
    counts: Any = short.client_counts
    assert len(short.clients) == FEW and (counts.clients, counts.median_size) == (ALL, EACH)
    reasons = {one.id: one.why or [] for one in short.clients}
    assert "interval excludes 0.5" in reasons[7] and "largest epsilon" in reasons[59]
    assert "most images" in reasons[90] and MANY - 1 in reasons
    (inference,), (whole,) = short.dataset_inference, report.dataset_inference
    assert (inference.void, inference.posers) == (whole.void, whole.posers)
    assert (len(inference.clients), inference.n_clients) == (FEW, MANY - 2)
    assert [g.n_clients for g in short.defended] == [10, ALL - 12]
    assert all(len(g.clients) <= FEW for g in short.defended)
    assert short.family.intervals_clients == report.family.intervals_clients
    first, second = short.client_distribution, report.client_distribution
    assert first and second and first.percentiles == second.percentiles
    line = next(line for line in said(report).splitlines() if line.startswith("Defended, "))
    assert line in said(short) and short.verdict == report.verdict
    folder = opened(tmp_path, short, run)
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert f"20 of {ALL:,} clients" in text and text == page(short, {}, run)
    bars = folder.figure("clients-distribution").axes[0].containers[0]
    assert sum(bar.get_height() for bar in bars) == pytest.approx(MANY - 2)
    mine = [r for r in numbers(tmp_path) if (r["subject"], r["metric"]) == ("client", "auc")]
    aucs = {r["client"]: r for r in mine}
    assert len(mine) == len(aucs) == MANY - 2
    assert float(aucs["55"]["value"]) == report.clients[55].auc
    (seventh,) = (row for row in short.clients if row.id == 7)
    assert float(aucs["7"]["high"]) == seventh.high
    sizes = [r for r in numbers(tmp_path) if (r["subject"], r["metric"]) == ("client", "size")]
    assert len(sizes) == MANY  # of clients of whom nothing is to be said there is no row


def test_cohorts__by_the_last_round_and_those_that_no_round_drew(
    condensed: tuple[Evaluation, Report], report: Report, tmp_path: Path
) -> None:
    run, short = condensed
    rows = short.client_cohorts
    assert [row.cohort for row in rows] == ["never", "1-5", "6-10", "11-14", "15-19"]
    honest = [c for c in run.clients if c.role == "honest"]
    want = [(0, 0), (1, 5), (6, 10), (11, 14), (15, 19)]
    for row, (low, high) in zip(rows, want, strict=True):
        inside = [c for c in honest if low <= (c.last_round or 0) <= high]
        assert row.clients == len(inside)
        assert row.n_members == EACH * sum(c.id < MANY - 2 for c in inside)
        assert row.images == sum(c.size for c in inside)
    leaking = rows[2].auc  # of client 7
    assert leaking is not None and leaking == max(row.auc or 0.0 for row in rows)
    assert f"no round drew their clients ({rows[0].clients:,} in all)" in said(short)
    text = section(page(short, {}), "clients")
    assert [row[0] for row in tables(text)[1][1:]][0] == "never"
    figure = opened(tmp_path, short, run).figure("cohorts")
    assert len(figure.axes[0].get_yticks()) == len(rows)
    assert report.client_cohorts == []  # all train in every round
