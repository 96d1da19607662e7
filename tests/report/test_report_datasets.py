"""Dataset inference in the report: Holm by hand, and a control that voids it."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedmia.records import DatasetInferenceResults, Evaluation
from fedmia.report.build import build_report
from fedmia.report.datasets import inference_row
from fedmia.report.report_tables import datasets as table
from fedmia.report.words.sets import statement
from tests.report.conftest import alone, compared, scored
from tests.snapshots import Snapshot

EVEN = np.linspace(0.01, 1, 100).tolist()


def results(*p: float | None, untrained: tuple[float, ...] = ()) -> DatasetInferenceResults:
    rows = [
        compared(3 + k, value, untrained=null)
        for k, (value, null) in enumerate(itertools.zip_longest(p, untrained))
    ]
    return DatasetInferenceResults("dataset-inference", "p", rows, EVEN)


def test_inference_row__whose_data_set_is_found() -> None:
    row = inference_row(results(0.004, 0.02, None, 0.3, untrained=(0.4, 0.5)), 4)
    assert [c.client for c in row.clients] == [3, 4, 5, 6]
    assert [c.p_value_holm for c in row.clients] == pytest.approx([0.012, 0.04, None, 0.3])
    assert [c.p_value_untrained for c in row.clients] == [0.4, 0.5, None, None]
    assert (row.clients[0].n, row.clients[0].n_nonmembers) == (12, 400)
    assert row.p_value == pytest.approx(4 * 0.012)
    assert row.posers.alarms == {"0.01": 1, "0.05": 5} and not row.void
    assert (row.posers.n, row.posers.p_values) == (100, EVEN)


def test_statement__of_one_set_and_of_clients(snapshot: Snapshot) -> None:
    for one in (
        results(0.05), results(0.051), results(0.025, 0.05, None), results(0.026, 0.06),
        results(0.0005, 0.3, untrained=(0.05, 0.6)), results(0.0005, untrained=(0.01,)),
    ):  # fmt: skip
        snapshot(statement(inference_row(one, 1)))


def test_statement__names_the_control_that_there_is() -> None:
    nobody = replace(results(0.004, untrained=(0.4,)), posers=[])
    said = statement(inference_row(nobody, 1))
    assert said.endswith("; on the untrained encoder p = 0.4000")
    alone = replace(results(0.004), posers=[])
    assert statement(inference_row(alone, 1)).endswith("no control")
    both = replace(results(0.0101, untrained=(0.0101,)), posers=[])
    said = statement(inference_row(both, 1))  # the control is said once
    assert said.count("0.0101") == 1 and said.endswith("on the untrained encoder as well")
    alone = statement(inference_row(replace(results(0.0345, untrained=(0.76,)), posers=[]), 1))
    assert alone.count("0.0345") == 1 and "0.7600" in alone


MANY = (0.01,) * 20


def test_inference_row__sets_that_share_their_others_void_nothing_one_by_one() -> None:
    row = inference_row(replace(results(*MANY, untrained=MANY), untrained_together=0.002), 1)
    assert not row.void and row.p_value_untrained == 0.002


@pytest.mark.parametrize("control", [{"posers": MANY}, {"untrained_together": 0.001}])
def test_inference_row__alarms_where_nothing_leaks_void_it(control: dict[str, Any]) -> None:
    good = results(0.0005)
    assert not inference_row(good, 1).void
    row = inference_row(replace(good, **control), 1)
    assert row.void and statement(row).startswith("Control failed")
    assert not table(row).marked and 0 in table(inference_row(good, 1)).marked


def test_inference_row__a_set_that_the_untrained_encoder_tells_too_is_not_detected() -> None:
    assert inference_row(results(0.0005, 0.3, untrained=(0.05, 0.6)), 1).p_value == 0.3
    assert inference_row(results(0.0005, untrained=(0.01,)), 1).p_value is None


@pytest.mark.parametrize("placebo", [True, False])
@pytest.mark.parametrize("drawn", [True, False])
def test_report__a_set_of_sides_that_may_differ_is_uncontrolled_beside_a_placebo(
    run: Evaluation, drawn: bool, placebo: bool
) -> None:
    """What a trained encoder sees in the sides, the untrained one need not: attacks on images must
    lie over the placebo in both directions."""
    own = scored("a", 0.5, 112, 500, 7)
    controls = {"untrained": [own]} | ({"placebo": [own]} if placebo else {})
    one = results(0.0005, untrained=(0.4,))
    attacks, bare = (scored("a", auc, 112, 500, 3) for auc in (0.5, 0.7)), alone(run, pixels=None)
    for attack, code in zip(attacks, ("leaks-uncontrolled", "leaks"), strict=True):
        more = {"attacks": [attack], "inferences": [one], "controls": controls, "drawn": drawn}
        report = build_report(replace(bare, **more))
        (row,) = report.dataset_inference
        lacking = placebo and not drawn
        assert report.verdict_code == (code if lacking else "leaks")
        assert row.may_differ is lacking
        assert (" shift " in statement(row)) is lacking
        if code != "leaks":
            assert ("partition.whole" in report.todo) is lacking


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
    run: Evaluation, p: float, null: float | None, code: str
) -> None:
    one = results(p, untrained=(null,) if null else ())
    attacks = [scored(f"{i}", 0.5, 112, 500, i) for i in range(3)]
    report = build_report(alone(run, *attacks, inferences=[one]))
    (row,) = report.dataset_inference
    assert report.verdict_code == code
    assert ("was trained on the set" in statement(row)) == (code != "not-established")
    assert ("By dataset-inference: The encoder was" in report.verdict) == (code[0] == "l")
    assert (0 in table(row).marked) == (code[0] == "l")
    none = build_report(alone(run, inferences=[one]))
    assert none.verdict_code == ("leaks" if p == 0.02 else code)
