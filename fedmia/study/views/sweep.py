"""A sweep: every point of a study over its models, and each point beside its neighbours."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping
from typing import Any, ClassVar

from fedmia.config.study import format_grid_value, label
from fedmia.report.codes import LEAKS
from fedmia.study.columns import HEADS, heads
from fedmia.study.drawing import forest, lines
from fedmia.study.points import change, fill_holm, over_models, test_difference
from fedmia.study.result import StudyResult, Values
from fedmia.study.view import Drawing, Section, View

TESTED = "difference.n difference.least difference.greatest p p_holm"
ATTACKS = heads("name attack auc auc.n verdicts auc.least auc.greatest tpr chosen")
PAIRS = heads(
    f"name attack control +difference {TESTED}", {"+difference": "mean difference of AUCs, 95 %"}
)
SETS = heads(
    f"name attack judged size auc auc.n +difference {TESTED}",
    {
        "judged": "score of a set",
        "size": "images a set",
        "+difference": "minus its control, 95 %",
    },
)
POINTS = heads("name knn linear knn_after_attack verdicts finished failed")
DIFFERENCES = heads(
    "option from to where of attack +difference difference.n",
    {"+difference": "mean difference, 95 %"},
)


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
        codes = Counter(cell.outcome for cell in study.cells if cell.outcome)
        leaking = sum(codes[code] for code in LEAKS)
        line = f"{codes.total()} of {len(study.cells)} runs are finished; "
        line += f"{leaking} of them leak membership"
        line += f", {doubted} without a control" if (doubted := codes[LEAKS[1]]) else ""
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


def attack_rows(study: StudyResult) -> list[dict[str, Any]]:
    """Each attack at each point over the models, the most leaking first; its controls beside."""
    controls = study.values("auc", "attack", "control")
    rows = study.rows(
        study.values("n_members", "attack"),
        "attack",
        auc=study.values("auc", "attack"),
        tpr=study.values("tpr_at_fpr", "attack", target_fpr=0.01),
    )
    for row in rows:
        point, attack = row["point"], row["attack"]
        chosen = (cell.choices.get(attack) for cell in study.by_point()[point])
        row["chosen"] = dict(Counter(label(one) for one in chosen if one).most_common())
        own = {key[2]: by_seed for key, by_seed in controls.items() if key[:2] == (point, attack)}
        row["controls"] = {name: over_models(v.values()) for name, v in own.items()}
    order = [*study.by_point()]
    return sorted(rows, key=lambda r: (order.index(r["point"]), -(r["auc"]["mean"] or 0.0)))


def control_rows(study: StudyResult) -> tuple[list[Any], list[Any]]:
    """What each attack adds to its paired controls, and sets of images; Holm's p holds for all."""
    less, sets = _pairs(study), list[Any]()
    pairs = [
        {**row, **test_difference(by_seed.values())}
        for row, by_seed in zip(study.rows(less, "attack", "control"), less.values(), strict=True)
    ]
    for subject in ("set/mean", "set/alone"):
        aucs = study.values("auc", "attack", "set_size", subject=subject)
        less = study.values("auc_difference", "attack", "set_size", "baseline", subject=subject)
        for place, row in zip(aucs, study.rows(aucs, "attack", "size", auc=aucs), strict=True):
            row |= {"judged": subject.removeprefix("set/"), "size": int(row["size"])}
            added = {key[3]: own for key, own in less.items() if key[:3] == place} or {None: {}}
            for control, own in added.items():
                sets.append({**row, "control": control, **test_difference(own.values())})
    fill_holm([*pairs, *sets])
    return pairs, sets


def point_rows(study: StudyResult) -> list[dict[str, Any]]:
    """Use and verdicts of each point."""
    return study.rows(zip(study.by_point()), **_probes(study))


def differences(study: StudyResult) -> list[dict[str, Any]]:
    """Every two points whose grids differ in one option, compared seed by seed: the second less the
    first."""
    probed = {HEADS[k].removesuffix(", 95 %"): values for k, values in _probes(study).items()}
    measured = {"AUC": study.values("auc", "attack"), **probed}
    grids = {point: cells[0].grid for point, cells in study.by_point().items()}
    rows: list[dict[str, Any]] = []
    for (one, a), (other, b) in itertools.combinations(grids.items(), 2):
        paths = [path for path in a if a.keys() == b.keys() and a[path] != b[path]]
        if len(paths) != 1:
            continue
        first, second = (format_grid_value(grid[paths[0]]) for grid in (a, b))
        compared = {
            "option": paths[0],
            "from": first,
            "to": second,
            "where": label({path: value for path, value in a.items() if path != paths[0]}),
        }
        for of, values in measured.items():
            for (at, *attack), theirs in values.items():
                less = change(values.get((other, *attack), {}), theirs)
                if at == one and (less["n"] or less["void"]):
                    who = {"of": of, "attack": "".join(attack)}
                    rows.append({**compared, **who, "difference": less})
    return rows


def _pairs(study: StudyResult) -> Values:
    return study.values("auc_difference", "attack", "baseline", subject="pair")


def _probes(study: StudyResult) -> dict[str, Values]:
    after = study.values("knn", subject="utility/after_attack")
    use = {name: study.values(name, subject="utility") for name in ("knn", "linear")}
    return {**use, "knn_after_attack": after}
