"""Tables II to IV: known answers from planted features, and scikit-learn by hand."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from papers.federated import tables
from papers.federated.reading import SnapshotFeatures, SnapshotScores
from tests.papers.planted import KNOWN, MEMBERS, NONMEMBERS, Evaluation, judged, reading


@pytest.fixture(scope="module")
def evaluation() -> Evaluation:
    return Evaluation()


@pytest.fixture(scope="module")
def read(evaluation: Evaluation) -> SnapshotFeatures:
    return reading(evaluation)


@pytest.fixture(scope="module")
def found(evaluation: Evaluation, read: SnapshotFeatures) -> SnapshotScores:
    return judged(evaluation, read)


def test_table_2__everything_told(evaluation: Evaluation) -> None:
    row = tables.table_2(judged(evaluation, reading(evaluation, shift=50)))
    assert (row["auc"], row["accuracy"], row["precision"], row["recall"]) == (1, 1, 1, 1)
    assert (row["n_members"], row["n_nonmembers"]) == (MEMBERS, NONMEMBERS)
    assert row["auc_ci"] is not None and row["auc_ci"][0] < 1 == row["auc_ci"][1]


def test_table_2__is_of_the_cosines_alone(evaluation: Evaluation, read: SnapshotFeatures) -> None:
    """Whatever else tells members, a table of cosines that tell nothing says so."""
    features = {n: 50 * v for n, v in reading(evaluation, shift=50).features.items()}
    flat = {**features, "cosines": np.zeros_like(features["cosines"])}
    blind = SnapshotFeatures(0, flat, read.layers, read.names, read.truth, read.known)
    row = tables.table_2(judged(evaluation, blind))
    assert row["auc"] == 0.5 and row["accuracy"] == 0.5


def test_table_3__mean_confidences_of_the_last_layers(read: SnapshotFeatures) -> None:
    rows = tables.table_3(read)
    assert [r["layer"] for r in rows] == ["encoder", "avgpool", "layer2"]
    for row in rows:
        assert row["members"] == pytest.approx([0.5, 0.25, 0.125])
        assert row["nonmembers"] == pytest.approx([0.25, 0.125, 0.0625])
        assert row["members_se"] == pytest.approx([0, 0, 0])
        assert (row["n_members"], row["n_nonmembers"]) == (MEMBERS, NONMEMBERS)


def test_table_3__standard_error_of_the_mean(read: SnapshotFeatures) -> None:
    values = np.log(np.arange(1, len(read.truth) + 1) / 100)
    rows = {**read.features, "encoder": np.stack([values] * 3, axis=1)}
    spread = SnapshotFeatures(0, rows, read.layers, read.names, read.truth, read.known)
    (first, *_) = tables.table_3(spread)
    members = np.exp(values)[2 * KNOWN : 2 * KNOWN + MEMBERS]
    assert first["members"][0] == pytest.approx(members.mean())
    assert first["members_se"][0] == pytest.approx(members.std(ddof=1) / np.sqrt(MEMBERS))


def test_table_4__scikit_learns_classifiers_on_known_images(
    evaluation: Evaluation, read: SnapshotFeatures, found: SnapshotScores
) -> None:
    rows = tables.table_4(found)
    combined, known = read.features["combined"], read.known
    models = {
        "svm": SVC(kernel="rbf"),
        "lr": LogisticRegression(max_iter=1000),
        "lda": LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto"),
    }
    assert list(rows) == list(models)
    for name, model in models.items():
        whole = make_pipeline(StandardScaler(), model).fit(combined[known], read.truth[known])
        want = roc_auc_score(read.truth[~known], whole.decision_function(combined[~known]))
        assert rows[name]["auc"] == pytest.approx(want, abs=1e-12)
    assert len({row["auc"] for row in rows.values()}) > 1


@pytest.mark.slow
def test_judge__each_method_reads_its_own_feature(
    evaluation: Evaluation, read: SnapshotFeatures
) -> None:
    """A leak planted in one feature is told by the methods that read it, and by no other."""
    told = (read.truth == 1)[:, None] * 50.0
    blind = {name: np.zeros_like(rows) for name, rows in read.features.items()}

    def aucs(leaking: str) -> dict[str, float | None]:
        rows = {**blind, leaking: read.features[leaking] + told}
        one = judged(
            evaluation, SnapshotFeatures(0, rows, read.layers, read.names, read.truth, read.known)
        )
        return {name: tables.rates(scored)["auc"] for name, scored in one.methods.items()}

    for leaking, method in (
        ("loss", "loss"), ("confidence", "confidence"),
    ):  # fmt: skip
        found = aucs(leaking)
        assert found.pop(method) == 1
        assert set(found.values()) == {0.5}, leaking


def test_texts__hold_a_line_for_the_run_and_those_of_the_paper(
    read: SnapshotFeatures, found: SnapshotScores
) -> None:
    second = tables.markdown(tables.text_2(tables.table_2(found), "mine"))
    assert second.splitlines()[2].startswith("| mine | ") and "| the paper, SVHN |" in second
    third = tables.markdown(tables.text_3(tables.table_3(read), "mine"))
    assert "| encoder | mine | 50.0 % ± 0.0, 25.0 % ± 0.0, 12.5 % ± 0.0 |" in third
    fourth = tables.markdown(tables.text_4(tables.table_4(found), "mine"))
    assert [line.split(" | ")[1] for line in fourth.splitlines()[2:5]] == ["SVM", "LR", "LDA"]
    assert "| the paper, CIFAR-10 | LDA |  | 0.912 | 0.942 | 0.890 |  |" in fourth
    widths = {line.count(" | ") for line in fourth.splitlines()[2:]}
    assert len(widths) == 1
