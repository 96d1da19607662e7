"""Dataset inference in the report: Holm by hand, and a control that voids it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from fedmia.records import ClientInference, DatasetInferenceResults, RunScores, ScoredAttack
from fedmia.report.build import build_report
from fedmia.report.datasets import inference_row
from fedmia.report.tables import datasets as table

EVEN = [ClientInference(None, float(p), 0.0, 8, 50) for p in np.linspace(0.01, 1, 100)]


def told(*p: float | None) -> list[ClientInference]:
    return [ClientInference(3 + k, value, 0.1, 12, 400) for k, value in enumerate(p)]


def test_inference_row__whose_data_set_is_found() -> None:
    row = inference_row(
        DatasetInferenceResults("a", "p", told(0.004, 0.02, None, 0.3), EVEN, told(0.4, 0.5)), 4
    )
    assert [c["client"] for c in row["clients"]] == [3, 4, 5, 6]
    assert [c["p_value_holm"] for c in row["clients"]] == pytest.approx([0.012, 0.04, None, 0.3])
    assert [c["p_value_untrained"] for c in row["clients"]] == [0.4, 0.5, None, None]
    assert row["p_value"] == pytest.approx(4 * 0.012)
    assert row["posers"]["alarms"] == {"0.01": 1, "0.05": 5} and not row["void"]
    assert (
        "2 of 3 clients are detected" in row["statement"]
        and ": 3, 4; the least p, " in row["statement"]
    )


@pytest.mark.parametrize("where", ["posers", "untrained"])
def test_inference_row__alarms_where_nothing_leaks_void_it(where: str) -> None:
    many = [replace(p, client=i, p_value=0.01) for i, p in enumerate(EVEN[:20])]
    good = DatasetInferenceResults("a", "p", told(0.0005), EVEN)
    assert not inference_row(good, 1)["void"]
    bad = replace(good, **{where: many})
    row = inference_row(bad, 1)
    assert row["void"] and row["statement"].startswith("Control failed")
    assert not any(r.css for r in table(row).rows) and table(inference_row(good, 1)).rows[0].css


def test_inference_row__a_set_that_the_untrained_encoder_tells_too_is_not_detected() -> None:
    same = DatasetInferenceResults("a", "p", told(0.0005, 0.3), EVEN, told(0.05, 0.6))
    row = inference_row(same, 1)
    assert row["p_value"] == 0.3 and "of 0 of 2 clients" in row["statement"]
    alone = replace(same, clients=told(0.0005), untrained=told(0.01))
    row = inference_row(alone, 1)
    assert row["p_value"] is None and row["statement"].startswith("No evidence of training on")
    assert "but on the untrained encoder 0.0100" in row["statement"]


@pytest.mark.parametrize(
    ("p", "null", "code"),
    [
        (0.0005, 0.4, "leaks"),
        (0.0005, None, "leaks-uncontrolled"),
        (0.0005, 0.04, "not-established"),
        (0.02, 0.4, "not-established"),  # one of four tests: 0.08
    ],
)
def test_report__its_verdict_and_its_statement_agree(
    run: RunScores, scored: Callable[..., ScoredAttack], p: float, null: float | None, code: str
) -> None:
    held = told(p)
    one = DatasetInferenceResults("dataset-inference", "p", held, EVEN, told(null) if null else ())
    attacks = [scored(f"{i}", 0.5, 112, 500, i) for i in range(3)]
    bare = replace(run, controls={}, pairs=[], attacks=attacks, inferences=[one])
    report = build_report(bare)
    (row,) = report["dataset_inference"]
    assert report["verdict_code"] == code
    assert ("was trained on the set" in row["statement"]) == (code != "not-established")
    assert ("by dataset-inference, the encoder was" in report["verdict"]) == (code[0] == "l")
    assert bool(table(row).rows[0].css) == (code[0] == "l")
    assert ("whole set of images" in report["means"]) == (code == "leaks")
    none = build_report(replace(bare, attacks=[]))
    assert none["verdict_code"] == ("leaks" if p == 0.02 else code)
