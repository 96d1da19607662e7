"""Attacks that learn from known images: their limits are said to be of one fit."""

from __future__ import annotations

from fedmia.records import Evaluation
from fedmia.report.build import build_report
from fedmia.report.words.attacks import fits_sentence
from tests.report.conftest import alone, scored, shown


def test_limits__of_attacks_that_learn_are_said_to_be_of_one_fit(run: Evaluation) -> None:
    sizes = {"norm": 40, "layers": 40, "cosine": 0, "crops": 1200}
    attacks = [
        scored(name, 0.6, 112, 500, at, fitted_on=n) for at, (name, n) in enumerate(sizes.items())
    ]
    report = build_report(alone(run, *attacks))
    assert {row.name: row.fitted_on or 0 for row in report.attacks} == sizes
    sentence = fits_sentence(report.attacks)
    assert sentence is not None and "norm, layers on 40; crops on 1,200." in sentence
    assert "cosine" not in sentence
    assert all(sentence in text for text in shown(report))


def test_limits__of_attacks_that_learn_nothing_are_left_at_that(run: Evaluation) -> None:
    report = build_report(alone(run, scored("cosine", 0.6, 112, 500, 1)))
    assert fits_sentence(report.attacks) is None
    assert report.attacks[0].fitted_on is None
