"""Tables II, III and IV of the paper from one run, as rows and as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedmia.records import FloatArray, ScoredAttack
from fedmia.records.attack_rows import Decisions
from fedmia.records.fields import fields_of
from fedmia.report.metrics import attack_row
from fedmia.report.tables import Table, TextCell
from fedmia.report.words.numbers import estimate
from research.papers.federated.reading import SnapshotFeatures, SnapshotScores
from research.papers.listing import read_files

CLASSIFIERS: Mapping[str, str] = {"svm": "SVM", "lr": "LR", "lda": "LDA"}
PAPER = "the paper, "


# Of one attack or classifier at a threshold chosen on the attacker's known images, all in [0, 1];
# each interval is of 95 %, by itself.
RATES = (*fields_of(Decisions), "auc", "auc_ci", "n_members", "n_nonmembers")
Row = Mapping[str, Any]


def rates(scored: ScoredAttack) -> Row:
    """What the paper's tables and the figures by round say of an attack, beside its AUC."""
    row = attack_row(scored, 1)
    one_score = {} if row.one_score is None else {"one_score": row.one_score}
    return {name: getattr(row, name) for name in RATES} | one_score


def table_2(scores: SnapshotScores) -> Row:
    """The cosine similarity attack: the three largest pairwise cosines in one classifier."""
    return rates(scores.methods["similarity"])


def table_3(reading: SnapshotFeatures) -> list[Row]:
    """Means of the three largest confidences of the encoder's output, the pooled features and the
    last layer, in [0, 1], and their standard errors (`_se`)."""
    rows: list[Row] = []
    for layer in shown_layers(reading):
        members, nonmembers = map(np.exp, reading.scored(layer))
        mean, se = zip(_mean(members), _mean(nonmembers), strict=True)
        rows.append(
            {
                "layer": layer,
                "members": mean[0], "members_se": se[0],
                "nonmembers": mean[1], "nonmembers_se": se[1],
                "n_members": len(members), "n_nonmembers": len(nonmembers),
            }
        )  # fmt: skip
    return rows


def shown_layers(reading: SnapshotFeatures) -> tuple[str, ...]:
    """The layers of Table III and Fig. 7: encoder, avgpool, and the last layer before them."""
    return reading.layers[:-4:-1]


def _mean(values: FloatArray) -> tuple[list[float], list[float]]:
    spread = values.std(axis=0, ddof=1) if len(values) > 1 else np.full(values.shape[1], np.nan)
    return values.mean(axis=0).tolist(), (spread / np.sqrt(max(len(values), 1))).tolist()


def table_4(scores: SnapshotScores) -> dict[str, Row]:
    """The three classifiers on the combined features, by name."""
    return {name: rates(scores.classifiers[name]) for name in CLASSIFIERS}


def printed_rows(table: str) -> dict[str, list[Any]]:
    """The numbers that the paper prints in a table, as `table-2`: label of a row -> its cells."""
    entry = read_files()["federated"]["entries"][f"federated-{table}"]
    labels = [row["label"] for row in entry["rows"]]
    return dict(zip(labels, entry["theirs"], strict=True))


# -- as text ---------------------------------------------------------------------------------------


def text_2(row: Row, run: str) -> Table:
    """Table II, the run above the datasets of the paper.

    Args:
        row: rates of the run.
        run: its name.

    Returns:
        The table.
    """
    rows = [[run, *_numbers(row)]]
    rows += [
        [f"{PAPER}{name}", "", *format_numbers(paper_values), ""]
        for name, paper_values in printed_rows("table-2").items()
    ]
    return Table(["", "AUC", "accuracy", "precision", "recall", "n"], rows)


def text_3(rows: Sequence[Row], run: str) -> Table:
    """Table III, each layer of the run above the paper's (CIFAR-10).

    Args:
        rows: confidences of the run's layers.
        run: its name.

    Returns:
        The table.
    """
    lines = []
    for row in rows:
        sides = [
            ", ".join(f"{100 * m:.1f} % ± {196 * s:.1f}" for m, s in zip(mean, se, strict=True))
            for mean, se in (
                (row["members"], row["members_se"]), (row["nonmembers"], row["nonmembers_se"]),
            )
        ]  # fmt: skip
        lines.append([row["layer"], run, *sides, _n(row["n_members"], row["n_nonmembers"])])
        if (paper_values := printed_rows("table-3").get(row["layer"])) is not None:
            sides = [", ".join(f"{100 * value:.1f} %" for value in side) for side in paper_values]
            lines.append([row["layer"], f"{PAPER}CIFAR-10", *sides, ""])
    return Table(["layer", "", "members", "non-members", "n"], lines)


def text_4(rows: Mapping[str, Row], run: str) -> Table:
    """Table IV, the run's classifiers above the paper's.

    Args:
        rows: rates of the run's classifiers, by name.
        run: its name.

    Returns:
        The table.
    """
    lines = [[run, CLASSIFIERS[name], *_numbers(row)] for name, row in rows.items()]
    for data, by_classifier in printed_rows("table-4").items():
        for name, values in zip(CLASSIFIERS.values(), by_classifier, strict=False):
            lines.append([f"{PAPER}{data}", name, "", *format_numbers(values), ""])
    return Table(["", "classifier", "AUC", "accuracy", "precision", "recall", "n"], lines)


def _numbers(row: Row) -> list[str]:
    names = ("auc", "accuracy", "precision", "recall")
    known = [estimate(row[name], row[f"{name}_ci"], 3) for name in names]
    return [*known, _n(row["n_members"], row["n_nonmembers"])]


def format_numbers(values: Sequence[float]) -> list[str]:
    """The paper's values with three digits after the point, one cell each."""
    return [f"{value:.3f}" for value in values]


def _n(members: int, nonmembers: int) -> str:
    return f"{members:,} + {nonmembers:,}"


def markdown(table: Table) -> str:
    """The table in Markdown, a line a row."""
    lines = [table.head, ["---"] * len(table.head), *table.rows]
    return "\n".join("| " + " | ".join(map(plain, cells)) + " |" for cells in lines) + "\n"


def plain(cell: str | TextCell) -> str:
    """A cell in one line, in which no bar ends it."""
    text = cell if isinstance(cell, str) else " ".join(filter(None, [cell.text, *cell.small]))
    return text.replace("|", "\\|")
