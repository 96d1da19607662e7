"""Audits of several encoders: what leaks and what use is left, from encoder to encoder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from fedmia.records.attack_rows import Interval
from fedmia.report.figures import canvas
from fedmia.report.words.numbers import format_p
from fedmia.settings.commands.study import split_encoders, split_round
from fedmia.statistics.auc import auc_estimate, difference_interval
from fedmia.statistics.intervals import LEVEL
from fedmia.statistics.spread import DIGITS, spread
from fedmia.study import guides, words
from fedmia.study.columns import columns_of, control_column
from fedmia.study.drawing import cross, slanted
from fedmia.study.points import group_by_key, known, numbers_of, over_models
from fedmia.study.result import StudyResult
from fedmia.study.rows import AttackPointRow, EncoderPointRow, OverModels
from fedmia.study.view import Drawing, Section, StudyView

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PLACE = ["image", "truth"]  # columns of scores.csv that tell images apart
PROBES = {"knn": "weighted kNN", "linear": "linear probe"}
MOST = 6  # attacks that are drawn, the most leaking ones
APART = 0.008  # of the width, between two intervals at one place
UNTRAINED = "untrained"


class EncodersView(StudyView):
    """Every attack on every encoder over the seeds, and each encoder beside the last one."""

    title: ClassVar[str] = "Audits of encoders"
    captions: ClassVar[Mapping[str, str]] = {
        "encoders": "Top: AUC of the most leaking attacks. Bottom: utility of the encoder. Bars: "
        "95 % intervals, for each number alone; dots: single seeds."
    }

    def sections(self, study: StudyResult) -> list[Section]:
        points = point_rows(study)
        rows = [row for point in points for row in point.attacks.values()]
        columns = {
            **columns_of(
                AttackPointRow, "point", "attack", "auc", "knn", "verdicts", "by_seed", "tpr",
                point="encoder", auc="AUC, 95 %",
            ),
            **control_column(UNTRAINED),
            **columns_of(AttackPointRow, "difference"),
        }  # fmt: skip
        limits = words.limits_alone("each number", "the scored images")
        return [
            Section(
                "Leakage and use", columns, rows, ("encoders",), 5, guides.ENCODERS, limits
            ),
            Section(
                "Encoders",
                columns_of(
                    EncoderPointRow, "point", "knn", "knn_untrained", "linear", "n_probe",
                    "n_members", "n_nonmembers", "verdicts", "sets", "failed",
                ),
                points,
            ),
        ]  # fmt: skip

    def sentence(self, study: StudyResult) -> str:
        return words.encoders_sentence(point_rows(study), [cell.state for cell in study.cells])

    def notes(self, study: StudyResult) -> list[str]:
        return words.encoder_notes(len({cell.seed for cell in study.cells}))

    def figures(self, study: StudyResult) -> dict[str, Drawing]:
        return {"encoders": lambda: draw(point_rows(study))}


def point_rows(study: StudyResult) -> list[EncoderPointRow]:
    """Each encoder over its seeds, with each attack's difference from the last encoder."""
    specs = split_encoders(",".join(study.settings["encoders"]))
    points = zip(specs, study.by_point(), strict=True)
    return with_differences([_point(study, *one) for one in points], study)


def _point(study: StudyResult, spec: str, point: str) -> EncoderPointRow:
    """An encoder over its seeds."""
    select, (run, turn) = partial(study.select, point=point), split_round(spec)
    sets = select("p_value", "dataset_inference", attack=...).groupby("attack", sort=False)
    names = select("n_members", attack=...)["attack"].unique()
    use = {probe: _mean(select(probe, "utility")) for probe in PROBES}
    verdicts = study.verdicts(point)
    return study.point_row(
        EncoderPointRow,
        point,
        **use,
        run=run,
        round=turn,
        n_members=_count(select("n_members")),
        n_nonmembers=_count(select("n_nonmembers")),
        n_probe=_count(select("n", "utility")),
        knn_untrained=_mean(select("knn", "utility", control=UNTRAINED)),
        sets=", ".join(
            f"{name} p {' '.join(map(_p_text, numbers_of(rows)))}" for name, rows in sets
        ),
        attacks={
            name: _attack(partial(select, attack=name), point, name, verdicts, use["knn"])
            for name in names
        },
    )


def _attack(
    select: Any, point: str, name: str, verdicts: dict[str, int], knn: OverModels
) -> AttackPointRow:
    """An attack on an encoder over the seeds."""
    aucs = select("auc")
    return AttackPointRow(
        point=point,
        attack=name,
        auc=_mean(aucs),
        by_seed=dict(zip(aucs["seed"], numbers_of(aucs), strict=True)),
        tpr=_mean(select("tpr_at_fpr", target_fpr=0.01)),
        verdicts=verdicts,
        knn=knn,
        choices={},
        controls={UNTRAINED: _mean(select("auc", control=UNTRAINED))},
        last=None,
        difference=None,
    )


def _p_text(value: float | str) -> str:
    return value if isinstance(value, str) else format_p(value)


def _mean(rows: Any) -> OverModels:
    """Mean over seeds of a number, and of each end of its interval."""
    ends = rows[rows["void"].isna()][["ci_low", "ci_high"]].dropna()
    return replace(over_models(numbers_of(rows)), ci=mean_interval(ends))


def _count(rows: Any) -> int | None:
    return int(rows["value"].iloc[0]) if len(rows) else None


def mean_interval(intervals: Any) -> Interval | None:
    """The mean of each end of intervals (N, 2); None without any."""
    if not len(intervals):
        return None
    low, high = np.mean(np.asarray(intervals), axis=0)
    return (round(float(low), DIGITS), round(float(high), DIGITS))


def with_differences(
    points: Sequence[EncoderPointRow], study: StudyResult
) -> list[EncoderPointRow]:
    """The encoders with each attack's difference from the last encoder of the same run, or from
    the last of those that have no round.

    Args:
        points: the encoders.
        study: whose runs have the scores.

    Returns:
        The encoders.
    """
    runs = [None if point.round is None else point.run for point in points]
    ends = {run: i for i, run in enumerate(runs)}
    family = sum(len(point.attacks) for i, point in enumerate(points) if i != ends[runs[i]])
    rows = []
    for i, point in enumerate(points):
        if i == (end := ends[runs[i]]):
            rows.append(point)
            continue
        own, theirs = (scores_of(study, points[k].point) for k in (i, end))
        both = [(own[seed], theirs[seed]) for seed in own if seed in theirs]
        both = [pair for pair in both if pair[0][PLACE].equals(pair[1][PLACE])]  # the same images
        attacks = {}
        for name, row in point.attacks.items():
            pairs = [_difference(*pair, name, family) for pair in both if name in pair[1]]
            last, difference = points[end].point, _over_seeds(pairs)
            changed = replace(row, last=last, difference=difference)
            attacks[name] = row if difference is None else changed
        rows.append(replace(point, attacks=attacks))
    return rows


def _over_seeds(pairs: Sequence[tuple[float, Any, Any]]) -> OverModels | None:
    """Mean difference of the seeds and of each end of its intervals; None without any."""
    if not pairs:
        return None
    values, each, together = zip(*pairs, strict=True)
    numbers = spread(values, -1.0) | {"mean": round(float(np.mean(values)), DIGITS)}
    numbers |= {"ci": mean_interval(each), "ci_simultaneous": mean_interval(together)}
    return OverModels(**numbers, void="")


def scores_of(study: StudyResult, point: str) -> dict[int, Any]:
    """Seed -> scores of every image by the attacks of a finished audit of a point that counts."""
    cells = (c for c in study.by_point()[point] if c.name in study.runs and c.void is None)
    return {c.seed: study.runs[c.name].scores.rename(columns=dict(study.called)) for c in cells}


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
def draw(points: Sequence[EncoderPointRow]) -> Figure | None:
    """AUC of the attacks over kNN and linear probe: by round where all encoders are of one run,
    else side by side; None without any."""
    points = [point for point in points if point.verdicts]
    rows = [row for point in points for row in point.attacks.values()]
    aucs = group_by_key((str(row.attack), row.auc.mean or 0.0) for row in rows)
    names = sorted(aucs, key=lambda name: -max(aucs[name]))[:MOST]
    if not names:
        return None
    figure = canvas.new_figure(canvas.COLUMN, 4.2)
    probes = 1 + any(getattr(point, key).mean is not None for point in points for key in PROBES)
    panels = figure.subplots(probes, 1, sharex=True, squeeze=False, height_ratios=(3, 2)[:probes])
    above, below = panels[0, 0], panels[-1, 0]  # without labels there is no probe: one panel
    if by_round := words.are_of_one_run(points):
        points = sorted(points, key=lambda point: point.round or 0)
    xs = [float(point.round or 0 if by_round else i) for i, point in enumerate(points)]
    apart = APART * max(1.0, *xs)
    for i, name in enumerate(names):
        look, shift = canvas.look(i), apart * (i - (len(names) - 1) / 2)
        own = [(x + shift, p.attacks.get(name)) for x, p in zip(xs, points, strict=True)]
        at = [(x, row) for x, row in own if row is not None]
        _line(above, at, "auc", look | {"linestyle": "-"}, name)
        for x, row in at:
            dots = known(row.by_seed.values()) if len(row.by_seed) > 1 else []
            above.plot([x] * len(dots), dots, ".", color=look["color"], alpha=0.5)
    for i, (key, name) in enumerate(PROBES.items()):
        look = {"color": (canvas.INK, canvas.GREY)[i], "marker": "os"[i], "linestyle": "-"}
        used = [(x + apart * (i - 0.5), point) for x, point in zip(xs, points, strict=True)]
        _line(below, used, key, look, name)
    canvas.half_line(above)
    below.set_ylabel("accuracy")
    above.set_ylabel("AUC (0.5: no leakage)")
    if by_round:
        canvas.whole_rounds(below)
    else:
        labels = ["\n".join(filter(None, (p.point, p.void))) for p in points]
        slanted(figure, below, labels)
    for axes in panels[:, 0]:
        axes.legend(loc="best")
    return figure


def _line(axes: Axes, rows: Sequence[Any], key: str, look: dict[str, Any], label: str) -> None:
    """Values with their intervals; those that are not known are left out."""
    values = [(x, getattr(row, key).mean, getattr(row, key).ci) for x, row in rows]
    known = [one for one in values if one[1] is not None]
    if known:
        xs, ys, _ = zip(*known, strict=True)
        axes.plot(xs, ys, **look, label=label)
    for x, y, ci in known:
        cross(axes, (x, y), None, ci, color=look["color"], alpha=0.4, linewidth=2.5)
