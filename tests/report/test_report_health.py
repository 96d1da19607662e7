"""A collapsed encoder is named, in the verdict and in the row, and no other is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from fedmia.records import Health, Probe, RunScores, ScoredAttack
from fedmia.records.rows import Utility
from fedmia.report.build import build_report
from fedmia.report.health import health_row
from fedmia.report.page import page

CHANCE = 4.29  # ln 73


def utility(linear: float | None, untrained: float | None) -> Utility:
    nothing = {"knn": None, "knn_ci": None, "linear_ci": None, "n": 100}
    old = {**nothing, "linear": untrained}
    return {**nothing, "linear": linear, "untrained": old}  # type: ignore[typeddict-item]


@pytest.mark.parametrize(
    ("cosine", "loss", "linear", "collapsed"),
    [
        (0.9998, 4.286, 0.6, True),  # at chance
        (0.99999, 3.5, 0.4, True),  # its outputs run from the queue together, the probe tells
        (0.99999, 3.5, 0.6, False),
        (0.999, 3.2, 0.4, False),  # as alike as an untrained encoder's
        (0.65, 4.286, 0.4, False),  # learns nothing, yet tells images apart
        (0.99999, None, 0.4, True),  # an audit knows no loss
        (0.99999, None, None, False),
        (1 - 1e-12, None, None, True),  # one output for all images needs no other sign
        (1 - 1e-9, None, None, False),
    ],
)
def test_health_row__two_signs_of_three(
    cosine: float, loss: float | None, linear: float | None, collapsed: bool
) -> None:
    row = health_row(Health(cosine, loss, CHANCE), utility(linear, 0.5))
    assert row is not None and row["collapsed"] is collapsed and row["cosine"] == cosine
    assert health_row(None, utility(0.4, 0.5)) is None


def collapsed(run: RunScores) -> RunScores:
    probes = {"knn": Probe(0.5, 300), "linear": Probe(0.41, 300)}
    return replace(run, health=Health(0.99998, 4.286, CHANCE), utility=probes)


def test_verdict__a_collapsed_encoder_is_no_quiet_one(
    run: RunScores, scored: Callable[..., ScoredAttack]
) -> None:
    quiet = replace(run, attacks=[scored("similarity", 0.5, 112, 500, 1)], controls={}, pairs=[])
    assert build_report(quiet)["verdict_code"] == "not-established"
    report = build_report(collapsed(quiet))
    assert report["verdict_code"] == "collapsed" and report["health"]["collapsed"]
    assert report["verdict"].startswith(
        "The encoder has collapsed, so the result says nothing about its training: outputs for "
        "different images have mean cosine 1.0000, training loss 4.29 where 4.29 is chance, kNN "
        "0.50 under the untrained encoder's 0.62, linear probe 0.41 under the untrained encoder's "
        "0.70; no leakage established: similarity has AUC"
    )
    assert "Collapsed: outputs for different images" in page(report, {})


def test_verdict__a_collapsed_encoder_that_leaks_leaks(run: RunScores) -> None:
    report = build_report(collapsed(run))
    assert report["verdict_code"] == "leaks"
    assert "; the encoder has collapsed: outputs for different images" in report["verdict"]
    assert "collapsed" not in build_report(run)["verdict"]
