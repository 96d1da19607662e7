"""The paper's sentences about ascent, Figs. 10, 12 and 13 and Algorithm 1, against one run.

A claim is `held`, `not held`, `undecided` or `not run`, as RULES say. Intervals are of 95 %, each
by itself, over the images of this one run: another federation may answer otherwise. Losses after
a climb have heavy tails, so that a few images can carry a mean: what surpasses does so by the
means (Welch) and by the AUC of single images, and medians stand beside.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

import numpy as np
from scipy.stats import t as student

from fedmia.papers.climbs import Climbed
from fedmia.papers.tables import rates
from fedmia.report.format import estimate
from fedmia.report.intervals import tail
from fedmia.report.metrics import auc_numbers, oracle_accuracy
from fedmia.report.tables import Cell, Row, Table
from fedmia.results import Curves, FloatArray

HELD, NOT_HELD, UNDECIDED, NOT_RUN = "held", "not held", "undecided", "not run"
SMALL = 0.55  # a lower AUC is no "significantly surpasses"
PAPER = 0.80  # accuracy of Fig. 12
NO_CLIMB = "no static climb of two images a side or more, in finite losses"
NO_ASCENT = "no client's ascent was read from before it to its end, in finite losses"
AFTER = "Membership data will notably reduce the model's loss post-aggregation, while non-"
AFTER += "membership data will experience a slower reduction, potentially increasing"
SURPASSES = (
    "held: difference over 0 and AUC over 0.5; not held: either lies under, or the AUC under"
)
SURPASSES += f" {SMALL}"
FALLS = f"{SURPASSES}, or the loss of members rises; held only if it falls"
# Place in the paper -> its sentence, and what decides; what lies over lies so with its interval.
RULES: Mapping[str, tuple[str, str]] = {
    "Fig. 10": ("The loss of non-member data significantly surpasses that of members", SURPASSES),
    "Fig. 12": (
        "With an optimal threshold selection, the success rate can exceed 80%",
        f"held: over {PAPER} at the threshold of known images; not held: under, in hindsight, too",
    ),
    "Fig. 13, from the upload": (AFTER, FALLS),
    "Fig. 13, from before": (AFTER, FALLS),
    "Alg. 1, line 25": ("if |L - L_agg| < T then classify as a member", SURPASSES),
}
Numbers = Mapping[str, Any]


class Claim(TypedDict):
    """A sentence of the paper and what this run says of it; the first of `numbers` decides.

    `remark`: why it was not run, or what else the numbers say; may be empty. `numbers`: of what,
    and a `contrast` or accuracies.
    """

    place: str
    says: str
    verdict: str
    remark: str
    numbers: Sequence[Numbers]


def claims(climb: Climbed | None, curves: Curves | None) -> list[Claim]:
    """Every claim of RULES, in order.

    Args:
        climb: the static climb with its losses by step. curves: of the active client's rounds.
    """
    return [*_static(climb), *_federated(curves)]


def _static(climb: Climbed | None) -> list[Claim]:
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
        "accuracy": row["accuracy"],
        "accuracy_ci": row["accuracy_ci"],
        "hindsight": best,
        "hindsight_before": oracle_accuracy(-ours[0], -others[0]),
    }
    remark = f"over {PAPER} in hindsight alone" if verdict == UNDECIDED and best > PAPER else ""
    before = contrast("loss before the climb", ours[0], others[0])
    return [
        _claim("Fig. 10", _verdict(rise), "", rise, before),
        _claim("Fig. 12", verdict, remark, accuracies),
    ]


def _federated(curves: Curves | None) -> list[Claim]:
    before, sent, after, zero = (
        [getattr(curves, f"{name}{side}", None) for side in ("members", "nonmembers")]
        for name in ("before_", "after_", "", "control_")
    )
    if curves is None or curves.act != "ascent" or not _usable(*before, *sent, *after):
        return [_claim(place, NOT_RUN, NO_ASCENT) for place in list(RULES)[2:]]

    def change(of: str, losses: list[Any], since: list[Any]) -> list[Numbers]:
        known = all(x is not None for x in losses)
        return [contrast(of, *(a - b for a, b in zip(losses, since, strict=True)))] if known else []

    # Uploads are read in the first attacked round. Without ascent the model received is sent back.
    without = "the same without ascent"
    upload = change("change from the upload to the aggregate", [a[0] for a in after], sent)
    upload += change(without, [None if z is None else z[0] for z in zero], before)
    whole = change("change from before to the aggregates", [a.mean(axis=0) for a in after], before)
    whole += change(without, [None if z is None else z.mean(axis=0) for z in zero], before)
    size = contrast("|L - L_agg|", *(abs(a[0] - s) for a, s in zip(after, sent, strict=True)))
    line, section = _verdict(size) == HELD, _verdict(upload[0], falls=True) == HELD
    supported = {(True, True): "both", (True, False): "line 25", (False, True): "Sec. V-B4"}
    which = f"this run supports {supported.get((line, section), 'neither')}"
    first, second, third = list(RULES)[2:]
    return [
        _claim(first, _verdict(upload[0], falls=True), "", *upload),
        _claim(second, _verdict(whole[0], falls=True), "", *whole),
        _claim(third, _verdict(size), which, size),
    ]


def _claim(place: str, verdict: str, remark: str, *numbers: Numbers) -> Claim:
    says = RULES[place][0]
    return Claim(place=place, says=says, verdict=verdict, remark=remark, numbers=numbers)


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
    half = float(student.isf(tail(), freedom)) * sum(parts) ** 0.5
    return float(a.mean() - b.mean()) - half, float(a.mean() - b.mean()) + half


def _verdict(found: Numbers, *, falls: bool = False) -> str:
    """Whether non-members surpass members, and, with `falls`, the loss of members falls."""
    (low, high), (least, most) = found["difference_ci"], found["auc_ci"]
    down, up = found["members_ci"] if falls else (-np.inf, -np.inf)
    surpasses = low > 0 and least > 0.5
    if down > 0 or high < 0 or (most < SMALL and not surpasses):
        return NOT_HELD
    return HELD if surpasses and up < 0 else UNDECIDED


def lines(found: Sequence[Claim]) -> list[str]:
    """A line a claim: the verdict, and the numbers that decided it."""
    told = ((one, " ".join(map(_line, one["numbers"][:1]))) for one in found)
    return [f"{one['place']}: {_stated(one)}. {numbers}".strip() for one, numbers in told]


def text(found: Sequence[Claim]) -> Table:
    """A row a claim: sentence, verdict, numbers (medians in brackets), and what decides."""
    rows = []
    for one in found:
        first, *others = [*map(_line, one["numbers"]), ""]
        cells = [one["place"], one["says"], _stated(one), Cell(first, tuple(filter(None, others)))]
        rows.append(Row([*cells, RULES[one["place"]][1]]))
    return Table(["the paper", "says", "on this run", "numbers, 95 % (medians)", "rule"], rows)


def _stated(one: Claim) -> str:
    between = ": " if one["verdict"] == NOT_RUN else ", "
    return between.join(filter(None, (one["verdict"], one["remark"])))


def _line(row: Numbers) -> str:
    what = row["of"][0].upper() + row["of"][1:]
    if "accuracy" in row:
        known, best = estimate(row["accuracy"], row["accuracy_ci"], 3), row["hindsight"]
        before = f"loss before the climb {row['hindsight_before']:.3f}"
        return f"{what}: {known}; in hindsight {best:.3f} ({before})."
    sides = ("members", "nonmembers", "difference")
    mean = {s: "{:.3g} [{:.3g}, {:.3g}]".format(row[s], *row[f"{s}_ci"]) for s in sides}
    ours, others = (f"{mean[s]} ({row[f'median_{s}']:.3g})" for s in sides[:2])
    auc = estimate(row["auc"], row["auc_ci"], 3)
    told = f"members {ours}, non-members {others}, difference {mean['difference']}, AUC {auc}"
    return f"{what}: {told}."
