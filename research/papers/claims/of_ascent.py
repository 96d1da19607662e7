"""The paper's sentences about ascent, Figs. 10, 12 and 13 and Algorithm 1, against one run.

A claim is `held`, `not held`, `undecided` or `not run`, as RULES say. Intervals are of 95 %, each
by itself, over the images of this one run: another federation may answer otherwise. Losses after
a climb have heavy tails, so that a few images can carry a mean: what surpasses does so by the
means (Welch) and by the AUC of single images, and medians stand beside.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import scipy

from fedmia.records import Curves, FloatArray, twins
from fedmia.report.metrics import auc_numbers
from fedmia.report.tables import Table, TextCell
from fedmia.report.words.numbers import estimate
from fedmia.statistics.intervals import tail
from fedmia.statistics.thresholds import oracle_accuracy
from research.papers.claims import FAILS, HOLDS, NOT_RUN, UNDECIDED
from research.papers.federated.static_ascent import StaticAscentScores
from research.papers.federated.tables import printed_rows, rates

SMALL = 0.55  # a lower AUC is no "significantly surpasses"
PAPER: float = printed_rows("fig-10")["CIFAR-10"][0]  # accuracy of Fig. 12
NO_CLIMB = "no static climb of two images a side or more, in finite losses"
NO_ASCENT = "no client's ascent was read from before it to its end, in finite losses"
SIGNIFICANTLY = "The loss of non-member data significantly surpasses that of member data"
AFTER = "Membership data will notably reduce the model's loss post-aggregation, while non-"
AFTER += "membership data will experience a slower reduction, potentially increasing"
SURPASSES = "held: intervals of difference over 0, of AUC over 0.5; not held: one of them under, "
SURPASSES += f"or AUC under {SMALL}"
FALLS = f"{SURPASSES}, or the loss of members rises; held only if it falls"
# Place in the paper -> its sentence, and what decides; what lies over lies so with its interval.
RULES: Mapping[str, tuple[str, str]] = {
    "Fig. 10": (SIGNIFICANTLY, SURPASSES),
    "Fig. 12": (
        "With an optimal threshold selection, the success rate of the active method can exceed 80%",
        f"held: over {PAPER} at the threshold of known images; not held: under, in hindsight, too",
    ),
    "Fig. 13, from the upload": (AFTER, FALLS),
    "Fig. 13, from before": (AFTER, FALLS),
    "Alg. 1, line 25": ("if |L - L_agg| < T then classify as a member", SURPASSES),
}
Numbers = Mapping[str, Any]
Reduce = Callable[[FloatArray], Any]  # of (rounds, n) losses to (n,)
# One sentence of the paper beside what this run shows of it: its `place`, what it `says`, `verdict`
# (HOLDS, FAILS, UNDECIDED or NOT_RUN), `remark` (why it was not run, or what else follows), and the
# `numbers` it was decided by, of which the first decides.
Claim = Mapping[str, Any]


def claims(climb: StaticAscentScores | None, curves: Curves | None) -> list[Claim]:
    """Every claim of RULES, in order.

    Args:
        climb: the static ascent with its losses by step.
        curves: losses of the rounds in which a client acts.

    Returns:
        One claim for each rule.
    """
    return [*static_claims(climb), *federated_claims(curves)]


def static_claims(climb: StaticAscentScores | None) -> list[Claim]:
    """The claims on the static ascent; not run without its losses by step."""
    ours, others = (None, None) if climb is None else (climb.members, climb.nonmembers)
    if climb is None or ours is None or others is None or not has_finite_losses(ours, others):
        return [_claim(place, NOT_RUN, NO_CLIMB) for place in ("Fig. 10", "Fig. 12")]
    rises = ours[-1] - ours[0], others[-1] - others[0]
    rise = contrast(f"rise of the loss, steps {len(ours) - 1}", *rises)
    row, best = rates(climb.scored), oracle_accuracy(-rises[0], -rises[1])
    low, high = row["accuracy_ci"] or (0.0, 1.0)
    verdict = HOLDS if low > PAPER else FAILS if max(high, best) < PAPER else UNDECIDED
    accuracies = {
        "of": "balanced accuracy of the rise",
        "accuracy": row["accuracy"], "accuracy_ci": row["accuracy_ci"],
        "hindsight": best, "hindsight_before": oracle_accuracy(-ours[0], -others[0]),
    }  # fmt: skip
    remark = f"over {PAPER} in hindsight alone" if verdict == UNDECIDED and best > PAPER else ""
    before = contrast("loss before the climb", ours[0], others[0])
    norm = [contrast(p.over, *(-s for s in p.control.sides)) for p in twins([climb.scored])[1:]]
    return [
        _claim("Fig. 10", _verdict(rise), "", rise, before, *norm),
        _claim("Fig. 12", verdict, remark, accuracies),
    ]


def federated_claims(curves: Curves | None) -> list[Claim]:
    """The claims on the rounds in which a client acts; not run without an ascent client."""
    places = list(RULES)[2:]
    before, sent, after = (_sides(curves, name) for name in ("before_", "after_", ""))
    if curves is None or curves.act != "ascent" or not has_finite_losses(*before, *sent, *after):
        return [_claim(place, NOT_RUN, NO_ASCENT) for place in places]
    # Without ascent the client uploads the model that it received.
    without = before, _sides(curves, "control_")
    # The upload is read in the first attacked round alone; losses by round are (rounds, n).
    first: Reduce = partial(np.take, indices=0, axis=0)
    mean: Reduce = partial(np.mean, axis=0)
    upload = _changes("change from the upload to the aggregate", (sent, after), without, first)
    whole = _changes("change from before to the aggregates", (before, after), without, mean)
    distances = [abs(losses[0] - start) for losses, start in zip(after, sent, strict=True)]
    distance = contrast("distance from L to L_agg", *distances)
    falls_after_upload = _verdict(upload[0], falls=True)
    falls_overall = _verdict(whole[0], falls=True)
    surpasses = _verdict(distance)
    supported = {(True, True): "both", (True, False): "Sec. V-B4", (False, True): "line 25"}
    which = supported.get((falls_after_upload == HOLDS, surpasses == HOLDS), "neither")
    return [
        _claim(places[0], falls_after_upload, "", *upload),
        _claim(places[1], falls_overall, "", *whole),
        _claim(places[2], surpasses, f"this run supports {which}", distance),
    ]


def _sides(curves: Curves | None, name: str) -> list[Any]:
    """The losses of the members and of the non-members; None where the run has none."""
    return [getattr(curves, f"{name}{side}", None) for side in ("members", "nonmembers")]


def _changes(
    of: str,
    attacked: tuple[list[Any], list[Any]],
    without: tuple[list[Any], list[Any]],
    reduce_rounds: Reduce,
) -> list[Numbers]:
    """Contrast the change of the loss under ascent, then that without ascent where it was run.

    Args:
        of: what is compared.
        attacked: starting losses and losses by round, each of members and non-members.
        without: the same of the federation without ascent.
        reduce_rounds: makes (n,) losses of (rounds, n).

    Returns:
        One or two contrasts.
    """
    contrasts = []
    for name, (starts, losses) in ((of, attacked), ("the same without ascent", without)):
        if has_finite_losses(*losses):
            pairs = zip(losses, starts, strict=True)
            contrasts.append(contrast(name, *(reduce_rounds(x) - start for x, start in pairs)))
    return contrasts


def _claim(place: str, verdict: str, remark: str, *numbers: Numbers) -> Claim:
    return {
        "place": place, "says": RULES[place][0], "verdict": verdict, "remark": remark,
        "numbers": numbers,
    }  # fmt: skip


def has_finite_losses(*losses: FloatArray | None) -> bool:
    """Whether all losses exist, are finite and are of two images or more."""
    return all(x is not None and x.shape[-1] > 1 and np.isfinite(x).all() for x in losses)


def contrast(of: str, members: FloatArray, nonmembers: FloatArray) -> Numbers:
    """Means, medians, intervals, and what (m,) non-members have over (n,) members: difference of
    the means, and `auc`, the share of pairs in which the non-member's is larger.

    Args:
        of: what is compared.
        members: (n,) values.
        nonmembers: (m,) values.

    Returns:
        The statistics by name.
    """
    ours, others = members.astype(np.float64), nonmembers.astype(np.float64)
    row = auc_numbers(-ours, -others, 1)
    return {
        "of": of,
        "members": ours.mean(), "members_ci": welch(ours, np.zeros_like(ours)),
        "nonmembers": others.mean(), "nonmembers_ci": welch(others, np.zeros_like(others)),
        "median_members": np.median(ours), "median_nonmembers": np.median(others),
        "difference": others.mean() - ours.mean(), "difference_ci": welch(others, ours),
        "auc": row.auc, "auc_ci": row.auc_ci,
    }  # fmt: skip


def welch(a: FloatArray, b: FloatArray) -> tuple[float, float]:
    """Welch's 95 % interval of mean(a) - mean(b); with zeros for b, Student's of mean(a).

    Args:
        a: (n,) values.
        b: (m,) values; zeros for a one-sample interval.

    Returns:
        The ends of the interval.
    """
    parts = [v.var(ddof=1) / len(v) for v in (a, b)]
    spread = sum(p**2 / (len(v) - 1) for p, v in zip(parts, (a, b), strict=True))
    freedom = sum(parts) ** 2 / spread if spread else 1.0
    half = float(scipy.stats.t.isf(tail(), freedom)) * sum(parts) ** 0.5
    return float(a.mean() - b.mean()) - half, float(a.mean() - b.mean()) + half


def _verdict(numbers: Numbers, *, falls: bool = False) -> str:
    """Whether non-members surpass members, and, with `falls`, the loss of members falls."""
    (low, high), (least, most) = numbers["difference_ci"], numbers["auc_ci"]
    down, up = numbers["members_ci"] if falls else (-np.inf, -np.inf)
    surpasses = low > 0 and least > 0.5
    if down > 0 or high < 0 or (most < SMALL and not surpasses):
        return FAILS
    return HOLDS if surpasses and up < 0 else UNDECIDED


def text(listed: Sequence[Claim]) -> Table:
    """A row a claim: sentence, verdict, numbers (medians in brackets), and what decides."""
    rows = []
    for one in listed:
        verdict = ": ".join(filter(None, (one["verdict"], one["remark"])))
        numbers = TextCell("", tuple(map(_line, one["numbers"])))
        rows.append([one["place"], one["says"], verdict, numbers, RULES[one["place"]][1]])
    return Table(["the paper", "says", "on this run", "numbers, 95 % (medians)", "rule"], rows)


def _line(row: Numbers) -> str:
    what = row["of"][0].upper() + row["of"][1:]
    if "accuracy" in row:
        known = estimate(row["accuracy"], row["accuracy_ci"], 3)
        best = f"in hindsight {row['hindsight']:.3f}, the loss before the climb"
        return f"{what}: {known}, {best} {row['hindsight_before']:.3f}."
    sides = ("members", "nonmembers", "difference")
    mean = {s: "{:.3g} [{:.3g}, {:.3g}]".format(row[s], *row[f"{s}_ci"]) for s in sides}
    ours, others = (f"{mean[s]} ({row[f'median_{s}']:.3g})" for s in sides[:2])
    rest = f"difference {mean['difference']}, AUC {estimate(row['auc'], row['auc_ci'], 3)}"
    return f"{what}: members {ours}, non-members {others}, {rest}."
