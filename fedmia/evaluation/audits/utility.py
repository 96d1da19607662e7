"""What an audited model is good for, by probes on its scored non-members."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from fedmia.data.cast import Cast
from fedmia.evaluation.suite import Suite
from fedmia.probes.utility import NO_PROBES, mean_cosine, probe
from fedmia.records import Probe
from fedmia.records.rows import HealthRow
from fedmia.rounds.base import TargetModel
from fedmia.seeding import rng
from fedmia.statistics.matching import effective_size
from fedmia.statistics.subjects import halves


def probe_images(suite: Suite, cast: Cast, target: TargetModel) -> dict[str, Probe]:
    """kNN and linear probe: fitted on half of the scored non-members, tested on the other half.

    Without two classes among the labels neither can run.

    Args:
        suite: the attacks.
        cast: the images in their roles.
        target: the model.

    Returns:
        The probes by name.
    """
    labels, own = cast.classes("scored_nonmembers"), cast.subject("scored_nonmembers")
    of = np.arange(len(labels)) if own is None else own
    fit, test = halves(of, rng(suite.attacker.seed, "probes"))
    if len(fit) < 2 or len(np.unique(labels[fit])) < 2:
        return NO_PROBES
    rows = suite.plain_view(target).embed_plain(cast.pixels("scored_nonmembers"), "avgpool")
    classes = torch.from_numpy(labels)
    probes = probe(rows[fit], classes[fit], rows[test], classes[test])
    if own is None:
        return probes
    shares = np.unique(of[test], return_counts=True)[1] / len(test)
    return {n: replace(one, trials=effective_size(shares)) for n, one in probes.items()}


def health(suite: Suite, cast: Cast) -> HealthRow | None:
    """How alike the encoder's outputs are for different scored non-members.

    Args:
        suite: the attacks.
        cast: the images in their roles.

    Returns:
        The finding, without a loss, which is not known; None where there are fewer than two images.
    """
    images = cast.pixels("scored_nonmembers")
    if len(images) < 2:
        return None
    cosine = mean_cosine(suite.plain_view(suite.main).embed_plain(images))
    return HealthRow(cosine=cosine, loss=None, chance=None, collapsed=False)
