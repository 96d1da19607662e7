"""What is shown of each epsilon from below, beside what is claimed from above.

Bounds by canaries are of the mechanism, a client's or the server's, and rest on no image. The one
by attacks pools the scored members of every client that claims an epsilon, and stands against the
largest of their claims. A claim is refuted where a bound that holds together with all others of the
report is over it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from fedmia.lowerbounds.fdp import own_runs_bound, shared_run_bound
from fedmia.lowerbounds.gdp import epsilon_at
from fedmia.lowerbounds.onerun import one_run_bound
from fedmia.lowerbounds.rates import TRIED, rates_bound
from fedmia.records import Evaluation, IntArray, ScoredAttack
from fedmia.records.defence_rows import AttackBoundRow, DefencePart, DefenceRow
from fedmia.records.privacy import NOISE, CanaryBoundRow, Epsilon
from fedmia.seeding import rng
from fedmia.statistics.intervals import LEVEL

Part = TypeVar("Part", bound=DefencePart)


def with_bound(epsilon: Epsilon, family: int) -> Epsilon:
    """A statement as the report holds it: with its bound by canaries, and what its noise means.

    Args:
        epsilon: of a defence.
        family: number of lower bounds in the report.

    Returns:
        The statement.
    """
    return replace(
        epsilon,
        assumptions=f"{epsilon.assumptions} {NOISE[epsilon.noise_source]}",
        lower_bound=canary_bound(epsilon, family),
    )


def with_bounds(part: Part, family: int) -> Part:
    """A defence, all of a client, or a server's rule, as the report holds it.

    Args:
        part: with its statements.
        family: number of lower bounds in the report.

    Returns:
        The same, each statement with its bound by canaries.
    """
    spent = part.epsilon and with_bound(part.epsilon, family)
    if isinstance(part, DefenceRow):
        parts = [with_bounds(one, family) for one in part.parts]
        beside = [with_bound(one, family) for one in part.beside]
        return replace(part, epsilon=spent, parts=parts, beside=beside)
    return replace(part, epsilon=spent)


def canary_bound(epsilon: Epsilon, family: int) -> CanaryBoundRow | None:
    """The bound by the guesses of an audited statement. `family`: lower bounds that hold together.

    Args:
        epsilon: of a defence.
        family: number of lower bounds in the report.

    Returns:
        The row of `report.json`; None where no canaries audited it.
    """
    if (audit := epsilon.lower_bound) is None:
        return None
    each, delta = (1 - LEVEL) / family, epsilon.delta
    together = epsilon_lower_bound(audit, delta, audit.correct, each)
    return replace(
        audit,
        value=epsilon_lower_bound(audit, delta, audit.correct, 1 - LEVEL),
        value_simultaneous=together,
        most=epsilon_lower_bound(audit, delta, audit.guesses, each),
        refuted=epsilon.value is not None and together > epsilon.value,
    )


def epsilon_lower_bound(
    audit: CanaryBoundRow, delta: float, correct: Sequence[int], error: float
) -> float:
    """The epsilon at `delta` that `correct` guesses exceed with confidence 1 - `error`, by the
    bound that `audit.audit` names; of mu-GDP, the epsilon that mu comes to.

    Args:
        audit: the canaries, and how many were guessed.
        delta: of the statement.
        correct: number of correct guesses, of each number of guesses.
        error: probability that the bound is too high, in (0, 1).

    Returns:
        The bound, 0 or more.
    """
    m, guesses = audit.canaries, audit.guesses
    if audit.audit == "one-run":
        return one_run_bound(m, guesses, correct, delta, error)
    if audit.audit == "own-runs-gdp":
        return epsilon_at(own_runs_bound(m, correct[0], error), delta)
    return epsilon_at(shared_run_bound(m, guesses, correct, error), delta)


def claims(run: Evaluation) -> dict[int, Epsilon]:
    """The statement of each client that names a value."""
    stated = {c.id: c.defence.epsilon for c in run.clients if c.defence is not None}
    return {k: e for k, e in stated.items() if e is not None and e.value is not None}


def bounds_family(run: Evaluation) -> int:
    """How many lower bounds hold together: one a defence audited, the server's rule among them, and
    one by attacks on claims."""
    stated = [p.epsilon for c in run.clients if c.defence for p in c.defence.parts or (c.defence,)]
    stated += [run.aggregation.epsilon] if run.aggregation else []
    return max(
        1, sum(e is not None and e.lower_bound is not None for e in stated) + bool(claims(run))
    )


def attack_bound(run: Evaluation, family: int) -> AttackBoundRow | None:
    """The largest bound by the run's attacks; None without a claim that they could refute.

    Corrected for every attack and rate tried. Pooled pre-training shows the server the images
    outside any mechanism, so attacks then say nothing of a claim. Nor do images of subjects: its
    rates are of images that are drawn one by one.

    Args:
        run: the scores.
        family: number of lower bounds in the report.

    Returns:
        The row of `report.json`.
    """
    stated = claims(run)
    usable = [a for a in run.attacks if len(a.scores_members) and len(a.scores_nonmembers)]
    if not stated or not usable or run.pretrain == "pooled" or run.subjects is not None:
        return None
    members = np.flatnonzero(np.isin(run.member_client, list(stated)))
    others = _sample_alike(run, members)
    if not len(members) or not len(others):
        return None
    worst = max(e.value for e in stated.values() if e.value is not None)
    delta = max(e.delta for e in stated.values())

    def best(error: float) -> tuple[float, float, str, ScoredAttack]:
        each = error / len(usable)
        bounds = [
            (*rates_bound(a.scores_members[members], a.scores_nonmembers[others], delta, each), a)
            for a in usable
        ]
        return max(bounds, key=lambda bound: bound[0])

    value, rate, says, attack = best(1 - LEVEL)
    together = best((1 - LEVEL) / family)[0]
    return AttackBoundRow(
        value=value,
        value_simultaneous=together,
        delta=delta,
        attack=attack.name,
        rate=rate,
        says=says,
        tried=TRIED * len(usable),
        n_members=len(members),
        n_nonmembers=len(others),
        clients=len(stated),
        claim=worst,
        refuted=together > worst,
    )


def _sample_alike(run: Evaluation, members: IntArray) -> IntArray:
    """Non-members to compare `members` with: all where these are all, else of the same class mix.

    The latter are drawn from each class without a look at a score.
    """
    kinds, others = run.alike()
    if len(members) == len(kinds):
        return np.arange(len(others))
    mix = dict(zip(*np.unique(kinds[members], return_counts=True), strict=True))
    factor = min(((others == k).sum() / n for k, n in mix.items()), default=0.0)
    stream = rng(run.seed, "lower-bound")
    samples = [
        stream.permutation(np.flatnonzero(others == k))[: int(factor * n)] for k, n in mix.items()
    ]
    return np.sort(np.concatenate(samples)) if samples else np.zeros(0, dtype=np.int64)
