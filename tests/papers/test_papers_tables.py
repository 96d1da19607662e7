"""Tables II to IV: known answers from planted features, and scikit-learn by hand."""

from __future__ import annotations

from dataclasses import replace

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
    """Of the cosines alone: where they tell nothing, a table says so, whatever else tells."""
    leaking = reading(evaluation, shift=50)
    row = tables.table_2(judged(evaluation, leaking))
    assert (row["auc"], row["accuracy"], row["precision"], row["recall"]) == (1, 1, 1, 1)
    assert (row["n_members"], row["n_nonmembers"]) == (MEMBERS, NONMEMBERS)
    assert row["auc_ci"][0] < 1 == row["auc_ci"][1]
    assert "one_score" not in row
    flat = {**leaking.features, "cosines": np.zeros_like(leaking.features["cosines"])}
    row = tables.table_2(judged(evaluation, replace(leaking, features=flat)))
    assert row["auc"] == row["accuracy"] == 0.5
    assert row["one_score"] == MEMBERS + NONMEMBERS


def test_table_3__mean_confidences_of_the_last_layers(read: SnapshotFeatures) -> None:
    """And the standard error of the mean."""
    rows = tables.table_3(read)
    assert [r["layer"] for r in rows] == ["encoder", "avgpool", "layer2"]
    for row in rows:
        assert row["members"] == pytest.approx([0.5, 0.25, 0.125])
        assert row["nonmembers"] == pytest.approx([0.25, 0.125, 0.0625])
        assert row["members_se"] == pytest.approx([0, 0, 0])
        assert (row["n_members"], row["n_nonmembers"]) == (MEMBERS, NONMEMBERS)
    values = np.log(np.arange(1, len(read.truth) + 1) / 100)
    spread = replace(read, features={**read.features, "encoder": np.stack([values] * 3, axis=1)})
    members, first = np.exp(values)[2 * KNOWN : 2 * KNOWN + MEMBERS], tables.table_3(spread)[0]
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
@pytest.mark.parametrize("leaking", ["loss", "confidence"])
def test_judge__each_method_reads_its_own_feature(
    leaking: str, evaluation: Evaluation, read: SnapshotFeatures
) -> None:
    """A leak planted in one feature is told by the method that reads it, and by no other."""
    rows = {name: np.zeros_like(values) for name, values in read.features.items()}
    rows[leaking] = read.features[leaking] + (read.truth == 1)[:, None] * 50.0
    one = judged(evaluation, replace(read, features=rows))
    aucs = {name: tables.rates(scored)["auc"] for name, scored in one.methods.items()}
    assert aucs.pop(leaking) == 1 and set(aucs.values()) == {0.5}


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
