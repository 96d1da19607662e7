"""Lower bounds beside each epsilon: who is compared, what corrects them, what is shouted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import beta, norm

from fedmia.lowerbounds.fdp import shared_run_bound
from fedmia.lowerbounds.gdp import epsilon_at
from fedmia.lowerbounds.onerun import one_run_bound
from fedmia.lowerbounds.rates import TRIED, rates_bound
from fedmia.records import Evaluation
from fedmia.records.defence_rows import AggregationRow, DefenceRow
from fedmia.records.privacy import CanaryBoundRow, Epsilon
from fedmia.records.rows import Report
from fedmia.report import lowerbounds
from fedmia.report.build import build_report
from fedmia.report.codes import UNSOUND
from fedmia.report.lowerbounds import bounds_family
from fedmia.report.page import page
from fedmia.report.words.beside import sentences
from fedmia.report.words.bounds import defended_lines
from fedmia.table import flatten
from tests.report.conftest import guessed, scored, shown
from tests.snapshots import Snapshot


def claiming(run: Evaluation, *told: Epsilon) -> Evaluation:
    """`run`, whose first clients claim `told` and whose others claim nothing."""
    clients = [
        replace(
            c, defence=DefenceRow(name="dpsgd", epsilon=told[c.id]) if c.id < len(told) else None
        )
        for c in run.clients
    ]
    return replace(run, clients=clients)


def claim(value: float | None, correct: tuple[int, ...] = ()) -> Epsilon:
    """With 1,000 canaries, 700 guessed, where `correct` is told."""
    audit = guessed(1000, (50, 350, 700), correct) if correct else None
    return Epsilon(
        value=value, delta=1e-5, rounds=20, standing="heuristic", assumptions="Per image.",
        lower_bound=audit,
    )  # fmt: skip


def canary_bounds(report: Report) -> list[CanaryBoundRow]:
    """By canaries, of the first two clients."""
    stated = [c.defence.epsilon for c in report.clients[:2] if c.defence and c.defence.epsilon]
    return [epsilon.lower_bound for epsilon in stated if epsilon.lower_bound]


BLAMED, CHANCE = (49, 315, 520), (26, 180, 355)


def test_canaries__refute_a_claim_and_are_shouted(run: Evaluation, snapshot: Snapshot) -> None:
    report = build_report(claiming(run, claim(1.0, BLAMED), claim(1.0, CHANCE)))
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
    terminal, html = shown(report)
    assert line in terminal and "CLAIM REFUTED" in terminal and "canaries (REFUTED)" in html
    assert '<p class="verdict leaks">CLAIM REFUTED' in page(report, {})
    bounds = [row["value"] for row in flatten(report) if row["metric"] == "lower_bound"]
    assert bounds[:2] == [high, low]


def test_canaries__of_the_server_are_shouted_and_share_the_error(run: Evaluation) -> None:
    """One bound more of the family; a Gaussian claim is held to the bound of its own law."""
    audit = guessed(1000, (1000,), (820,), "own-runs-gdp")
    spent = Epsilon(
        value=2.0, delta=1e-5, rounds=30, standing="guaranteed", assumptions="", unit="client",
        lower_bound=audit,
    )  # fmt: skip
    whole = replace(
        run, aggregation=AggregationRow(name="dp-fedavg", view="updates", epsilon=spent)
    )
    report = build_report(whole)
    server: Any = report.aggregation
    row, bound = server.epsilon, server.epsilon.lower_bound
    low = beta.ppf(0.05 / bounds_family(whole), 820, 181)
    want = epsilon_at(2 * norm.ppf(low), 1e-5)
    assert bounds_family(whole) == bounds_family(run) + 1 == 2
    assert bound.value_simultaneous == pytest.approx(want, abs=1e-6) and bound.refuted
    assert bound.value > want > 2 and (row.unit, bound.audit) == ("client", audit.audit)
    assert report.verdict.startswith("CLAIM REFUTED: the server claims epsilon 2 by dp-fedavg")
    for text in shown(report):
        assert "by 1,000 canaries (REFUTED)" in text


def test_canaries__in_one_run_of_a_gaussian_show_more_than_of_any_mechanism(
    run: Evaluation,
) -> None:
    audits = (
        guessed(1000, (50, 350, 700), (40, 250, 462), by) for by in ("one-run", "one-run-gdp")
    )
    any_law, gaussian = (
        lowerbounds.epsilon_lower_bound(one, 1e-5, one.correct, 0.05) for one in audits
    )
    mu = shared_run_bound(1000, (50, 350, 700), (40, 250, 462), 0.05)
    assert gaussian == epsilon_at(mu, 1e-5) > 1.0 > any_law > 0


def test_stack__one_line_a_unit(run: Evaluation) -> None:
    """Neither compared nor hidden, in terminal, page and rows."""
    image = Epsilon(
        value=2.0,
        delta=1e-5,
        rounds=20,
        standing="guaranteed",
        assumptions="Per image.",
        unit="image",
    )
    client = Epsilon(
        value=90.0,
        delta=1e-6,
        rounds=20,
        standing="guaranteed",
        assumptions="The client.",
        unit="client",
    )
    both = DefenceRow(name="dpsgd, gaussian", epsilon=image, beside=[client])
    clients = [replace(c, defence=both if c.id == 0 else None) for c in run.clients]
    report = build_report(replace(run, clients=clients))
    defence: Any = report.clients[0].defence
    assert [e.unit for e in (defence.epsilon, *defence.beside)] == ["image", "client"]
    terminal, html = shown(report)
    first, second = defended_lines(report)
    assert "epsilon 2 for one image" in first and "epsilon 90 for one client" in second
    for line in (first, second):
        who, _, what = line.removesuffix(".").partition(": ")
        assert line in terminal and who == "Defended, client 0" and what in html
    assert "Per image." in html and "The client." in html
    row = next(row for row in flatten(report) if row["metric"] == "epsilon")
    assert (row["value"], row["unit"]) == (2.0, "image")


def test_canaries__whose_claim_they_cannot_reach_say_so(run: Evaluation) -> None:
    report = build_report(claiming(run, claim(8.0, BLAMED), claim(None, BLAMED)))
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
    assert "REFUTED" in str(sentences(report)["bound"])


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
