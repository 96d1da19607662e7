"""Attack against attack: what each adds to a baseline, on the same models and the same images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from fedmia.options import session
from fedmia.statistics.intervals import LEVEL
from fedmia.study.columns import heads
from fedmia.study.drawing import forest, lines
from fedmia.study.points import comparisons, group_by_key
from fedmia.study.result import StudyResult
from fedmia.study.view import Drawing, Section, View

COLUMNS = heads(
    "name attack measure +difference p_holm difference.n difference.least difference.greatest p"
)


class BaselineView(View):
    """Every other attack less one, by point of the study."""

    title: ClassVar[str] = "Attack against attack"
    captions: ClassVar[Mapping[str, str]] = {
        "baseline": "AUC of each attack minus that of the baseline: one dot for each model, with "
        "the mean and its 95 % interval between models."
    }

    def sections(self, study: StudyResult) -> list[Section]:
        less = {"+difference": f"minus {baseline_of(study)}, 95 %"}
        return [Section(self.title, COLUMNS | less, rows_of(study), ("baseline",), 6)]

    def sentence(self, study: StudyResult) -> str:
        return sentence(rows_of(study), baseline_of(study))

    def figures(self, study: StudyResult) -> dict[str, Drawing]:
        aucs = {
            (row["point"], row["attack"]): row["by_seed"]
            for row in rows_of(study)
            if row["measure"] == "AUC"
        }
        about = f"AUC minus AUC of {baseline_of(study)}"
        return {"baseline": lambda: forest(lines(study, aucs), about, 0.0)}


def baseline_of(study: StudyResult) -> str:
    """The attack that a study's settings name, as its reports call it."""
    return session.short_name(str(study.settings["baseline"]))


def rows_of(study: StudyResult) -> list[dict[str, Any]]:
    """Every other attack at every point, by each measure."""
    rows = comparisons(study.select, baseline_of(study))
    return [{**row, "name": study.name(row["point"])} for row in rows]


def sentence(rows: Sequence[Any], baseline: str) -> str:
    """In how many points each attack lies over the baseline, by its corrected AUC.

    Args:
        rows: the comparisons.
        baseline: attack that the others are compared with.

    Returns:
        The sentence.
    """
    rows = [row for row in rows if row["measure"] == "AUC" and row["difference"]["n"]]
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
