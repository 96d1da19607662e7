"""Attack against attack: what each adds to a baseline, on the same models and the same images."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from fedmia.options import session
from fedmia.statistics.intervals import LEVEL
from fedmia.study.drawing import forest
from fedmia.study.points import fill_holm, group_by_key, test_difference
from fedmia.study.result import StudyResult
from fedmia.study.view import Drawing, Section, View

# Metric of the table and false-positive rate that it is at -> what it is called.
MEASURES: Mapping[str, tuple[str, float | None]] = {
    "AUC": ("auc", None),
    "TPR at 1 % FPR": ("tpr_at_fpr", 0.01),
}
# What both attacks of a difference share: model, measure, and how many images they scored.
SAME = ["point", "seed", "measure", "n_members", "n_nonmembers"]


@dataclass(frozen=True)
class BaselineView(View):
    """Every other attack less one, by point of the study."""

    title: ClassVar[str] = "Attack against attack"
    captions: ClassVar[Mapping[str, str]] = {
        "baseline": "AUC of each attack minus that of the baseline: one dot for each model, with "
        "the mean and its 95 % interval between models."
    }

    def sections(self, study: StudyResult) -> list[Section]:
        rows, baseline = comparisons(study, baseline_of(study)), baseline_of(study)
        columns = {
            "name": "point", "attack": "attack", "measure": "measure",
            "+difference": f"minus {baseline}, 95 %", "p_holm": f"p, Holm, over all {len(rows)}",
            "difference.n": "models", "difference.least": "least",
            "difference.greatest": "greatest", "p": "p",
        }  # fmt: skip
        return [Section(self.title, columns, rows, ("baseline",), 6)]

    def sentence(self, study: StudyResult) -> str:
        return sentence(comparisons(study, baseline_of(study)), baseline_of(study))

    def figures(self, study: StudyResult) -> dict[str, Drawing]:
        baseline = baseline_of(study)
        aucs = [row for row in comparisons(study, baseline) if row["measure"] == "AUC"]
        lines = [
            (name.replace(", ", "\n"), {row["attack"]: [*row["by_seed"].values()] for row in rows})
            for name, rows in group_by_key((row["name"], row) for row in aucs).items()
        ]
        return {"baseline": lambda: forest(lines, f"AUC minus AUC of {baseline}", 0.0)}


def baseline_of(study: StudyResult) -> str:
    """The attack that a study's settings name, as its reports call it."""
    return session.short_name(str(study.settings["baseline"]))


def comparisons(
    study: StudyResult, baseline: str, attacks: Iterable[str] | None = None
) -> list[dict[str, Any]]:
    """Every other attack at every point, by each measure; Holm's p holds for all rows.

    Both attacks of a difference scored one model on the same images: an attack that scored more or
    fewer in a run is left out there. Differences are paired by seed.

    Args:
        study: with the table.
        baseline: attack that the others are compared with.
        attacks: their names; None: all.

    Returns:
        A row a point, attack and measure: the differences by seed and over models.
    """
    import pandas as pd

    measured = MEASURES.items()
    parts = [study.select(m, target_fpr=fpr).assign(measure=name) for name, (m, fpr) in measured]
    scores = pd.concat(parts).sort_index()  # as the table has them
    base = scores[scores["attack"] == baseline][[*SAME, "value"]]
    others = scores[scores["attack"].isin(list(attacks or scores["attack"].unique()))]
    both = others[others["attack"] != baseline].merge(base, on=SAME, suffixes=("", "_baseline"))
    both["difference"] = (both["value"] - both["value_baseline"]).round(6)
    rows: list[dict[str, Any]] = []
    for (point, attack, measure), group in both.groupby(["point", "attack", "measure"], sort=False):
        by_seed = dict(zip(group["seed"], group["difference"], strict=True))
        rows.append({
            "point": point, "name": study.name(point), "attack": attack, "measure": measure,
            "by_seed": by_seed, **test_difference(by_seed.values()),
        })  # fmt: skip
    fill_holm(rows)
    return rows


def sentence(rows: Sequence[Any], baseline: str) -> str:
    """In how many points each attack lies over the baseline, by its corrected AUC.

    Args:
        rows: the comparisons.
        baseline: attack that the others are compared with.

    Returns:
        The sentence.
    """
    rows = [row for row in rows if row["measure"] == "AUC"]
    if all(row["p"] is None for row in rows):
        return (
            f"No difference to {baseline} can be tested: that takes two seeds or more, and models "
            "that differ."
        )
    parts = []
    for name, own in group_by_key((row["attack"], row) for row in rows).items():
        settled = [row for row in own if (row["p_holm"] or 0) <= 1 - LEVEL and row["p"] is not None]
        over = sum(row["difference"]["mean"] > 0 for row in settled)
        below = sum(row["difference"]["mean"] < 0 for row in settled)
        many = f"{len(own)} point{'s' * (len(own) > 1)}"
        under = f", under it in {below}" if below else ""
        parts.append(f"{name} lies over {baseline} in {over} of {many}{under}")
    return f"{'; '.join(parts)} (AUC; Holm's p at most {1 - LEVEL:.2f})."
