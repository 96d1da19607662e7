"""How an epsilon is printed, and the server's rule with its privacy statement."""

from __future__ import annotations

from dataclasses import replace

from fedmia.records import Evaluation
from fedmia.records.defence_rows import AggregationRow, DefencePart
from fedmia.records.privacy import MEANINGFUL, NOISE, Epsilon
from fedmia.records.rows import Report
from fedmia.report.build import build_report
from fedmia.report.words.bounds import aggregation_sentence, epsilon
from tests.snapshots import Snapshot


def test_epsilon__over_20_is_no_meaningful_guarantee(snapshot: Snapshot) -> None:
    """And each is printed with its unit, where that is known."""
    for value, unit in ((8.0, ""), (MEANINGFUL, "image"), (21.0, "client"), (2440.0, ""),
                        (None, "")):  # fmt: skip
        claim = Epsilon(
            value=value,
            delta=1e-5,
            rounds=20,
            standing="guaranteed",
            assumptions="",
            unit=unit,
            noise_source="entropy",
        )
        snapshot(epsilon(DefencePart(name="dpsgd", epsilon=claim)))


def test_aggregation__its_row_rests_on_all_that_it_assumes(whole: Report) -> None:
    row = whole.aggregation
    assert row is not None
    assert (row.name, row.view, row.metrics) == ("dp-fedavg", "sums", {"clip": 0.25})
    assert row.epsilon == Epsilon(
        value=7.5, delta=1e-5, rounds=30, standing="guaranteed", unit="client",
        noise_source="seeded", assumptions=f"Unit: one client. {NOISE['seeded']}",
        lower_bound=None,
    )  # fmt: skip


def test_aggregation__is_told_where_it_sees_or_promises_less(
    run: Evaluation, report: Report
) -> None:
    assert report.aggregation is None
    rules = (AggregationRow(name="fedavg"), AggregationRow(name="fedavg", view="sums"),
             AggregationRow(name="fedavg", metrics={"clip": 0.5}))  # fmt: skip
    reports = [build_report(replace(run, aggregation=rule)) for rule in rules]
    assert [bool(aggregation_sentence(one)) for one in reports] == [False, True, True]
    assert reports[0].aggregation and reports[0].aggregation.epsilon is None
