"""The paper's membership attack on a head's answers (Yang et al., 2022, Appendices A.1 and B)."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from fedmia.defenses.heads.stack import HeadStack, train_heads
from fedmia.records import FloatArray
from fedmia.runtime.eager import Adam

PAIRS = 2000  # (answer, label) of shadow heads, half of their own images
LAYERS, RATE = 5, 1e-3
# Left open by the paper: widths, images a step, how long.
WIDTH, BATCH, EPOCHS = 64, 100, 10


def classifier_inputs(probabilities: Tensor, labels: Tensor) -> Tensor:
    """(K, N, 2 classes): each answer (K, N, classes) beside its true label (K, N) or (N,).

    Args:
        probabilities: (K, N, classes), the answers of K heads.
        labels: int64 (K, N) or (N,), the true classes.

    Returns:
        float32 (K, N, 2 classes).
    """
    classes = probabilities.shape[2]
    truth = F.one_hot(labels, classes).float().expand_as(probabilities)
    return torch.cat([probabilities, truth], dim=2)


def fit_classifiers(pairs: Tensor, member: Tensor, seed: int) -> HeadStack:
    """Classifiers of five ReLU layers, one for each of K sets of (answer, label) pairs.

    Args:
        pairs: float32 (K, P, 2 classes).
        member: int64 (P,), 1 = of the shadow head's own images.
        seed: of the initial weights and the order of the steps.

    Returns:
        K networks with two outputs: non-member and member.
    """
    count, size, width = pairs.shape
    rows = torch.arange(count * size).view(count, size)
    return train_heads(
        pairs.flatten(0, 1), member.repeat(count), rows, [width, *[WIDTH] * LAYERS, 2],
        optimizer=partial(Adam, lr=RATE), epochs=EPOCHS, batch=BATCH, seed=seed,
    )  # fmt: skip


def score_answers(classifier: HeadStack, pairs: Tensor) -> FloatArray:
    """(K, N) log odds of membership of (K, N, 2 classes), by one classifier; over 0: a member.

    Args:
        classifier: one network of `fit_classifiers`.
        pairs: (K, N, 2 classes), as `classifier_inputs` makes them.

    Returns:
        float64 (K, N), the log odds of membership.
    """
    logits = classifier.logits(pairs.flatten(0, 1))[0]
    odds = (logits[:, 1] - logits[:, 0]).view(pairs.shape[:2])
    return np.asarray(odds.double().numpy(), dtype=np.float64)


def label_log_probability(probabilities: Tensor, labels: Tensor) -> FloatArray:
    """(K, N) log probability of the true label (Yeom et al., 2018): needs no shadow, nothing
    learnt, and so says whether the classifier missed what is there.

    Args:
        probabilities: (K, N, classes), in [0, 1].
        labels: int64 (N,) or (K, N).

    Returns:
        float64 (K, N), at most 0.
    """
    own = probabilities.gather(2, labels.expand(probabilities.shape[:2])[..., None])[..., 0]
    return np.asarray(own.double().clamp(min=1e-300).log().numpy(), dtype=np.float64)
