"""What is known of an encoder itself: whether it has collapsed, and which regime it is of."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedmia.records import Evaluation, Probe, ScoredAttack
from fedmia.records.note import Note
from fedmia.records.rows import HealthRow, RegimeRow
from fedmia.report.build import build_report
from fedmia.report.words.notes import in_words
from tests.report.conftest import alone, said

CHANCE = 4.29  # ln 73
ALIKE, ALIKE_ALONE, AT_CHANCE = 0.999, 0.9999, 0.97


@pytest.mark.parametrize(
    ("cosine", "loss", "linear", "collapsed"),
    [
        (0.9998, 4.286, 0.6, True),  # at chance
        (0.99999, 3.5, 0.4, True),  # its outputs run from the queue together, the probe tells
        (0.99999, 3.5, 0.6, False),
        (0.65, 4.286, 0.4, False),  # learns nothing, yet tells images apart
        (0.99999, None, 0.4, True),  # an audit knows no loss
        (0.99999, None, None, False),
        (1 - 1e-12, None, None, True),  # one output for all images needs no other sign
        (1 - 1e-9, None, None, False),
        (ALIKE, AT_CHANCE * CHANCE, 0.6, True),
        (ALIKE, AT_CHANCE * CHANCE - 1e-6, 0.6, False),
        (ALIKE - 1e-6, CHANCE, 0.6, False),
        (ALIKE_ALONE, 1.0, 0.4, True),
        (ALIKE_ALONE - 1e-6, 1.0, 0.4, False),  # as alike as an untrained encoder's
    ],
)
def test_health_row__two_signs_of_three(
    run: Evaluation, cosine: float, loss: float | None, linear: float | None, collapsed: bool
) -> None:
    """The probe of the untrained encoder is right half of the time."""
    measured = HealthRow(cosine=cosine, loss=loss, chance=CHANCE, collapsed=False)
    probes = {"linear": Probe(linear, 100)}, {"linear": Probe(0.5, 100)}
    one = of(run, exact(0.5), health=measured, utility=probes[0], utility_untrained=probes[1])
    report = build_report(one)
    assert report.health is not None and report.health.collapsed is collapsed
    assert (report.verdict_code == "collapsed") is collapsed


def exact(auc: float, name: str = "similarity", **more: str) -> ScoredAttack:
    """Scores whose AUC is `auc`, a whole hundredth: two equal members among hundred others."""
    others = np.arange(100) + 0.5
    made = ScoredAttack(name, "a paper", "black-box", "client", np.full(2, 100 * auc), others)
    return replace(made, **more)  # type: ignore[arg-type]


def of(run: Evaluation, *attacks: ScoredAttack, members: int = 2, **more: Any) -> Evaluation:
    """The run with 100 non-members and these attacks alone."""
    more |= {"pixels": None, "clients": [], "rounds": (), "curves": None, "leakage": {}}
    cut = {n: getattr(run, n)[:members] for n in ("member_ids", "member_client", "member_labels")}
    cut |= {n: getattr(run, n)[:100] for n in ("nonmember_ids", "nonmember_labels")}
    return alone(run, *attacks, layers={}, **cut, **more)


@pytest.mark.parametrize(
    ("auc", "name"), [(0.97, "overfit"), (0.86, "overfit"), (0.85, "weak"), (0.55, "weak")]
)
def test_regime__similarity_over_the_bound(run: Evaluation, auc: float, name: str) -> None:
    """At the bound it is weak; what other attacks reach does not matter."""
    other = exact(1.0 if name == "weak" else 0.3, "combined")
    report = build_report(of(run, other, exact(auc)))
    assert report.regime == RegimeRow(name=name, auc=auc, bound=0.85)
    assert f"{name} (similarity has AUC {auc:.3f}" in said(report)


def test_regime__null_without_an_auc_of_similarity(run: Evaluation) -> None:
    nobody = of(run, replace(exact(0.9), scores_members=np.zeros(0)), members=0)
    for one in (of(run), of(run, exact(0.97, "combined")), nobody):
        report = build_report(one)
        assert report.regime is None and "similarity has AUC" not in said(report)


def test_note__tells_what_ascent_added_elsewhere_where_an_attack_climbs(run: Evaluation) -> None:
    climbing = exact(0.6, "ascent", act="ascent")
    notes = [build_report(of(run, exact(0.6), *more)).notes for more in ((), (climbing,))]
    ascent = in_words(Note("ascent-elsewhere"))
    assert [ascent in one for one in notes] == [False, True]
