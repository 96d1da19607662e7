"""Audits of several encoders: what leaks and what use is left, from encoder to encoder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from fedmia.config.study import split_encoders, split_round
from fedmia.records.attack_rows import Interval
from fedmia.report.figures import canvas
from fedmia.report.words.numbers import estimate, format_p
from fedmia.statistics.auc import auc_estimate, difference_interval
from fedmia.statistics.intervals import LEVEL
from fedmia.statistics.spread import DIGITS
from fedmia.study.columns import heads
from fedmia.study.drawing import cross
from fedmia.study.points import group_by_key, known, numbers_of, over_models
from fedmia.study.result import StudyResult
from fedmia.study.view import Drawing, Section, View

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PLACE = ["image", "truth"]  # columns of scores.csv that tell images apart
PROBES = {"knn": "weighted kNN", "linear": "linear probe"}
MOST = 6  # attacks that are drawn, the most leaking ones
APART = 0.008  # of the width, between two intervals at one place
ATTACKS = heads(
    "name attack auc knn verdicts by_seed tpr.mean untrained.mean +difference",
    {
        "name": "encoder",
        "auc": "AUC, 95 %",
        "by_seed": "by seed",
        "tpr.mean": "TPR at 1 % FPR",
        "untrained.mean": "untrained control",
        "+difference": "minus the last encoder, 95 %",
    },
)
POINTS = heads(
    "name knn knn_untrained.mean linear n_probe n_members n_nonmembers verdicts sets failed",
    {
        "name": "encoder",
        "knn_untrained.mean": "untrained kNN",
        "n_probe": "test images",
        "n_members": "members",
        "n_nonmembers": "non-members",
        "sets": "data set, p",
    },
)


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
        ]

    def sentence(self, study: StudyResult) -> str:
        return sentence(point_rows(study), [cell.state for cell in study.cells])

    def notes(self, study: StudyResult) -> list[str]:
        if (seeds := len({cell.seed for cell in study.cells})) == 1:
            return []
        return [
            f"{seeds} seeds audit each encoder. Each seed has its own views, and its own known "
            "images unless a run names them. The model is the same, so the seeds do not cover the "
            "variation between trainings."
        ]

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
    if are_of_one_run(known):
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


def are_of_one_run(points: Sequence[Any]) -> bool:
    """Whether all encoders are rounds of one run."""
    runs = {point["run"] if point["round"] is not None else None for point in points}
    return len(runs) == 1 and None not in runs


def point_rows(study: StudyResult) -> list[dict[str, Any]]:
    """Each encoder over its seeds, with each attack's difference from the last encoder."""
    specs = split_encoders(",".join(study.settings["encoders"]))
    points = study.rows(zip(study.by_point()))
    for spec, point in zip(specs, points, strict=True):
        select, (run, turn) = partial(study.select, point=point["point"]), split_round(spec)
        sets = select("p_value", "dataset_inference", attack=...).groupby("attack", sort=False)
        names = select("n_members", attack=...)["attack"].unique()
        point |= {
            "run": run,
            "round": turn,
            "n_members": _count(select("n_members")),
            "n_nonmembers": _count(select("n_nonmembers")),
            "n_probe": _count(select("n", "utility")),
            **{probe: _mean(select(probe, "utility")) for probe in PROBES},
            "knn_untrained": _mean(select("knn", "utility", control="untrained")),
            "sets": ", ".join(
                f"{name} p {' '.join(map(_p_text, numbers_of(rows)))}" for name, rows in sets
            ),
            "attacks": {name: _attack(partial(select, attack=name), name) for name in names},
        }
    fill_differences(points, study)
    return points


def _attack(select: Any, name: str) -> dict[str, Any]:
    """An attack on an encoder over the seeds."""
    return {
        "attack": name,
        "difference": None,
        "auc": _mean(select("auc")),
        "by_seed": numbers_of(select("auc")),
        "tpr": _mean(select("tpr_at_fpr", target_fpr=0.01)),
        "untrained": _mean(select("auc", control="untrained")),
    }


def _p_text(value: float | str) -> str:
    return value if isinstance(value, str) else format_p(value)


def _mean(rows: Any) -> dict[str, Any]:
    """Mean over seeds of a number, and of each end of its interval; what is void as of `spread`."""
    whole = over_models(numbers_of(rows))
    ends = rows[rows["void"].isna()][["ci_low", "ci_high"]].dropna()
    return {"mean": whole["mean"], "ci": mean_interval(ends), "void": whole["void"]}


def _count(rows: Any) -> int | None:
    return int(rows["value"].iloc[0]) if len(rows) else None


def mean_interval(intervals: Any) -> Interval | None:
    """The mean of each end of intervals (N, 2); None without any."""
    if not len(intervals):
        return None
    low, high = np.mean(np.asarray(intervals), axis=0)
    return (round(float(low), DIGITS), round(float(high), DIGITS))


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
    """Seed -> scores of every image by the attacks of a finished audit of a point that counts."""
    cells = (c for c in study.by_point()[point] if c.name in study.runs and c.void is None)
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
    """AUC of the attacks over kNN and linear probe: by round where all encoders are of one run,
    else side by side; None without any."""
    points = [point for point in points if point["verdicts"]]
    rows = [row for point in points for row in point["attacks"].values()]
    aucs = group_by_key((row["attack"], row["auc"]["mean"] or 0.0) for row in rows)
    names = sorted(aucs, key=lambda name: -max(aucs[name]))[:MOST]
    if not names:
        return None
    figure = canvas.new_figure(canvas.COLUMN, 4.2)
    probes = 1 + any(point[key]["mean"] is not None for point in points for key in PROBES)
    panels = figure.subplots(probes, 1, sharex=True, squeeze=False, height_ratios=(3, 2)[:probes])
    above, below = panels[0, 0], panels[-1, 0]  # without labels there is no probe: one panel
    if by_round := are_of_one_run(points):
        points = sorted(points, key=lambda point: point["round"])
    xs = [float(point["round"] if by_round else i) for i, point in enumerate(points)]
    apart = APART * max(1.0, *xs)
    for i, name in enumerate(names):
        look, shift = canvas.look(i), apart * (i - (len(names) - 1) / 2)
        own = [(x + shift, p["attacks"].get(name)) for x, p in zip(xs, points, strict=True)]
        at = [(x, row) for x, row in own if row is not None]
        _line(above, at, "auc", look | {"linestyle": "-"}, name)
        for x, row in at:
            dots = known(row["by_seed"]) if len(row["by_seed"]) > 1 else []
            above.plot([x] * len(dots), dots, ".", color=look["color"], alpha=0.5)
    for i, (key, name) in enumerate(PROBES.items()):
        look = {"color": (canvas.INK, canvas.GREY)[i], "marker": "os"[i], "linestyle": "-"}
        at = [(x + apart * (i - 0.5), point) for x, point in zip(xs, points, strict=True)]
        _line(below, at, key, look, name)
    canvas.half_line(above)
    below.set_ylabel("accuracy")
    above.set_ylabel("AUC (0.5: no leakage)")
    if by_round:
        canvas.whole_rounds(below)
    else:
        labels = ["\n".join(filter(None, (p["name"], p["void"]))) for p in points]
        below.set_xticks(range(len(points)), labels)
        below.tick_params("x", labelrotation=20 * (len(points) > 3))
    for axes in panels[:, 0]:
        axes.legend(loc="best")
    return figure


def _line(axes: Axes, rows: Sequence[Any], key: str, look: dict[str, Any], label: str) -> None:
    """Values with their intervals; those that are not known are left out."""
    values = [(x, row[key]["mean"], row[key]["ci"]) for x, row in rows]
    known = [one for one in values if one[1] is not None]
    if known:
        xs, ys, _ = zip(*known, strict=True)
        axes.plot(xs, ys, **look, label=label)
    for x, y, ci in known:
        cross(axes, (x, y), None, ci, color=look["color"], alpha=0.4, linewidth=2.5)
