"""Attack against attack: what each adds to a baseline, on the same models and the same images."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from fedmia.settings import session
from fedmia.study import guides, words
from fedmia.study.columns import columns_of, inside
from fedmia.study.drawing import forest, lines
from fedmia.study.points import comparisons
from fedmia.study.result import StudyResult
from fedmia.study.rows import ComparisonRow
from fedmia.study.view import Drawing, Section, StudyView


class BaselineView(StudyView):
    """Every other attack less one, by point of the study."""

    title: ClassVar[str] = "Attack against attack"
    captions: ClassVar[Mapping[str, str]] = {
        "baseline": "AUC of each attack minus that of the baseline: one dot for each model, with "
        "the mean and its 95 % interval between models."
    }

    def sections(self, study: StudyResult) -> list[Section]:
        rows, minus = rows_of(study), f"minus {baseline_of(study)}, 95 %"
        place = (*study.place, "attack", "measure", "difference", "p_holm")
        columns = {
            **columns_of(ComparisonRow, *place, difference=minus),
            **inside(ComparisonRow, "difference", "n", "least", "greatest"),
            **columns_of(ComparisonRow, "p"),
        }
        tests = sum(row.p is not None for row in rows)
        limits = f"{words.limits_alone('each difference')} {words.corrected(tests)}"
        brief = len(place) + 1
        return [Section(self.title, columns, rows, ("baseline",), brief, guides.BASELINE, limits)]

    def sentence(self, study: StudyResult) -> str:
        return words.baseline_sentence(rows_of(study), baseline_of(study))

    def figures(self, study: StudyResult) -> dict[str, Drawing]:
        aucs = {
            (row.point, row.attack): row.by_seed for row in rows_of(study) if row.measure == "AUC"
        }
        about = f"AUC minus AUC of {baseline_of(study)}"
        return {"baseline": lambda: forest(lines(study, aucs), about, 0.0)}


def baseline_of(study: StudyResult) -> str:
    """The attack that a study's settings name, as its reports call it."""
    return session.short_name(str(study.settings["baseline"]))


def rows_of(study: StudyResult) -> list[ComparisonRow]:
    """Every other attack at every point, by each measure."""
    return comparisons(study.select, baseline_of(study))
