"""Attack against attack: what each adds to a baseline, on the same models and the same images."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NotRequired, TypedDict

from fedmia.config.sweep import label
from fedmia.report.format import DASH
from fedmia.report.tables import Table, TextCell
from fedmia.statistics.intervals import LEVEL
from fedmia.study import columns, formats
from fedmia.study.columns import Column, change, decimal, ends, models, text_column
from fedmia.study.drawing import forest
from fedmia.study.engine import Study
from fedmia.study.points import fill_holm, group_by_key, test_difference
from fedmia.study.view import View, mark
from fedmia.table import Row

# Metric of the table and false-positive rate that it is at -> what it is called.
MEASURES: Mapping[tuple[str, float | None], str] = {
    ("auc", None): "AUC",
    ("tpr_at_fpr", 0.01): "TPR at 1 % FPR",
}
Scores = Mapping[int | None, Row]  # by seed
IMAGES = ("n_members", "n_nonmembers")


class Comparison(formats.TestedDifference):
    """An attack less the baseline over the models of one point; Holm's p holds for all of the
    view."""

    point: str
    attack: str
    measure: str  # AUC, TPR at 1 % FPR
    by_seed: dict[str, float]  # seed -> difference
    mark: NotRequired[str]  # of a point with runs whose AUCs show no leak alone


class BaselineReport(TypedDict):
    """What `sweep.json` holds of the view.

    Attributes:
        sentence: what a reader should take home.
        baseline: attack that the others are compared with.
        method: of the correction for many comparisons.
        comparisons: by point, attack and measure.
    """

    sentence: str
    baseline: str
    method: str  # of the correction
    comparisons: list[Comparison]  # by point, attack, measure


@dataclass(frozen=True)
class Baseline(View):
    """Every other attack less one, by point of the grid.

    Both attacks of a difference scored one model on the same images: an attack that scored more or
    fewer in a run is left out there. Differences of one point are paired by seed.

    Attributes:
        attack: that the others are compared with.
    """

    title: ClassVar[str] = "Attack against attack"
    about: ClassVar[str] = (
        "Each difference compares an attack with the baseline on the same model and the same "
        "images. The table has its mean over models, one for each seed, with Student's 95 % "
        "interval between models. p is of the two-sided t test that the mean difference is 0. "
        "Holm's p is corrected for all comparisons of this table."
    )
    captions: ClassVar[Mapping[str, str]] = {
        "baseline": "AUC of each attack minus that of the baseline: one dot for each model, with "
        "the mean and its 95 % interval between models."
    }

    attack: str = ""

    def report(self, study: Study) -> BaselineReport:
        rows = list(self.comparisons(study.table))
        fill_holm(rows)
        codes = group_by_key(
            (label(cell.grid), study.finished[cell.key][1]["verdict_code"])
            for cell in study.cells if cell.key in study.finished
        )  # fmt: skip
        for row in rows:
            row["mark"] = mark(codes.get(row["point"], ()))
        method = f"Holm over {len(rows)} comparisons: points, attacks and measures"
        return {
            "sentence": sentence(rows, self.attack),
            "baseline": self.attack,
            "method": method,
            "comparisons": rows,
        }

    def comparisons(self, table: Sequence[Row]) -> Iterator[Comparison]:
        """Every other attack at every point, by each measure, their p not corrected yet."""
        numbers = group_by_key(
            ((row["point"], row["attack"], row["metric"], row["target_fpr"]), row)
            for row in table
            if is_score(row) and (row["metric"], row["target_fpr"]) in MEASURES
        )
        scores = {key: {row["seed"]: row for row in rows} for key, rows in numbers.items()}
        for (point, attack, *of), ours in scores.items():
            values = apart(ours, scores.get((point, self.attack, *of), {}))
            if values and attack != self.attack:
                yield {
                    "point": point,
                    "attack": attack,
                    "measure": MEASURES[of[0], of[1]],
                    "by_seed": {str(seed): value for seed, value in values.items()},
                    **test_difference(values.values()),
                }

    def tables(self, report: BaselineReport) -> dict[str, Table]:
        over = TextCell("p, Holm", (f"over all {len(report['comparisons'])}",))
        listed = (
            Column("point", lambda row: (row["point"] or DASH) + row["mark"]),
            text_column("attack", "attack"), text_column("measure", "measure"),
            change(f"minus {report['baseline']}, 95 %", "difference"),
            ends("difference"), decimal("p", "p"), decimal(over, "p_holm"), models("difference"),
        )  # fmt: skip
        return {"comparisons": columns.table(listed, report["comparisons"])}

    def draw(self, report: BaselineReport) -> dict[str, bytes | None]:
        aucs = (row for row in report["comparisons"] if row["measure"] == "AUC")
        lines = [
            ((point.replace(", ", "\n") or "the experiment") + rows[0]["mark"],
             {row["attack"]: list(row["by_seed"].values()) for row in rows})
            for point, rows in group_by_key((row["point"], row) for row in aucs).items()
        ]  # fmt: skip
        return {"baseline": forest(lines, f"AUC minus AUC of {report['baseline']}", 0.0)}


def sentence(rows: Sequence[Comparison], baseline: str) -> str:
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
    for name in dict.fromkeys(row["attack"] for row in rows):
        own = [row for row in rows if row["attack"] == name]
        signs = [_sign(row) for row in own]
        under = f", under it in {signs.count(-1)}" if -1 in signs else ""
        many = f"{len(own)} point{'s' * (len(own) > 1)}"
        parts.append(f"{name} lies over {baseline} in {signs.count(1)} of {many}{under}")
    return f"{'; '.join(parts)} (AUC; Holm's p at most {1 - LEVEL:.2f})."


def _sign(row: Comparison) -> int:
    """1 over the baseline, -1 under it, 0 not settled."""
    mean, p = row["difference"]["mean"], row["p_holm"]
    if mean is None or p is None or p > 1 - LEVEL:
        return 0
    return 1 if mean > 0 else -1


def is_score(row: Row) -> bool:
    """Whether a row says how well an attack did, and not its control."""
    return row["subject"] == "attack" and row["control"] is None and row["attack"] is not None


def apart(ours: Scores, theirs: Scores) -> dict[int | None, float]:
    """Seed -> difference, of those that both have of as many images; rounded, so that equal ones
    are equal.

    Args:
        ours: seed -> row of an attack.
        theirs: seed -> row of the baseline.

    Returns:
        Seed -> difference.
    """
    return {
        seed: round(row["value"] - other["value"], 6)  # type: ignore[operator]
        for seed, row in sorted(ours.items())  # type: ignore[type-var]
        if (other := theirs.get(seed)) and all(row[name] == other[name] for name in IMAGES)  # type: ignore[literal-required]
    }
