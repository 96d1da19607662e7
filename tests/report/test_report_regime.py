"""Which regime a report is of: by the AUC of `similarity` alone, and only where there is one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from fedmia.records import RunScores, ScoredAttack
from fedmia.report.build import build_report
from fedmia.report.page import page
from fedmia.report.regime import ASCENT
from fedmia.report.terminal import render


def exact(auc: float, name: str = "similarity") -> ScoredAttack:
    """Scores whose AUC is `auc`, a whole hundredth: two equal members among hundred others."""
    others = np.arange(100) + 0.5
    return ScoredAttack(name, "a paper", "black-box", "client", np.full(2, 100 * auc), others)


def of(run: RunScores, *attacks: ScoredAttack) -> RunScores:
    """The run with 2 members, 100 non-members and these attacks alone."""
    cut = {n: getattr(run, n)[:2] for n in ("member_ids", "member_client", "member_labels")}
    cut |= {n: getattr(run, n)[:100] for n in ("nonmember_ids", "nonmember_labels")}
    return replace(run, **cut, attacks=attacks, controls={}, pairs=[], pixels=None, clients=[])


def shown(run: RunScores) -> tuple[str, str]:
    """What the terminal and the page say, in one line each."""
    report, console = build_report(run), Console(width=200)
    with console.capture() as output:
        console.print(render(report))
    return " ".join(output.get().split()), " ".join(page(report, {}).split())


@pytest.mark.parametrize(
    ("auc", "name"), [(0.97, "overfit"), (0.86, "overfit"), (0.85, "weak"), (0.55, "weak")]
)
def test_regime__similarity_over_the_bound(run: RunScores, auc: float, name: str) -> None:
    """At the bound it is weak; what other attacks reach does not matter."""
    scores = of(run, exact(1.0 if name == "weak" else 0.3, "combined"), exact(auc))
    assert build_report(scores)["regime"] == {"name": name, "auc": auc, "bound": 0.85}
    line = f"Regime: {name} (similarity has AUC {auc:.3f}; overfit means over 0.85)."
    assert all(line in said for said in shown(scores))


@pytest.mark.parametrize("attacks", [(), (exact(0.97, "combined"),)], ids=["none", "another"])
def test_regime__null_without_similarity(run: RunScores, attacks: tuple[ScoredAttack, ...]) -> None:
    scores = of(run, *attacks)
    assert build_report(scores)["regime"] is None
    assert not any("Regime" in said for said in shown(scores))


def test_regime__null_without_members(run: RunScores) -> None:
    """Nobody is scored: `similarity` has no AUC."""
    base = of(run)
    nobody = {n: getattr(base, n)[:0] for n in ("member_ids", "member_client", "member_labels")}
    row = replace(exact(0.9), scores_members=np.zeros(0))
    assert build_report(replace(base, **nobody, attacks=[row]))["regime"] is None


def test_note__tells_what_ascent_added_elsewhere_where_an_attack_climbs(run: RunScores) -> None:
    climbing = replace(exact(0.6, "ascent"), act="ascent")
    notes = [build_report(of(run, exact(0.6), *more))["notes"] for more in ((), (climbing,))]
    assert [ASCENT in one for one in notes] == [False, True]
