"""A sweep: every point of a study over its models, and each point beside its neighbours."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping
from typing import Any, ClassVar

from fedmia.records.fields import fields_of
from fedmia.settings.commands.study import format_grid_value, label
from fedmia.study import guides, words
from fedmia.study.columns import columns_of, control_column, inside
from fedmia.study.drawing import forest, lines
from fedmia.study.points import change, compare, over_models, with_holm
from fedmia.study.result import StudyResult, Values
from fedmia.study.rows import AttackPointRow, ComparisonRow, OptionRow, PointRow
from fedmia.study.view import Drawing, Section, StudyView


class SweepView(StudyView):
    """Every point over its models, and points that differ in one option."""

    captions: ClassVar[Mapping[str, str]] = {
        "attacks": "AUC of each attack at each point: one dot for each model, with the mean and "
        "its 95 % interval between models.",
        "pairs": "AUC that each attack adds to its paired control: one dot for each model, with "
        "the mean and its 95 % interval between models.",
    }

    def sections(self, study: StudyResult) -> list[Section]:
        place, (pairs, sets) = study.place, control_rows(study)
        tested = inside(ComparisonRow, "difference", "n", "least", "greatest") | columns_of(
            ComparisonRow, "p", "p_holm"
        )
        of_pairs = (*place, "attack", "other", "difference")
        of_sets = (*place, "attack", "other", "judged", "size", "auc")
        tests = words.corrected(sum(row.p is not None for row in (*pairs, *sets)))
        return [
            _attacks(study),
            Section(
                "Attacks minus their paired controls",
                columns_of(ComparisonRow, *of_pairs) | tested,
                pairs,
                ("pairs",),
                len(of_pairs) + 1,
                guides.PAIRS,
                f"{words.limits_alone('each difference')} {tests}",
            ),
            Section(
                "Sets of images",
                columns_of(ComparisonRow, *of_sets)
                | inside(ComparisonRow, "auc", "n")
                | columns_of(ComparisonRow, "difference", difference="minus its control, 95 %")
                | tested,
                sets,
                about=guides.SETS,
            ),
            Section(
                "Utility and verdicts",
                columns_of(
                    PointRow, *place, "knn", "linear", "knn_after_attack", "verdicts", "finished",
                    "failed",
                ),
                point_rows(study),
            ),
            Section(
                "Differences between points, paired by seed",
                columns_of(OptionRow) | inside(OptionRow, "difference", "n"),
                differences(study),
            ),
        ]  # fmt: skip

    def sentence(self, study: StudyResult) -> str:
        return words.runs_sentence(study.cells)

    def notes(self, study: StudyResult) -> list[str]:
        return words.sweep_notes(study.cells)

    def figures(self, study: StudyResult) -> dict[str, Drawing]:
        aucs = study.values("auc", "attack")
        pairs = {
            (point, f"{attack} less {control}"): by_seed
            for (point, attack, control), by_seed in _pairs(study).items()
        }
        about = "AUC minus AUC of the paired control"
        return {
            "attacks": lambda: forest(lines(study, aucs), "AUC (0.5: no leakage)", 0.5, 0.0),
            "pairs": lambda: forest(lines(study, pairs), about, 0.0),
        }


def _attacks(study: StudyResult) -> Section:
    """The attacks, by point where there are several."""
    rows, place = attack_rows(study), study.place
    # Of one point the verdicts stand in the table of use and verdicts alone.
    verdicts = columns_of(AttackPointRow, "verdicts") if place else {}
    columns = {
        **columns_of(AttackPointRow, *place, "attack", "auc"),
        **inside(AttackPointRow, "auc", "n"),
        **verdicts,
        **inside(AttackPointRow, "auc", "least", "greatest"),
        **columns_of(AttackPointRow, "tpr", "choices"),
    }
    for name in dict.fromkeys(name for row in rows for name in row.controls):
        columns |= control_column(name)
    title, brief = "Attacks, by point" if place else "Attacks", len(place) + 3 + len(verdicts)
    limits = words.limits_alone("each AUC")
    return Section(title, columns, rows, ("attacks",), brief, guides.POINTS, limits)


def attack_rows(study: StudyResult) -> list[AttackPointRow]:
    """Each attack at each point over the models, the most leaking first; its controls beside."""
    rows, order = every_attack(study), [*study.by_point()]
    return sorted(rows, key=lambda row: (order.index(row.point), -(row.auc.mean or 0.0)))


def every_attack(study: StudyResult) -> list[AttackPointRow]:
    """Each attack at each point over the models, with intervals that hold each by itself."""
    aucs = study.values("auc", "attack")
    rates = study.values("tpr_at_fpr", "attack", target_fpr=0.01)
    controls = study.values("auc", "attack", "control")
    chosen = Counter[tuple[str, str, str]]()
    for point, cells in study.by_point().items():
        for cell in cells:
            chosen.update((point, name, label(one)) for name, one in cell.choices.items() if one)
    rows = []
    for place in study.values("n_members", "attack"):
        point, attack = place
        rows.append(
            AttackPointRow(
                point=point,
                attack=attack,
                auc=over_models(aucs.get(place, {}).values()),
                by_seed=aucs.get(place, {}),
                tpr=over_models(rates.get(place, {}).values()),
                verdicts=study.verdicts(point),
                knn=over_models(study.use["knn"].get((point,), {}).values()),
                choices={
                    text: count for (*at, text), count in chosen.most_common() if tuple(at) == place
                },
                controls={
                    control: over_models(values.values())
                    for (*at, control), values in controls.items()
                    if tuple(at) == place
                },
                last=None,
                difference=None,
            )
        )
    return rows


def control_rows(study: StudyResult) -> tuple[list[ComparisonRow], list[ComparisonRow]]:
    """What each attack adds to its paired controls, and sets of images; Holm's p holds for all."""
    pairs = [
        compare(point, attack, control, "AUC", by_seed)
        for (point, attack, control), by_seed in _pairs(study).items()
    ]
    sets = [row for way in ("mean", "alone") for row in _sets(study, way)]
    rows = with_holm([*pairs, *sets])
    return rows[: len(pairs)], rows[len(pairs) :]


def _sets(study: StudyResult, way: str) -> list[ComparisonRow]:
    """Sets of images under each attack, beside each of its controls."""
    subject = f"set/{way}"
    aucs = study.values("auc", "attack", "set_size", subject=subject)
    less = study.values("auc_difference", "attack", "set_size", "baseline", subject=subject)
    rows = []
    for place, values in aucs.items():
        point, attack, size = place
        own: Any = {"judged": way, "size": int(size), "auc": over_models(values.values())}
        added: Any = {key[3]: v for key, v in less.items() if key[:3] == place} or {None: {}}
        rows += [compare(point, attack, other, "AUC", v, **own) for other, v in added.items()]
    return rows


def point_rows(study: StudyResult) -> list[PointRow]:
    """Use and verdicts of each point."""
    return [study.point_row(PointRow, point) for point in study.by_point()]


def differences(study: StudyResult) -> list[OptionRow]:
    """Every two points whose grids differ in one option, compared seed by seed: the second less the
    first."""
    heads = {name: field.head.removesuffix(", 95 %") for name, field in fields_of(PointRow).items()}
    probed = {heads[name]: values for name, values in study.use.items()}
    measured = {"AUC": study.values("auc", "attack"), **probed}
    grids = {point: cells[0].grid for point, cells in study.by_point().items()}
    rows = []
    for (one, a), (other, b) in itertools.combinations(grids.items(), 2):
        paths = [path for path in a if a.keys() == b.keys() and a[path] != b[path]]
        if len(paths) != 1:
            continue
        first, second = (format_grid_value(grid[paths[0]]) for grid in (a, b))
        where = label({path: value for path, value in a.items() if path != paths[0]})
        for measure, values in measured.items():
            for (at, *attack), theirs in values.items():
                less = change(values.get((other, *attack), {}), theirs)
                if at == one and (less.n or less.void):
                    rows.append(
                        OptionRow(
                            option=paths[0], first=first, second=second, where=where,
                            measure=measure, attack="".join(attack), difference=less,
                        )
                    )  # fmt: skip
    return rows


def _pairs(study: StudyResult) -> Values:
    return study.values("auc_difference", "attack", "baseline", subject="pair")
