"""What the encoder is good for, beside what it leaks: probes on images it was not trained on."""

from __future__ import annotations

import numpy as np
import torch

from fedmia.auditing.views import ModelViews
from fedmia.probes.knn import knn_accuracy
from fedmia.probes.linear import linear_accuracy
from fedmia.results import Probe
from fedmia.seeding import rng


def probes(views: ModelViews, model: str) -> dict[str, Probe]:
    """kNN and linear probe: fitted on half of the scored non-members, tested on the other half.

    Without two classes among the labels neither can run.
    """
    dealt = views.dealt
    labels = np.asarray(dealt.nonmember_labels)
    order = rng(views.audit.seed, "probes").permutation(len(labels))
    fit, test = np.sort(order[: len(order) // 2]), np.sort(order[len(order) // 2 :])
    nothing = {"knn": Probe(None, 0), "linear": Probe(None, 0)}
    if len(fit) < 2 or len(np.unique(labels[fit])) < 2:
        return nothing
    view = views.plain(model)
    rows = view.embed_plain(dealt.scored_nonmembers, "avgpool")
    parts = (
        rows[fit], torch.from_numpy(labels[fit]), rows[test], torch.from_numpy(labels[test])
    )  # fmt: skip
    n = len(test)
    return {"knn": Probe(knn_accuracy(*parts), n), "linear": Probe(linear_accuracy(*parts), n)}
