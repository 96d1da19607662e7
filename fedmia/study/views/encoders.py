"""Audits of several encoders: what leaks and what use is left, from encoder to encoder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from fedmia.config.study import split_encoders, split_round
from fedmia.records.attack_rows import Interval
from fedmia.report.figures import canvas
from fedmia.report.format import estimate, format_p
from fedmia.statistics.auc import auc_estimate, difference_interval
from fedmia.statistics.intervals import LEVEL
from fedmia.statistics.spread import DIGITS, spread
from fedmia.study.drawing import cross
from fedmia.study.points import group_by_key
from fedmia.study.result import CellState, StudyResult
from fedmia.study.view import Drawing, Section, View

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PLACE = ["image", "truth"]  # columns of scores.csv that tell images apart
PROBES = {"knn": "weighted kNN", "linear": "linear probe"}
MOST = 6  # attacks that are drawn, the most leaking ones
APART = 0.008  # of the width, between two intervals at one place
ATTACKS = {
    "name": "encoder",
    "attack": "attack",
    "auc": "AUC, 95 %",
    "knn": "weighted kNN, 95 %",
    "verdicts": "verdicts",
    "by_seed": "by seed",
    "tpr.mean": "TPR at 1 % FPR",
    "untrained.mean": "untrained control",
    "+difference": "minus the last encoder, 95 %",
}
POINTS = {
    "name": "encoder",
    "knn": "weighted kNN, 95 %",
    "knn_untrained.mean": "untrained kNN",
    "linear": "linear probe, 95 %",
    "n_probe": "test images",
    "n_members": "members",
    "n_nonmembers": "non-members",
    "verdicts": "verdicts",
    "sets": "data set, p",
    "failed": "failed",
}
MODELS = {
    "round": "round",
    "attack": "attack",
    "auc": "mean AUC, 95 %",
    "knn": "weighted kNN, 95 %",
    "linear": "linear probe, 95 %",
    "auc.n": "models",
}


@dataclass(frozen=True)
class EncodersView(View):
    """Every attack on every encoder over the seeds, and each encoder beside the last one."""

    title: ClassVar[str] = "Audits of encoders"
    captions: ClassVar[Mapping[str, str]] = {
        "encoders": "Top: AUC of the most leaking attacks. Bottom: utility of the encoder. Bars: "
        "95 % intervals, for each number alone; dots: single seeds."
    }

    def sections(self, study: StudyResult) -> list[Section]:
        points = point_rows(study)
        rows = [
            {**row, **{k: point[k] for k in ("name", "knn", "verdicts")}}
            for point in points
            for row in point["attacks"].values()
        ]
        return [
            Section("Leakage and use", ATTACKS, rows, ("encoders",), 5),
            Section("Encoders", POINTS, points),
            Section("Rounds over runs", MODELS, round_rows(points)),
        ]

    def sentence(self, study: StudyResult) -> str:
        return sentence(point_rows(study), [cell.state for cell in study.cells])

    def notes(self, study: StudyResult) -> list[str]:
        lines, seeds = [], len({cell.seed for cell in study.cells})
        if seeds > 1:
            lines.append(
                f"{seeds} seeds audit each encoder. Each seed has its own views, and its own known "
                "images unless a run names them. The model is the same, so the seeds do not cover "
                "the variation between trainings."
            )
        return lines + not_run(study.cells)

    def figures(self, study: StudyResult) -> dict[str, Drawing]:
        return {"encoders": lambda: draw(point_rows(study))}


def sentence(points: Sequence[Any], states: Sequence[str]) -> str:
    """Verdict and strongest attack of each encoder; of the rounds of one run, of the ends alone.

    Args:
        points: the encoders.
        states: of the audits: finished, failed or not run.

    Returns:
        The sentence.
    """
    known = [point for point in points if point["verdicts"]]
    if len({(p["run"], p["round"] is None) for p in known}) == 1 and known[0]["round"] is not None:
        known = [known[0], *known[1:][-1:]]
    parts = [_finding(point) for point in known]
    missing = [f"{word}: {states.count(word)}" for word in ("failed", "not run") if word in states]
    return "; ".join([*(parts or ["no audit is finished"]), *missing]) + "."


def _finding(point: Any) -> str:
    """An encoder's verdict, its strongest attack, the p-values of its data set, and its kNN."""
    codes = ", ".join(f"{code} {count}" for code, count in point["verdicts"].items())
    parts, rows = [codes.removesuffix(" 1")], [*point["attacks"].values()]
    if any(row["auc"]["mean"] is not None for row in rows):
        best = max(rows, key=lambda row: row["auc"]["mean"] or 0.0)
        parts.append(f"{best['attack']} AUC {estimate(best['auc']['mean'], best['auc']['ci'])}")
    parts += [point["sets"]] if point["sets"] else []
    if point["knn"]["mean"] is not None:
        parts.append(f"kNN {estimate(point['knn']['mean'], point['knn']['ci'])}")
    return f"{point['point']}: {', '.join(parts)}"


def not_run(cells: Iterable[CellState]) -> list[str]:
    """A line for each attack that did not run, and why."""
    finished = [cell for cell in cells if cell.state == "finished"]
    reasons = Counter(f"{name}: {why}" for cell in finished for name, why in cell.not_run.items())
    return [
        f"Not run{f', in {many} of {len(finished)} audits' if many < len(finished) else ''}: {why}"
        for why, many in reasons.items()
    ]


def point_rows(study: StudyResult) -> list[dict[str, Any]]:
    """Each encoder over its seeds, with each attack's difference from the last encoder."""
    specs, points = split_encoders(",".join(study.settings["encoders"])), list[dict[str, Any]]()
    for spec, (point, cells) in zip(specs, study.by_point().items(), strict=True):
        select, (run, turn) = partial(study.select, point=point), split_round(spec)
        sets = select("p_value", "dataset_inference", attack=...).groupby("attack", sort=False)
        points.append(
            {
                "point": point,
                "name": study.name(point),
                "run": run,
                "round": turn,
                "failed": sum(cell.state == "failed" for cell in cells),
                "verdicts": study.verdicts(point),
                "n_members": _count(select("n_members")),
                "n_nonmembers": _count(select("n_nonmembers")),
                "n_probe": _count(select("n", "utility")),
                **{probe: _mean(select(probe, "utility")) for probe in PROBES},
                "knn_untrained": _mean(select("knn", "utility", control="untrained")),
                "sets": ", ".join(
                    f"{name} p {' '.join(map(format_p, rows['value']))}" for name, rows in sets
                ),
                "attacks": {
                    name: {
                        "attack": name,
                        "difference": None,
                        "auc": _mean(select("auc", attack=name)),
                        "by_seed": [*select("auc", attack=name)["value"]],
                        "tpr": _mean(select("tpr_at_fpr", attack=name, target_fpr=0.01)),
                        "untrained": _mean(select("auc", attack=name, control="untrained")),
                    }
                    for name in select("n_members", attack=...)["attack"].unique()
                },
            }
        )
    fill_differences(points, study)
    return points


def _mean(rows: Any) -> dict[str, Any]:
    """Mean over seeds of a number, and of each end of its interval."""
    ends = rows[["ci_low", "ci_high"]].dropna()
    return {"mean": spread(rows["value"])["mean"], "ci": mean_interval(ends)}


def _count(rows: Any) -> int | None:
    return int(rows["value"].iloc[0]) if len(rows) else None


def mean_interval(intervals: Any) -> Interval | None:
    """The mean of each end of intervals (N, 2); None without any."""
    if not len(intervals):
        return None
    low, high = np.mean(np.asarray(intervals), axis=0)
    return (round(float(low), DIGITS), round(float(high), DIGITS))


def round_rows(points: Sequence[Any]) -> list[dict[str, Any]]:
    """Each attack at each round that more than one run has, over the runs."""
    rounds = group_by_key((point["round"], point) for point in points if point["round"] is not None)
    return [
        {
            "round": turn,
            "attack": name,
            "auc": spread(aucs),
            **{probe: spread(point[probe]["mean"] for point in of_round) for probe in PROBES},
        }
        for turn, of_round in sorted(rounds.items())
        if len(of_round) > 1
        for name, aucs in group_by_key(
            (name, row["auc"]["mean"]) for p in of_round for name, row in p["attacks"].items()
        ).items()
    ]


def fill_differences(points: Sequence[Any], study: StudyResult) -> None:
    """Fill in each attack's difference from the last encoder of the same run, or from the last of
    those that have no round.

    Args:
        points: the encoders.
        study: whose runs have the scores.
    """
    runs = [None if point["round"] is None else point["run"] for point in points]
    ends = {run: i for i, run in enumerate(runs)}
    pairs = [(i, ends[run]) for i, run in enumerate(runs) if i != ends[run]]
    family = sum(len(points[i]["attacks"]) for i, _ in pairs)
    for i, last in pairs:
        own, theirs = (scores_of(study, points[k]["point"]) for k in (i, last))
        both = [(own[seed], theirs[seed]) for seed in own if seed in theirs]
        both = [pair for pair in both if pair[0][PLACE].equals(pair[1][PLACE])]  # the same images
        for name, row in points[i]["attacks"].items():
            known = [_difference(*pair, name, family) for pair in both if name in pair[1]]
            if known:
                values, each, together = zip(*known, strict=True)
                row["difference"] = {
                    "last": points[last]["point"],
                    "mean": round(float(np.mean(values)), DIGITS),
                    "ci": mean_interval(each),
                    "ci_simultaneous": mean_interval(together),
                }


def scores_of(study: StudyResult, point: str) -> dict[int, Any]:
    """Seed -> scores of every image by the attacks of a finished audit of a point."""
    cells = (cell for cell in study.by_point()[point] if cell.name in study.runs)
    return {cell.seed: study.runs[cell.name].scores for cell in cells}


def _difference(first: Any, last: Any, attack: str, family: int) -> tuple[float, Any, Any]:
    """AUC on the first encoder less that on the last one, its interval by itself, and with `family`
    of them together."""
    a, b = (
        (scores[attack][scores["truth"]].to_numpy(), scores[attack][~scores["truth"]].to_numpy())
        for scores in (first, last)
    )
    each, together = (difference_interval(a, b, LEVEL, count) for count in (1, family))
    return auc_estimate(*a).value - auc_estimate(*b).value, each, together


@canvas.apply_style
def draw(points: Sequence[Any]) -> Figure | None:
    """AUC of the attacks over kNN and linear probe, by round or by encoder; None without any."""
    points = [point for point in points if point["verdicts"]]
    rows = [row for point in points for row in point["attacks"].values()]
    aucs = group_by_key((row["attack"], row["auc"]["mean"] or 0.0) for row in rows)
    names = sorted(aucs, key=lambda name: -max(aucs[name]))[:MOST]
    if not names:
        return None
    figure = canvas.new_figure(8, 6.4)
    probes = 1 + any(point[key]["mean"] is not None for point in points for key in PROBES)
    panels = figure.subplots(probes, 1, sharex=True, squeeze=False, height_ratios=(3, 2)[:probes])
    above, below = panels[0, 0], panels[-1, 0]  # without labels there is no probe: one panel
    lines = _lines(points)
    apart = APART * max(1.0, *(x for _, places in lines for x, _ in places))
    for j, (run, places) in enumerate(lines):
        dashes = {"linestyle": canvas.DASHES[j % len(canvas.DASHES)]}
        for i, name in enumerate(names):
            at = [
                (x + apart * (i - (len(names) - 1) / 2), p["attacks"][name])
                for x, p in places
                if name in p["attacks"]
            ]
            _line(above, at, "auc", canvas.look(i) | dashes, name * (j == 0))
            for x, row in at:
                dots = row["by_seed"] if len(row["by_seed"]) > 1 else []
                above.plot([x] * len(dots), dots, ".", color=canvas.look(i)["color"], alpha=0.5)
        for i, (key, name) in enumerate(PROBES.items()):
            look = {"color": (canvas.INK, canvas.GREY)[i], "marker": "os"[i]} | dashes
            at = [(x + apart * (i - 0.5), point) for x, point in places]
            _line(below, at, key, look, name * (j == 0))
        if len(lines) > 1:  # their dashes tell the runs apart
            below.plot([], [], color=canvas.GREY, **dashes, label=run)
    canvas.half_line(above)
    below.set_ylabel("accuracy")
    above.set_ylabel("AUC (0.5: no leakage)")
    if all(point["round"] is not None for point in points):
        canvas.whole_rounds(below)
    else:
        below.set_xticks(range(len(points)), [point["name"] for point in points])
        below.tick_params("x", labelrotation=20 * (len(points) > 3))
    for axes in panels[:, 0]:
        axes.legend(loc="best", ncols=2)
    return figure


def _lines(points: Sequence[Any]) -> list[tuple[str, list[tuple[float, Any]]]]:
    """The places of what one line joins: the rounds of a run, or encoders that have none."""
    if any(point["round"] is None for point in points):
        return [("the encoders", [(float(i), point) for i, point in enumerate(points)])]
    runs = group_by_key((point["run"], (float(point["round"]), point)) for point in points)
    return [(run, sorted(places, key=lambda at: at[0])) for run, places in runs.items()]


def _line(axes: Axes, rows: Sequence[Any], key: str, look: dict[str, Any], label: str) -> None:
    """Values with their intervals; those that are not known are left out."""
    values = [(x, row[key]["mean"], row[key]["ci"]) for x, row in rows]
    known = [one for one in values if one[1] is not None]
    if known:
        xs, ys, _ = zip(*known, strict=True)
        axes.plot(xs, ys, **look, markersize=5, linewidth=1.4, label=label or None)
    for x, y, ci in known:
        cross(axes, (x, y), None, ci, color=look["color"], alpha=0.4, linewidth=2.5)
