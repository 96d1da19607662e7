"""What an encoder is good for: probes fitted on features of images with labels."""

from __future__ import annotations

import torch
from torch import Tensor

from fedmia.probes.utility import linear_accuracy, weighted_knn
from fedmia.records import Probe

NO_PROBES = {"knn": Probe(None, 0), "linear": Probe(None, 0)}  # where there are no two classes


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
