"""Linear probe: logistic regression on frozen features."""

from __future__ import annotations

from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor


def linear_accuracy(
    train: Tensor, train_labels: Tensor, test: Tensor, test_labels: Tensor, C: float = 1.0
) -> float:
    """Accuracy in [0, 1] on `test` (N, D) of multinomial logistic regression fitted on `train`.

    Args:
        C: inverse strength of the L2 penalty on standardised features, > 0.
    """
    if len(train_labels.unique()) < 2:
        return float((test_labels == train_labels[0]).double().mean())
    model = make_pipeline(StandardScaler(), LogisticRegression(C=C, max_iter=500))
    model.fit(train.numpy(), train_labels.numpy())
    return float(model.score(test.numpy(), test_labels.numpy()))
