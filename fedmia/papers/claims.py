"""The paper's sentences about ascent, Figs. 10, 12 and 13 and Algorithm 1, against one run.

A claim is `held`, `not held`, `undecided` or `not run`, as RULES say. Intervals are of 95 %, each
by itself, over the images of this one run: another federation may answer otherwise. Losses after
a climb have heavy tails, so that a few images can carry a mean: what surpasses does so by the
means (Welch) and by the AUC of single images, and medians stand beside.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import scipy

from fedmia.papers.static_ascent import StaticAscentScores
from fedmia.papers.tables import rates
from fedmia.records import Curves, FloatArray
from fedmia.report.format import estimate
from fedmia.report.metrics import auc_numbers
from fedmia.report.tables import Cell, Row, Table
from fedmia.statistics.intervals import tail
from fedmia.statistics.thresholds import oracle_accuracy

HELD, NOT_HELD, UNDECIDED, NOT_RUN = "held", "not held", "undecided", "not run"
SMALL = 0.55  # a lower AUC is no "significantly surpasses"
PAPER = 0.80  # accuracy of Fig. 12
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
Claim = Mapping[str, Any]


def claims(climb: StaticAscentScores | None, curves: Curves | None) -> list[Claim]:
    """Every claim of RULES, in order: `place` in the paper, what it `says`, `verdict`, `remark`
    (why it was not run, or what else follows) and `numbers`, of which the first decides.

    Args:
        climb: the static climb with its losses by step. curves: of the active client's rounds.
    """
    return [*_static(climb), *_federated(curves)]


def _static(climb: StaticAscentScores | None) -> list[Claim]:
    ours, others = (None, None) if climb is None else (climb.members, climb.nonmembers)
    if climb is None or ours is None or others is None or not _usable(ours, others):
        return [_claim(place, NOT_RUN, NO_CLIMB) for place in ("Fig. 10", "Fig. 12")]
    rises = ours[-1] - ours[0], others[-1] - others[0]
    rise = contrast(f"rise of the loss, steps {len(ours) - 1}", *rises)
    row, best = rates(climb.scored), oracle_accuracy(-rises[0], -rises[1])
    low, high = row["accuracy_ci"] or (0.0, 1.0)
    verdict = HELD if low > PAPER else NOT_HELD if max(high, best) < PAPER else UNDECIDED
    accuracies = {
        "of": "balanced accuracy of the rise",
        "accuracy": row["accuracy"], "accuracy_ci": row["accuracy_ci"],
        "hindsight": best, "hindsight_before": oracle_accuracy(-ours[0], -others[0]),
    }  # fmt: skip
    remark = f"over {PAPER} in hindsight alone" if verdict == UNDECIDED and best > PAPER else ""
    before = contrast("loss before the climb", ours[0], others[0])
    return [
        _claim("Fig. 10", _verdict(rise), "", rise, before),
        _claim("Fig. 12", verdict, remark, accuracies),
    ]


def _federated(curves: Curves | None) -> list[Claim]:
    def sides(name: str) -> list[Any]:
        return [getattr(curves, f"{name}{side}", None) for side in ("members", "nonmembers")]

    before, sent, after, zero = map(sides, ("before_", "after_", "", "control_"))
    if curves is None or curves.act != "ascent" or not _usable(*before, *sent, *after):
        return [_claim(place, NOT_RUN, NO_ASCENT) for place in list(RULES)[2:]]

    def changes(of: str, since: list[Any], at: Callable[[Any], FloatArray]) -> list[Numbers]:
        # Without ascent the client uploads the model that it received.
        both = (of, since, after), ("the same without ascent", before, zero)
        return [
            contrast(name, *(at(x) - start for x, start in zip(losses, starts, strict=True)))
            for name, starts, losses in both
            if _usable(*losses)
        ]

    # The upload is read in the first attacked round alone.
    upload = changes("change from the upload to the aggregate", sent, lambda x: x[0])
    whole = changes("change from before to the aggregates", before, lambda x: x.mean(axis=0))
    gone = (abs(a[0] - s) for a, s in zip(after, sent, strict=True))
    size = contrast("distance from L to L_agg", *gone)
    verdicts = _verdict(upload[0], falls=True), _verdict(whole[0], falls=True), _verdict(size)
    supported = {(True, True): "both", (True, False): "Sec. V-B4", (False, True): "line 25"}
    which = supported.get((verdicts[0] == HELD, verdicts[2] == HELD), "neither")
    remarks = "", "", f"this run supports {which}"
    columns = list(RULES)[2:], verdicts, remarks, (upload, whole, [size])
    return [_claim(p, v, r, *n) for p, v, r, n in zip(*columns, strict=True)]


def _claim(place: str, verdict: str, remark: str, *numbers: Numbers) -> Claim:
    said = {"place": place, "says": RULES[place][0], "verdict": verdict, "remark": remark}
    return {**said, "numbers": numbers}


def _usable(*losses: FloatArray | None) -> bool:
    return all(x is not None and x.shape[-1] > 1 and np.isfinite(x).all() for x in losses)


def contrast(of: str, members: FloatArray, nonmembers: FloatArray) -> Numbers:
    """Means, medians, intervals, and what (m,) non-members have over (n,) members: difference of
    the means, and `auc`, the share of pairs in which the non-member's is larger."""
    ours, others = members.astype(np.float64), nonmembers.astype(np.float64)
    row = auc_numbers(-ours, -others, 1)
    return {
        "of": of,
        "members": ours.mean(), "members_ci": welch(ours, np.zeros_like(ours)),
        "nonmembers": others.mean(), "nonmembers_ci": welch(others, np.zeros_like(others)),
        "median_members": np.median(ours), "median_nonmembers": np.median(others),
        "difference": others.mean() - ours.mean(), "difference_ci": welch(others, ours),
        "auc": row["auc"], "auc_ci": row["auc_ci"],
    }  # fmt: skip


def welch(a: FloatArray, b: FloatArray) -> tuple[float, float]:
    """Welch's 95 % interval of mean(a) - mean(b); with zeros for b, Student's of mean(a)."""
    parts = [v.var(ddof=1) / len(v) for v in (a, b)]
    spread = sum(p**2 / (len(v) - 1) for p, v in zip(parts, (a, b), strict=True))
    freedom = sum(parts) ** 2 / spread if spread else 1.0
    half = float(scipy.stats.t.isf(tail(), freedom)) * sum(parts) ** 0.5
    return float(a.mean() - b.mean()) - half, float(a.mean() - b.mean()) + half


def _verdict(found: Numbers, *, falls: bool = False) -> str:
    """Whether non-members surpass members, and, with `falls`, the loss of members falls."""
    (low, high), (least, most) = found["difference_ci"], found["auc_ci"]
    down, up = found["members_ci"] if falls else (-np.inf, -np.inf)
    surpasses = low > 0 and least > 0.5
    if down > 0 or high < 0 or (most < SMALL and not surpasses):
        return NOT_HELD
    return HELD if surpasses and up < 0 else UNDECIDED


def text(found: Sequence[Claim]) -> Table:
    """A row a claim: sentence, verdict, numbers (medians in brackets), and what decides."""
    rows = []
    for one in found:
        verdict = ": ".join(filter(None, (one["verdict"], one["remark"])))
        numbers = Cell("", tuple(map(_line, one["numbers"])))
        rows.append(Row([one["place"], one["says"], verdict, numbers, RULES[one["place"]][1]]))
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
