"""Dataset inference in the report: Holm by hand, and a control that voids it."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from html import unescape
from typing import Any

import numpy as np
import pytest

from fedmia.records import DatasetInferenceResults, Evaluation
from fedmia.records.rows import Report
from fedmia.report.build import build_report
from fedmia.report.page import page
from tests.report.conftest import alone, compared, make_run, placed, said, scored, section
from tests.snapshots import Snapshot

EVEN = np.linspace(0.01, 1, 100).tolist()


def results(*p: float | None, untrained: tuple[float, ...] = ()) -> DatasetInferenceResults:
    rows = [
        compared(3 + k, value, untrained=null)
        for k, (value, null) in enumerate(itertools.zip_longest(p, untrained))
    ]
    return DatasetInferenceResults("dataset-inference", "p", rows, EVEN)


def report_of(one: DatasetInferenceResults, tests: int = 1) -> Report:
    """A report of so many tests for a leak in all, of attacks of which no one finds any."""
    attacks = [placed(f"{i}", 0.5) for i in range(tests - 1)]
    bare: dict[str, Any] = {"pixels": None, "clients": [], "rounds": (), "curves": None}
    return build_report(alone(make_run(), *attacks, inferences=[one], **bare))


def statement(one: DatasetInferenceResults, tests: int = 1) -> str:
    """What is said of it, beside its table and, of what the verdict does not say, on the screen."""
    report = report_of(one, tests)
    text = section(page(report, {}), "data-sets-was-the-encoder-trained-on-them")
    sentence = text.partition("<summary>The result in words")[2].partition("<p>")[2]
    plain = unescape(re.sub("<[^>]*>", "", sentence.partition("</p>")[0])).removesuffix(".")
    boxes = " ".join((report.verdict, report.sure))
    assert plain in said(report) or plain.partition("; ")[0] in boxes
    return plain


def marked(report: Report) -> bool:
    """Whether a row of its table is marked."""
    text = section(page(report, {}), "data-sets-was-the-encoder-trained-on-them")
    return '<tr class="leaks">' in text


def test_inference_row__whose_data_set_is_found() -> None:
    (row,) = report_of(results(0.004, 0.02, None, 0.3, untrained=(0.4, 0.5)), 4).dataset_inference
    assert [c.client for c in row.clients] == [3, 4, 5, 6]
    assert [c.p_value_holm for c in row.clients] == [0.012, 0.04, None, 0.3]
    assert [c.p_value_untrained for c in row.clients] == [0.4, 0.5, None, None]
    assert (row.clients[0].n, row.clients[0].n_nonmembers) == (12, 400)
    assert row.p_value == pytest.approx(4 * 0.012)
    assert row.posers.alarms == {"0.01": 1, "0.05": 5} and not row.void
    assert row.posers.n == 100 and row.posers.p_values == pytest.approx(EVEN, abs=1e-6)


def test_statement__of_one_set_and_of_clients(snapshot: Snapshot) -> None:
    for one in (
        results(0.05), results(0.051), results(0.025, 0.05, None), results(0.026, 0.06),
        results(0.0005, 0.3, untrained=(0.05, 0.6)), results(0.0005, untrained=(0.01,)),
    ):  # fmt: skip
        snapshot(statement(one))


def test_statement__names_the_control_that_there_is() -> None:
    nobody = replace(results(0.004, untrained=(0.4,)), posers=[])
    assert statement(nobody).endswith("; on the untrained encoder p = 0.4000")
    assert statement(replace(results(0.004), posers=[])).endswith("no control")
    both = replace(results(0.0101, untrained=(0.0101,)), posers=[])
    text = statement(both)  # the control is said once
    assert text.count("0.0101") == 1 and text.endswith("on the untrained encoder as well")
    other = statement(replace(results(0.0345, untrained=(0.76,)), posers=[]))
    assert other.count("0.0345") == 1 and "0.7600" in other


MANY = (0.01,) * 20


def test_inference_row__sets_that_share_their_others_void_nothing_one_by_one() -> None:
    one = replace(results(*MANY, untrained=MANY), untrained_together=0.002)
    (row,) = report_of(one).dataset_inference
    assert not row.void and row.p_value_untrained == 0.002


@pytest.mark.parametrize("control", [{"posers": MANY}, {"untrained_together": 0.001}])
def test_inference_row__alarms_where_nothing_leaks_void_it(control: dict[str, Any]) -> None:
    good, bad = results(0.0005), replace(results(0.0005), **control)
    reports = report_of(good), report_of(bad)
    assert [one.dataset_inference[0].void for one in reports] == [False, True]
    assert [marked(one) for one in reports] == [True, False]
    assert statement(bad).startswith("Control failed")


def test_inference_row__a_set_that_the_untrained_encoder_tells_too_is_not_detected() -> None:
    for untrained, p in (((0.05, 0.6), 0.3), ((0.01,), None)):
        one = results(*(0.0005, 0.3)[: len(untrained)], untrained=untrained)
        assert report_of(one).dataset_inference[0].p_value == p


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
        text = section(page(report, {}), "data-sets-was-the-encoder-trained-on-them")
        assert ("no control tells training from a shift" in text) is lacking
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
    assert report.verdict_code == code
    assert ("By dataset-inference: The encoder was" in report.verdict) == (code[0] == "l")
    assert marked(report) == (code[0] == "l")
    none = build_report(alone(run, inferences=[one]))
    assert none.verdict_code == ("leaks" if p == 0.02 else code)
