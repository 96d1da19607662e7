"""A small scikit-learn classifier on a few features, standardised on the known images."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedmia.attacks.base import refuse_few

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline

CLASSIFIERS = ("lda", "lr", "svm")
LEAST = 2  # images of a side, or nothing can be said of their spread


def build_classifier(name: str) -> Pipeline:
    """LDA (Ledoit-Wolf shrinkage), logistic regression or an RBF support-vector machine, on
    standardised features.

    Args:
        name: one of CLASSIFIERS.

    Returns:
        A scaler and the classifier, neither fitted.
    """
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import SVC

    models = {
        "lda": LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto"),
        "lr": LogisticRegression(max_iter=1000),
        "svm": SVC(kernel="rbf"),
    }
    return make_pipeline(StandardScaler(), models[name])


def fit_classifier(name: str, features: NDArray[np.float64], truth: NDArray[np.int64]) -> Pipeline:
    """`build_classifier`, fitted.

    Args:
        name: one of CLASSIFIERS.
        features: (N, F).
        truth: (N,), 1 = member.

    Returns:
        The scaler and the classifier, fitted.

    Raises:
        InputError: fewer than LEAST images of a side.
    """
    members = int(truth.sum())
    refuse_few("a classifier", LEAST, members, len(truth) - members)
    return build_classifier(name).fit(features, truth)


def decide(model: Pipeline, features: NDArray[np.float64]) -> NDArray[np.float64]:
    """The decision values of a fitted classifier.

    Args:
        model: of `fit_classifier`.
        features: (N, F).

    Returns:
        (N,) signed values; higher = member.
    """
    values: NDArray[np.float64] = np.asarray(model.decision_function(features), dtype=np.float64)
    return values
