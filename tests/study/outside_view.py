"""A view from outside: the least and the most that any attack finds at a point."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from fedmia.report.tables import Table
from fedmia.study.columns import Column, decimal, table, text_column
from fedmia.study.drawing import forest
from fedmia.study.engine import Study
from fedmia.study.view import View
from fedmia.study.views.baseline import is_score


@dataclass(frozen=True)
class Worst(View):
    """The attack that finds most in any model of a point."""

    title: ClassVar[str] = "The worst <case>"
    captions: ClassVar[Mapping[str, str]] = {"worst": "The worst of every model."}

    def report(self, study: Study) -> Any:
        rows: dict[str, list[float]] = {}
        for row in study.table:
            if is_score(row) and row["metric"] == "auc" and row["value"] is not None:
                rows.setdefault(str(row["point"]), []).append(row["value"])
        worst = [{"point": point, "worst": max(values)} for point, values in rows.items()]
        return {"sentence": f"The worst of {len(worst)} points.", "rows": worst}

    def tables(self, report: Any) -> Mapping[str, Table]:
        columns: list[Column] = [text_column("point", "point"), decimal("worst AUC", "worst")]
        return {"worst": table(columns, report["rows"])}

    def figures(self, report: Any) -> dict[str, bytes]:
        png = forest([(r["point"], {"worst": [r["worst"]]}) for r in report["rows"]], "AUC", 0.5)
        return {"worst": png} if png else {}
