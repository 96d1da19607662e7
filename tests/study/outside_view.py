"""A view from outside: the most that any attack finds at a point."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from fedmia.records.fields import AUC, fact, number
from fedmia.study.columns import columns_of
from fedmia.study.drawing import forest
from fedmia.study.result import StudyResult
from fedmia.study.view import Drawing, Section, StudyView


@dataclass(frozen=True)
class WorstRow:
    """The most that any attack finds at a point."""

    point: str = fact("one combination of the options that vary", head="point")
    worst: float = number("the highest AUC of any attack and model", AUC, head="worst AUC")


@dataclass(frozen=True)
class Worst(StudyView):
    """The attack that finds most in any model of a point."""

    title: ClassVar[str] = "The worst <case>"
    captions: ClassVar[Mapping[str, str]] = {"worst": "The worst of every model."}

    def rows(self, study: StudyResult) -> list[WorstRow]:
        worst = study.select("auc").groupby("point", sort=False)["value"].max()
        return [WorstRow(str(point), float(value)) for point, value in worst.items()]

    def sections(self, study: StudyResult) -> list[Section]:
        columns, about = columns_of(WorstRow), "Higher is worse."
        return [Section(self.title, columns, self.rows(study), ("worst",), 2, about)]

    def sentence(self, study: StudyResult) -> str:
        return f"The worst of {len(self.rows(study))} points."

    def figures(self, study: StudyResult) -> dict[str, Drawing]:
        points = [(row.point, {"worst": [row.worst]}) for row in self.rows(study)]
        return {"worst": lambda: forest(points, "AUC", 0.5)}
