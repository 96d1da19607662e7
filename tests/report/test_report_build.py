"""report.json: strict, complete, the same twice, and no broken attack in silence."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedmia.records import Evaluation, Pair, Probe
from fedmia.records.defence_rows import DefenceRow
from fedmia.records.privacy import Epsilon
from fedmia.records.rows import Report, RoundRow
from fedmia.report import report_tables
from fedmia.report.build import build_report, family_sizes
from fedmia.report.csvs import scores_csv
from fedmia.report.words.attacks import ONE_SCORE, legend
from fedmia.statistics.auc import auc_estimate, auc_interval
from fedmia.storage.json_rows import to_json
from tests.report.conftest import alone, make_run


def test_build_report__strict_json_twice_the_same(report: Report) -> None:
    content = to_json(report)
    text = json.dumps(content, allow_nan=False)
    assert text == json.dumps(to_json(build_report(make_run())), allow_nan=False)
    assert json.loads(text) == content and list(content)[-1] == "timing"


def test_family__counts_attacks_controls_pairs_and_pixels(run: Evaluation, report: Report) -> None:
    assert family_sizes(run) == (4, 4 + 4 + 1 + 1 + 1)
    assert (report.family.intervals, report.family.intervals_controls) == (4, 11)
    sides = run.attacks[0].sides, run.controls["untrained"][0].sides
    estimates = [auc_estimate(*one) for one in sides]
    rows = report.attacks[0], report.controls["untrained"][0]
    want = auc_interval(estimates[0], 0.95, 4), auc_interval(estimates[1], 0.95, 11)
    assert rows[0].lower_limit == pytest.approx(auc_interval(estimates[0], 0.9, 4)[0], abs=2e-6)
    assert rows[1].lower_limit is None
    for row, ends in zip(rows, want, strict=True):
        assert (row.low, row.high) == pytest.approx(ends, abs=2e-6)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_build_report__a_broken_attack_or_control_is_named(run: Evaluation, bad: float) -> None:
    scores = run.attacks[2].scores_members.copy()
    scores[4] = bad
    attacks = [*run.attacks[:2], replace(run.attacks[2], scores_members=scores)]
    with pytest.raises(ValueError, match="attack 'internal': .* 1 of 112"):
        build_report(replace(run, attacks=attacks))
    control = replace(run.controls["placebo"][0], scores_nonmembers=np.full(500, bad))
    with pytest.raises(ValueError, match="placebo control of attack 'ascent'"):
        build_report(replace(run, controls={"placebo": [control]}))


def test_build_report__misaligned_scores_and_twins_are_refused(run: Evaluation) -> None:
    short = replace(run.attacks[0], scores_members=np.zeros(7))
    with pytest.raises(ValueError, match=r"'similarity'.*\(112,\)"):
        build_report(replace(run, attacks=[short]))
    with pytest.raises(ValueError, match=r"control 'similarity' of attack 'similarity'.*\(112,\)"):
        build_report(replace(run, pairs=[Pair(run.attacks[0], short, "")]))
    with pytest.raises(ValueError, match="2 times"):
        build_report(replace(run, attacks=[run.attacks[0]] * 2))
    with pytest.raises(ValueError, match=r"member_labels: shape \(7,\)"):
        build_report(replace(run, member_labels=np.zeros(7)))


def test_build_report__empty_run(run: Evaluation) -> None:
    report = build_report(alone(run, pixels=None, curves=None, clients=[]))
    assert report.attacks == [] and report.verdict_code == "untested"
    assert report.controls == {"untrained": []} and report.pixels is None


def test_build_report__one_sided_control_is_null_and_noted(run: Evaluation) -> None:
    half = replace(run.controls["placebo"][0], scores_members=np.zeros(0))
    report = build_report(replace(run, controls={"placebo": [half]}))
    row = report.controls["placebo"][0]
    assert row.auc is None and row.accuracy is None and row.oracle_accuracy is None
    assert any(n.startswith("ascent (placebo control): no scores") for n in report.notes)
    assert report.verdict_code == "leaks-uncontrolled"  # half a control is none


@pytest.mark.parametrize(("others", "images"), [(0, 612), (20, 592)])
def test_build_report__constant_scores_are_no_answer(
    run: Evaluation, others: int, images: int
) -> None:
    """In row, JSON, notes and the table with its legend, that page and terminal draw."""
    scores = np.r_[np.linspace(2, 3, others), np.ones(500 - others)]
    flat = replace(run.attacks[0], scores_members=np.ones(112), scores_nonmembers=scores)
    report = build_report(replace(run, attacks=[flat, *run.attacks[1:]]))
    assert [row.one_score for row in report.attacks] == [images] + [None] * (len(run.attacks) - 1)
    rows = [to_json(row) for row in report.attacks]
    assert rows[0]["one_score"] == images and not any("one_score" in row for row in rows[1:])
    which = "every image" if not others else "592 of 612 images"
    assert any(n.startswith(f"{flat.name} gave {which} the same score") for n in report.notes)
    names = {str(row[0]) for row in report_tables.attacks(report).rows}
    assert [name.split()[0] for name in names if name.endswith(" =")] == [flat.name]
    assert ONE_SCORE in legend(report) and ONE_SCORE not in legend(build_report(run))


def test_build_report__not_finite_loss_and_missing_probe_are_null(run: Evaluation) -> None:
    rounds = [RoundRow(round=0, under_attack=False, loss=float("nan"))]
    report = build_report(replace(run, rounds=rounds, utility={"knn": Probe(None, 0)}))
    assert report.rounds[0].loss is None
    assert report.utility.knn is None and report.utility.linear_ci is None


def test_build_report__tiny_threshold_survives_rounding(run: Evaluation) -> None:
    first = run.attacks[0]
    known = {f"known_{side}": getattr(first, f"known_{side}") * 1e-9
             for side in ("members", "nonmembers")}  # fmt: skip
    small = replace(first, **known)
    threshold = build_report(replace(run, attacks=[small])).attacks[0].threshold
    assert threshold != 0 and abs(threshold) < 1e-8


def test_build_report__what_was_asked_for_is_not_rounded(run: Evaluation) -> None:
    spent = Epsilon(
        value=8.0, delta=1e-7, rounds=20, standing="heuristic", assumptions="Per image."
    )
    client = replace(run.clients[0], defence=DefenceRow(name="dpsgd", epsilon=spent))
    attack = replace(run.attacks[0], choices={"lr": 1.23e-8})
    config = {"defense": {"delta": 1e-7, "range": [1 / 3, 2e-9]}}
    report = build_report(replace(run, attacks=[attack], clients=[client], config=config))
    assert report.config == config
    assert report.attacks[0].choices == {"lr": 1.23e-8}
    defence: Any = report.clients[0].defence
    assert defence.epsilon.delta == 1e-7


def test_scores_csv__one_line_an_image(run: Evaluation) -> None:
    lines = scores_csv(run).splitlines()
    assert lines[0] == "image,truth,client,label,similarity,combined,internal,ascent"
    assert len(lines) == 1 + 112 + 500
    first, last = lines[1].split(","), lines[-1].split(",")
    assert first[:3] == ["0", "1", "0"] and last[:3] == ["611", "0", ""]
    assert float(first[4]) == pytest.approx(run.attacks[0].scores_members[0], rel=1e-8)
    assert scores_csv(replace(run, attacks=[])).splitlines()[0] == "image,truth,client,label"
