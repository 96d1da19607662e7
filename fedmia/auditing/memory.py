"""The audit of an encoder in memory on images in memory; `fedmia.library.audit` is its front."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from fedmia.attacks.base import Attack
from fedmia.auditing.display import Display
from fedmia.auditing.images import deal_sets
from fedmia.auditing.place import Place
from fedmia.auditing.run import device_of, examine, look
from fedmia.data.base import Views
from fedmia.data.images import ImageSet
from fedmia.errors import InputError
from fedmia.released.base import Wanted
from fedmia.released.memory import Encoder, bring
from fedmia.runtime.stopwatch import Stopwatch
from fedmia.settings.audit import Audit
from fedmia.settings.option import option_fields


def conduct(
    audit: Audit,
    encoder: Encoder,
    name: str,
    members: ImageSet,
    nonmembers: ImageSet,
    out: Path | None,
    display: Display,
    watch: Stopwatch,
) -> dict[str, Any]:
    """The report of `audit`, whose encoder and images are given here.

    Args:
        name: what the report calls the encoder.
        out: folder of the results, or None.

    Raises:
        InputError: they do not fit each other, or no attack could run.
    """
    place = Place(out, audit.tree())
    device = device_of(audit)
    with watch.part("data"):
        wanted = Wanted(None, audit.size, audit.mean, audit.std, device, audit.seed)
        released = bring(encoder, wanted, name=name)
        dealt = deal_sets(audit, members, nonmembers, Views())
        look(released, dealt)
    found, report = examine(
        audit, released, dealt, device, place, display, watch, lambda: False
    )  # fmt: skip
    if report is None:
        reasons = [f"{attack}: {reason}" for attack, reason in found.not_run.items()]
        raise InputError(f"no attack could run; {'; '.join(reasons)}")
    return report


def chosen(
    attacks: str | Sequence[str | Attack],
) -> tuple[tuple[str, ...], dict[str, dict[str, Any]]]:
    """Names as the command line has them, and the options of attacks given as objects.

    Raises:
        InputError: something that is neither a name nor an attack.
    """
    names, options = list[str](), dict[str, dict[str, Any]]()
    for one in attacks.split(",") if isinstance(attacks, str) else attacks:
        if isinstance(one, str):
            names.append(one)
            continue
        if not isinstance(one, Attack):
            raise InputError(f"attacks must be names or attacks, got {one!r}")
        names.append(one.name)
        options[one.name] = {f.name: getattr(one, f.name) for f, _ in option_fields(type(one))}
    return tuple(names), options


def image_set(images: Tensor, labels: Any, side: str) -> ImageSet:
    """uint8 (N, C, S, S) images with labels 0..classes-1, zeros where there are none.

    Raises:
        InputError: images that are not square, or labels that are not one integer an image.
    """
    height, width = images.shape[2:]
    if height != width:
        raise InputError(f"{side} must be square images, got {height}x{width} pixels")
    found = np.zeros(len(images), dtype=np.int64) if labels is None else np.asarray(labels)
    if not np.issubdtype(found.dtype, np.integer) or found.shape != (len(images),):
        raise InputError(
            f"labels of {side} must be integers ({len(images)},), one an image, got "
            f"{found.dtype} {found.shape}"
        )
    classes = np.unique(found, return_inverse=True)[1]
    return ImageSet(images.numpy(), classes.astype(np.int64), side)
