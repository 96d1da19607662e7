"""report.json: strict, complete, the same twice, and no broken attack in silence."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmia.records import DatasetInferenceResults, Evaluation, Pair, Probe
from fedmia.records.rows import Report, RoundRow
from fedmia.report.build import build_report
from fedmia.report.publish import json_text
from fedmia.statistics.auc import auc_estimate, auc_interval
from fedmia.statistics.intervals import wilson
from tests.report.conftest import (
    alone,
    claim,
    compared,
    defence,
    make_run,
    opened,
    placed,
    scored,
    shown,
)


def test_build_report__strict_json_twice_the_same(report: Report) -> None:
    text = json_text(report)
    assert text == json_text(build_report(make_run()))
    assert list(json.loads(text, parse_constant=pytest.fail))[-1] == "timing"


def families(report: Report) -> tuple[int, int]:
    return report.family.intervals, report.family.intervals_controls


def test_family__counts_attacks_controls_pairs_and_pixels(run: Evaluation, report: Report) -> None:
    assert families(report) == (4, 4 + 4 + 1 + 1 + 1)
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


def test_build_report__one_sided_control_is_null_and_noted(run: Evaluation) -> None:
    half = replace(run.controls["placebo"][0], scores_members=np.zeros(0))
    report = build_report(replace(run, controls={"placebo": [half]}))
    row = report.controls["placebo"][0]
    assert row.auc is None and row.accuracy is None and row.oracle_accuracy is None
    assert any(n.startswith("ascent (placebo control): no scores") for n in report.notes)
    assert report.verdict_code == "leaks-uncontrolled"  # half a control is none


def test_family__counts_what_has_both_sides(run: Evaluation) -> None:
    half = replace(run.attacks[0], scores_members=np.zeros(0))
    bare = alone(run, run.attacks[0], pixels=None, clients=[], rounds=(), leakage={}, layers={})
    asked = DatasetInferenceResults("a", "", [compared(0, 0.5, 5, 7)], [])
    unasked = replace(asked, clients=[compared(0, None, 0, 0)])
    for more, counts in (
        ({"controls": {"placebo": [half]}}, (1, 1)), ({"attacks": []}, (1, 1)),
        ({"pixels": run.pixels, "pairs": run.pairs}, (1, 3)),
        ({"inferences": [asked, unasked, asked]}, (3, 1)),
    ):  # fmt: skip
        assert families(build_report(replace(bare, **more))) == counts


@pytest.mark.parametrize(("others", "images"), [(0, 612), (20, 592)])
def test_build_report__constant_scores_are_no_answer(
    run: Evaluation, others: int, images: int
) -> None:
    """In row, JSON, notes and the table with its legend, that page and terminal draw."""
    scores = np.r_[np.linspace(2, 3, others), np.ones(500 - others)]
    flat = replace(run.attacks[0], scores_members=np.ones(112), scores_nonmembers=scores)
    report = build_report(replace(run, attacks=[flat, *run.attacks[1:]]))
    assert [row.one_score for row in report.attacks] == [images] + [None] * (len(run.attacks) - 1)
    rows = json.loads(json_text(report))["attacks"]
    assert rows[0]["one_score"] == images and not any("one_score" in row for row in rows[1:])
    which = "every image" if not others else "592 of 612 images"
    assert any(n.startswith(f"{flat.name} gave {which} the same score") for n in report.notes)
    for one, marked in ((report, True), (build_report(run), False)):
        for text in shown(one):
            assert bool(re.search("similarity [!* ]*=", text)) == marked
            assert ("=: gave every image, or nearly every one" in text) == marked


def test_build_report__not_finite_loss_and_missing_probe_are_null(run: Evaluation) -> None:
    rounds = [RoundRow(round=0, under_attack=False, loss=float("nan"))]
    report = build_report(replace(run, rounds=rounds, utility={"knn": Probe(None, 0)}))
    assert report.rounds[0].loss is None
    assert report.utility.knn is None and report.utility.linear_ci is None


def test_build_report__what_was_asked_for_is_not_rounded(run: Evaluation) -> None:
    client = replace(run.clients[0], defence=defence(epsilon=claim(8.0, delta=1e-7)))
    attack = replace(run.attacks[0], choices={"lr": 1.23e-8})
    config = {"defense": {"delta": 1e-7, "range": [1 / 3, 2e-9]}}
    report = build_report(replace(run, attacks=[attack], clients=[client], config=config))
    assert report.config == config
    assert report.attacks[0].choices == {"lr": 1.23e-8}
    own: Any = report.clients[0].defence
    assert own.epsilon.delta == 1e-7


def test_scores_csv__one_line_an_image(run: Evaluation, report: Report, tmp_path: Path) -> None:
    opened(tmp_path, report, run)
    file = tmp_path / "scores.csv"
    lines = file.read_bytes().decode().split("\n")  # of no other ends of lines
    assert lines[0] == "image,truth,client,label,similarity,combined,internal,ascent"
    assert len(lines) == 1 + 112 + 500 + 1 and lines[-1] == ""
    first, last = lines[1].split(","), lines[-2].split(",")
    assert first[:4] == ["0", "1", "0", str(run.member_labels[0])]
    assert last[:4] == ["611", "0", "", str(run.nonmember_labels[-1])]
    assert float(first[4]) == pytest.approx(run.attacks[0].scores_members[0], rel=1e-8)
    assert float(last[-1]) == pytest.approx(run.attacks[3].scores_nonmembers[-1], rel=1e-8)


def test_utility__intervals_are_of_the_images_tested(run: Evaluation) -> None:
    bare = alone(run, pixels=None, clients=[], rounds=(), leakage={}, layers={}, round=4)
    probes = {"knn": Probe(0.64, 50), "linear": Probe(0.7, 60)}
    row = build_report(replace(bare, utility=probes)).utility
    assert (row.round, row.knn, row.linear, row.n) == (4, 0.64, 0.7, 60)
    for ci, want in ((row.knn_ci, wilson(32, 50)), (row.linear_ci, wilson(42, 60))):
        assert ci == pytest.approx(want, abs=1e-6)
    none = build_report(replace(bare, utility={"linear": Probe(None, 0)})).utility
    assert (none.knn, none.knn_ci, none.linear_ci, none.n) == (None, None, None, 0)


def test_limits__of_attacks_that_learn_are_said_to_be_of_one_fit(run: Evaluation) -> None:
    sizes = {"norm": 40, "layers": 40, "cosine": 0, "crops": 1200}
    attacks = [
        scored(name, 0.6, 112, 500, at, fitted_on=n) for at, (name, n) in enumerate(sizes.items())
    ]
    report = build_report(alone(run, *attacks))
    assert {row.name: row.fitted_on or 0 for row in report.attacks} == sizes
    assert all("norm, layers on 40; crops on 1,200." in text for text in shown(report))
    assert all(" on 40" not in text for text in shown(build_report(alone(run, placed("a", 0.6)))))
