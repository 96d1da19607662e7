"""Dataset inference in the report: Holm by hand, and a control that voids it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedmia.records import ClientInference, DatasetInferenceResults, RunScores
from fedmia.report.build import build_report
from fedmia.report.datasets import inference_row
from fedmia.report.tables import datasets as table

EVEN = [ClientInference(None, float(p), 0.0, 8, 50) for p in np.linspace(0.01, 1, 100)]


def told(*p: float | None) -> list[ClientInference]:
    return [ClientInference(3 + k, value, 0.1, 12, 400) for k, value in enumerate(p)]


def test_inference_row__whose_data_set_is_found() -> None:
    row = inference_row(
        DatasetInferenceResults("a", "p", told(0.004, 0.02, None, 0.3), EVEN, told(0.4, 0.5))
    )
    assert [c["client"] for c in row["clients"]] == [3, 4, 5, 6]
    assert [c["p_value_holm"] for c in row["clients"]] == pytest.approx([0.012, 0.04, None, 0.3])
    assert [c["p_value_untrained"] for c in row["clients"]] == [0.4, 0.5, None, None]
    assert row["posers"]["alarms"] == {"0.01": 1, "0.05": 5} and not row["void"]
    assert (
        "2 of 3 clients are detected" in row["statement"] and ": 3, 4; 5 of 100" in row["statement"]
    )


@pytest.mark.parametrize("where", ["posers", "untrained"])
def test_inference_row__alarms_where_nothing_leaks_void_it(where: str) -> None:
    many = [replace(p, client=i, p_value=0.01) for i, p in enumerate(EVEN[:20])]
    good = DatasetInferenceResults("a", "p", told(0.0005), EVEN)
    assert not inference_row(good)["void"]
    bad = replace(good, **{where: many})
    row = inference_row(bad)
    assert row["void"] and row["statement"].startswith("Control failed")
    assert not any(r.css for r in table(row).rows) and table(inference_row(good)).rows[0].css


def test_report__holds_it_and_no_verdict_rests_on_it(run: RunScores) -> None:
    one = DatasetInferenceResults("dataset-inference", "p", told(0.0005, 0.5), EVEN)
    plain, more = build_report(run), build_report(replace(run, inferences=[one]))
    assert plain["verdict"] == more["verdict"] and plain["dataset_inference"] == []
    assert more["dataset_inference"][0]["clients"][0]["p_value"] == 0.0005
