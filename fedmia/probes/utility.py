"""Utility of the encoder's features: a weighted k-nearest-neighbour probe (Wu et al., CVPR 2018)
and a linear one."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor
from torch.nn import functional as F

from fedmia.records import Probe

NO_PROBES = {"knn": Probe(None, 0), "linear": Probe(None, 0)}  # where there are no two classes


def weighted_knn(
    bank: Tensor, bank_labels: Tensor, features: Tensor, k: int = 20, T: float = 0.1
) -> Tensor:
    """Predicted labels: cosine neighbours, each voting with weight exp(cosine / T).

    Args:
        bank: (B, D) features of labelled images.
        bank_labels: int64 (B,).
        features: (N, D) to classify.
        k: neighbours, cut to B.
        T: temperature, > 0.

    Returns:
        int64 (N,).
    """
    similarity = F.normalize(features.double(), dim=1) @ F.normalize(bank.double(), dim=1).T
    weight, index = similarity.topk(min(k, len(bank)), dim=1)
    votes = torch.zeros(len(features), int(bank_labels.max()) + 1, dtype=torch.float64)
    votes.scatter_add_(1, bank_labels[index], (weight / T).exp())
    return votes.argmax(dim=1)


def mean_cosine(features: Tensor) -> float:
    """Mean cosine in [-1, 1] between different rows of (N, D), N >= 2; 1: all point one way."""
    unit, n = F.normalize(features.double(), dim=1), len(features)
    if bool((zero := ~unit.any(dim=1, keepdim=True)).any()):  # zeros point one way too
        unit = torch.cat([unit, zero.double()], dim=1)
    return float((unit.sum(dim=0).square().sum() - unit.square().sum()) / (n * (n - 1)))


def knn_accuracy(
    bank: Tensor, bank_labels: Tensor, features: Tensor, labels: Tensor, k: int = 20, T: float = 0.1
) -> float:
    """Share of `features` (N, D) whose label by `weighted_knn` is that of `labels` (N,)."""
    predicted = weighted_knn(bank, bank_labels, features, k, T)
    return float((predicted == labels).double().mean())


def linear_accuracy(
    train: Tensor, train_labels: Tensor, test: Tensor, test_labels: Tensor, C: float = 1.0
) -> float:
    """Accuracy of multinomial logistic regression; of one class, that one is always said.

    Args:
        train, test: features (M, D) and (N, D).
        train_labels, test_labels: int64 (M,) and (N,).
        C: inverse strength of the L2 penalty on features standardised by those of `train`, > 0.

    Returns:
        share of `test` that is right, in [0, 1].
    """
    if len(train_labels.unique()) < 2:
        return float((test_labels == train_labels[0]).double().mean())
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    model = make_pipeline(StandardScaler(), LogisticRegression(C=C, max_iter=500))
    with warnings.catch_warnings():  # few images of each class are no regression
        warnings.filterwarnings("ignore", "The number of unique classes", UserWarning)
        model.fit(train.numpy(), train_labels.numpy())
    return float((model.predict(test.numpy()) == test_labels.numpy()).mean())


def probe(fit: Tensor, fit_labels: Tensor, test: Tensor, test_labels: Tensor) -> dict[str, Probe]:
    """kNN, by class too, and linear probe: fitted on features (N, D), tested on others.

    Args:
        fit: features (N, D) to fit on.
        fit_labels: (N,), their classes.
        test: features (M, D) to test on.
        test_labels: (M,), their classes.

    Returns:
        `knn` and `linear`, each with its accuracy in [0, 1] and its number of images.
    """
    right, n = weighted_knn(fit, fit_labels, test) == test_labels, len(test_labels)
    classes = int(test_labels.max()) + 1
    of, hits = (torch.bincount(t, minlength=classes) for t in (test_labels, test_labels[right]))
    by_class = tuple(zip(hits.tolist(), of.tolist(), strict=True))
    return {
        "knn": Probe(float(right.double().mean()), n, by_class),
        "linear": Probe(linear_accuracy(fit, fit_labels, test, test_labels), n),
    }
