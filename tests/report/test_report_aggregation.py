"""The server's rule and its privacy statement in report, terminal and page."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace

import pytest
from rich.console import Console

from fedmia.records import Aggregation, RunScores
from fedmia.records.privacy import NOISE, Epsilon
from fedmia.report.build import build_report
from fedmia.report.page import page
from fedmia.report.terminal import render


def told(run: RunScores, done: Aggregation | None) -> tuple[dict[str, object], str, str]:
    """The report's row, the terminal and the page."""
    report = build_report(replace(run, aggregation=done))
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(render(report))
    row = dict(report["aggregation"]) if "aggregation" in report else {}
    return row, " ".join(console.export_text().split()), page(report, {})


@pytest.mark.slow
def test_report__tells_the_servers_statement_with_all_it_rests_on(
    make_run: Callable[..., RunScores],
) -> None:
    text = "Unit: one client. Client 9 uploads what an attack crafts."
    spent = Epsilon(7.5, 1e-5, 30, "guaranteed", text)
    done = Aggregation("dp-fedavg", "updates", spent, {"clip": 0.25})
    row, printed, html = told(make_run(), done)
    assert row == {
        "name": "dp-fedavg", "view": "updates", "metrics": {"clip": 0.25},
        "epsilon": {"value": 7.5, "delta": 1e-5, "rounds": 30, "standing": "guaranteed",
                    "noise_source": "seeded", "assumptions": f"{text} {NOISE['seeded']}",
                    "unit": ""},
    }  # fmt: skip
    for where in (printed, html):
        sentence = "epsilon 7.5 (delta 1e-05, 30 rounds): guaranteed (noise: seeded)"
        assert sentence in where and text in where
        assert "clip 0.25" in where
    _, printed, html = told(make_run(), Aggregation("fedavg", "sums"))
    assert "sees only sums of updates" in printed and "no encryption" in html
    row, printed, html = told(make_run(), Aggregation("fedavg"))
    assert row["epsilon"] is None and "Server:" not in printed + html
    assert told(make_run(), None)[0] == {}
