"""Heads on an encoder: the labelled images that they are of, and every trial of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional as F

from fedmia.data.images import ImageSet
from fedmia.data.labels import renumber_labels
from fedmia.defenses.heads.release import ReleaseSetting
from fedmia.encoders.base import LoadedEncoder, load
from fedmia.encoders.describe import probe_encoder
from fedmia.records.note import Note
from fedmia.runtime.device import resolve_device
from fedmia.seeding import rng
from fedmia.settings.commands.compatibility import check_gpu
from fedmia.settings.errors import InputError, opt, prefix_errors
from fedmia.ssl.base import SSLMethod, iterate_parts
from research.papers.heads.settings import Head
from research.papers.heads.trial import (
    HeadSplit,
    HeadTrial,
    LabelledFeatures,
    run_trial,
    split_images,
)

LOOK = 16  # images embedded first, to refuse an encoder early


@dataclass(frozen=True)
class HeadTrials:
    """Every trial of the heads that were asked for.

    Attributes:
        config: the settings of the command.
        released: the encoder.
        images: labelled images from which heads draw theirs.
        labelled: the features of these images.
        settings: every mechanism at every epsilon.
        trials: one for each head.
        controls: the same on the encoder without its trained weights.
    """

    config: Head
    released: LoadedEncoder
    images: ImageSet
    labelled: LabelledFeatures
    settings: Sequence[ReleaseSetting]
    trials: Sequence[HeadTrial]
    controls: Sequence[HeadTrial]

    def split(self) -> HeadSplit:
        """How the images of a head are dealt: as many for each."""
        return split_images(len(self.images), self.config.images, rng(self.config.seed, "trial"))

    def weights(self) -> int:
        """How many weights a head has."""
        labelled, hidden = self.labelled, self.config.hidden
        widths = [labelled.features.shape[1], *([hidden] if hidden else []), labelled.classes]
        return sum((a + 1) * b for a, b in zip(widths, widths[1:], strict=False))


def prepare(config: Head) -> tuple[LoadedEncoder, ImageSet]:
    """The encoder and the labelled images, checked against each other; no image twice.

    Returns:
        The encoder and its labelled images.

    Raises:
        InputError: either is missing or broken, they do not fit, or there are too few.
    """
    check_gpu(config.device)
    released = load(
        config.encoder,
        checkpoint=Path(config.checkpoint) if config.checkpoint else None,
        size=config.data.size, mean=config.data.mean, std=config.data.std,
        device=resolve_device(config.device), seed=config.seed, trust_plugins=config.trust_plugins,
    )  # fmt: skip
    with prefix_errors(opt("data.name")):
        data = replace(config.data, size=config.data.size or released.size)
        loaded = data.source().load(data.request(config.seed))
    first = sorted({name: i for i, name in reversed(list(enumerate(loaded.digests())))}.values())
    if len(first) < len(loaded):
        released.notes.append(Note("copies-out", {"copies": len(loaded) - len(first)}))
    released.notes += loaded.notes
    images = loaded.take(np.array(first))
    labels, classes = renumber_labels(images.labels)
    if len(classes) < 2:
        raise InputError(
            f"{opt('data.name', config.data.name)}: a head needs 2 classes, got {len(classes)}"
        )
    split_images(
        len(images), config.images, rng(config.seed, "trial")
    )  # refused before a long computation
    released.notes += probe_encoder(released, torch.from_numpy(images.images[:LOOK]))
    return released, replace(images, labels=labels, classes=classes)


@torch.no_grad()
def features(method: SSLMethod, images: ImageSet) -> LabelledFeatures:
    """Features of unit length, on the CPU: encoders differ in length, and with it what a learning
    rate and a weight mean.

    Args:
        method: holds the encoder.
        images: N labelled images.

    Returns:
        Float32 (N, D) of length 1, and the classes of the images.
    """
    device, parts = method.encoder.mean.device, []
    for part in iterate_parts(torch.from_numpy(images.images), device):
        outputs = method.encoder(part).flatten(1)
        parts.append(F.normalize(outputs.float(), dim=1).cpu())
    labels = torch.from_numpy(images.labels)
    return LabelledFeatures(torch.cat(parts), labels, int(labels.max()) + 1)


def measure(
    config: Head,
    released: LoadedEncoder,
    images: ImageSet,
    ended: Callable[[], None] = lambda: None,
) -> HeadTrials:
    """Train and attack every head.

    Args:
        config: the settings of the command.
        released: the encoder, as `prepare` returns it.
        images: labelled images, as `prepare` returns them.
        ended: called after each head.

    Returns:
        The trials of all heads and of the controls.
    """
    settings = [ReleaseSetting(m, e) for m in config.mechanisms for e in config.epsilons]
    own, none = features(released.method, images), features(released.untrained(), images)
    trials, controls = list[HeadTrial](), list[HeadTrial]()
    for seed in range(config.seed, config.seed + config.seeds):
        trials.append(run_trial(own, config, seed, settings))
        controls.append(run_trial(none, config, seed, ()))
        ended()
    return HeadTrials(config, released, images, own, settings, trials, controls)
