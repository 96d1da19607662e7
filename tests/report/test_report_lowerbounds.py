"""Lower bounds beside each epsilon: who is compared, what corrects them, what is shouted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import beta, norm

from fedmia.lowerbounds.fdp import shared_run_bound
from fedmia.lowerbounds.gdp import epsilon_at
from fedmia.lowerbounds.onerun import one_run_bound
from fedmia.lowerbounds.rates import TRIED, rates_bound
from fedmia.records import Evaluation
from fedmia.records.rows import Report
from fedmia.report.build import build_report
from fedmia.report.codes import UNSOUND
from fedmia.report.page import page
from tests.report.conftest import (
    claim,
    defence,
    guessed,
    numbers,
    opened,
    said,
    scored,
    server,
    shown,
)
from tests.snapshots import Snapshot


def claiming(run: Evaluation, *told: Any) -> Evaluation:
    """`run`, whose first clients claim `told` and whose others claim nothing."""
    clients = [
        replace(c, defence=defence(epsilon=told[c.id]) if c.id < len(told) else None)
        for c in run.clients
    ]
    return replace(run, clients=clients, rounds=(), curves=None, leakage={}, layers={})


def audited(value: float | None, correct: tuple[int, ...]) -> Any:
    """A claim with 1,000 canaries, 700 guessed, so many of them right."""
    return claim(value, lower_bound=guessed(1000, (50, 350, 700), correct))


def canary_bounds(report: Report) -> list[Any]:
    """By canaries, of the first two clients."""
    stated = [c.defence.epsilon for c in report.clients[:2] if c.defence and c.defence.epsilon]
    return [epsilon.lower_bound for epsilon in stated if epsilon.lower_bound]


def defended_lines(report: Report) -> list[str]:
    return [line for line in said(report).splitlines() if line.startswith("Defended, ")]


BLAMED, CHANCE = (49, 315, 520), (26, 180, 355)


def test_canaries__refute_a_claim_and_are_shouted(
    run: Evaluation, snapshot: Snapshot, tmp_path: Path
) -> None:
    whole = claiming(run, audited(1.0, BLAMED), audited(1.0, CHANCE))
    report = build_report(whole)
    first, second = canary_bounds(report)
    together = one_run_bound(1000, (50, 350, 700), BLAMED, 1e-5, 0.05 / 3)
    assert first.value_simultaneous == pytest.approx(together, abs=1e-6)
    assert first.value > together > 1 and first.refuted
    assert second.value < 1 and not second.refuted
    assert report.verdict.startswith("CLAIM REFUTED: client 0 claims epsilon 1 by dpsgd")
    assert (
        f"more than {together:.3g} at delta 1e-05. The attack combined separates" in report.verdict
    )
    assert report.verdict_code == "leaks"
    (line,) = defended_lines(report)
    snapshot(line)
    low, high = second.value, first.value
    assert f"{low:.2f} to {high:.2f}" in line
    html = page(report, {})
    assert "canaries (REFUTED)" in html and '<p class="verdict leaks">CLAIM REFUTED' in html
    opened(tmp_path, report, whole)
    bounds = [row["value"] for row in numbers(tmp_path) if row["metric"] == "lower_bound"]
    assert [*map(float, bounds[:2])] == [high, low]


def test_canaries__of_the_server_are_shouted_and_share_the_error(run: Evaluation) -> None:
    """One bound more of the family; a Gaussian claim is held to the bound of its own law."""
    audit = guessed(1000, (1000,), (820,), "own-runs-gdp")
    told = claim(2.0, rounds=30, standing="guaranteed", unit="client", lower_bound=audit)
    report = build_report(replace(run, aggregation=server("dp-fedavg", epsilon=told)))
    own: Any = report.aggregation
    row, bound = own.epsilon, own.epsilon.lower_bound
    low = beta.ppf(0.05 / 2, 820, 181)  # one by the attacks, and this one
    want = epsilon_at(2 * norm.ppf(low), 1e-5)
    assert bound.value_simultaneous == pytest.approx(want, abs=1e-6) and bound.refuted
    assert bound.value > want > 2 and (row.unit, bound.audit) == ("client", audit.audit)
    assert report.verdict.startswith("CLAIM REFUTED: the server claims epsilon 2 by dp-fedavg")
    for text in shown(report):
        assert "by 1,000 canaries (REFUTED)" in text


def test_canaries__in_one_run_of_a_gaussian_show_more_than_of_any_mechanism(
    run: Evaluation,
) -> None:
    told = [
        claim(9.0, lower_bound=guessed(1000, (50, 350, 700), (40, 250, 462), by))
        for by in ("one-run", "one-run-gdp")
    ]
    any_law, gaussian = canary_bounds(build_report(claiming(run, *told)))
    mu = shared_run_bound(1000, (50, 350, 700), (40, 250, 462), 0.05)
    assert gaussian.value == pytest.approx(epsilon_at(mu, 1e-5), abs=1e-6)
    assert gaussian.value > 1.0 > any_law.value > 0


def test_stack__one_line_a_unit(run: Evaluation, tmp_path: Path) -> None:
    """Neither compared nor hidden, in terminal, page and rows."""
    image = claim(2.0, standing="guaranteed", unit="image")
    client = claim(90.0, standing="guaranteed", unit="client", delta=1e-6, assumptions="All of it.")
    both = defence("dpsgd, gaussian", image, beside=[client])
    whole = claiming(run)
    clients = [replace(c, defence=both if c.id == 0 else None) for c in run.clients]
    whole = replace(whole, clients=clients)
    report = build_report(whole)
    own: Any = report.clients[0].defence
    assert [e.unit for e in (own.epsilon, *own.beside)] == ["image", "client"]
    html = shown(report)[1]
    first, second = defended_lines(report)
    assert "epsilon 2 for one image" in first and "epsilon 90 for one client" in second
    for line in (first, second):
        who, _, what = line.removesuffix(".").partition(": ")
        assert who == "Defended, client 0" and what in html
    assert "Per image." in html and "All of it." in html
    opened(tmp_path, report, whole)
    row = next(row for row in numbers(tmp_path) if row["metric"] == "epsilon")
    assert (float(row["value"]), row["unit"]) == (2.0, "image")


def test_canaries__whose_claim_they_cannot_reach_say_so(run: Evaluation) -> None:
    report = build_report(claiming(run, audited(8.0, BLAMED), audited(None, BLAMED)))
    bounds = canary_bounds(report)
    assert not any(bound.refuted for bound in bounds)
    most = bounds[0].most
    assert 4 < most < 8
    assert f"can show at most {most:.1f}" in " ".join(defended_lines(report))
    assert "REFUTED" not in report.verdict


def test_attacks__the_largest_bound_is_corrected_for_all_that_was_tried(run: Evaluation) -> None:
    """All members' clients claim; two attacks, of which one tells everything."""
    attacks = [scored("similarity", 0.6, 112, 500, 1), scored("ascent", 0.9999, 112, 500, 2)]
    whole = claiming(replace(run, attacks=attacks), *[claim(0.5)] * 9)
    report = build_report(whole)
    bound = report.lower_bound
    scores = attacks[1].scores_members, attacks[1].scores_nonmembers
    alone, _, _ = rates_bound(*scores, 1e-5, 0.05 / 2)
    assert bound.attack == "ascent" and bound.tried == 2 * TRIED
    assert bound.value == bound.value_simultaneous == pytest.approx(alone, abs=1e-6)
    assert (bound.n_members, bound.n_nonmembers, bound.clients) == (112, 500, 9)
    assert bound.refuted and bound.claim == 0.5
    assert report.verdict.startswith("CLAIM REFUTED: clients claim epsilon 0.5 at most, yet asc")
    assert "Clients claim an epsilon of at most 0.5 (delta 1e-05)" in said(report)


def test_attacks__bound_holds_at_the_largest_delta_that_is_claimed(run: Evaluation) -> None:
    """At a smaller one it would be over what a client with a larger delta promises."""
    attack = scored("ascent", 0.9999, 112, 500, 2)
    told = [replace(claim(0.5), delta=delta) for delta in (1e-5, 0.2, *[1e-3] * 7)]
    bound = build_report(claiming(replace(run, attacks=[attack]), *told)).lower_bound
    sides = attack.scores_members, attack.scores_nonmembers
    smallest, largest = (rates_bound(*sides, delta, 0.05)[0] for delta in (1e-5, 0.2))
    assert bound.delta == 0.2 and largest < smallest - 0.1
    assert bound.value == pytest.approx(largest, abs=1e-6)


def test_attacks__are_not_believed_where_the_sets_differ(run: Evaluation) -> None:
    attack = scored("ascent", 0.9999, 112, 500, 2)
    pixels = (attack.scores_members, attack.scores_nonmembers)
    report = build_report(claiming(replace(run, attacks=[attack], pixels=pixels), claim(0.01)))
    assert report.verdict_code in UNSOUND and "REFUTED" not in report.verdict
    pooled = build_report(claiming(replace(run, attacks=[attack], pretrain="pooled"), claim(0.01)))
    assert pooled.lower_bound is None


def test_attacks__compare_the_members_who_are_promised_something(run: Evaluation) -> None:
    """Only clients 0 and 1 claim; the attack tells members of the others alone. Non-members have
    the class mix of those compared."""
    attack = scored("similarity", 0.5, 112, 500, 2)
    told = np.where(run.member_client < 2, attack.scores_members, 50.0)
    split = replace(run, attacks=[replace(attack, scores_members=told)])
    bound = build_report(claiming(split, claim(0.2), claim(0.1))).lower_bound
    assert bound.n_members == (run.member_client < 2).sum() and bound.claim == 0.2
    assert bound.value == 0 and not bound.refuted and 0 < bound.n_nonmembers < 500
    odd = replace(split, nonmember_labels=np.zeros(500, dtype=int))
    assert build_report(claiming(odd, claim(0.2), claim(0.1))).lower_bound is None
    assert build_report(claiming(split)).lower_bound is None
