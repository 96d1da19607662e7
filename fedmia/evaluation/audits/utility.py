"""What an audited encoder is good for: probes on the scored non-members."""

from __future__ import annotations

import numpy as np
import torch

from fedmia.evaluation.audits.harness import RELEASED, Harness
from fedmia.evaluation.steps.probes import NO_PROBES, probe
from fedmia.options.seeding import rng
from fedmia.probes.utility import mean_cosine
from fedmia.records import Health, Probe


def probes(harness: Harness, model: str) -> dict[str, Probe]:
    """kNN and linear probe: fitted on half of the scored non-members, tested on the other half.

    Without two classes among the labels neither can run.
    """
    dealt = harness.dealt
    labels = np.asarray(dealt.nonmember_labels)
    order = rng(harness.audit.seed, "probes").permutation(len(labels))
    fit, test = np.sort(order[: len(order) // 2]), np.sort(order[len(order) // 2 :])
    if len(fit) < 2 or len(np.unique(labels[fit])) < 2:
        return NO_PROBES
    rows = harness.plain(model).embed_plain(dealt.scored_nonmembers, "avgpool")
    classes = torch.from_numpy(labels)
    return probe(rows[fit], classes[fit], rows[test], classes[test])


def health(harness: Harness) -> Health | None:
    """How alike the encoder's outputs are for different scored non-members; None of fewer than
    two. Its loss is not known."""
    images = harness.dealt.scored_nonmembers
    if len(images) < 2:
        return None
    return Health(mean_cosine(harness.plain(RELEASED).embed_plain(images)))
