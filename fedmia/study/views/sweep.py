"""A sweep: every point of a study over its models, and each point beside its neighbours."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from fedmia.config.study import format_grid_value, label
from fedmia.statistics.spread import spread
from fedmia.study.drawing import forest
from fedmia.study.points import BySeed, change, fill_holm, test_difference
from fedmia.study.result import StudyResult
from fedmia.study.view import Drawing, Section, View

MEASURES = {
    "auc": "AUC",
    "knn": "weighted kNN",
    "linear": "linear probe",
    "knn_after_attack": "kNN after the attack",
}
TESTED = {
    "difference.n": "models",
    "difference.least": "least",
    "difference.greatest": "greatest",
    "p": "p",
    "p_holm": "p, Holm",
}
ATTACKS = {
    "name": "point",
    "attack": "attack",
    "auc": "mean AUC, 95 %",
    "auc.n": "models",
    "verdicts": "verdicts",
    "auc.least": "least",
    "auc.greatest": "greatest",
    "tpr": "TPR at 1 % FPR, 95 %",
    "chosen": "chosen",
}
PAIRS = {
    "name": "point",
    "attack": "attack",
    "control": "control",
    "+difference": "mean difference of AUCs, 95 %",
    **TESTED,
}
SETS = {
    "name": "point",
    "attack": "attack",
    "judged": "score of a set",
    "size": "images a set",
    "auc": "mean AUC, 95 %",
    "auc.n": "models",
    "+difference": "minus its control, 95 %",
    **TESTED,
}
POINTS = {
    "name": "point",
    **{key: f"{name}, 95 %" for key, name in list(MEASURES.items())[1:]},
    "verdicts": "verdicts",
    "finished": "models",
    "failed": "failed",
}
DIFFERENCES = {
    "option": "option",
    "from": "from",
    "to": "to",
    "where": "where",
    "of": "of",
    "attack": "attack",
    "+difference": "mean difference, 95 %",
    "difference.n": "models",
}


@dataclass(frozen=True)
class SweepView(View):
    """Every point over its models, and points that differ in one option."""

    captions: ClassVar[Mapping[str, str]] = {
        "attacks": "AUC of each attack at each point: one dot for each model, with the mean and "
        "its 95 % interval between models.",
        "pairs": "AUC that each attack adds to its paired control: one dot for each model, with "
        "the mean and its 95 % interval between models.",
    }

    def sections(self, study: StudyResult) -> list[Section]:
        attacks, (pairs, sets) = attack_rows(study), control_rows(study)
        names = dict.fromkeys(name for row in attacks for name in row["controls"])
        controls = {f"controls.{name}.mean": f"{name} control" for name in names}
        return [
            Section("Attacks, by point", ATTACKS | controls, attacks, ("attacks",), 5),
            Section("Attacks minus their paired controls", PAIRS, pairs, ("pairs",), 5),
            Section("Sets of images", SETS, sets),
            Section("Utility and verdicts", POINTS, point_rows(study)),
            Section("Differences between points, paired by seed", DIFFERENCES, differences(study)),
        ]

    def sentence(self, study: StudyResult) -> str:
        codes = Counter(cell.verdict_code for cell in study.cells if cell.verdict_code)
        line = f"{codes.total()} of {len(study.cells)} runs are finished; "
        line += f"{codes.pop('leaks', 0)} of them leak membership"
        line += "".join(f"; {code}: {n}" for code, n in codes.items() if code != "not-established")
        failed = sum(cell.state == "failed" for cell in study.cells)
        return line + (f"; failed and left out: {failed}." if failed else ".")

    def notes(self, study: StudyResult) -> list[str]:
        lines = []
        if len({cell.seed for cell in study.cells}) == 1:
            lines.append(
                "One seed: there is no interval between models. Five or more seeds give one worth "
                "having."
            )
        commits = {cell.commit for cell in study.cells if cell.path}
        if len(commits) > 1:
            lines.append(f"The runs were made by {len(commits)} commits of fedmia.")
        return lines

    def figures(self, study: StudyResult) -> dict[str, Drawing]:
        aucs = _lines(study, study.values("auc", "attack"))
        pairs = _lines(
            study,
            {
                (point, f"{attack} less {control}"): by_seed
                for (point, attack, control), by_seed in _pairs(study).items()
            },
        )
        return {
            "attacks": lambda: forest(aucs, "AUC (0.5: no leakage)", 0.5, 0.0),
            "pairs": lambda: forest(pairs, "AUC minus AUC of the paired control", 0.0),
        }


def attack_rows(study: StudyResult) -> list[dict[str, Any]]:
    """Each attack at each point over the models, the most leaking first; its controls beside."""
    controls, aucs = study.values("auc", "attack", "control"), study.values("auc", "attack")
    rates = study.values("tpr_at_fpr", "attack", target_fpr=0.01)
    cells, rows = study.by_point(), list[dict[str, Any]]()
    for place in study.values("n_members", "attack"):
        point, attack = place
        chosen = [cell.choices[attack] for cell in cells[point] if attack in cell.choices]
        rows.append(
            {
                "point": point,
                "name": study.name(point),
                "attack": attack,
                "auc": spread(aucs.get(place, {}).values()),
                "tpr": spread(rates.get(place, {}).values()),
                "controls": {
                    k[2]: spread(v.values()) for k, v in controls.items() if k[:2] == place
                },
                "chosen": dict(Counter(label(choices) for choices in chosen).most_common()),
                "verdicts": study.verdicts(point),
            }
        )
    order = [*cells]
    return sorted(rows, key=lambda r: (order.index(r["point"]), -(r["auc"]["mean"] or 0.0)))


def control_rows(study: StudyResult) -> tuple[list[Any], list[Any]]:
    """What each attack adds to its paired controls, and sets of images; Holm's p holds for all."""
    pairs: list[Any] = [
        {
            "point": point,
            "name": study.name(point),
            "attack": attack,
            "control": control,
            **test_difference(by_seed.values()),
        }
        for (point, attack, control), by_seed in _pairs(study).items()
    ]
    sets: list[Any] = []
    for subject in ("set/mean", "set/alone"):
        less = study.values("auc_difference", "attack", "set_size", "baseline", subject=subject)
        added = {key[:3]: (key[3], by_seed) for key, by_seed in less.items()}
        for place, by_seed in study.values("auc", "attack", "set_size", subject=subject).items():
            (point, attack, size), (control, own) = place, added.get(place, (None, {}))
            sets.append(
                {
                    "point": point,
                    "name": study.name(point),
                    "attack": attack,
                    "control": control,
                    "judged": subject.removeprefix("set/"),
                    "size": int(size),
                    "auc": spread(by_seed.values()),
                    **test_difference(own.values()),
                }
            )
    fill_holm([*pairs, *sets])
    return pairs, sets


def point_rows(study: StudyResult) -> list[dict[str, Any]]:
    """Use and verdicts of each point."""
    probes = _probes(study)
    return [
        {
            "point": point,
            "name": study.name(point),
            "verdicts": study.verdicts(point),
            "finished": sum(cell.state == "finished" for cell in cells),
            "failed": sum(cell.state == "failed" for cell in cells),
            **{name: spread(values.get((point,), {}).values()) for name, values in probes.items()},
        }
        for point, cells in study.by_point().items()
    ]


def differences(study: StudyResult) -> list[dict[str, Any]]:
    """Every two points whose grids differ in one option, compared seed by seed: the second less the
    first."""
    measured = {("auc", name, at): v for (at, name), v in study.values("auc", "attack").items()}
    for measure, probed in _probes(study).items():
        measured |= {(measure, None, point): by_seed for (point,), by_seed in probed.items()}
    points = [(point, cells[0].grid) for point, cells in study.by_point().items()]
    rows: list[dict[str, Any]] = []
    for (one, a), (other, b) in itertools.combinations(points, 2):
        if a.keys() != b.keys() or len(paths := [path for path in a if a[path] != b[path]]) != 1:
            continue
        (path,), ends = paths, [(a, study.mark(one)), (b, study.mark(other))]
        values = [format_grid_value(grid[path]) + mark for grid, mark in ends]
        for (measure, attack, at), theirs in measured.items():
            less = change(measured.get((measure, attack, other), {}), theirs)
            if at == one and less["n"]:
                rows.append(
                    {
                        "option": path,
                        "from": values[0],
                        "to": values[1],
                        "where": label({k: v for k, v in a.items() if k != path}),
                        "of": MEASURES[measure],
                        "attack": attack,
                        "difference": less,
                    }
                )
    return rows


def _pairs(study: StudyResult) -> dict[tuple[Any, ...], dict[int, float]]:
    return study.values("auc_difference", "attack", "baseline", subject="pair")


def _probes(study: StudyResult) -> dict[str, dict[tuple[Any, ...], dict[int, float]]]:
    after = study.values("knn", subject="utility/after_attack")
    use = {name: study.values(name, subject="utility") for name in ("knn", "linear")}
    return {**use, "knn_after_attack": after}


def _lines(
    study: StudyResult, values: Mapping[tuple[Any, ...], BySeed]
) -> list[tuple[str, dict[str, Sequence[float]]]]:
    """Each point with the values of its models, as `forest` draws them."""
    return [
        (
            study.name(point).replace(", ", "\n"),
            {name: [*v.values()] for (at, name), v in values.items() if at == point},
        )
        for point in study.by_point()
    ]
