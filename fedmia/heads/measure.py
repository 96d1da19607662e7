"""Heads on an encoder: the labelled images that they are of, and every trial of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional as F

from fedmia.config.compatibility import check_gpu
from fedmia.config.forms import split_dataset
from fedmia.config.head import Head
from fedmia.data._source import renumber_labels
from fedmia.data.base import Request
from fedmia.data.images import ImageSet
from fedmia.encoders.base import LoadedEncoder, load
from fedmia.encoders.describe import probe_encoder
from fedmia.heads.release import ReleaseSetting
from fedmia.heads.trial import HeadSplit, HeadTrial, LabelledFeatures, run_trial, split_images
from fedmia.options import registry
from fedmia.options.errors import InputError, map_options, opt
from fedmia.options.seeding import rng
from fedmia.runtime.device import resolve_device
from fedmia.ssl.base import SSLMethod, in_parts

LOOK = 16  # images embedded first, to refuse an encoder early


@dataclass(frozen=True)
class HeadTrials:
    """Every trial of the heads that were asked for.

    Attributes:
        images: their labelled images. labelled: the features of these.
        trials: one a head. controls: on the encoder without what training put into it.
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


def prepare(asked: Head) -> tuple[LoadedEncoder, ImageSet]:
    """The encoder and the labelled images, checked against each other; no image twice.

    Raises:
        InputError: either is missing or broken, they do not fit, or there are too few.
    """
    check_gpu(asked.device)
    released = load(
        asked.encoder,
        checkpoint=Path(asked.checkpoint) if asked.checkpoint else None,
        size=asked.size, mean=asked.mean, std=asked.std,
        device=resolve_device(asked.device), seed=asked.seed, trust_plugins=asked.trust_plugins,
    )  # fmt: skip
    name, path = split_dataset(asked.data)
    source = registry.build("dataset", name, asked.data_options)
    folder = None if asked.data_dir is None else Path(asked.data_dir)
    try:
        found = source.load(Request(path, folder, asked.size or released.size, asked.seed))
    except InputError as error:
        raise InputError(map_options(error.text, _here)) from None
    first = sorted({name: i for i, name in reversed(list(enumerate(found.digests())))}.values())
    if len(first) < len(found):
        released.notes.append(f"{len(found) - len(first)} byte-equal copies were left out.")
    images = found.take(np.array(first))
    labels, classes = renumber_labels(images.labels)
    if len(classes) < 2:
        raise InputError(f"{opt('data', asked.data)}: a head needs 2 classes, got {len(classes)}")
    split_images(
        len(images), asked.images, rng(asked.seed, "trial")
    )  # refused before a long computation
    released.notes += probe_encoder(released, torch.from_numpy(images.images[:LOOK]))
    return released, replace(images, labels=labels, classes=classes)


def _here(option: str) -> str:
    """An option of a simulation's data as it is said here."""
    last = option.removeprefix("data.")
    return {"name": "data", "dir": "data_dir", "size": "size"}.get(last, f"data_options.{last}")


@torch.no_grad()
def features(method: SSLMethod, images: ImageSet) -> LabelledFeatures:
    """Features of unit length, on the CPU: encoders differ in length, and with it what a learning
    rate and a weight mean."""
    device, parts = method.encoder.mean.device, []
    for part in in_parts(torch.from_numpy(images.images), device):
        found = method.encoder(part).flatten(1)
        parts.append(F.normalize(found.float(), dim=1).cpu())
    labels = torch.from_numpy(images.labels)
    return LabelledFeatures(torch.cat(parts), labels, int(labels.max()) + 1)


def measure(
    asked: Head, released: LoadedEncoder, images: ImageSet, ended: Callable[[], None] = lambda: None
) -> HeadTrials:
    """Train and attack every head.

    Args:
        ended: told of each head that is done.
    """
    settings = [ReleaseSetting(m, e) for m in asked.mechanisms for e in asked.epsilons]
    own, none = features(released.method, images), features(released.untrained(), images)
    trials, controls = list[HeadTrial](), list[HeadTrial]()
    for seed in range(asked.seed, asked.seed + asked.seeds):
        trials.append(run_trial(own, asked, seed, settings))
        controls.append(run_trial(none, asked, seed, ()))
        ended()
    return HeadTrials(asked, released, images, own, settings, trials, controls)
