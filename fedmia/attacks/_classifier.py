"""A small scikit-learn classifier on a few features, standardised on the known images."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fedmia.attacks.base import Attack, Known, Scores, refuse_few

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline

CLASSIFIERS = ("lda", "lr", "svm")
LEAST = 2  # images of a side, or nothing can be said of their spread


def build_classifier(name: str) -> Pipeline:
    """LDA (Ledoit-Wolf shrinkage), logistic regression or an RBF support-vector machine, on
    standardised features; `name` is one of CLASSIFIERS."""
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

    Raises:
        InputError: fewer than LEAST images of a side.
    """
    members = int(truth.sum())
    refuse_few("a classifier", LEAST, members, len(truth) - members)
    return build_classifier(name).fit(features, truth)


class ClassifierAttack(Attack):
    """An attack whose known images train a small classifier on some features (its option)."""

    classifier: str
    _model: Any = None

    @abstractmethod
    def inputs(self, view: Any, images: Tensor) -> Scores:
        """The features (N, F) of uint8 (N, C, H, W)."""

    def fit(self, view: Any, known: Known, rng: np.random.Generator) -> None:
        images, truth = known.both()
        self._model = fit_classifier(self.classifier, self.inputs(view, images), truth)

    def score(self, view: Any, images: Tensor) -> Scores:
        return decide(self._model, self.inputs(view, images))


def decide(model: Pipeline, features: NDArray[np.float64]) -> NDArray[np.float64]:
    """Signed decision values (N,), higher = member."""
    values: NDArray[np.float64] = np.asarray(model.decision_function(features), dtype=np.float64)
    return values
